//! InterPodAffinity: pod affinity and anti-affinity with exactly the upstream semantics. Terms are read as written,
//! without lifting.
//!
//! The model's index does the work. This plugin turns its node sets into verdicts and its sums into scores.

use std::borrow::Cow;

use model::affinity::{Refusal, Refusals, Role, Stamp, Term};
use model::storage::arena::DenseId;
use model::{Incoming, NodeId, NodeSet, PodId, Reading, ScoreSettings, Verdicts, View};
use serde::Deserialize;

use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{
    Filter, NODE_SCORE_MAX, NodeTrial, Normalized, PreFilter, PreScore, Score, extremes, map_scores,
};
use crate::framework::registry::{Points, Register};
use crate::framework::status::{Reasons, Rejection, Rejections, Status};

pub struct InterPodAffinity {
    settings: ScoreSettings,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Args {
    hard_pod_affinity_weight: i32,
    ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for Args {
    fn default() -> Self {
        let settings = ScoreSettings::default();
        Self {
            hard_pod_affinity_weight: settings.hard_pod_affinity_weight,
            ignore_preferred_terms_of_existing_pods: settings.ignore_preferred_terms_of_existing_pods,
        }
    }
}

/// What the index returned for a pod, with the stamp of that lookup.
#[derive(Clone, Debug, Default)]
pub struct State {
    found: Option<(Incoming, Stamp)>,
    verdicts: Verdicts,
}

impl State {
    /// Looks the pod up in the index, unless that is already done.
    pub(super) fn look_up(&mut self, cycle: &Cycle<'_>) -> Option<&Incoming> {
        if self.found.is_none() {
            let incoming = Incoming::of_pod(cycle.world, cycle.pod_id)?;
            let stamp = incoming.stamp(cycle.world);
            self.found = Some((incoming, stamp));
        }
        self.found()
    }

    /// The result of the lookup, if there was one.
    pub(super) fn found(&self) -> Option<&Incoming> {
        self.found.as_ref().map(|(incoming, _)| incoming)
    }

    /// For those of the nodes that anti-affinity rejects: the blocking pod, as text.
    pub(super) fn blockers(
        &self,
        cycle: &Cycle<'_>,
        reading: Reading,
        refusals: &Refusals,
        nodes: &NodeSet,
    ) -> Vec<(NodeId, String)> {
        let Some(incoming) = self.found() else { return Vec::new() };
        // If a node is rejected because required affinity matches no pod, no pod blocks it.
        let mut refused = refusals.anti_affinity.clone();
        refused.union_with(&refusals.existing_anti_affinity);
        refused.intersect_with(nodes);
        let found = incoming.first_blockers(cycle.world, cycle.view, reading, &refused).into_iter();
        found.filter_map(|(node, blocker)| Some((node, blocker.in_words(cycle.world)?))).collect()
    }

    /// Whether everything that the results depend on is unchanged.
    pub(super) fn still_holds(&self, cycle: &Cycle<'_>) -> bool {
        let found = self.found.as_ref();
        found.is_some_and(|(incoming, stamp)| incoming.is_current(cycle.world) && incoming.stamp(cycle.world) == *stamp)
    }
}

impl Plugin for InterPodAffinity {
    const NAME: &'static str = "InterPodAffinity";
    type State = State;

    fn reads(&self) -> Reads {
        Reads::World
    }

    fn still_holds(&self, cycle: &Cycle<'_>, state: &State) -> bool {
        state.still_holds(cycle)
    }

    fn scores_by_feasible(&self) -> bool {
        false
    }

    fn woken_by(&self) -> ChangeKinds {
        WOKEN_BY
    }

    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        helped_by(waiting, change)
    }
}

pub(super) const WOKEN_BY: ChangeKinds = ChangeKinds::NODE_ADDED
    .union(ChangeKinds::NODE_REMOVED)
    .union(ChangeKinds::NODE_LABELS)
    .union(ChangeKinds::NODE_PLACEMENT)
    .union(ChangeKinds::POD_PLACED)
    .union(ChangeKinds::POD_LEFT)
    .union(ChangeKinds::POD_LABELS)
    .union(ChangeKinds::SELF_UPDATED)
    .union(ChangeKinds::NAMESPACE_LABELS);

/// A placed pod may match the waiting pod's affinity. A pod that left may have blocked the waiting pod, or may have
/// been the only match of its affinity, without which it may run on any node.
pub(super) fn helped_by(waiting: &Cycle<'_>, change: &Change) -> bool {
    let Some(changed) = &change.pod else { return true };
    let came = change.kinds.intersects(ChangeKinds::POD_PLACED);
    let matters = |role: Role| match role {
        Role::Affinity => true,
        Role::AntiAffinity => !came,
        Role::PreferredAffinity(_) | Role::PreferredAntiAffinity(_) => false,
    };
    let mut own = waiting.world.pod_terms(waiting.pod_id).iter().filter(|(_, role)| matters(*role));
    let is_matched = own.any(|(term, _)| {
        // A namespace selector may cover more namespaces for an incoming pod than for an existing one.
        let selects = |term: &Term| !term.namespaces.selector.requirements().is_empty();
        changed.matched_by.contains(term) || waiting.world.term(*term).is_some_and(selects)
    });
    is_matched || (!came && changed.has_anti_affinity)
}

/// Rejects the nodes in both `nodes` and `refused`.
pub(super) fn refuse(rejections: &mut Rejections, nodes: &NodeSet, refused: &NodeSet, refusal: Refusal) {
    if refused.is_disjoint(nodes) {
        return;
    }
    let reasons = Reasons::one(Cow::Borrowed(refusal.reason()));
    let id = rejections.id(Rejection { resolvable: refusal.is_resolvable(), reasons });
    rejections.reject_common(refused, nodes, id);
}

impl PreFilter for InterPodAffinity {
    fn pre_filter(&self, cycle: &Cycle<'_>, state: &mut State) -> Result<Option<NodeSet>, Status> {
        let Some(incoming) = state.look_up(cycle) else { return Err(Status::Skip) };
        if incoming.is_indifferent(cycle.world) {
            return Err(Status::Skip);
        }
        state.verdicts = incoming.verdicts(cycle.world, cycle.view, Reading::AsWritten, None);
        Ok(None)
    }
}

impl Filter for InterPodAffinity {
    fn filter_all(&self, _: &Cycle<'_>, state: &State, nodes: &NodeSet, rejections: &mut Rejections) {
        let refusals = &state.verdicts.inter_pod;
        refuse(rejections, nodes, &refusals.affinity, Refusal::Affinity);
        refuse(rejections, nodes, &refusals.anti_affinity, Refusal::AntiAffinity);
        refuse(rejections, nodes, &refusals.existing_anti_affinity, Refusal::ExistingAntiAffinity);
    }

    fn node_trial<'a>(&'a self, cycle: &Cycle<'a>, state: &'a State) -> Option<Box<dyn NodeTrial + 'a>> {
        let trial = AffinityTrial::new(cycle, state, Reading::AsWritten)?;
        Some(Box::new(trial))
    }

    fn blockers(&self, cycle: &Cycle<'_>, state: &State, nodes: &NodeSet) -> Vec<(NodeId, String)> {
        state.blockers(cycle, Reading::AsWritten, &state.verdicts.inter_pod, nodes)
    }
}

/// The terms' counts in the domains of one node, while pods come and go there.
pub(super) struct AffinityTrial<'a> {
    incoming: &'a Incoming,
    cycle: Cycle<'a>,
    reading: Reading,
    node: NodeId,
    /// That of the cycle, and what the trial changes.
    view: View,
}

impl<'a> AffinityTrial<'a> {
    /// `None` if the pod was not looked up.
    pub(super) fn new(cycle: &Cycle<'a>, state: &'a State, reading: Reading) -> Option<Self> {
        let (cycle, node, view) = (*cycle, NodeId::from_index(0), View::default());
        Some(Self { incoming: state.found()?, cycle, reading, node, view })
    }

    pub(super) fn refusal(&self) -> Option<Refusal> {
        self.incoming.refusal_on(self.cycle.world, &self.view, self.reading, self.node)
    }
}

impl NodeTrial for AffinityTrial<'_> {
    fn begin(&mut self, node: NodeId) {
        self.node = node;
        self.view = self.cycle.view.elsewhere(self.cycle.world, node);
    }

    fn remove(&mut self, pod: PodId) {
        self.view.take_off(pod, self.node);
    }

    fn add(&mut self, pod: PodId) {
        self.view.put_on(pod, self.node);
    }

    fn rejection(&mut self) -> Option<Rejection> {
        let refusal = self.refusal()?;
        let reasons = Reasons::one(Cow::Borrowed(refusal.reason()));
        Some(Rejection { resolvable: refusal.is_resolvable(), reasons })
    }

    fn fits(&mut self) -> bool {
        self.refusal().is_none()
    }
}

impl PreScore for InterPodAffinity {
    fn pre_score(&self, cycle: &Cycle<'_>, state: &mut State, _: &NodeSet) -> Status {
        let Some(incoming) = state.look_up(cycle) else { return Status::Skip };
        let is_silent = incoming.is_silent(cycle.world, cycle.view, Reading::AsWritten, &self.settings);
        if is_silent { Status::Skip } else { Status::Success }
    }
}

impl Score for InterPodAffinity {
    fn score_all(&self, cycle: &Cycle<'_>, state: &State, nodes: &NodeSet, scores: &mut [i64]) {
        if let Some(incoming) = state.found() {
            incoming.write_scores(cycle.world, cycle.view, Reading::AsWritten, &self.settings, nodes, scores);
        }
    }

    fn normalize(
        &self,
        _: &Cycle<'_>,
        _: &State,
        feasible: &NodeSet,
        raw: &[i64],
        normalized: &mut [i64],
    ) -> Normalized {
        normalize_by_range(feasible, raw, normalized);
        Normalized::Written
    }
}

/// Scales linearly: the lowest raw score becomes 0, the highest the maximum. All are 0 if the raw scores are equal.
pub(super) fn normalize_by_range(feasible: &NodeSet, raw: &[i64], normalized: &mut [i64]) {
    let Some((lowest, highest)) = extremes(feasible, raw) else { return };
    let range = highest.saturating_sub(lowest);
    if range == 0 {
        return feasible.iter().for_each(|node| normalized[node.index()] = 0);
    }
    // As upstream: in floating point, truncated.
    let of = |raw: i64| (NODE_SCORE_MAX as f64 * ((raw - lowest) as f64 / range as f64)) as i64;
    map_scores(feasible, (lowest, highest), raw, normalized, of);
}

impl Register for InterPodAffinity {
    type Args = Args;

    fn build(args: Args) -> Result<Self, String> {
        if !(0..=100).contains(&args.hard_pod_affinity_weight) {
            return Err(format!("hardPodAffinityWeight: {} is not between 0 and 100", args.hard_pod_affinity_weight));
        }
        Ok(Self {
            settings: ScoreSettings {
                hard_pod_affinity_weight: args.hard_pod_affinity_weight,
                ignore_preferred_terms_of_existing_pods: args.ignore_preferred_terms_of_existing_pods,
            },
        })
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_filter().filter().pre_score().score()
    }
}
