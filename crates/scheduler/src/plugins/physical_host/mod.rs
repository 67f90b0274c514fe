//! PhysicalHost: verdicts and scores from the physical host that a node runs on.
//!
//! Anti-affinity on a lifted key also applies between physical hosts. Nodes on hosts that take no pods (in maintenance
//! mode or unreachable) are rejected. Nodes on less loaded hosts get a higher score. The plugin skips if nothing is
//! known about hosts. In relaxed mode, lifted terms yield if they are the only reason that no node is feasible: they
//! then apply between nodes only, as InterPodAffinity reads them. With `host_preemption`, preemption may evict the pods
//! on other nodes of a host that lifted terms keep off it.

use std::borrow::Cow;

use model::affinity::{Refusal, TOO_FEW_HOSTS};
use model::storage::arena::DenseId;
use model::{HostIdle, LiftMode, NodeId, NodeSet, PodId, Reading, ScoreSettings, Verdicts};

use super::inter_pod_affinity::{AffinityTrial, State as Index, WOKEN_BY, helped_by, normalize_by_range, refuse};
use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{Concession, Filter, NODE_SCORE_MAX, NodeTrial, Normalized, PreFilter, PreScore, Score};
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::{Rejection, Rejections, Status};

const TAKES_NO_PODS: Rejection =
    Rejection::unresolvable(&[Cow::Borrowed("node(s) run on a physical host that takes no pods")]);

/// A host with unknown load counts as half used, as in the extender: it is neither preferred nor avoided.
const FREE_UNKNOWN: i64 = NODE_SCORE_MAX / 2;

pub struct PhysicalHost;

#[derive(Clone, Debug, Default)]
pub struct State {
    index: Index,
    verdicts: Verdicts,
    /// Lifted terms do not apply to this pod, because there are too few hosts.
    has_yielded: bool,
    refused: NodeSet,
    /// No lifted preferred term affects the score.
    is_silent: bool,
    /// The load of some host is known.
    has_loads: bool,
}

impl Plugin for PhysicalHost {
    const NAME: &'static str = "PhysicalHost";
    type State = State;

    fn reads(&self) -> Reads {
        Reads::World
    }

    fn still_holds(&self, cycle: &Cycle<'_>, state: &State) -> bool {
        // Host loads change all the time, so they do not invalidate the cache. While nothing else changes, the scores
        // use the loads of the last computation.
        state.index.still_holds(cycle) && state.refused == *cycle.world.nodes_refused()
    }

    fn scores_by_feasible(&self) -> bool {
        false
    }

    fn woken_by(&self) -> ChangeKinds {
        // Only anti-affinity is lifted, so a placed pod cannot help.
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
        // A plugin that skips does not take part in trials, where the room of nominated pods may count on a whole host.
        let may_count_later = cycle.world.lifting().host_preemption;
        if state.refused.is_empty() && state.verdicts.physical_host.is_empty() && !may_count_later {
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
    /// Updates the state in a trial. A plugin that has yielded does not take it back.
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

    fn node_trial<'a>(&'a self, cycle: &Cycle<'a>, state: &'a State) -> Option<Box<dyn NodeTrial + 'a>> {
        let trial = AffinityTrial::new(cycle, &state.index, Reading::LiftedOnly)?;
        Some(Box::new(HostTrial { state, trial, takes_no_pods: false }))
    }

    fn may_yield(&self, cycle: &Cycle<'_>, state: &State) -> bool {
        cycle.world.lifting().mode == LiftMode::Relaxed && !state.verdicts.physical_host.is_empty()
    }

    fn yields(&self, _: &Cycle<'_>, state: &mut State, left: &NodeSet) -> Option<Concession> {
        // Hosts that take no pods are rejected in every mode.
        state.has_yielded = left.iter().any(|node| !state.refused.contains(node));
        if state.has_yielded {
            state.verdicts = Verdicts::default();
        }
        state.has_yielded.then_some(Concession { reason: "NoHostFits", message: TOO_FEW_HOSTS })
    }

    fn blockers_elsewhere(&self, cycle: &Cycle<'_>, state: &State, node: NodeId) -> Vec<PodId> {
        let applies = cycle.world.lifting().host_preemption && !state.has_yielded;
        let incoming = state.index.found().filter(|_| applies);
        incoming.map_or_else(Vec::new, |incoming| incoming.host_conflicts(cycle.world).beside(node))
    }

    fn blockers(&self, cycle: &Cycle<'_>, state: &State, nodes: &NodeSet) -> Vec<(NodeId, String)> {
        // If the host takes no pods, no pod blocks the node.
        let mut others = nodes.clone();
        others.subtract(&state.refused);
        state.index.blockers(cycle, Reading::LiftedOnly, &state.verdicts.physical_host, &others)
    }
}

/// Lifted terms on one node, while pods come and go there.
struct HostTrial<'a> {
    state: &'a State,
    trial: AffinityTrial<'a>,
    /// The node's host.
    takes_no_pods: bool,
}

impl NodeTrial for HostTrial<'_> {
    fn begin(&mut self, node: NodeId) {
        self.takes_no_pods = self.state.refused.contains(node);
        self.trial.begin(node);
    }

    fn remove(&mut self, pod: PodId) {
        self.trial.remove(pod);
    }

    fn add(&mut self, pod: PodId) {
        self.trial.add(pod);
    }

    fn rejection(&mut self) -> Option<Rejection> {
        if self.takes_no_pods {
            return Some(TAKES_NO_PODS);
        }
        if self.state.has_yielded { None } else { self.trial.rejection() }
    }
}

impl PreScore for PhysicalHost {
    fn pre_score(&self, cycle: &Cycle<'_>, state: &mut State, _: &NodeSet) -> Status {
        let Some(incoming) = state.index.look_up(cycle) else { return Status::Skip };
        state.is_silent = incoming.is_silent(cycle.world, cycle.view, Reading::LiftedOnly, &ScoreSettings::default());
        state.has_loads = !cycle.world.host_idle().is_empty();
        if state.is_silent && !state.has_loads { Status::Skip } else { Status::Success }
    }
}

/// The idle percentage of the node's host.
fn free(idle: &HostIdle, node: NodeId) -> i64 {
    idle.percent(node).map_or(FREE_UNKNOWN, i64::from)
}

impl Score for PhysicalHost {
    fn score_all(&self, cycle: &Cycle<'_>, state: &State, nodes: &NodeSet, scores: &mut [i64]) {
        if let Some(incoming) = state.index.found().filter(|_| !state.is_silent) {
            let settings = ScoreSettings::default();
            incoming.write_scores(cycle.world, cycle.view, Reading::LiftedOnly, &settings, nodes, scores);
        } else {
            let idle = cycle.world.host_idle();
            nodes.iter().for_each(|node| scores[node.index()] = free(idle, node));
        }
    }

    /// If both preferred terms and host loads are known, each counts half.
    fn normalize(
        &self,
        cycle: &Cycle<'_>,
        state: &State,
        feasible: &NodeSet,
        raw: &[i64],
        normalized: &mut [i64],
    ) -> Normalized {
        if state.is_silent {
            return Normalized::AsGiven;
        }
        normalize_by_range(feasible, raw, normalized);
        if state.has_loads {
            let idle = cycle.world.host_idle();
            for node in feasible.iter() {
                normalized[node.index()] = (normalized[node.index()] + free(idle, node)) / 2;
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
