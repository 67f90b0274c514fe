//! How idle the physical host of each node is.
//!
//! In: a node, and the idle percentage of its host. Out: the same percentage, by array access: scoring reads it for
//! thousands of nodes per pod, and the lookup from a node to its host is slow. Invariant: the value equals that of
//! [`crate::placement::HostView`].

use crate::storage::arena::{DenseId, NodeId};

#[derive(Debug, Default)]
pub struct HostIdle {
    /// By node.
    percents: Vec<Option<u8>>,
    known: usize,
}

impl HostIdle {
    /// From 0 to 100; `None` while it is unknown.
    #[must_use]
    pub fn percent(&self, node: NodeId) -> Option<u8> {
        self.percents.get(node.index()).copied().flatten()
    }

    /// Whether the load is unknown for every node's host.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known == 0
    }

    pub(crate) fn set(&mut self, node: NodeId, percent: Option<u8>) {
        let index = node.index();
        if index >= self.percents.len() {
            if percent.is_none() {
                return;
            }
            self.percents.resize(index + 1, None);
        }
        let before = std::mem::replace(&mut self.percents[index], percent);
        self.known += usize::from(percent.is_some());
        self.known -= usize::from(before.is_some());
    }
}
