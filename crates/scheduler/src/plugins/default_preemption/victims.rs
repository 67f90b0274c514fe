//! The pods that must leave a node so that the incoming pod fits.
//!
//! In: a node that the filters reject. Out: the smallest set that kube-scheduler's greedy order finds: all pods of lower
//! priority leave, then they return one after the other, the most important first, as long as the pod still fits.
//! Pods that a budget protects return before all others. Only if the pod does not fit without all of these do pods on
//! other nodes leave too, as far as a filter names them; they return in the same order.

use std::cmp::Reverse;

use model::{NodeId, Pod, PodId};

use super::budgets::Budgets;
use crate::framework::cycle::Cycle;
use crate::framework::points::{NodeTrial, RejectedNodes};
use crate::framework::status::{Reasons, Rejection};

const NO_VICTIMS: Rejection =
    Rejection::unresolvable(&[std::borrow::Cow::Borrowed("No preemption victims found for incoming pod")]);

/// A node where evicting pods makes room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) node: NodeId,
    /// The most important first.
    pub(crate) victims: Vec<PodId>,
    /// How many of the victims a budget protects.
    pub(crate) pdb_violations: usize,
}

/// More important pods come first: a higher priority, then an earlier start. A pod that has not started is the least
/// important of its priority.
type Importance = (Reverse<i32>, i64);

fn importance(pod: &Pod) -> Importance {
    (Reverse(pod.priority()), pod.started_s().unwrap_or(i64::MAX))
}

/// A pod of lower priority.
#[derive(Clone, Copy)]
struct Lower {
    pod: PodId,
    importance: Importance,
    is_protected: bool,
}

pub(super) struct Victims<'a> {
    cycle: &'a Cycle<'a>,
    rejected: &'a dyn RejectedNodes,
    trial: Box<dyn NodeTrial + 'a>,
    budgets: Budgets<'a>,
    // Reused from node to node.
    lower: Vec<Lower>,
    found: Candidate,
}

impl<'a> Victims<'a> {
    pub(super) fn new(cycle: &'a Cycle<'a>, rejected: &'a dyn RejectedNodes, budgets: Budgets<'a>) -> Self {
        let found =
            Candidate { node: model::storage::arena::DenseId::from_index(0), victims: Vec::new(), pdb_violations: 0 };
        Self { cycle, rejected, trial: rejected.trial(), budgets, lower: Vec::new(), found }
    }

    /// Whether the last result depends on what budgets allow.
    pub(super) fn depend_on_budgets(&self) -> bool {
        self.budgets.matter()
    }

    pub(super) fn on(&mut self, node: NodeId) -> Result<&Candidate, Rejection> {
        self.budgets.begin();
        let (world, own) = (self.cycle.world, self.cycle.facts().priority);
        let lower = |&id: &PodId| {
            let pod = world.pod(id).filter(|pod| !pod.finished && pod.scheduling.is_some() && pod.priority() < own)?;
            Some(Lower { pod: id, importance: importance(pod), is_protected: false })
        };
        self.lower.clear();
        if world.lowest_priority_on(node).is_some_and(|lowest| lowest < own) {
            let there = world.pods_on(node).iter().filter(|pod| !self.cycle.view.removed().contains(pod));
            self.lower.extend(there.filter_map(lower));
        }
        let here = self.lower.len();
        if here == 0 || !self.fits_without_all(node) {
            self.lower.extend(self.rejected.blockers_elsewhere(node).iter().filter_map(lower));
            if self.lower.is_empty() {
                return Err(NO_VICTIMS);
            }
            if self.lower.len() == here || !self.fits_without_all(node) {
                let unknown = || Rejection { resolvable: false, reasons: Reasons::one("the pod does not fit") };
                return Err(self.trial.rejection().unwrap_or_else(unknown));
            }
        }
        // Upstream leaves equally important pods in any order.
        let name = |lower: &Lower| world.pod(lower.pod).map(|pod| (world.interner().text(pod.namespace), &*pod.name));
        self.lower.sort_unstable_by(|a, b| a.importance.cmp(&b.importance).then_with(|| name(a).cmp(&name(b))));
        for lower in &mut self.lower {
            lower.is_protected = self.budgets.is_used_up_by(lower.pod);
        }
        self.reprieve(node);
        if self.found.victims.is_empty() {
            // The filters and the trial disagree: nothing is evicted for that.
            return Err(NO_VICTIMS);
        }
        Ok(&self.found)
    }

    /// Whether the pod fits once all these pods of lower priority have left.
    fn fits_without_all(&mut self, node: NodeId) -> bool {
        self.trial.begin(node);
        self.lower.iter().for_each(|lower| self.trial.remove(lower.pod));
        self.trial.fits()
    }

    /// Lets the pods return for which there is room.
    fn reprieve(&mut self, node: NodeId) {
        let Self { trial, lower, found, .. } = self;
        (found.node, found.pdb_violations) = (node, 0);
        found.victims.clear();
        let mut stays = |lower: &Lower| {
            trial.add(lower.pod);
            let fits = trial.fits();
            if !fits {
                trial.remove(lower.pod);
            }
            fits
        };
        let has_protected = lower.iter().any(|lower| lower.is_protected);
        if has_protected {
            let mut must_leave = Vec::new();
            for of_protected in [true, false] {
                let of_kind = lower.iter().enumerate().filter(|(_, lower)| lower.is_protected == of_protected);
                must_leave.extend(of_kind.filter(|(_, lower)| !stays(lower)).map(|(at, _)| at));
            }
            found.pdb_violations = must_leave.iter().filter(|at| lower[**at].is_protected).count();
            // Back in the order of importance.
            must_leave.sort_unstable();
            found.victims.extend(must_leave.into_iter().map(|at| lower[at].pod));
        } else {
            found.victims.extend(lower.iter().filter(|lower| !stays(lower)).map(|lower| lower.pod));
        }
    }
}
