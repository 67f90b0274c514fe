//! Which nodes have which images.
//!
//! In: the images each node reports. Out: per image name its size and its nodes.
//!
//! Invariants: an image is stored as long as a node has it. As in kube-scheduler, its size is what the first of these
//! nodes reported, so it depends on the order in which nodes were added.

use rustc_hash::FxHashMap;

use super::facts::NodeImage;
use crate::storage::arena::{DenseId, NodeId};
use crate::storage::intern::{Interner, Symbol};
use crate::storage::node_set::NodeSet;

/// An image that at least one node has.
#[derive(Debug)]
pub struct Image {
    pub size_bytes: i64,
    pub nodes: NodeSet,
    pub node_count: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Images {
    by_name: FxHashMap<Symbol, Image>,
    /// By node id: the names of its images, sorted. Each holds a use of its symbol.
    of_node: Vec<Box<[Symbol]>>,
    changes: u64,
}

impl Images {
    pub(crate) fn get(&self, name: Symbol) -> Option<&Image> {
        self.by_name.get(&name)
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn set(&mut self, node: NodeId, images: &[NodeImage], interner: &mut Interner) {
        let named = images.iter().flat_map(|image| image.names.iter().map(|name| (name, image.size_bytes)));
        let mut now: Vec<(Symbol, i64)> = named.map(|(name, size)| (interner.acquire(name), size)).collect();
        // A stable sort: if a name appears twice, the first size counts.
        now.sort_by_key(|&(name, _)| name);
        now.dedup_by(|later, earlier| {
            let repeated = later.0 == earlier.0;
            if repeated {
                interner.release(later.0);
            }
            repeated
        });
        if self.of_node.len() <= node.index() {
            self.of_node.resize(node.index() + 1, Box::default());
        }
        let names: Box<[Symbol]> = now.iter().map(|&(name, _)| name).collect();
        if names != self.of_node[node.index()] {
            self.changes += 1;
        }
        let before = std::mem::replace(&mut self.of_node[node.index()], names);
        // Remove all images first: an image that only this node has takes the newly reported size.
        for name in &before {
            if let Some(image) = self.by_name.get_mut(name)
                && image.nodes.remove(node)
            {
                image.node_count -= 1;
                if image.node_count == 0 {
                    self.by_name.remove(name);
                }
            }
        }
        for (name, size_bytes) in now {
            let image = self.by_name.entry(name).or_insert_with(|| {
                self.changes += 1;
                Image { size_bytes, nodes: NodeSet::default(), node_count: 0 }
            });
            image.nodes.insert(node);
            image.node_count += 1;
        }
        before.iter().for_each(|name| interner.release(*name));
    }

    /// The number of stored entries, for tests.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.by_name.len()
    }
}
