//! What one event changed, in one form for every cache of answers: the facts before and after, and what the event
//! touched.
//!
//! In: the world before and after an event. Out: a [`WorldChange`]. [`crate::World::apply`] returns one for each event,
//! so that readers do not have to compare the world before and after. Changes are not merged here; a reader may do
//! that.
//!
//! Invariants: a change describes only the object of the event, except through [`Touched`]; the states in it are
//! immutable snapshots, independent of later events.

use std::sync::Arc;

use crate::affinity::Role;
use crate::event::{Event, NodeAffinityFacts, Source, VcenterId};
use crate::scheduling::{NodeSchedulingFacts, PodSchedulingFacts};
use crate::storage::arena::{NodeId, PodId, TermId};
use crate::storage::intern::Symbol;
use crate::storage::label_set::LabelSet;
use crate::storage::uid::Uid;
use crate::volumes::{PodVolumes, VolumeKind, VolumeObject};
use crate::world::World;
use crate::world::touched::Touched;

/// What one event changed.
#[derive(Clone, Debug)]
pub struct WorldChange {
    pub subject: Subject,
    pub touched: Touched,
}

/// What the event was about.
#[derive(Clone, Debug)]
pub enum Subject {
    RelistBegan(Source),
    RelistEnded {
        source: Source,
        /// The source was in sync before: its previous list was complete, and it was not lost since.
        was_in_sync: bool,
        /// Pods, nodes or namespaces that the list did not contain were removed.
        removed_objects: bool,
    },
    Lost(Source),
    VcenterIdentified(VcenterId),
    /// Both are `None` if the pod is not known before or after.
    Pod {
        before: Option<Box<PodState>>,
        after: Option<Box<PodState>>,
    },
    Node {
        before: Option<Box<NodeState>>,
        after: Option<Box<NodeState>>,
    },
    Namespace {
        labels_changed: bool,
    },
    /// A Service or controller that selects pods.
    Workload,
    DisruptionBudget,
    /// An object about volumes, as the watch showed it and shows it now.
    Volume {
        before: Option<VolumeObject>,
        after: Option<VolumeObject>,
    },
    /// A scheduler assumed changes of claims and volumes.
    VolumesAssumed,
    /// Hosts, VMs or clusters: [`Touched`] lists the effects.
    Inventory,
}

/// The state of a pod that other answers may depend on.
#[derive(Clone, Debug)]
pub struct PodState {
    pub id: PodId,
    pub uid: Uid,
    /// Valid only while this change is observed.
    pub namespace: Symbol,
    /// The node it is bound to or assumed on, if the node is known.
    pub node: Option<NodeId>,
    pub is_assumed: bool,
    pub finished: bool,
    pub terminating: bool,
    /// When it started, in seconds since 1970.
    pub started_s: Option<i64>,
    pub lift_off: bool,
    pub scheduling: Option<Arc<PodSchedulingFacts>>,
    pub volumes: Option<Arc<PodVolumes>>,
    /// One value for all pods with the same namespace, labels and terms.
    pub labels: Option<Arc<LabelSet>>,
    pub node_affinity: Option<Arc<NodeAffinityFacts>>,
    /// `status.nominatedNodeName`.
    pub nominated_node: Option<Box<str>>,
    /// The node that reserves room for it although it is not placed there.
    pub room_on: Option<NodeId>,
    /// The terms that match it, from any pod; empty while it takes no room on any node.
    pub matched_by: Vec<TermId>,
    /// It has required anti-affinity terms.
    pub has_anti_affinity: bool,
}

impl PodState {
    fn of(world: &World, id: PodId) -> Option<Box<Self>> {
        let pod = world.pod(id)?;
        let nominated_node = world.nominated_node(id);
        let keeps_room = pod.placed_on().is_none() && !pod.finished;
        let node = pod.placed_on().and_then(|name| world.nodes.find(name));
        let room_on = nominated_node.filter(|_| keeps_room).and_then(|name| world.node_id(name));
        // A pod that waits for this one depends only on the nodes where it takes or took room.
        let takes_room = node.is_some() || room_on.is_some();
        Some(Box::new(Self {
            id,
            uid: pod.uid.clone(),
            namespace: pod.namespace,
            node,
            is_assumed: pod.is_assumed(),
            finished: pod.finished,
            terminating: pod.terminating,
            started_s: pod.started_s(),
            lift_off: pod.lift_off,
            scheduling: pod.scheduling.clone(),
            volumes: world.pod_volumes(id).cloned(),
            labels: world.pod_profile_labels(id).cloned(),
            node_affinity: pod.node_affinity.clone(),
            nominated_node: nominated_node.map(Into::into),
            room_on,
            matched_by: if takes_room { world.terms_matching(id).to_vec() } else { Vec::new() },
            has_anti_affinity: world.pod_terms(id).iter().any(|(_, role)| *role == Role::AntiAffinity),
        }))
    }

    /// The node it counts on.
    pub fn counts_on(&self) -> Option<NodeId> {
        self.node.filter(|_| !self.finished)
    }

    /// Whether both are the same pod with the same labels, terms, requests and volumes, so that a scheduler treats them
    /// alike.
    pub fn is_read_alike(&self, other: &Self) -> bool {
        same(self.scheduling.as_ref(), other.scheduling.as_ref())
            && same(self.volumes.as_ref(), other.volumes.as_ref())
            && same(self.labels.as_ref(), other.labels.as_ref())
            && same(self.node_affinity.as_ref(), other.node_affinity.as_ref())
            && self.lift_off == other.lift_off
            && self.terminating == other.terminating
            && self.uid == other.uid
    }
}

/// Equal values are stored once, so comparing addresses is enough.
fn same<T>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

/// The state of a node that other answers may depend on.
#[derive(Clone, Debug)]
pub struct NodeState {
    pub id: NodeId,
    pub scheduling: Option<Arc<NodeSchedulingFacts>>,
    pub ready: bool,
    labels: Box<[(Symbol, Symbol)]>,
}

impl NodeState {
    fn of(world: &World, id: NodeId) -> Option<Box<Self>> {
        let node = world.node(id)?;
        let labels = node.labels.pairs().into();
        Some(Box::new(Self { id, scheduling: node.scheduling.clone(), ready: node.ready, labels }))
    }

    /// Valid only for the two states of one change: a symbol keeps its meaning only from before to after one event.
    pub fn has_labels_of(&self, other: &Self) -> bool {
        self.labels == other.labels
    }
}

/// What must be read before the event is applied.
pub(crate) enum Before {
    Pod { key: (String, String), pod: Option<Box<PodState>> },
    Node { name: String, node: Option<Box<NodeState>> },
    RelistEnded { source: Source, was_in_sync: bool, objects: [usize; 3] },
    Namespace { name: String, labels: Box<[(Symbol, Symbol)]> },
    Volume { kind: VolumeKind, key: (String, String), object: Option<VolumeObject> },
    Known(Subject),
}

impl Before {
    pub(crate) fn of(world: &World, event: &Event) -> Self {
        let pod = |namespace: &str, name: &str| Self::Pod {
            key: (namespace.to_owned(), name.to_owned()),
            pod: world.pod_id(namespace, name).and_then(|id| PodState::of(world, id)),
        };
        let node = |name: &str| Self::Node {
            name: name.to_owned(),
            node: world.node_id(name).and_then(|id| NodeState::of(world, id)),
        };
        let namespace = |name: &str| Self::Namespace { name: name.to_owned(), labels: namespace_labels(world, name) };
        let volume = |kind: VolumeKind, namespace: &str, name: &str| Self::Volume {
            kind,
            key: (namespace.to_owned(), name.to_owned()),
            object: world.volumes.observed(kind, namespace, name),
        };
        match event {
            Event::PodApplied(facts) => pod(&facts.namespace, &facts.name),
            Event::PodDeleted { namespace, name } | Event::PodForgotten { namespace, name, .. } => pod(namespace, name),
            Event::PodAssumed { pod: facts, .. } => pod(&facts.namespace, &facts.name),
            Event::NodeApplied(facts) => node(&facts.name),
            Event::NodeDeleted { name } => node(name),
            Event::NamespaceApplied(facts) => namespace(&facts.name),
            Event::NamespaceDeleted { name } => namespace(name),
            Event::RelistBegan(source) => Self::Known(Subject::RelistBegan(*source)),
            Event::RelistEnded(source) => {
                let was_in_sync = world.in_sync(*source);
                Self::RelistEnded { source: *source, was_in_sync, objects: objects(world) }
            }
            Event::Lost(source) => Self::Known(Subject::Lost(*source)),
            Event::VcenterIdentified { vcenter, .. } => Self::Known(Subject::VcenterIdentified(*vcenter)),
            Event::WorkloadApplied(_) | Event::WorkloadDeleted { .. } => Self::Known(Subject::Workload),
            Event::DisruptionBudgetApplied(_) | Event::DisruptionBudgetDeleted { .. } => {
                Self::Known(Subject::DisruptionBudget)
            }
            Event::VolumeApplied(object) => volume(object.kind(), object.namespace(), object.name()),
            Event::VolumeDeleted { kind, namespace, name } => volume(*kind, namespace, name),
            Event::VolumesAssumed { .. } => Self::Known(Subject::VolumesAssumed),
            Event::VmApplied { .. }
            | Event::VmRemoved { .. }
            | Event::HostApplied { .. }
            | Event::HostRemoved { .. }
            | Event::ClusterApplied { .. }
            | Event::ClusterRemoved { .. } => Self::Known(Subject::Inventory),
        }
    }

    pub(crate) fn after(self, world: &World) -> Subject {
        match self {
            Self::Known(subject) => subject,
            Self::Pod { key: (namespace, name), pod: before } => {
                let after = world.pod_id(&namespace, &name).and_then(|id| PodState::of(world, id));
                Subject::Pod { before, after }
            }
            Self::Node { name, node: before } => {
                let after = world.node_id(&name).and_then(|id| NodeState::of(world, id));
                Subject::Node { before, after }
            }
            Self::RelistEnded { source, was_in_sync, objects: before } => {
                Subject::RelistEnded { source, was_in_sync, removed_objects: before != objects(world) }
            }
            Self::Volume { kind, key: (namespace, name), object: before } => {
                Subject::Volume { before, after: world.volumes.observed(kind, &namespace, &name) }
            }
            Self::Namespace { name, labels } => {
                Subject::Namespace { labels_changed: labels != namespace_labels(world, &name) }
            }
        }
    }
}

fn objects(world: &World) -> [usize; 3] {
    [world.pod_count(), world.node_count(), world.namespace_count()]
}

fn namespace_labels(world: &World, name: &str) -> Box<[(Symbol, Symbol)]> {
    world.namespace(name).map_or_else(Box::default, |namespace| namespace.labels.pairs().into())
}
