//! Which VMs to keep together, so that each pod with required affinity has company on its host: as few ties as do.
//!
//! In: the pods' needs, what is wanted apart, what is tied already. Out: groups of VMs, and the needs that nothing meets.
//! Invariants: a group holds no pair that is wanted apart, because anti-affinity wins; ties that exist and still serve are
//! kept; no VM is in two groups.

use crate::graph::Graph;
use crate::wanted::Need;

/// Groups of VMs: each VM knows its group by one member.
struct Groups {
    leader: Vec<usize>,
    members: Vec<Vec<usize>>,
}

impl Groups {
    fn new(width: usize) -> Self {
        Self { leader: (0..width).collect(), members: (0..width).map(|vm| vec![vm]).collect() }
    }

    fn of(&self, vm: usize) -> &[usize] {
        &self.members[self.leader[vm]]
    }

    fn may_join(&self, a: usize, b: usize, apart: &Graph) -> bool {
        self.of(a).iter().all(|a| self.of(b).iter().all(|b| !apart.has(*a, *b)))
    }

    fn join(&mut self, a: usize, b: usize) {
        let (into, from) = (self.leader[a], self.leader[b]);
        if into != from {
            let moved = std::mem::take(&mut self.members[from]);
            moved.iter().for_each(|vm| self.leader[*vm] = into);
            self.members[into].extend(moved);
        }
    }
}

pub(crate) struct Ties<'a> {
    /// Sorted, of two or more VMs each.
    pub(crate) groups: Vec<Vec<usize>>,
    /// Needs that could only be met against what is wanted apart.
    pub(crate) unmet: Vec<&'a Need>,
}

/// `tied` are the groups that rules keep together now; `same_host` tells VMs that share a host.
pub(crate) fn ties<'a>(
    needs: &'a [Need],
    apart: &Graph,
    tied: &[Vec<usize>],
    same_host: impl Fn(usize, usize) -> bool,
) -> Ties<'a> {
    let mut groups = Groups::new(apart.width());
    let mut unmet = Vec::new();
    let tied_now = |a: usize, b: usize| tied.iter().any(|group| group.contains(&a) && group.contains(&b));
    for need in needs {
        if need.partners.iter().any(|partner| groups.of(need.vm).contains(partner)) {
            continue;
        }
        let possible = need.partners.iter().copied().filter(|partner| groups.may_join(need.vm, *partner, apart));
        let best = possible.min_by_key(|&partner| {
            let joins_group = groups.of(partner).len() > 1;
            (!tied_now(need.vm, partner), !same_host(need.vm, partner), !joins_group, partner)
        });
        match best {
            Some(partner) => groups.join(need.vm, partner),
            None => unmet.push(need),
        }
    }
    let mut found: Vec<Vec<usize>> = groups.members.into_iter().filter(|group| group.len() > 1).collect();
    found.iter_mut().for_each(|group| group.sort_unstable());
    found.sort_unstable();
    Ties { groups: found, unmet }
}
