//! Which nodes can run the pod.

use std::cell::RefCell;

use model::{NodeId, PodId};

use crate::framework::cycle::Cycle;
use crate::framework::handle::Handle;
use crate::framework::plugin::Plugin;
use crate::framework::status::{Rejection, Rejections, Status};
use crate::plugins::default_preemption::Examined;
use model::NodeSet;

/// Called once per cycle, before any Filter, in the configured order.
pub trait PreFilter: Plugin {
    /// Checks the pod and writes what Filter needs into `state`, which is `State::default()` at the call.
    ///
    /// - `Ok(None)`: Filter runs on all nodes.
    /// - `Ok(Some(nodes))`: only these nodes can run the pod. Each other node is UnschedulableAndUnresolvable by the
    ///   plugins that returned a set, and no Filter runs on it. An empty set rejects all nodes.
    /// - `Err(Status::Skip)`: the plugin's Filter does not apply to this pod and does not run.
    /// - `Err(rejection)`: no node can run the pod; every node gets this verdict.
    /// - `Err(Status::Error)`: the cycle is aborted.
    fn pre_filter(&self, cycle: &Cycle<'_>, state: &mut Self::State) -> Result<Option<NodeSet>, Status>;

    /// Updates `state` for a trial in which `added` also runs on `node`; the cycle's view already contains it. Called
    /// on a copy. A plugin overrides this if it can do better than run PreFilter again.
    fn add_pod(&self, cycle: &Cycle<'_>, state: &mut Self::State, _added: PodId, _node: NodeId) -> Status {
        *state = Self::State::default();
        self.pre_filter(cycle, state).err().unwrap_or_default()
    }

    /// Updates `state` for a trial in which `removed` no longer runs on `node`; the cycle's view already shows it.
    fn remove_pod(&self, cycle: &Cycle<'_>, state: &mut Self::State, _removed: PodId, _node: NodeId) -> Status {
        *state = Self::State::default();
        self.pre_filter(cycle, state).err().unwrap_or_default()
    }
}

/// Whether nodes can run the pod. The first plugin in the configured order that rejects a node gives its verdict.
///
/// A plugin implements either [`Filter::filter`] for one node or [`Filter::filter_all`] for a set of nodes.
pub trait Filter: Plugin {
    /// `Err` rejects the node.
    fn filter(&self, _cycle: &Cycle<'_>, _state: &Self::State, _node: NodeId) -> Result<(), Rejection> {
        Ok(())
    }

    /// Rejects the nodes in `nodes` that cannot run the pod; must not reject others. `nodes` may be all nodes or only
    /// those that changed.
    fn filter_all(&self, cycle: &Cycle<'_>, state: &Self::State, nodes: &NodeSet, rejections: &mut Rejections) {
        for node in nodes.iter() {
            if let Err(rejection) = self.filter(cycle, state, node) {
                let id = rejections.id(rejection);
                rejections.reject(node, id);
            }
        }
    }

    /// Whether to call [`Filter::yields`]. Computing its argument is expensive, and most plugins never yield.
    fn may_yield(&self, _cycle: &Cycle<'_>, _state: &Self::State) -> bool {
        false
    }

    /// Called when no node is feasible, with the nodes that all other plugins accept. A plugin may withdraw rejections
    /// that are not mandatory. If it does, it records that in `state`, its Filter runs on all nodes again, and the
    /// returned value becomes an event on the pod. The state is recomputed before the next pod.
    fn yields(&self, _cycle: &Cycle<'_>, _state: &mut Self::State, _left: &NodeSet) -> Option<Concession> {
        None
    }

    /// Whether no pod that comes or goes changes a verdict, although the plugin reads more than nodes. Dry runs of
    /// preemption then use the verdicts on the nodes as they are.
    fn ignores_pods(&self) -> bool {
        false
    }

    /// The plugin's verdicts on one node while pods come and go, for dry runs of preemption. `None`: Filter runs from
    /// scratch at each step, after PreFilter if the plugin reads more than the node's own pods.
    fn node_trial<'a>(&'a self, _cycle: &Cycle<'a>, _state: &'a Self::State) -> Option<Box<dyn NodeTrial + 'a>> {
        None
    }

    /// Pods on other nodes that the plugin counts against the node, and that preemption may evict for it. None by default:
    /// as in kube-scheduler, victims run on the node that they make room on.
    fn blockers_elsewhere(&self, _cycle: &Cycle<'_>, _state: &Self::State, _node: NodeId) -> Vec<PodId> {
        Vec::new()
    }

    /// Why the pod may not work on a node that the plugin accepts: shown by `explain`, and an event on a pod that is placed
    /// there.
    fn doubt(&self, _cycle: &Cycle<'_>, _state: &Self::State, _node: NodeId) -> Option<Doubt> {
        None
    }

    /// For messages: given nodes that the plugin rejected, those where it knows the pod that blocks the node, with a
    /// one-line description of that pod. Only called by `explain`.
    fn blockers(&self, _cycle: &Cycle<'_>, _state: &Self::State, _nodes: &NodeSet) -> Vec<(NodeId, String)> {
        Vec::new()
    }
}

/// The Kubernetes event that reports that a plugin yielded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concession {
    pub reason: &'static str,
    pub message: &'static str,
}

/// Why a placement may not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Of the Kubernetes event, and the value of a metric's label.
    pub reason: &'static str,
    pub message: String,
}

/// What a PostFilter plugin does about the pod's nominated node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nomination {
    /// It stays as it is.
    #[default]
    Keep,
    Clear,
    Set(NodeId),
}

/// The result of a PostFilter plugin.
///
/// Success ends the search for help, as do an error and UnschedulableAndUnresolvable. After Unschedulable the next
/// plugin runs. The pod stays in the queue in any case; its reasons are those of the filters, and of the plugins that
/// did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostFilterAnswer {
    pub status: Status,
    /// Of several plugins, the last one that does not keep the nomination decides.
    pub nomination: Nomination,
    /// Pods to delete, to make room on the nominated node; they may run on others.
    pub victims: Vec<PodId>,
}

impl PostFilterAnswer {
    /// The plugin cannot help, or fails.
    pub fn nothing(status: Status) -> Self {
        Self { status, nomination: Nomination::Keep, victims: Vec::new() }
    }

    /// The pod has a good chance to fit this node soon.
    pub fn nominate(node: NodeId) -> Self {
        Self { status: Status::Success, nomination: Nomination::Set(node), victims: Vec::new() }
    }

    /// Deleting these pods makes room on the node.
    pub fn preempt(node: NodeId, victims: Vec<PodId>) -> Self {
        Self { victims, ..Self::nominate(node) }
    }
}

/// Whether one node can run the pod, while a trial removes pods and adds them. A plugin's own trial is asked only about
/// pods on the node; the trial of all Filter plugins together also about pods that run on other nodes.
pub trait NodeTrial {
    /// Begins with a node as it is.
    fn begin(&mut self, node: NodeId);

    /// The pod does not count on the node any more. It does now, or was added.
    fn remove(&mut self, pod: PodId);

    /// The pod counts on the node. It was removed, or is a pod that waits.
    fn add(&mut self, pod: PodId);

    /// Why the pod does not fit now.
    fn rejection(&mut self) -> Option<Rejection>;

    fn fits(&mut self) -> bool {
        self.rejection().is_none()
    }
}

/// The nodes that the filters rejected, and what would change that.
pub trait RejectedNodes {
    /// The nodes on which removing pods may help.
    fn resolvable(&self) -> &NodeSet;

    /// Why the node is rejected.
    fn rejection(&self, node: NodeId) -> Option<Rejection>;

    /// All Filter plugins together. The pod must fit both with and without the pods that are nominated to the node and
    /// have its priority or a higher one.
    fn trial(&self) -> Box<dyn NodeTrial + '_>;

    /// Pods on other nodes that count against the node, and that may be evicted for it.
    fn blockers_elsewhere(&self, _node: NodeId) -> Vec<PodId> {
        Vec::new()
    }

    /// What preemption found out for earlier pods of the class, if it is kept.
    #[doc(hidden)]
    fn examined(&self) -> Option<&RefCell<Examined>> {
        None
    }

    /// Whether the pod would fit the node without these pods.
    fn fits_without(&self, node: NodeId, removed: &[PodId]) -> bool {
        let mut trial = self.trial();
        trial.begin(node);
        removed.iter().for_each(|pod| trial.remove(*pod));
        trial.fits()
    }
}

/// Called when no node can run the pod. Plugins run in order until one succeeds.
pub trait PostFilter: Plugin {
    /// `state` is a copy of this cycle's state, which ends with this call.
    fn post_filter(
        &self,
        cycle: &Cycle<'_>,
        state: &mut Self::State,
        rejected: &dyn RejectedNodes,
        handle: &mut Handle<'_>,
    ) -> PostFilterAnswer;
}
