//! Whether rules that are each fine can hold together.
//!
//! In: pairs of VMs as they are to be kept apart, one after the other; what others keep together counts as one VM. Out:
//! whether one more pair still leaves DRS a way. What is looked for: VMs that are all apart from each other, by whatever
//! rules, and are more than there are hosts for them; be it the hosts of the cluster or the few that a mandatory rule leaves.
//!
//! Invariants: a pair that was refused is refused as long as the others stay; the search is bounded, and what it does not
//! see in time it lets pass.

use std::cell::Cell;

use crate::classify::Bounds;
use crate::graph::{Bits, Graph};
use crate::guard::Guard;

/// Steps of the search for one pair.
const STEPS_MAX: u32 = 20_000;

pub(crate) struct Joint<'a> {
    bounds: &'a Bounds,
    graph: Graph,
    /// VMs, and how many of them may be apart from each other.
    limits: Vec<(Bits, usize)>,
    members_max: usize,
}

impl<'a> Joint<'a> {
    pub(crate) fn new(width: usize, guard: Guard, bounds: &'a Bounds) -> Self {
        let limits = bounds.limits.iter();
        let limits = limits.map(|limit| {
            let vms = limit.vms.iter().map(|vm| bounds.leader(*vm));
            (Bits::of(width, vms), limit.hosts.len())
        });
        let mut joint =
            Self { bounds, graph: Graph::new(width), limits: limits.collect(), members_max: guard.members_grown_max() };
        bounds.apart.iter().for_each(|(a, b)| joint.add(*a, *b));
        joint
    }

    pub(crate) fn add(&mut self, a: usize, b: usize) {
        self.graph.add(self.bounds.leader(a), self.bounds.leader(b));
    }

    /// Adds the pair if it leaves a way.
    pub(crate) fn try_add(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.bounds.leader(a), self.bounds.leader(b));
        if self.graph.has(a, b) {
            return true;
        }
        // With these two, one more than there may be; mostly the number of those they share tells that it is not so.
        let fewest = self.limits.iter().map(|(_, members_max)| *members_max).min().unwrap_or(self.members_max);
        if self.graph.common_count(a, b) < fewest.min(self.members_max).saturating_sub(1) {
            self.graph.add(a, b);
            return true;
        }
        let mut common = self.graph.neighbours(a);
        common.intersect(self.graph.row(b));
        let is_too_many = |among: &Bits, members_max: usize| self.has_clique(among, members_max.saturating_sub(1));
        let is_limited = |(vms, members_max): &(Bits, usize)| {
            let mut among = common.clone();
            among.intersect(vms.words());
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
        let group: Vec<usize> = group.iter().map(|vm| self.bounds.leader(*vm)).collect();
        let around = group.iter().flat_map(|vm| self.graph.neighbours(*vm).iter().collect::<Vec<_>>());
        let around = Bits::of(self.graph.width(), around);
        // The group itself is one more.
        !self.has_clique(&around, self.members_max.max(1))
    }

    /// Whether so many of these are all apart from each other.
    pub(crate) fn has_apart(&self, vms: &[usize], count: usize) -> bool {
        let vms = vms.iter().map(|vm| self.bounds.leader(*vm));
        self.has_clique(&Bits::of(self.graph.width(), vms), count)
    }

    fn has_clique(&self, among: &Bits, size: usize) -> bool {
        let steps = Cell::new(0);
        self.search(among, size, &steps)
    }

    fn search(&self, among: &Bits, size: usize, steps: &Cell<u32>) -> bool {
        if size == 0 {
            return true;
        }
        let mut rest: Vec<usize> = self.core(among, size).iter().collect();
        while rest.len() >= size {
            steps.set(steps.get() + 1);
            if steps.get() > STEPS_MAX {
                return false;
            }
            let Some(next) = rest.pop() else { break };
            let among = Bits::of(self.graph.width(), rest.iter().copied().filter(|vm| self.graph.has(next, *vm)));
            if self.search(&among, size - 1, steps) {
                return true;
            }
        }
        false
    }

    /// Without those that have too few neighbours among the others to be one of so many.
    fn core(&self, among: &Bits, size: usize) -> Bits {
        let mut core = among.clone();
        loop {
            let is_alone = |vm: &usize| core.common_count(self.graph.row(*vm)) + 1 < size;
            let alone: Vec<usize> = core.iter().filter(is_alone).collect();
            if alone.is_empty() {
                return core;
            }
            alone.into_iter().for_each(|vm| core.remove(vm));
        }
    }
}
