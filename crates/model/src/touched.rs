//! What an event may have changed an answer for, so that whoever keeps answers looks at those again and at no others.
//!
//! In: what [`crate::World::apply`] changed. Out: nodes, terms, pods and clusters. Invariant: what is not named here answers
//! as before; naming one is a small part of the event's own cost.

use std::collections::BTreeSet;

use crate::arena::{ClusterId, NodeId, PodId, TermId};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    pub(crate) nodes: BTreeSet<NodeId>,
    pub(crate) removed: BTreeSet<NodeId>,
    pub(crate) terms: BTreeSet<TermId>,
    pub(crate) pods: BTreeSet<PodId>,
    pub(crate) clusters: BTreeSet<ClusterId>,
}

impl Touched {
    /// Nodes that are there and of which this may have changed: their own labels or UID, their match, their placement,
    /// their VM's name, or what is known of their host. Their readiness and their pods are not meant.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().copied()
    }

    /// Nodes that are gone. Look at these first: after a [`Touched::merge`] such an id may have been given to a new node.
    pub fn removed(&self) -> impl Iterator<Item = NodeId> {
        self.removed.iter().copied()
    }

    /// Terms of which this may have changed: whether there are any such, who carries them, which pods they match, which
    /// node those are bound to, whether they are on their way out, and who opted out. Where these nodes are is not meant.
    pub fn terms(&self) -> impl Iterator<Item = TermId> {
        self.terms.iter().copied()
    }

    /// Pods with preferred terms, or that accept certain nodes only, or did: they came, changed or are gone.
    pub fn pods(&self) -> impl Iterator<Item = PodId> {
        self.pods.iter().copied()
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

    /// Adds what a later event touched.
    pub fn merge(&mut self, later: Self) {
        if !later.removed.is_empty() {
            self.nodes.retain(|node| !later.removed.contains(node));
        }
        self.nodes.extend(later.nodes);
        self.removed.extend(later.removed);
        self.terms.extend(later.terms);
        self.pods.extend(later.pods);
        self.clusters.extend(later.clusters);
    }
}
