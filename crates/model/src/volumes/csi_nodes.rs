//! The CSI drivers of each node, by node id: schedulers read them for all nodes at a time.
//!
//! In: the CSI drivers as they are added, changed and removed, under the name of their node; nodes as they come and go.
//! Out: the drivers of a node. Invariant: a known node has the drivers of its name.

use std::sync::Arc;

use super::facts::CsiNodeFacts;
use crate::storage::arena::{DenseId, NodeId};
use crate::world::World;

#[derive(Debug, Default)]
pub(crate) struct CsiNodes(Vec<Option<Arc<CsiNodeFacts>>>);

impl CsiNodes {
    pub(crate) fn of(&self, node: NodeId) -> Option<&Arc<CsiNodeFacts>> {
        self.0.get(node.index())?.as_ref()
    }

    pub(crate) fn set(&mut self, node: NodeId, drivers: Option<Arc<CsiNodeFacts>>) {
        if self.0.len() <= node.index() && drivers.is_some() {
            self.0.resize(node.index() + 1, None);
        }
        if let Some(kept) = self.0.get_mut(node.index()) {
            *kept = drivers;
        }
    }
}

impl World {
    /// The CSI drivers of a node, if they are known.
    pub fn csi_node(&self, node: NodeId) -> Option<&CsiNodeFacts> {
        self.csi_nodes.of(node).map(|drivers| &**drivers)
    }

    /// The drivers or the node of this name changed.
    pub(crate) fn find_csi_node(&mut self, name: &str) {
        if let Some(node) = self.node_id(name) {
            let drivers = self.volumes.csi_node(name).cloned();
            self.csi_nodes.set(node, drivers);
        }
    }
}
