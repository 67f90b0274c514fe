//! PodTopologySpread: spreads pods over zones, nodes and other topology domains. Hard constraints reject nodes, soft
//! constraints score them.
//!
//! Pods without constraints are spread from their siblings (pods of the same services and controllers) by the default
//! constraints of the configuration.

mod args;
mod counting;

use std::borrow::Cow;

use model::storage::arena::DenseId;
use model::{NodeId, NodeSet, PodId, View};

pub use self::args::Args;
use self::args::Defaults;
use self::counting::{Basis, Constraint, Hard, HardTrial, Inclusion, Soft, constraints};
use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{
    Filter, NODE_SCORE_MAX, NodeTrial, Normalized, PreFilter, PreScore, Score, extremes, map_scores,
};
use crate::framework::registry::{Points, Register};
use crate::framework::status::{Rejection, Rejections, Status};

const NO_LABEL: Rejection = Rejection::unresolvable(&[Cow::Borrowed(
    "node(s) didn't match pod topology spread constraints (missing required label)",
)]);
const TOO_SKEWED: Rejection =
    Rejection::unschedulable(&[Cow::Borrowed("node(s) didn't match pod topology spread constraints")]);

pub struct PodTopologySpread {
    defaults: Defaults,
}

/// The counts for a pod.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// What the counts depend on.
    basis: Option<Basis>,
    hard: Vec<Hard>,
    soft: Soft,
}

impl Plugin for PodTopologySpread {
    const NAME: &'static str = "PodTopologySpread";
    type State = State;

    fn reads(&self) -> Reads {
        Reads::World
    }

    fn still_holds(&self, cycle: &Cycle<'_>, state: &State) -> bool {
        state.basis.is_some() && state.basis == Basis::of(cycle)
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NODE_ADDED
            | ChangeKinds::NODE_REMOVED
            | ChangeKinds::NODE_LABELS
            | ChangeKinds::NODE_TAINTS
            | ChangeKinds::POD_PLACED
            | ChangeKinds::POD_LEFT
            | ChangeKinds::POD_LABELS
            | ChangeKinds::SELF_UPDATED
            | ChangeKinds::WORKLOAD
    }

    /// A pod helps only if a constraint counts it. For a pod that is gone this is unknown, so it may help.
    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        let Some(changed) = change.pod.as_ref().and_then(|changed| changed.id) else { return true };
        if change.kinds.intersects(ChangeKinds::POD_LABELS) {
            return true;
        }
        let hard = constraints(waiting, &self.defaults, true);
        hard.iter().any(|constraint| constraint.group.counts(waiting.world, changed))
    }
}

impl PreFilter for PodTopologySpread {
    fn pre_filter(&self, cycle: &Cycle<'_>, state: &mut State) -> Result<Option<NodeSet>, Status> {
        state.basis = Basis::of(cycle);
        let constraints = constraints(cycle, &self.defaults, true);
        if constraints.is_empty() {
            return Err(Status::Skip);
        }
        state.hard = Hard::count(cycle, &constraints);
        Ok(None)
    }
}

impl Filter for PodTopologySpread {
    fn filter_all(&self, cycle: &Cycle<'_>, state: &State, nodes: &NodeSet, rejections: &mut Rejections) {
        let columns: Vec<_> =
            state.hard.iter().map(|hard| (hard, cycle.world.node_label(&hard.topology_key))).collect();
        let (no_label, too_skewed) = (rejections.id(NO_LABEL), rejections.id(TOO_SKEWED));
        for node in nodes.iter() {
            for (hard, column) in &columns {
                let Some(value) = column.and_then(|column| column.value_of(node)) else {
                    rejections.reject(node, no_label);
                    break;
                };
                if hard.is_exceeded(value) {
                    rejections.reject(node, too_skewed);
                    break;
                }
            }
        }
    }

    fn node_trial<'a>(&'a self, cycle: &Cycle<'a>, state: &'a State) -> Option<Box<dyn NodeTrial + 'a>> {
        // The counts contain what a view changes, on any node.
        if *cycle.view != View::default() {
            return None;
        }
        let constraints = constraints(cycle, &self.defaults, true);
        let trials = state.hard.iter().zip(constraints);
        let hard = trials.map(|(hard, constraint)| HardTrial::new(cycle, hard, constraint.group)).collect();
        let (cycle, node, view) = (*cycle, NodeId::from_index(0), View::default());
        Some(Box::new(SpreadTrial { cycle, hard, node, view }))
    }
}

/// The hard constraints on one node, while pods come and go there.
struct SpreadTrial<'a> {
    cycle: Cycle<'a>,
    hard: Vec<HardTrial<'a>>,
    node: NodeId,
    view: View,
}

impl NodeTrial for SpreadTrial<'_> {
    fn begin(&mut self, node: NodeId) {
        (self.node, self.view) = (node, View::default());
    }

    fn remove(&mut self, pod: PodId) {
        self.view.take_off(pod, self.node);
    }

    fn add(&mut self, pod: PodId) {
        self.view.put_on(pod, self.node);
    }

    fn rejection(&mut self) -> Option<Rejection> {
        let cycle = Cycle { view: &self.view, ..self.cycle };
        self.hard.iter().find_map(|hard| {
            if hard.lacks_key(self.node) {
                return Some(NO_LABEL);
            }
            hard.is_exceeded(&cycle, self.node).then_some(TOO_SKEWED)
        })
    }
}

impl PreScore for PodTopologySpread {
    fn pre_score(&self, cycle: &Cycle<'_>, state: &mut State, feasible: &NodeSet) -> Status {
        state.basis = Basis::of(cycle);
        let constraints: Vec<Constraint<'_>> = constraints(cycle, &self.defaults, false);
        if constraints.is_empty() {
            return Status::Skip;
        }
        // With the system defaults, a node without a zone is still spread by its name, as upstream.
        let needs_all_keys = !cycle.facts().spread.is_empty() || !self.defaults.are_of_system;
        let inclusion = Inclusion::new(cycle);
        state.soft = Soft::count(cycle, &constraints, feasible, needs_all_keys, &inclusion);
        Status::Success
    }
}

impl Score for PodTopologySpread {
    fn score_all(&self, cycle: &Cycle<'_>, state: &State, nodes: &NodeSet, scores: &mut [i64]) {
        state.soft.score(cycle, nodes, scores);
    }

    /// Fewer pods score higher. A node that lacks a key gets 0 and does not count for the range.
    fn normalize(
        &self,
        _: &Cycle<'_>,
        state: &State,
        feasible: &NodeSet,
        scores: &[i64],
        normalized: &mut [i64],
    ) -> Normalized {
        let ignored = &state.soft.ignored;
        let mut scored = Cow::Borrowed(feasible);
        if !ignored.is_empty() {
            scored.to_mut().subtract(ignored);
            ignored.iter().for_each(|node| normalized[node.index()] = 0);
        }
        match extremes(&scored, scores) {
            None => {}
            Some((_, ..=0)) => scored.iter().for_each(|node| normalized[node.index()] = NODE_SCORE_MAX),
            Some((lowest, highest)) => map_scores(&scored, (lowest, highest), scores, normalized, |score| {
                NODE_SCORE_MAX * (highest + lowest - score) / highest
            }),
        }
        Normalized::Written
    }
}

impl Register for PodTopologySpread {
    type Args = Args;

    fn build(args: Args) -> Result<Self, String> {
        Ok(Self { defaults: args.defaults()? })
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_filter().filter().pre_score().score()
    }
}
