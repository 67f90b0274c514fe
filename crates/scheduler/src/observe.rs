//! What an event means to pods that wait.
//!
//! In: the world and an event. Out: the world after it, and what changed, in the terms in which plugins say what helps. An object is
//! looked at before and after, so that an update which changes nothing a plugin reads (a pod's own condition, a node's heartbeat)
//! wakes nobody.

use std::sync::Arc;

use model::event::{Event, Source};
use model::scheduling::{NodeSchedulingFacts, PodSchedulingFacts};
use model::{NodeId, PodId, Role, Touched, World};

use crate::change::{Change, ChangeKinds, ChangedPod};
use crate::cycle::labels_of;

/// What changed.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// So much that everything is to be looked at again.
    pub everything: bool,
    /// Nodes came or went.
    pub nodes_came_or_went: bool,
    /// Pods that are there and may have become, or ceased to be, pods to place.
    pub pods: Vec<PodId>,
    pub removed_pods: Vec<PodId>,
    pub removed_nodes: Vec<NodeId>,
    /// What can help pods that wait.
    pub changes: Vec<Change>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        !self.everything
            && !self.nodes_came_or_went
            && self.pods.is_empty()
            && self.removed_pods.is_empty()
            && self.removed_nodes.is_empty()
            && self.changes.is_empty()
    }

    fn push(&mut self, kinds: ChangeKinds, node: Option<NodeId>, pod: Option<Arc<ChangedPod>>) {
        self.changes.push(Change { kinds, node, pod });
    }
}

/// Applies the event to the world, and tells what changed.
pub fn apply(world: &mut World, event: Event) -> (Touched, Changes) {
    let before = Before::look(world, &event);
    let touched = world.apply(event);
    let changes = before.compare(world, &touched);
    (touched, changes)
}

/// What was known before the event.
enum Before {
    Pod {
        namespace: String,
        name: String,
        pod: Option<PodLook>,
    },
    Node {
        name: String,
        node: Option<NodeLook>,
    },
    /// How many objects there were, before those that a relist did not bring are removed.
    Relist {
        source: Source,
        was_in_sync: bool,
        pods: usize,
        nodes: usize,
        namespaces: usize,
    },
    Namespace {
        name: String,
        labels: Option<model::event::Labels>,
    },
    Workload,
    /// Told by [`Touched`] alone.
    Infrastructure,
    Nothing,
}

/// As much of a pod as makes a difference.
struct PodLook {
    id: PodId,
    uid: String,
    node: Option<NodeId>,
    counts: bool,
    scheduling: Option<Arc<PodSchedulingFacts>>,
    labels: Option<*const model::label_set::LabelSet>,
    pinning: Option<*const model::event::PinningFacts>,
    nominated_node: Option<String>,
    /// Where room is kept for it, though it is not there.
    room: Option<NodeId>,
    is_assumed: bool,
    terminating: bool,
    lift_off: bool,
    seen: ChangedPod,
}

impl PodLook {
    fn at(world: &World, id: PodId) -> Option<Self> {
        let pod = world.pod(id)?;
        let nominated_node = world.nominated_node(id);
        let keeps_room = pod.placed_on().is_none() && !pod.finished;
        Some(Self {
            id,
            uid: pod.uid.to_string(),
            node: pod.placed_on().and_then(|name| world.node_id(world.interner().text(name))),
            counts: !pod.finished,
            scheduling: pod.scheduling.clone(),
            labels: labels_of(world, id).map(Arc::as_ptr),
            pinning: pod.pinning.as_ref().map(Arc::as_ptr),
            room: nominated_node.filter(|_| keeps_room).and_then(|name| world.node_id(name)),
            nominated_node: nominated_node.map(str::to_owned),
            is_assumed: pod.is_assumed(),
            terminating: pod.terminating,
            lift_off: pod.lift_off,
            seen: ChangedPod {
                id: Some(id),
                matched_by: world.terms_matching(id).to_vec(),
                has_anti_affinity: world.pod_terms(id).iter().any(|(_, role)| *role == Role::AntiAffinity),
            },
        })
    }

    /// The pod as it was where it is no longer. What it is now says nothing of that, unless it is still the same.
    fn gone(&self, after: Option<&Self>) -> ChangedPod {
        let same = after.filter(|after| self.is_read_alike(after));
        ChangedPod { id: same.map(|after| after.id), ..self.seen.clone() }
    }

    /// Where it counts.
    fn placed(&self) -> Option<NodeId> {
        self.node.filter(|_| self.counts)
    }

    fn is_read_alike(&self, other: &Self) -> bool {
        self.scheduling.as_ref().map(Arc::as_ptr) == other.scheduling.as_ref().map(Arc::as_ptr)
            && (self.labels, self.pinning, self.lift_off) == (other.labels, other.pinning, other.lift_off)
            && self.terminating == other.terminating
            && self.uid == other.uid
    }
}

struct NodeLook {
    scheduling: Option<Arc<NodeSchedulingFacts>>,
    labels: model::event::Labels,
    ready: bool,
}

impl NodeLook {
    fn at(world: &World, id: NodeId) -> Option<Self> {
        let node = world.node(id)?;
        let labels = node.labels.to_labels(world.interner());
        Some(Self { scheduling: node.scheduling.clone(), labels, ready: node.ready })
    }

    fn differences(&self, after: &Self) -> ChangeKinds {
        let mut kinds = ChangeKinds::NONE;
        let mut note = |differs: bool, kind: ChangeKinds| {
            if differs {
                kinds |= kind;
            }
        };
        note(self.labels != after.labels, ChangeKinds::NODE_LABELS);
        note(self.ready != after.ready, ChangeKinds::NODE_PLACEMENT);
        match (&self.scheduling, &after.scheduling) {
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
}

impl Before {
    fn look(world: &World, event: &Event) -> Self {
        let pod = |namespace: &str, name: &str| Self::Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            pod: world.pod_id(namespace, name).and_then(|id| PodLook::at(world, id)),
        };
        let node = |name: &str| Self::Node {
            name: name.to_owned(),
            node: world.node_id(name).and_then(|id| NodeLook::at(world, id)),
        };
        match event {
            Event::PodApplied(facts) => pod(&facts.namespace, &facts.name),
            Event::PodDeleted { namespace, name } | Event::PodForgotten { namespace, name, .. } => pod(namespace, name),
            Event::PodAssumed { pod: facts, .. } => pod(&facts.namespace, &facts.name),
            Event::NodeApplied(facts) => node(&facts.name),
            Event::NodeDeleted { name } => node(name),
            Event::NamespaceApplied(facts) => Self::namespace(world, &facts.name),
            Event::NamespaceDeleted { name } => Self::namespace(world, name),
            Event::RelistEnded(source) => Self::Relist {
                source: *source,
                was_in_sync: world.in_sync(*source),
                pods: world.pod_count(),
                nodes: world.node_count(),
                namespaces: world.namespace_count(),
            },
            Event::SelectingApplied(_) | Event::SelectingDeleted { .. } => Self::Workload,
            Event::RelistBegan(_) | Event::Lost(_) => Self::Nothing,
            Event::VmApplied { .. }
            | Event::VmRemoved { .. }
            | Event::HostApplied { .. }
            | Event::HostRemoved { .. }
            | Event::ClusterApplied { .. }
            | Event::ClusterRemoved { .. } => Self::Infrastructure,
        }
    }

    fn namespace(world: &World, name: &str) -> Self {
        let labels = world.namespace(name).map(|namespace| namespace.labels.to_labels(world.interner()));
        Self::Namespace { name: name.to_owned(), labels }
    }

    fn compare(self, world: &World, touched: &Touched) -> Changes {
        let mut changes = Changes::default();
        changes.removed_nodes.extend(touched.removed());
        match self {
            Self::Nothing => {}
            Self::Pod { namespace, name, pod: before } => {
                let after = world.pod_id(&namespace, &name).and_then(|id| PodLook::at(world, id));
                compare_pods(before.as_ref(), after.as_ref(), &mut changes);
            }
            Self::Node { name, node: before } => compare_nodes(world, &name, before.as_ref(), &mut changes),
            Self::Relist { source, was_in_sync, pods, nodes, namespaces } => {
                let same =
                    (pods, nodes, namespaces) == (world.pod_count(), world.node_count(), world.namespace_count());
                // What a relist removes is not told one by one, except that something was.
                let may_remove_unseen = matches!(source, Source::Selecting(_) | Source::Vcenter(_));
                changes.everything = !same || (!was_in_sync && may_remove_unseen);
            }
            Self::Namespace { name, labels: before } => {
                let after = world.namespace(&name).map(|namespace| namespace.labels.to_labels(world.interner()));
                if before.unwrap_or_default() != after.unwrap_or_default() {
                    changes.push(ChangeKinds::NAMESPACE_LABELS, None, None);
                }
            }
            Self::Workload => changes.push(ChangeKinds::WORKLOAD, None, None),
            Self::Infrastructure => {}
        }
        let told: Vec<Option<NodeId>> = changes.changes.iter().map(|change| change.node).collect();
        for node in touched.nodes().filter(|node| !told.contains(&Some(*node))) {
            changes.push(ChangeKinds::NODE_PLACEMENT, Some(node), None);
        }
        if !changes.removed_nodes.is_empty() {
            changes.nodes_came_or_went = true;
            changes.push(ChangeKinds::NODE_REMOVED, None, None);
        }
        changes
    }
}

fn compare_pods(before: Option<&PodLook>, after: Option<&PodLook>, changes: &mut Changes) {
    // Room that is not kept for it any more helps others as a pod that leaves does.
    if let Some(before) = before
        && let Some(node) = before.room
        && after.is_none_or(|after| after.room != Some(node) && after.placed() != Some(node))
    {
        changes.push(ChangeKinds::POD_LEFT, Some(node), Some(Arc::new(before.gone(after))));
    }
    match (before, after) {
        (None, None) => {}
        (Some(before), None) => {
            changes.removed_pods.push(before.id);
            if let Some(node) = before.placed() {
                changes.push(ChangeKinds::POD_LEFT, Some(node), Some(Arc::new(before.gone(None))));
            }
        }
        (None, Some(after)) => {
            changes.pods.push(after.id);
            if let Some(node) = after.placed() {
                changes.push(ChangeKinds::POD_PLACED, Some(node), Some(Arc::new(after.seen.clone())));
            }
        }
        (Some(before), Some(after)) => {
            let is_read_alike = before.is_read_alike(after);
            let (was, is) = (before.placed(), after.placed());
            let stays_in_queue = was == is && is_read_alike && before.is_assumed == after.is_assumed;
            if !stays_in_queue || before.nominated_node != after.nominated_node || before.counts != after.counts {
                changes.pods.push(after.id);
            }
            // Another pod of the name on the same node is one that left and one that came.
            if was != is || before.uid != after.uid {
                if let Some(node) = was {
                    changes.push(ChangeKinds::POD_LEFT, Some(node), Some(Arc::new(before.gone(Some(after)))));
                }
                if let Some(node) = is {
                    changes.push(ChangeKinds::POD_PLACED, Some(node), Some(Arc::new(after.seen.clone())));
                }
            } else if let Some(node) = is.filter(|_| !is_read_alike) {
                // What it needs, or its labels: both may help, and what it needs may be less.
                let kinds = ChangeKinds::POD_LABELS | ChangeKinds::POD_SCALED_DOWN;
                changes.push(kinds, Some(node), Some(Arc::new(before.seen.turned_into(&after.seen))));
            }
        }
    }
}

fn compare_nodes(world: &World, name: &str, before: Option<&NodeLook>, changes: &mut Changes) {
    let Some(id) = world.node_id(name) else { return };
    let Some(after) = NodeLook::at(world, id) else { return };
    match before {
        None => {
            changes.nodes_came_or_went = true;
            changes.push(ChangeKinds::NODE_ADDED, Some(id), None);
        }
        Some(before) => {
            let kinds = before.differences(&after);
            if !kinds.is_empty() {
                changes.push(kinds, Some(id), None);
            }
        }
    }
}
