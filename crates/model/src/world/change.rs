//! What one event changed, in one form for everybody who keeps answers: the facts before and after, and what is touched.
//!
//! In: the world before and after an event. Out: a [`WorldChange`]. [`crate::World::apply`] makes one for each event, so that
//! nobody has to look before and after for themselves. Several are not merged here: that is the reader's choice.
//!
//! Invariants: a change says nothing of objects that the event is not about, except through [`Touched`]; the states in it stay
//! true of their moment whatever happens to the world later.

use std::sync::Arc;

use crate::affinity::Role;
use crate::event::{Event, NodeAffinityFacts, Source};
use crate::scheduling::{NodeSchedulingFacts, PodSchedulingFacts};
use crate::storage::arena::{NodeId, PodId, TermId};
use crate::storage::intern::Symbol;
use crate::storage::label_set::LabelSet;
use crate::storage::uid::Uid;
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
        /// The list before was whole and had not been lost.
        was_in_sync: bool,
        /// Pods, nodes or namespaces that the list did not bring are gone.
        removed_objects: bool,
    },
    Lost(Source),
    /// Both are `None` for a pod that was never known.
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
    /// A service or controller that selects pods.
    Workload,
    /// Hosts, VMs or clusters: [`Touched`] says what follows from it.
    Inventory,
}

/// As much of a pod as others may depend on.
#[derive(Clone, Debug)]
pub struct PodState {
    pub id: PodId,
    pub uid: Uid,
    /// Where it is bound or assumed, if that node is known.
    pub node: Option<NodeId>,
    pub is_assumed: bool,
    pub finished: bool,
    pub terminating: bool,
    pub lift_off: bool,
    pub scheduling: Option<Arc<PodSchedulingFacts>>,
    /// One value for all pods with the same namespace, labels and terms.
    pub labels: Option<Arc<LabelSet>>,
    pub node_affinity: Option<Arc<NodeAffinityFacts>>,
    /// `status.nominatedNodeName`.
    pub nominated_node: Option<Box<str>>,
    /// The node that room is kept on for it, though it is not there.
    pub room_on: Option<NodeId>,
    /// The terms that match it, whoever has them; empty while it takes no room anywhere.
    pub matched_by: Vec<TermId>,
    /// It has required anti-affinity of its own.
    pub has_anti_affinity: bool,
}

impl PodState {
    fn of(world: &World, id: PodId) -> Option<Box<Self>> {
        let pod = world.pod(id)?;
        let nominated_node = world.nominated_node(id);
        let keeps_room = pod.placed_on().is_none() && !pod.finished;
        let node = pod.placed_on().and_then(|name| world.nodes.find(name));
        let room_on = nominated_node.filter(|_| keeps_room).and_then(|name| world.node_id(name));
        // Who waits for it asks only where it is, or was.
        let takes_room = node.is_some() || room_on.is_some();
        Some(Box::new(Self {
            id,
            uid: pod.uid.clone(),
            node,
            is_assumed: pod.is_assumed(),
            finished: pod.finished,
            terminating: pod.terminating,
            lift_off: pod.lift_off,
            scheduling: pod.scheduling.clone(),
            labels: world.pod_profile_labels(id).cloned(),
            node_affinity: pod.node_affinity.clone(),
            nominated_node: nominated_node.map(Into::into),
            room_on,
            matched_by: if takes_room { world.terms_matching(id).to_vec() } else { Vec::new() },
            has_anti_affinity: world.pod_terms(id).iter().any(|(_, role)| *role == Role::AntiAffinity),
        }))
    }

    /// Where it counts.
    pub fn counts_on(&self) -> Option<NodeId> {
        self.node.filter(|_| !self.finished)
    }

    /// Whether a scheduler reads the same of both: the same pod, with the same labels, terms and requests.
    pub fn is_read_alike(&self, other: &Self) -> bool {
        same(self.scheduling.as_ref(), other.scheduling.as_ref())
            && same(self.labels.as_ref(), other.labels.as_ref())
            && same(self.node_affinity.as_ref(), other.node_affinity.as_ref())
            && self.lift_off == other.lift_off
            && self.terminating == other.terminating
            && self.uid == other.uid
    }
}

/// Equal values are kept once, so one address means one value.
fn same<T>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

/// As much of a node as others may depend on.
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

    /// Only for the two states of one change: a symbol keeps its meaning from before an event to after it, and no longer.
    pub fn has_labels_of(&self, other: &Self) -> bool {
        self.labels == other.labels
    }
}

/// What has to be known before the event is applied.
pub(crate) enum Before {
    Pod { key: (String, String), pod: Option<Box<PodState>> },
    Node { name: String, node: Option<Box<NodeState>> },
    RelistEnded { source: Source, was_in_sync: bool, objects: [usize; 3] },
    Namespace { name: String, labels: Box<[(Symbol, Symbol)]> },
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
            Event::WorkloadApplied(_) | Event::WorkloadDeleted { .. } => Self::Known(Subject::Workload),
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
