//! PhysicalHost: what is true of the physical host a node runs on.
//!
//! Anti-affinity between nodes holds between their hosts, where the key is lifted; nodes on hosts that take no pods (in maintenance, or
//! out of reach) get none; and nodes on less loaded hosts suit better. Silent where nothing is known of hosts. In relaxed mode lifted
//! terms yield where they alone leave no node: then they hold between nodes, as InterPodAffinity reads them.

use std::borrow::Cow;

use model::affinity::{Refusal, TOO_FEW_HOSTS};
use model::storage::arena::DenseId;
use model::{LiftMode, NodeId, NodeSet, PodId, Reading, ScoreSettings, Verdicts};

use super::inter_pod_affinity::{State as Index, WOKEN_BY, helped_by, normalize_by_range, refuse};
use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{Concession, Filter, NODE_SCORE_MAX, Normalized, PreFilter, PreScore, Score};
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::{Rejection, Rejections, Status};

const TAKES_NO_PODS: Rejection =
    Rejection::unresolvable(&[Cow::Borrowed("node(s) run on a physical host that takes no pods")]);

/// A host of which nothing is known counts as half used, as in the extender: neither sought nor shunned.
const FREE_UNKNOWN: i64 = NODE_SCORE_MAX / 2;

pub struct PhysicalHost;

#[derive(Clone, Debug, Default)]
pub struct State {
    index: Index,
    verdicts: Verdicts,
    /// Lifted terms do not hold for this pod: there are too few hosts.
    has_yielded: bool,
    refused: NodeSet,
    /// No lifted preferred term says anything.
    is_silent: bool,
    /// How free the hosts are, from 0 to 100; empty when nothing is known of any.
    free: Vec<(NodeId, i64)>,
}

impl Plugin for PhysicalHost {
    const NAME: &'static str = "PhysicalHost";
    type State = State;

    fn reads(&self) -> Reads {
        Reads::World
    }

    fn still_holds(&self, cycle: &Cycle<'_>, state: &State) -> bool {
        // Loads change by the second; placement goes by the last that was looked at while nothing else changes.
        state.index.still_holds(cycle) && state.refused == *cycle.world.nodes_refused()
    }

    fn scores_by_feasible(&self) -> bool {
        false
    }

    fn woken_by(&self) -> ChangeKinds {
        // Only what keeps apart is lifted: nobody who comes is of help.
        WOKEN_BY.difference(ChangeKinds::POD_PLACED)
    }

    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        helped_by(waiting, change)
    }
}

impl PreFilter for PhysicalHost {
    fn pre_filter(&self, cycle: &Cycle<'_>, state: &mut State) -> Result<Option<NodeSet>, Status> {
        state.refused.copy_from(cycle.world.nodes_refused());
        let Some(incoming) = state.index.look_up(cycle) else { return Err(Status::Skip) };
        state.verdicts = incoming.verdicts(cycle.world, cycle.view, Reading::LiftedOnly, None);
        if state.refused.is_empty() && state.verdicts.physical_host.is_empty() {
            return Err(Status::Skip);
        }
        Ok(None)
    }

    fn add_pod(&self, cycle: &Cycle<'_>, state: &mut State, _: PodId, _: NodeId) -> Status {
        self.look_again(cycle, state)
    }

    fn remove_pod(&self, cycle: &Cycle<'_>, state: &mut State, _: PodId, _: NodeId) -> Status {
        self.look_again(cycle, state)
    }
}

impl PhysicalHost {
    /// In a trial. What has yielded stays so.
    fn look_again(&self, cycle: &Cycle<'_>, state: &mut State) -> Status {
        if state.has_yielded {
            return Status::Success;
        }
        *state = State::default();
        self.pre_filter(cycle, state).err().unwrap_or_default()
    }
}

impl Filter for PhysicalHost {
    fn filter_all(&self, _: &Cycle<'_>, state: &State, nodes: &NodeSet, rejections: &mut Rejections) {
        let refusals = &state.verdicts.physical_host;
        refuse(rejections, nodes, &refusals.anti_affinity, Refusal::HostAntiAffinity);
        refuse(rejections, nodes, &refusals.existing_anti_affinity, Refusal::HostExistingAntiAffinity);
        if !state.refused.is_disjoint(nodes) {
            let id = rejections.id(TAKES_NO_PODS);
            rejections.reject_common(&state.refused, nodes, id);
        }
    }

    fn may_yield(&self, cycle: &Cycle<'_>, state: &State) -> bool {
        cycle.world.lifting().mode == LiftMode::Relaxed && !state.verdicts.physical_host.is_empty()
    }

    fn yields(&self, _: &Cycle<'_>, state: &mut State, left: &NodeSet) -> Option<Concession> {
        // Hosts that take no pods take none in any mode.
        state.has_yielded = left.iter().any(|node| !state.refused.contains(node));
        if state.has_yielded {
            state.verdicts = Verdicts::default();
        }
        state.has_yielded.then_some(Concession { reason: "NoHostFits", message: TOO_FEW_HOSTS })
    }

    fn blockers(&self, cycle: &Cycle<'_>, state: &State, nodes: &NodeSet) -> Vec<(NodeId, String)> {
        // Where the host takes no pods, no pod is to blame.
        let mut others = nodes.clone();
        others.subtract(&state.refused);
        state.index.blockers(cycle, Reading::LiftedOnly, &state.verdicts.physical_host, &others)
    }
}

impl PreScore for PhysicalHost {
    fn pre_score(&self, cycle: &Cycle<'_>, state: &mut State, nodes: &NodeSet) -> Status {
        let Some(incoming) = state.index.look_up(cycle) else { return Status::Skip };
        state.is_silent = incoming.is_silent(cycle.world, cycle.view, Reading::LiftedOnly, &ScoreSettings::default());
        state.free.clear();
        let idle = cycle.world.host_idle();
        if !idle.is_empty() {
            let free = |node| idle.percent(node).map_or(FREE_UNKNOWN, i64::from);
            state.free.extend(nodes.iter().map(|node| (node, free(node))));
        }
        if state.is_silent && state.free.is_empty() { Status::Skip } else { Status::Success }
    }
}

impl Score for PhysicalHost {
    fn score_all(&self, cycle: &Cycle<'_>, state: &State, nodes: &NodeSet, scores: &mut [i64]) {
        if let Some(incoming) = state.index.found().filter(|_| !state.is_silent) {
            let settings = ScoreSettings::default();
            incoming.write_scores(cycle.world, cycle.view, Reading::LiftedOnly, &settings, nodes, scores);
        } else {
            nodes.iter().for_each(|node| scores[node.index()] = 0);
        }
    }

    /// Preferred terms and the hosts' load count half each where both are known.
    fn normalize(
        &self,
        _: &Cycle<'_>,
        state: &State,
        feasible: &NodeSet,
        raw: &[i64],
        normalized: &mut [i64],
    ) -> Normalized {
        normalize_by_range(feasible, raw, normalized);
        if state.is_silent {
            for (node, free) in &state.free {
                normalized[node.index()] = *free;
            }
        } else {
            for (node, free) in &state.free {
                normalized[node.index()] = (normalized[node.index()] + free) / 2;
            }
        }
        Normalized::Written
    }
}

impl Register for PhysicalHost {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_filter().filter().pre_score().score()
    }
}

#[cfg(test)]
mod tests;
