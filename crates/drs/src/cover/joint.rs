//! Whether rules that can each be satisfied can be satisfied together.
//!
//! In: pairs of VMs that must run on different hosts, one after the other; VMs that rules of other clients keep on one
//! host count as one VM. Out: whether DRS can still satisfy all pairs with one more. The search looks for a clique,
//! across all rules, with more VMs than there are hosts for them: the hosts of the cluster, or the few that a mandatory
//! rule leaves.
//!
//! Invariants: a refused pair stays refused as long as the others stay; the search is bounded, and accepts a pair if it
//! finds no such clique in time.

use std::cell::Cell;

use fixedbitset::FixedBitSet;

use super::graph::{Graph, set_of};
use super::guard::Guard;
use crate::reconcile::constraints::Constraints;

/// The maximum number of search steps for one pair.
const STEPS_MAX: u32 = 20_000;

pub(crate) struct Joint<'a> {
    constraints: &'a Constraints,
    graph: Graph,
    /// Sets of VMs, with the maximum number of them that can be on different hosts.
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

    /// Adds the pair if all pairs can still be satisfied.
    pub(crate) fn try_add(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.constraints.leader(a), self.constraints.leader(b));
        if self.graph.has(a, b) {
            return true;
        }
        // A clique with these two is too large if it has one member more than allowed. Usually the number of common
        // neighbours already rules that out.
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

    /// Whether these VMs can be on one host: their neighbours together leave a host free.
    pub(crate) fn may_share(&self, group: &[usize]) -> bool {
        let group: Vec<usize> = group.iter().map(|vm| self.constraints.leader(*vm)).collect();
        let around = group.iter().flat_map(|vm| self.graph.neighbours(*vm).ones().collect::<Vec<_>>());
        let around = set_of(self.graph.width(), around);
        // The group itself needs one more host.
        !self.has_clique(&around, self.members_max.max(1))
    }

    /// Whether `count` of these VMs must all run on different hosts.
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

    /// `among` without the VMs that have too few neighbours in it to be in a clique of this size.
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
