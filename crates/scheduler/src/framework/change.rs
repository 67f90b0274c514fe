//! What happened in the world, in the terms in which plugins say what can help a waiting pod.
//!
//! In: kinds of change, a bit each. Out: sets of kinds, compared in one operation, so that a change nobody waits for costs nothing.

use std::sync::Arc;

use bitflags::bitflags;
use model::{NodeId, PodId, TermId};

bitflags! {
    /// A set of kinds of change.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ChangeKinds: u32 {
        const NODE_ADDED = 1 << 0;
        /// Helps where pods of other nodes count: those on it do no longer, and a place may be gone that others are measured by.
        const NODE_REMOVED = 1 << 1;
        const NODE_ALLOCATABLE = 1 << 2;
        const NODE_LABELS = 1 << 3;
        /// Its taints, or whether it takes pods at all.
        const NODE_TAINTS = 1 << 4;
        const NODE_IMAGES = 1 << 5;
        const NODE_DECLARED_FEATURES = 1 << 6;
        /// The host it runs on, or what is known of that host.
        const NODE_PLACEMENT = 1 << 7;
        /// A pod was bound, by whomever, or assumed on a node.
        const POD_PLACED = 1 << 8;
        /// A placed pod left its node: deleted, finished, or its binding failed.
        const POD_LEFT = 1 << 9;
        /// The labels of a placed pod.
        const POD_LABELS = 1 << 10;
        /// A placed pod needs less than before.
        const POD_SCALED_DOWN = 1 << 11;
        /// The waiting pod itself.
        const SELF_UPDATED = 1 << 12;
        /// The labels of a namespace.
        const NAMESPACE_LABELS = 1 << 13;
        /// A service, replica set, stateful set or replication controller.
        const WORKLOAD = 1 << 14;
    }
}

impl ChangeKinds {
    pub const NONE: Self = Self::empty();
    pub const ALL: Self = Self::all();
    /// A node came, or any of its aspects changed.
    pub const NODE: Self = Self::NODE_ADDED
        .union(Self::NODE_ALLOCATABLE)
        .union(Self::NODE_LABELS)
        .union(Self::NODE_TAINTS)
        .union(Self::NODE_IMAGES)
        .union(Self::NODE_DECLARED_FEATURES)
        .union(Self::NODE_PLACEMENT);

    /// The number of its lowest kind.
    pub(crate) fn first_bit(self) -> Option<usize> {
        (!self.is_empty()).then_some(self.bits().trailing_zeros() as usize)
    }
}

/// One change. The world is already as it is after it.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub kinds: ChangeKinds,
    /// The node that changed, or whose pods did.
    pub node: Option<NodeId>,
    /// The other pod it is about. `None` where the waiting pod itself changed.
    pub pod: Option<Arc<ChangedPod>>,
}

/// A pod that was placed, changed or left, as far as it can help others.
#[derive(Clone, Debug, Default)]
pub struct ChangedPod {
    /// `None` when it is gone, or something else by now.
    pub id: Option<PodId>,
    /// The terms that match it, whoever has them, or matched it before it changed. Those of waiting pods are alive.
    pub matched_by: Vec<TermId>,
    /// It has required anti-affinity of its own, which kept others away, or had it before it changed.
    pub has_anti_affinity: bool,
}

impl ChangedPod {
    /// The same pod, with what it was and what it is now: either may have been in somebody's way, or help somebody.
    pub(crate) fn turned_into(&self, after: &ChangedPod) -> ChangedPod {
        let was = self.matched_by.iter().filter(|term| !after.matched_by.contains(term));
        ChangedPod {
            id: after.id,
            matched_by: after.matched_by.iter().chain(was).copied().collect(),
            has_anti_affinity: self.has_anti_affinity || after.has_anti_affinity,
        }
    }
}
