//! The objects whose answers an event may have changed, so that a cache of answers recomputes only those.
//!
//! In: what [`crate::World::apply`] changed. Out: nodes and clusters, and whether the requirements of pods on each
//! other and on hosts changed. Invariant: an object that is not listed here has unchanged answers; listing an object is
//! a small part of the event's own cost.

use std::collections::BTreeSet;

use crate::storage::arena::{ClusterId, NodeId};

/// The requirements of pods on each other and on hosts that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirements {
    None,
    /// Of pods on no known node, or of no node in particular.
    Anywhere,
    On(NodeId),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    pub(crate) nodes: BTreeSet<NodeId>,
    pub(crate) removed: BTreeSet<NodeId>,
    pub(crate) requirements_on: BTreeSet<NodeId>,
    pub(crate) requirements: bool,
    pub(crate) clusters: BTreeSet<ClusterId>,
}

impl Touched {
    /// Existing nodes for which one of these may have changed: their labels or UID, their match, their placement, their
    /// VM's name, or the facts of their host. Readiness and pods do not count.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().copied()
    }

    /// Removed nodes.
    pub fn removed(&self) -> impl Iterator<Item = NodeId> {
        self.removed.iter().copied()
    }

    /// Whether a pod was added, changed or removed that has or is matched by a term on the host label or a lifted key,
    /// has node affinity on the host label, or has preferred terms; or what terms match changed, or which namespaces
    /// opted out of lifting.
    pub fn requirements(&self) -> bool {
        self.requirements
    }

    /// Clusters that were added, changed or removed, and clusters with such a host.
    pub fn clusters(&self) -> impl Iterator<Item = ClusterId> {
        self.clusters.iter().copied()
    }

    pub fn contains(&self, node: NodeId) -> bool {
        self.nodes.contains(&node)
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn require(&mut self, changed: Requirements) {
        self.requirements |= changed != Requirements::None;
        if let Requirements::On(node) = changed {
            self.requirements_on.insert(node);
        }
    }
}
