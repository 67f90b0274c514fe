//! Nodes grouped by a value that many of them share: their taints, the features they declare.
//!
//! In: a value per node. Out: the distinct values, each with its nodes, so that a check runs once per value instead of
//! once per node. Invariant: a value is stored as long as a node has it.

use std::collections::HashMap;
use std::hash::Hash;

use crate::storage::arena::{Arena, DenseId, NodeId};
use crate::storage::node_set::NodeSet;

/// One of the distinct values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DistinctId(u32);

impl DenseId for DistinctId {
    fn from_index(index: u32) -> Self {
        Self(index)
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub struct Distinct<T> {
    arena: Arena<DistinctId, (T, NodeSet)>,
    /// Never iterated, so std's keyed hash does not affect results.
    by_value: HashMap<T, DistinctId>,
    /// By node id.
    of_node: Vec<Option<DistinctId>>,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Self { arena: Arena::default(), by_value: HashMap::new(), of_node: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Distinct<T> {
    /// The values and their nodes, in an order that depends on past events only.
    pub fn iter(&self) -> impl Iterator<Item = (&T, &NodeSet)> {
        self.arena.iter().map(|(_, (value, nodes))| (value, nodes))
    }

    pub fn of(&self, node: NodeId) -> Option<&T> {
        let id = self.of_node.get(node.index()).copied().flatten()?;
        self.arena.get(id).map(|(value, _)| value)
    }

    pub(crate) fn set(&mut self, node: NodeId, value: Option<&T>) {
        if self.of(node) == value {
            return;
        }
        if let Some(id) = self.of_node.get_mut(node.index()).and_then(Option::take)
            && let Some((_, nodes)) = self.arena.get_mut(id)
        {
            nodes.remove(node);
            if nodes.is_empty()
                && let Some((value, _)) = self.arena.remove(id)
            {
                self.by_value.remove(&value);
            }
        }
        let Some(value) = value else { return };
        let id = self.by_value.get(value).copied().unwrap_or_else(|| {
            let id = self.arena.insert((value.clone(), NodeSet::default()));
            self.by_value.insert(value.clone(), id);
            id
        });
        if let Some((_, nodes)) = self.arena.get_mut(id) {
            nodes.insert(node);
        }
        if self.of_node.len() <= node.index() {
            self.of_node.resize(node.index() + 1, None);
        }
        self.of_node[node.index()] = Some(id);
    }
}
