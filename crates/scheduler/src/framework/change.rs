//! Changes of the world, in the terms in which plugins declare what can help a waiting pod.
//!
//! In: kinds of change, one bit each. Out: sets of kinds, compared in one operation, so that a change that no pod waits
//! for costs nothing.

use std::sync::Arc;

use bitflags::bitflags;
use model::storage::intern::Symbol;
use model::volumes::{PodVolumes, VolumeKind, VolumeObject};
use model::{NodeId, PodId, TermId};

bitflags! {
    /// A set of kinds of change.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ChangeKinds: u32 {
        const NODE_ADDED = 1 << 0;
        /// Can help plugins that count pods across nodes: the pods on this node no longer count, and a topology domain
        /// that others are compared with may be gone.
        const NODE_REMOVED = 1 << 1;
        const NODE_ALLOCATABLE = 1 << 2;
        const NODE_LABELS = 1 << 3;
        /// Its taints, or whether it is cordoned.
        const NODE_TAINTS = 1 << 4;
        const NODE_IMAGES = 1 << 5;
        const NODE_DECLARED_FEATURES = 1 << 6;
        /// Its physical host, or the state of that host.
        const NODE_PLACEMENT = 1 << 7;
        /// A pod was bound, by any scheduler, or assumed on a node.
        const POD_PLACED = 1 << 8;
        /// A placed pod left its node: deleted, finished, or its binding failed.
        const POD_LEFT = 1 << 9;
        /// The labels of a placed pod.
        const POD_LABELS = 1 << 10;
        /// A placed pod requests less than before.
        const POD_SCALED_DOWN = 1 << 11;
        /// The waiting pod itself.
        const SELF_UPDATED = 1 << 12;
        /// The labels of a namespace.
        const NAMESPACE_LABELS = 1 << 13;
        /// A service, replica set, stateful set or replication controller.
        const WORKLOAD = 1 << 14;
        /// A claim was added or changed.
        const CLAIM = 1 << 15;
        /// A persistent volume was added or changed.
        const VOLUME = 1 << 16;
        /// A storage class was added or changed.
        const STORAGE_CLASS = 1 << 17;
        /// The CSI drivers of a node became known or changed.
        const CSI_NODE = 1 << 18;
        /// A CSI driver was added or changed.
        const CSI_DRIVER = 1 << 19;
        /// A storage capacity was added or changed.
        const STORAGE_CAPACITY = 1 << 20;
        /// A volume was detached from a node.
        const VOLUME_DETACHED = 1 << 21;
    }
}

impl ChangeKinds {
    pub const NONE: Self = Self::empty();
    pub const ALL: Self = Self::all();
    /// A node was added, or any part of it changed.
    pub const NODE: Self = Self::NODE_ADDED
        .union(Self::NODE_ALLOCATABLE)
        .union(Self::NODE_LABELS)
        .union(Self::NODE_TAINTS)
        .union(Self::NODE_IMAGES)
        .union(Self::NODE_DECLARED_FEATURES)
        .union(Self::NODE_PLACEMENT);

    /// What a change of an object about volumes means; nothing if it cannot help any pod.
    pub(crate) fn of_volume_object(before: Option<&VolumeObject>, after: Option<&VolumeObject>) -> Self {
        match (before, after) {
            (Some(VolumeObject::Attachment(_)), None) => Self::VOLUME_DETACHED,
            (before, Some(after)) if before != Some(after) => match after.kind() {
                VolumeKind::Claim => Self::CLAIM,
                VolumeKind::Volume => Self::VOLUME,
                VolumeKind::StorageClass => Self::STORAGE_CLASS,
                VolumeKind::CsiNode => Self::CSI_NODE,
                VolumeKind::CsiDriver => Self::CSI_DRIVER,
                VolumeKind::StorageCapacity => Self::STORAGE_CAPACITY,
                VolumeKind::Attachment => Self::NONE,
            },
            _ => Self::NONE,
        }
    }

    /// The bit number of the lowest kind.
    pub(crate) fn first_bit(self) -> Option<usize> {
        (!self.is_empty()).then_some(self.bits().trailing_zeros() as usize)
    }
}

/// One change. The world already contains it.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub kinds: ChangeKinds,
    /// The node that changed, or whose pods changed.
    pub node: Option<NodeId>,
    /// The other pod that changed. `None` if the waiting pod itself changed.
    pub pod: Option<Arc<ChangedPod>>,
    /// The object about volumes that changed.
    pub volume: Option<Arc<ChangedVolume>>,
}

/// An object about volumes, before and after a change.
#[derive(Clone, Debug, Default)]
pub struct ChangedVolume {
    /// `None` if it was added.
    pub before: Option<VolumeObject>,
    /// `None` if it was deleted.
    pub after: Option<VolumeObject>,
}

/// A pod that was placed, changed or left: the parts that can help other pods.
#[derive(Clone, Debug, Default)]
pub struct ChangedPod {
    /// `None` if the pod is gone or was replaced.
    pub id: Option<PodId>,
    /// The terms of any pod that match it, or matched it before it changed. Terms of waiting pods still exist.
    pub matched_by: Vec<TermId>,
    /// The pod has, or had before the change, required anti-affinity, which rejected other pods.
    pub has_anti_affinity: bool,
    /// Valid only while this change is observed.
    pub namespace: Option<Symbol>,
    pub volumes: Option<Arc<PodVolumes>>,
}

impl ChangedPod {
    /// The same pod with its state before and after the change: either may have blocked, or may help, another pod.
    pub(crate) fn turned_into(&self, after: &ChangedPod) -> ChangedPod {
        let was = self.matched_by.iter().filter(|term| !after.matched_by.contains(term));
        ChangedPod {
            id: after.id,
            matched_by: after.matched_by.iter().chain(was).copied().collect(),
            has_anti_affinity: self.has_anti_affinity || after.has_anti_affinity,
            namespace: after.namespace,
            volumes: after.volumes.clone(),
        }
    }
}
