//! Which VMs to keep together, so that each pod with required affinity has company on its host: as few ties as do.
//!
//! In: the pods' needs, what may share a host, what is tied already. Out: groups of VMs, and the needs that nothing meets.
//! Invariants: a group holds no pair that is wanted apart, because anti-affinity wins; ties that exist and still serve are
//! kept; no VM is in two groups.

use std::collections::BTreeMap;

use crate::input::Company;

/// Groups of VMs: each VM in one knows it by one member.
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

pub(crate) struct TiedGroups<'a> {
    /// Sorted, of two or more VMs each.
    pub(crate) groups: Vec<Vec<usize>>,
    /// Pods whose required affinity nothing could satisfy.
    pub(crate) unmet: Vec<&'a Company>,
}

/// `may_share` tells of two groups whether they could be on one host, `tied` are the groups that rules keep together now,
/// `same_host` tells VMs that share a host.
pub(crate) fn tied_groups<'a>(
    company: &'a [Company],
    may_share: impl Fn(&[usize], &[usize]) -> bool,
    tied: &[Vec<usize>],
    same_host: impl Fn(usize, usize) -> bool,
) -> TiedGroups<'a> {
    let mut groups = Groups::default();
    let mut unmet = Vec::new();
    let tied_now = |a: usize, b: usize| tied.iter().any(|group| group.contains(&a) && group.contains(&b));
    for need in company {
        let own = groups.of(need.vm);
        if need.partners.iter().any(|partner| own.contains(partner)) {
            continue;
        }
        let possible = need.partners.iter().copied().filter(|partner| may_share(&own, &groups.of(*partner)));
        let best = possible.min_by_key(|&partner| {
            let joins_group = groups.leader.contains_key(&partner);
            (!tied_now(need.vm, partner), !same_host(need.vm, partner), !joins_group, partner)
        });
        match best {
            Some(partner) => groups.join(need.vm, partner),
            None => unmet.push(need),
        }
    }
    let mut found: Vec<Vec<usize>> = groups.members.into_values().collect();
    found.iter_mut().for_each(|group| group.sort_unstable());
    found.sort_unstable();
    TiedGroups { groups: found, unmet }
}
