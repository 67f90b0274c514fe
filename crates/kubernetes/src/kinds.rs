//! From a row of the table of sources to the type that reads its objects: the one place where a new kind is added here.
//!
//! In: a source and how closely it is read. Out: the visitor called with that type.

use model::event::{NamespaceFacts, NodeFacts, PodFacts, Source};
use model::scheduling::WorkloadKind;

use crate::facts::{Facts, ReplicaSet, ReplicationController, Schedulable, Service, StatefulSet, Workload};

/// Something to do with objects of whatever kind.
pub(crate) trait Visitor {
    type Output;

    fn visit<F: Facts>(self) -> Self::Output;
}

/// How much is read of nodes and pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Where they are and what they say of each other.
    Placement,
    /// All that a scheduler must know, too.
    Scheduling,
}

/// `None` for a source that is not of Kubernetes.
pub(crate) fn visit<V: Visitor>(source: Source, detail: Detail, visitor: V) -> Option<V::Output> {
    Some(match (source, detail) {
        (Source::Nodes, Detail::Placement) => visitor.visit::<NodeFacts>(),
        (Source::Nodes, Detail::Scheduling) => visitor.visit::<Schedulable<NodeFacts>>(),
        (Source::Pods, Detail::Placement) => visitor.visit::<PodFacts>(),
        (Source::Pods, Detail::Scheduling) => visitor.visit::<Schedulable<PodFacts>>(),
        (Source::Namespaces, _) => visitor.visit::<NamespaceFacts>(),
        (Source::Workload(kind), _) => match kind {
            WorkloadKind::Service => visitor.visit::<Workload<Service>>(),
            WorkloadKind::ReplicationController => visitor.visit::<Workload<ReplicationController>>(),
            WorkloadKind::ReplicaSet => visitor.visit::<Workload<ReplicaSet>>(),
            WorkloadKind::StatefulSet => visitor.visit::<Workload<StatefulSet>>(),
        },
        (Source::Vcenter(_), _) => return None,
    })
}
