//! The input of a plugin in one attempt to place one pod.

use std::sync::{Arc, LazyLock};

use model::scheduling::{NodeSchedulingFacts, PodSchedulingFacts, UnsupportedFeature};
use model::storage::label_set::LabelSet;
use model::{NodeId, Pod, PodId, View, World};

/// One scheduling cycle: the pod and the current world. Placed pods include assumed ones, whose binding the watch has
/// not shown yet. In a trial, the view lists the pods that are treated as placed or removed in addition.
#[derive(Clone, Copy, Debug)]
pub struct Cycle<'a> {
    pub world: &'a World,
    pub pod_id: PodId,
    pub pod: &'a Pod,
    pub view: &'a View,
}

impl<'a> Cycle<'a> {
    /// `None` if the pod is unknown.
    pub fn of(world: &'a World, pod_id: PodId) -> Option<Self> {
        static AS_IT_IS: LazyLock<View> = LazyLock::new(View::default);
        Some(Self { world, pod_id, pod: world.pod(pod_id)?, view: &AS_IT_IS })
    }

    /// The pod's scheduling facts; all defaults if they are unknown.
    pub fn facts(&self) -> &'a PodSchedulingFacts {
        static NONE: LazyLock<PodSchedulingFacts> = LazyLock::new(PodSchedulingFacts::default);
        self.pod.scheduling.as_deref().unwrap_or(&NONE)
    }

    /// The value of a label of the pod.
    pub fn label(&self, key: &str) -> Option<&'a str> {
        let interner = self.world.interner();
        let value = self.profile_labels()?.get(interner.get(key)?)?;
        Some(interner.text(value))
    }

    /// The name of the group that the pod is scheduled with: its `schedulingGroup`, or a label of the coscheduling plugin.
    pub fn group(&self) -> Option<&'a str> {
        self.facts().unsupported.iter().find_map(|feature| match feature {
            UnsupportedFeature::SchedulingGroup(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// A node's scheduling facts; all defaults if the node is unknown.
    pub fn node_facts(&self, node: NodeId) -> &'a NodeSchedulingFacts {
        static NONE: LazyLock<NodeSchedulingFacts> = LazyLock::new(NodeSchedulingFacts::default);
        self.world.node(node).and_then(|node| node.scheduling.as_deref()).unwrap_or(&NONE)
    }

    /// One value for all pods with the same namespace, labels and terms.
    pub(crate) fn profile_labels(&self) -> Option<&'a Arc<LabelSet>> {
        labels_of(self.world, self.pod_id)
    }
}

pub(crate) fn labels_of(world: &World, pod: PodId) -> Option<&Arc<LabelSet>> {
    world.pod_profile_labels(pod)
}
