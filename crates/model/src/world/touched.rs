//! What an event may have changed an answer for, so that whoever keeps answers looks at those again and at no others.
//!
//! In: what [`crate::World::apply`] changed. Out: nodes and clusters, and whether what pods require of each other and of hosts is
//! another. Invariant: what is not named here answers as before; naming one is a small part of the event's own cost.

use std::collections::BTreeSet;

use crate::storage::arena::{ClusterId, NodeId};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    pub(crate) nodes: BTreeSet<NodeId>,
    pub(crate) removed: BTreeSet<NodeId>,
    pub(crate) requirements_on: BTreeSet<NodeId>,
    pub(crate) requirements: bool,
    pub(crate) clusters: BTreeSet<ClusterId>,
}

impl Touched {
    /// Nodes that are there and of which this may have changed: their own labels or UID, their match, their placement,
    /// their VM's name, or what is known of their host. Their readiness and their pods are not meant.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().copied()
    }

    /// Nodes that are gone.
    pub fn removed(&self) -> impl Iterator<Item = NodeId> {
        self.removed.iter().copied()
    }

    /// Whether pods came, changed or went that have terms, are matched by some, or accept certain nodes only; or what terms match
    /// is another, or who opted out.
    pub fn requirements(&self) -> bool {
        self.requirements
    }

    /// Clusters that came, changed in any way or are gone, and those of which a host did.
    pub fn clusters(&self) -> impl Iterator<Item = ClusterId> {
        self.clusters.iter().copied()
    }

    pub fn contains(&self, node: NodeId) -> bool {
        self.nodes.contains(&node)
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Pods on this node require something else than before; `None` for pods on no node that is known.
    pub(crate) fn require(&mut self, node: Option<NodeId>) {
        self.requirements = true;
        self.requirements_on.extend(node);
    }
}
