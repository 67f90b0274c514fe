//! What every plugin declares, regardless of the points it extends.

use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;

/// A plugin: its configuration, and the type of its state during a cycle.
///
/// Everything a plugin computes for a pod is in [`Plugin::State`], one typed value per plugin and cycle. The framework
/// may cache the state and the plugin's results for the next pod of the same class: pods with the same scheduling
/// facts, namespace, labels, terms and scheduler. [`Plugin::reads`] determines when cached results are out of date.
pub trait Plugin: Send + Sync + 'static {
    /// The name in configuration, verdicts and metrics: `NodeAffinity`.
    const NAME: &'static str;

    /// Written by PreFilter and PreScore, read by the later points. `()` if the plugin needs none.
    type State: Default + Clone + Send + 'static;

    /// What the results depend on, besides the pod. Declaring too little gives wrong results; declaring too much only
    /// costs time.
    fn reads(&self) -> Reads {
        Reads::World
    }

    /// For a plugin that reads the whole world: whether everything that `state` and its results depend on is unchanged.
    /// Called before a pod of the same class is tried; `true` lets that pod reuse the results.
    fn still_holds(&self, _cycle: &Cycle<'_>, _state: &Self::State) -> bool {
        false
    }

    /// Whether the raw scores depend on which nodes are feasible. If not, PreScore and Score run on all nodes, and not
    /// again when other nodes become feasible. Plugins that read only a node, or a node and its pods, always run that
    /// way.
    fn scores_by_feasible(&self) -> bool {
        true
    }

    /// The kinds of change that can help a pod that this plugin rejected. Other kinds do not wake the pod.
    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::ALL
    }

    /// Whether this change, of a kind in [`Plugin::woken_by`], can help this pod, which the plugin rejected. The world
    /// already contains the change. If in doubt, return `true`.
    fn helped_by(&self, _waiting: &Cycle<'_>, _change: &Change) -> bool {
        true
    }
}

/// What a plugin's result for one node depends on, besides the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// The node's facts from Kubernetes and vSphere: labels, taints, capacity, physical host.
    Node,
    /// The node and the pods placed on it.
    NodeAndItsPods,
    /// The facts of any node, but no pods.
    AllNodes,
    /// Anything.
    World,
}
