//! What happened in the world, in the terms in which plugins say what can help a waiting pod.
//!
//! In: kinds of change, a bit each. Out: sets of kinds, compared in one operation, so that a change nobody waits for costs nothing.

use std::ops::BitOr;
use std::sync::Arc;

use model::{NodeId, PodId, TermId};

/// A set of kinds of change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChangeKinds(u32);

macro_rules! kinds {
    ($($(#[$meta:meta])* $name:ident = $bit:expr;)+) => {
        impl ChangeKinds {
            $($(#[$meta])* pub const $name: Self = Self(1 << $bit);)+
            /// The single kinds, with their names.
            const NAMED: &[(Self, &str)] = &[$((Self::$name, stringify!($name)),)+];
        }
    };
}

kinds! {
    NODE_ADDED = 0;
    /// Helps where pods of other nodes count: those on it do no longer, and a place may be gone that others are measured by.
    NODE_REMOVED = 1;
    NODE_ALLOCATABLE = 2;
    NODE_LABELS = 3;
    /// Its taints, or whether it takes pods at all.
    NODE_TAINTS = 4;
    NODE_IMAGES = 5;
    NODE_DECLARED_FEATURES = 6;
    /// The host it runs on, or what is known of that host.
    NODE_PLACEMENT = 7;
    /// A pod was bound, by whomever, or assumed on a node.
    POD_PLACED = 8;
    /// A placed pod left its node: deleted, finished, or its binding failed.
    POD_LEFT = 9;
    /// The labels of a placed pod.
    POD_LABELS = 10;
    /// A placed pod needs less than before.
    POD_SCALED_DOWN = 11;
    /// The waiting pod itself.
    SELF_UPDATED = 12;
    /// The labels of a namespace.
    NAMESPACE_LABELS = 13;
    /// A service, replica set, stateful set or replication controller.
    WORKLOAD = 14;
}

impl ChangeKinds {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self(u32::MAX);
    /// A node came, or any of its aspects changed.
    pub const NODE: Self = Self(0b1111_1101);

    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of its lowest kind.
    pub(crate) fn first_bit(self) -> Option<usize> {
        (!self.is_empty()).then_some(self.0.trailing_zeros() as usize)
    }

    /// The names of the kinds in it.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMED.iter().filter(move |(kind, _)| self.intersects(*kind)).map(|(_, name)| *name)
    }
}

impl BitOr for ChangeKinds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
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
