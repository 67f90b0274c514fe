//! What a change of the world means for waiting pods.
//!
//! In: a [`WorldChange`]. Out: [`Changes`], in the terms in which plugins declare what helps. Each object is compared
//! with its previous state, so that an update that changes nothing a plugin reads (a pod's condition, a node's
//! heartbeat) wakes no pod.

use std::sync::Arc;

use model::event::{Event, Source};
use model::{NodeId, NodeState, PodId, PodState, Subject, World, WorldChange};

use crate::framework::change::{Change, ChangeKinds, ChangedPod, ChangedVolume};

/// What changed.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Everything must be checked again.
    pub everything: bool,
    pub nodes_added_or_removed: bool,
    /// Existing pods that may have become, or may no longer be, pods to place.
    pub pods: Vec<PodId>,
    pub removed_pods: Vec<PodId>,
    pub removed_nodes: Vec<NodeId>,
    /// Changes that can help waiting pods.
    pub changes: Vec<Change>,
    /// Nodes with a pod whose start became known. It decides only which pods are preempted first.
    pub started: Vec<NodeId>,
}

impl Changes {
    /// Everything must be checked: at the start, or after more changes than were tracked.
    pub fn all() -> Self {
        Self { everything: true, ..Self::default() }
    }

    pub fn of(change: &WorldChange) -> Self {
        let mut changes = Self { removed_nodes: change.touched.removed().collect(), ..Self::default() };
        match &change.subject {
            // A budget decides only which pods are preempted first.
            Subject::RelistBegan(_)
            | Subject::Lost(_)
            | Subject::VcenterIdentified(_)
            | Subject::DisruptionBudget
            | Subject::VolumesAssumed
            | Subject::Inventory => {}
            Subject::Pod { before, after } => compare_pods(before.as_deref(), after.as_deref(), &mut changes),
            Subject::Node { before, after } => compare_nodes(before.as_deref(), after.as_deref(), &mut changes),
            Subject::RelistEnded { source, was_in_sync, removed_objects } => {
                // A relist does not report removed objects one by one, only that there were some.
                let may_remove_unseen = matches!(source, Source::Workload(_) | Source::Volume(_) | Source::Vcenter(_));
                changes.everything = *removed_objects || (!was_in_sync && may_remove_unseen);
            }
            Subject::Namespace { labels_changed } => {
                if *labels_changed {
                    changes.push(ChangeKinds::NAMESPACE_LABELS, None, None);
                }
            }
            Subject::Workload => changes.push(ChangeKinds::WORKLOAD, None, None),
            Subject::Volume { before, after } => {
                let kinds = ChangeKinds::of_volume_object(before.as_ref(), after.as_ref());
                if !kinds.is_empty() {
                    let volume = Arc::new(ChangedVolume { before: before.clone(), after: after.clone() });
                    changes.changes.push(Change { kinds, volume: Some(volume), ..Change::default() });
                }
            }
        }
        let compared: Vec<Option<NodeId>> = changes.changes.iter().map(|change| change.node).collect();
        for node in change.touched.nodes().filter(|node| !compared.contains(&Some(*node))) {
            changes.push(ChangeKinds::NODE_PLACEMENT, Some(node), None);
        }
        if !changes.removed_nodes.is_empty() {
            changes.nodes_added_or_removed = true;
            changes.push(ChangeKinds::NODE_REMOVED, None, None);
        }
        changes
    }

    pub fn is_empty(&self) -> bool {
        !self.everything
            && !self.nodes_added_or_removed
            && self.pods.is_empty()
            && self.removed_pods.is_empty()
            && self.removed_nodes.is_empty()
            && self.changes.is_empty()
            && self.started.is_empty()
    }

    fn push(&mut self, kinds: ChangeKinds, node: Option<NodeId>, pod: Option<ChangedPod>) {
        self.changes.push(Change { kinds, node, pod: pod.map(Arc::new), volume: None });
    }
}

/// Applies the event to the world. Returns the changes as the scheduler reads them.
pub fn apply(world: &mut World, event: Event) -> Changes {
    Changes::of(&world.apply(event))
}

fn changed(pod: &PodState) -> ChangedPod {
    ChangedPod {
        id: Some(pod.id),
        matched_by: pod.matched_by.clone(),
        has_anti_affinity: pod.has_anti_affinity,
        namespace: Some(pod.namespace),
        volumes: pod.volumes.clone(),
    }
}

/// A pod that left a node, as it was before. Its id is valid only if the pod is still the same in what plugins read.
fn gone(before: &PodState, after: Option<&PodState>) -> ChangedPod {
    let same = after.filter(|after| before.is_read_alike(after));
    ChangedPod { id: same.map(|after| after.id), ..changed(before) }
}

fn compare_pods(before: Option<&PodState>, after: Option<&PodState>, changes: &mut Changes) {
    // A nomination that is cleared helps other pods in the same way as a pod that leaves the node.
    if let Some(before) = before
        && let Some(node) = before.room_on
        && after.is_none_or(|after| after.room_on != Some(node) && after.counts_on() != Some(node))
    {
        changes.push(ChangeKinds::POD_LEFT, Some(node), Some(gone(before, after)));
    }
    match (before, after) {
        (None, None) => {}
        (Some(before), None) => {
            changes.removed_pods.push(before.id);
            if let Some(node) = before.counts_on() {
                changes.push(ChangeKinds::POD_LEFT, Some(node), Some(gone(before, None)));
            }
        }
        (None, Some(after)) => {
            changes.pods.push(after.id);
            if let Some(node) = after.counts_on() {
                changes.push(ChangeKinds::POD_PLACED, Some(node), Some(changed(after)));
            }
        }
        (Some(before), Some(after)) => {
            let is_read_alike = before.is_read_alike(after);
            let (was, is) = (before.counts_on(), after.counts_on());
            let stays_in_queue = was == is && is_read_alike && before.is_assumed == after.is_assumed;
            if !stays_in_queue || before.nominated_node != after.nominated_node || before.finished != after.finished {
                changes.pods.push(after.id);
            }
            // Another pod with the same name on the same node counts as one pod that left and one that was placed.
            if was != is || before.uid != after.uid {
                if let Some(node) = was {
                    changes.push(ChangeKinds::POD_LEFT, Some(node), Some(gone(before, Some(after))));
                }
                if let Some(node) = is {
                    changes.push(ChangeKinds::POD_PLACED, Some(node), Some(changed(after)));
                }
            } else if let Some(node) = is.filter(|_| !is_read_alike) {
                // Its requests or its labels changed. Both may help, because the requests may be lower.
                let kinds = ChangeKinds::POD_LABELS | ChangeKinds::POD_SCALED_DOWN;
                changes.push(kinds, Some(node), Some(changed(before).turned_into(&changed(after))));
            } else if let Some(node) = is.filter(|_| before.started_s != after.started_s) {
                changes.started.push(node);
            }
        }
    }
}

fn compare_nodes(before: Option<&NodeState>, after: Option<&NodeState>, changes: &mut Changes) {
    let Some(after) = after else { return };
    let Some(before) = before else {
        changes.nodes_added_or_removed = true;
        return changes.push(ChangeKinds::NODE_ADDED, Some(after.id), None);
    };
    let kinds = node_differences(before, after);
    if !kinds.is_empty() {
        changes.push(kinds, Some(after.id), None);
    }
}

fn node_differences(before: &NodeState, after: &NodeState) -> ChangeKinds {
    let mut kinds = ChangeKinds::NONE;
    let mut note = |differs: bool, kind: ChangeKinds| {
        if differs {
            kinds |= kind;
        }
    };
    note(!before.has_labels_of(after), ChangeKinds::NODE_LABELS);
    note(before.ready != after.ready, ChangeKinds::NODE_PLACEMENT);
    match (&before.scheduling, &after.scheduling) {
        (Some(before), Some(after)) => {
            let sums_differ = before.allocatable != after.allocatable || before.allowed_pods != after.allowed_pods;
            note(sums_differ, ChangeKinds::NODE_ALLOCATABLE);
            let taints_differ = before.taints != after.taints || before.unschedulable != after.unschedulable;
            note(taints_differ, ChangeKinds::NODE_TAINTS);
            note(before.images != after.images, ChangeKinds::NODE_IMAGES);
            note(before.declared_features != after.declared_features, ChangeKinds::NODE_DECLARED_FEATURES);
        }
        (None, None) => {}
        _ => note(true, ChangeKinds::NODE),
    }
    kinds
}
