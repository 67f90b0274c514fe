//! Which VMs to keep on one host, so that each pod with required affinity has a matching pod there, with as few VM-VM
//! affinity rules as possible.
//!
//! In: the pods with required affinity, which VMs may share a host, the current groups. Out: groups of VMs, and the
//! pods whose affinity cannot be satisfied. Invariants: a group contains no pair that must run on different hosts,
//! because anti-affinity wins; current groups that are still useful are kept; no VM is in two groups.

use std::collections::BTreeMap;

use crate::input::Company;

/// Disjoint groups of VMs; a group is identified by one of its members, the leader.
#[derive(Default)]
struct Groups {
    leader: BTreeMap<usize, usize>,
    members: BTreeMap<usize, Vec<usize>>,
}

impl Groups {
    fn of(&self, vm: usize) -> Vec<usize> {
        self.leader.get(&vm).and_then(|leader| self.members.get(leader)).cloned().unwrap_or_else(|| vec![vm])
    }

    fn join(&mut self, a: usize, b: usize) {
        let mut joined = self.of(a);
        joined.extend(self.of(b).iter().filter(|vm| !self.of(a).contains(vm)));
        for vm in [a, b] {
            if let Some(leader) = self.leader.get(&vm) {
                self.members.remove(leader);
            }
        }
        self.leader.extend(joined.iter().map(|vm| (*vm, a)));
        self.members.insert(a, joined);
    }
}

pub(crate) struct AffinityGroups<'a> {
    /// Sorted, with two or more VMs each.
    pub(crate) groups: Vec<Vec<usize>>,
    /// Pods whose required affinity no group can satisfy.
    pub(crate) unmet: Vec<&'a Company>,
}

/// `may_share` returns whether two groups can be on one host, `current` are the groups of the existing rules,
/// `same_host` returns whether two VMs are on one host now.
pub(crate) fn affinity_groups<'a>(
    company: &'a [Company],
    may_share: impl Fn(&[usize], &[usize]) -> bool,
    current: &[Vec<usize>],
    same_host: impl Fn(usize, usize) -> bool,
) -> AffinityGroups<'a> {
    let mut groups = Groups::default();
    let mut unmet = Vec::new();
    let in_one_rule = |a: usize, b: usize| current.iter().any(|group| group.contains(&a) && group.contains(&b));
    for pod in company {
        let own = groups.of(pod.vm);
        if pod.partners.iter().any(|partner| own.contains(partner)) {
            continue;
        }
        let possible = pod.partners.iter().copied().filter(|partner| may_share(&own, &groups.of(*partner)));
        let best = possible.min_by_key(|&partner| {
            let joins_group = groups.leader.contains_key(&partner);
            (!in_one_rule(pod.vm, partner), !same_host(pod.vm, partner), !joins_group, partner)
        });
        match best {
            Some(partner) => groups.join(pod.vm, partner),
            None => unmet.push(pod),
        }
    }
    let mut found: Vec<Vec<usize>> = groups.members.into_values().collect();
    found.iter_mut().for_each(|group| group.sort_unstable());
    found.sort_unstable();
    AffinityGroups { groups: found, unmet }
}
