//! Maps a row of the table of sources to the type that reads its objects. A new kind is added only here in this crate.
//!
//! In: a source and the level of detail. Out: the visitor called with that type.

use model::event::{NamespaceFacts, NodeFacts, PodFacts, Source};
use model::scheduling::WorkloadKind;
use model::volumes::VolumeKind;

use crate::facts::{
    Attachment, Claim, CsiDriver, CsiNode, DisruptionBudget, Facts, PersistentVolume, ReplicaSet,
    ReplicationController, Schedulable, Service, StatefulSet, StorageCapacity, StorageClass, Volume, Workload,
};

/// An operation on objects of any kind.
pub(crate) trait Visitor {
    type Output;

    fn visit<F: Facts>(self) -> Self::Output;
}

/// Which fields of nodes and pods are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The fields for placement and affinity.
    Placement,
    /// In addition, all fields that a scheduler needs.
    Scheduling,
}

/// `None` for a source that is not in Kubernetes.
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
        (Source::DisruptionBudgets, _) => visitor.visit::<DisruptionBudget>(),
        (Source::Volume(kind), _) => match kind {
            VolumeKind::Claim => visitor.visit::<Volume<Claim>>(),
            VolumeKind::Volume => visitor.visit::<Volume<PersistentVolume>>(),
            VolumeKind::StorageClass => visitor.visit::<Volume<StorageClass>>(),
            VolumeKind::CsiNode => visitor.visit::<Volume<CsiNode>>(),
            VolumeKind::CsiDriver => visitor.visit::<Volume<CsiDriver>>(),
            VolumeKind::StorageCapacity => visitor.visit::<Volume<StorageCapacity>>(),
            VolumeKind::Attachment => visitor.visit::<Volume<Attachment>>(),
        },
        (Source::Vcenter(_), _) => return None,
    })
}
