//! Whether rules that are each fine can hold together.
//!
//! In: pairs of VMs as they are to be kept apart, one after the other; what others keep together counts as one VM. Out:
//! whether one more pair still leaves DRS a way. What is looked for: VMs that are all apart from each other, by whatever
//! rules, and are more than there are hosts for them; be it the hosts of the cluster or the few that a mandatory rule leaves.
//!
//! Invariants: a pair that was refused is refused as long as the others stay; the search is bounded, and what it does not
//! see in time it lets pass.

use std::cell::Cell;

use fixedbitset::FixedBitSet;

use super::graph::{Graph, set_of};
use super::guard::Guard;
use crate::reconcile::constraints::Constraints;

/// Steps of the search for one pair.
const STEPS_MAX: u32 = 20_000;

pub(crate) struct Joint<'a> {
    constraints: &'a Constraints,
    graph: Graph,
    /// VMs, and how many of them may be apart from each other.
    limits: Vec<(FixedBitSet, usize)>,
    members_max: usize,
}

impl<'a> Joint<'a> {
    pub(crate) fn new(width: usize, guard: Guard, constraints: &'a Constraints) -> Self {
        let limits = constraints.allowed.limits().into_iter().map(|(hosts, vms)| {
            let vms = vms.into_iter().map(|vm| constraints.leader(vm));
            (set_of(width, vms), hosts.count_ones(..))
        });
        let mut joint = Self {
            constraints,
            graph: Graph::new(width),
            limits: limits.collect(),
            members_max: guard.members_grown_max(),
        };
        constraints.apart.iter().for_each(|(a, b)| joint.add(*a, *b));
        joint
    }

    pub(crate) fn add(&mut self, a: usize, b: usize) {
        self.graph.add(self.constraints.leader(a), self.constraints.leader(b));
    }

    /// Adds the pair if it leaves a way.
    pub(crate) fn try_add(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.constraints.leader(a), self.constraints.leader(b));
        if self.graph.has(a, b) {
            return true;
        }
        // With these two, one more than there may be; mostly the number of those they share tells that it is not so.
        let fewest = self.limits.iter().map(|(_, members_max)| *members_max).min().unwrap_or(self.members_max);
        if self.graph.neighbours(a).intersection_count(self.graph.neighbours(b))
            < fewest.min(self.members_max).saturating_sub(1)
        {
            self.graph.add(a, b);
            return true;
        }
        let mut common = self.graph.neighbours(a).clone();
        common.intersect_with(self.graph.neighbours(b));
        let is_too_many =
            |among: &FixedBitSet, members_max: usize| self.has_clique(among, members_max.saturating_sub(1));
        let is_limited = |(vms, members_max): &(FixedBitSet, usize)| {
            let mut among = common.clone();
            among.intersect_with(vms);
            vms.contains(a) && vms.contains(b) && is_too_many(&among, *members_max)
        };
        if is_too_many(&common, self.members_max) || self.limits.iter().any(is_limited) {
            return false;
        }
        self.graph.add(a, b);
        true
    }

    /// Whether these could be on one host: their neighbours together leave one.
    pub(crate) fn may_share(&self, group: &[usize]) -> bool {
        let group: Vec<usize> = group.iter().map(|vm| self.constraints.leader(*vm)).collect();
        let around = group.iter().flat_map(|vm| self.graph.neighbours(*vm).ones().collect::<Vec<_>>());
        let around = set_of(self.graph.width(), around);
        // The group itself is one more.
        !self.has_clique(&around, self.members_max.max(1))
    }

    /// Whether so many of these are all apart from each other.
    pub(crate) fn has_apart(&self, vms: &[usize], count: usize) -> bool {
        let vms = vms.iter().map(|vm| self.constraints.leader(*vm));
        self.has_clique(&set_of(self.graph.width(), vms), count)
    }

    fn has_clique(&self, among: &FixedBitSet, size: usize) -> bool {
        let steps = Cell::new(0);
        self.search(among, size, &steps)
    }

    fn search(&self, among: &FixedBitSet, size: usize, steps: &Cell<u32>) -> bool {
        if size == 0 {
            return true;
        }
        let mut rest: Vec<usize> = self.core(among, size).ones().collect();
        while rest.len() >= size {
            steps.set(steps.get() + 1);
            if steps.get() > STEPS_MAX {
                return false;
            }
            let Some(next) = rest.pop() else { break };
            let among = set_of(self.graph.width(), rest.iter().copied().filter(|vm| self.graph.has(next, *vm)));
            if self.search(&among, size - 1, steps) {
                return true;
            }
        }
        false
    }

    /// Without those that have too few neighbours among the others to be one of so many.
    fn core(&self, among: &FixedBitSet, size: usize) -> FixedBitSet {
        let mut core = among.clone();
        loop {
            let is_alone = |vm: &usize| core.intersection_count(self.graph.neighbours(*vm)) + 1 < size;
            let alone: Vec<usize> = core.ones().filter(is_alone).collect();
            if alone.is_empty() {
                return core;
            }
            alone.into_iter().for_each(|vm| core.remove(vm));
        }
    }
}
