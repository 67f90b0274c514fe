//! What every plugin says of itself, whatever points it extends.

use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;

/// A plugin: its configuration, and the type of what it keeps during a cycle.
///
/// Everything a plugin computes for a pod lives in [`Plugin::State`], one slot per plugin and cycle, typed. The framework may
/// keep the slot, and the plugin's answers, for the next equal pod: pods with the same scheduling facts, namespace, labels,
/// terms and scheduler. [`Plugin::reads`] says when kept answers are out of date.
pub trait Plugin: Send + Sync + 'static {
    /// The name in configuration, verdicts and metrics: `NodeAffinity`.
    const NAME: &'static str;

    /// Written by PreFilter and PreScore, read by what follows. `()` for none.
    type State: Default + Clone + Send + 'static;

    /// What its answers depend on, besides the pod. Too little is a wrong answer, too much only a slower one.
    fn reads(&self) -> Reads {
        Reads::World
    }

    /// Of a plugin that reads the whole world: whether nothing that `state` and the answers given with it rest on has changed
    /// since. Asked before an equal pod is tried; `true` lets it share the answers.
    fn still_holds(&self, _cycle: &Cycle<'_>, _state: &Self::State) -> bool {
        false
    }

    /// Whether its raw scores depend on which nodes are feasible. If not, PreScore and Score are asked about all nodes, and not
    /// again when others become feasible. Plugins that read no more than a node are always asked that way.
    fn scores_by_feasible(&self) -> bool {
        true
    }

    /// Which kinds of change can help a pod that this plugin rejected. Others do not wake it.
    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::ALL
    }

    /// Whether this change, of a kind it named, can help this pod, which it rejected. The world has already changed. When in
    /// doubt: yes.
    fn helped_by(&self, _waiting: &Cycle<'_>, _change: &Change) -> bool {
        true
    }
}

/// What a plugin's answer for one node depends on, besides the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// That node as Kubernetes and vSphere describe it: labels, taints, capacity, its host.
    Node,
    /// That node, and the pods placed on it.
    NodeAndItsPods,
    /// Any node as it is described, but no pods.
    AllNodes,
    /// Anything.
    World,
}
