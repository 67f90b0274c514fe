//! Which nodes can run the pod.

use model::{NodeId, PodId};

use crate::framework::cycle::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::{Rejection, Rejections, Status};
use model::NodeSet;

/// Called once per cycle, before any Filter, in the configured order.
pub trait PreFilter: Plugin {
    /// Looks at the pod, and computes what Filter needs into `state`, which is `State::default()` when this is called.
    ///
    /// - `Ok(None)`: all nodes are left to Filter.
    /// - `Ok(Some(nodes))`: only these can run the pod. Each other node is UnschedulableAndUnresolvable by the plugins that
    ///   narrowed, and no Filter sees it. An empty set rejects the pod everywhere.
    /// - `Err(Status::Skip)`: the plugin's Filter has nothing to say of this pod, and is not called.
    /// - `Err(rejection)`: no node can run the pod; the verdict is every node's.
    /// - `Err(Status::Error)`: the cycle is given up.
    fn pre_filter(&self, cycle: &Cycle<'_>, state: &mut Self::State) -> Result<Option<NodeSet>, Status>;

    /// Updates `state` for a trial in which `added` is on `node` too; the cycle's view says so already. Called on a copy. A
    /// plugin that can do it with less than a new PreFilter says how.
    fn add_pod(&self, cycle: &Cycle<'_>, state: &mut Self::State, _added: PodId, _node: NodeId) -> Status {
        *state = Self::State::default();
        self.pre_filter(cycle, state).err().unwrap_or_default()
    }

    /// Updates `state` for a trial in which `removed` is no longer on `node`; the cycle's view says so already.
    fn remove_pod(&self, cycle: &Cycle<'_>, state: &mut Self::State, _removed: PodId, _node: NodeId) -> Status {
        *state = Self::State::default();
        self.pre_filter(cycle, state).err().unwrap_or_default()
    }
}

/// Whether nodes can run the pod. A node is refused by the first plugin, in the configured order, that refuses it.
///
/// A plugin implements one of the two methods: [`Filter::filter`] answers for one node, [`Filter::filter_all`] for a whole set.
pub trait Filter: Plugin {
    /// `Err` refuses the node.
    fn filter(&self, _cycle: &Cycle<'_>, _state: &Self::State, _node: NodeId) -> Result<(), Rejection> {
        Ok(())
    }

    /// Refuses the nodes of `nodes` that cannot run the pod; must not refuse others. May be called for any part of the nodes:
    /// all of them, or the few that changed.
    fn filter_all(&self, cycle: &Cycle<'_>, state: &Self::State, nodes: &NodeSet, rejections: &mut Rejections) {
        for node in nodes.iter() {
            if let Err(rejection) = self.filter(cycle, state, node) {
                let id = rejections.id(rejection);
                rejections.reject(node, id);
            }
        }
    }

    /// Whether [`Filter::yields`] is worth asking; finding out about whom costs more than most plugins have use for.
    fn may_yield(&self, _cycle: &Cycle<'_>, _state: &Self::State) -> bool {
        false
    }

    /// Asked when no node is left, about the nodes that all other plugins accept: a plugin may take back what need not hold then.
    /// If it does, it notes so in `state`, is asked about all nodes again, and its words become an event on the pod. The state is
    /// made anew before the next pod.
    fn yields(&self, _cycle: &Cycle<'_>, _state: &mut Self::State, _left: &NodeSet) -> Option<Concession> {
        None
    }

    /// For people: of these nodes, which it refused, those where it can tell who is in the way, and in one line who. Asked by
    /// `explain` alone.
    fn blockers(&self, _cycle: &Cycle<'_>, _state: &Self::State, _nodes: &NodeSet) -> Vec<(NodeId, String)> {
        Vec::new()
    }
}

/// What a plugin tells of having yielded, as a Kubernetes event has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concession {
    pub reason: &'static str,
    pub message: &'static str,
}

/// What a PostFilter plugin achieved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostFilterAnswer {
    /// Nothing it could do.
    Nothing(Status),
    /// These pods, once gone, make room on `node`, for which the pod is nominated.
    Preempt { node: NodeId, victims: Vec<PodId> },
}

/// Lets a PostFilter plugin try what would be.
pub trait Trials {
    /// Whether all Filter plugins would accept the node without these pods on it.
    fn fits_without(&mut self, node: NodeId, removed: &[PodId]) -> bool;
}

/// Called when no node can run the pod. The first plugin that achieves something ends it.
pub trait PostFilter: Plugin {
    /// `resolvable`: the nodes whose refusal taking pods off may cure.
    fn post_filter(&self, cycle: &Cycle<'_>, resolvable: &NodeSet, trials: &mut dyn Trials) -> PostFilterAnswer;
}
