//! Nodes by something that many of them have alike: their taints, the features they declare.
//!
//! In: a value per node. Out: the distinct values, each with its nodes, so that a question is asked once per value instead of
//! once per node. Invariant: a value lives as long as a node has it.

use std::collections::HashMap;
use std::hash::Hash;

use crate::storage::arena::{Arena, DenseId, NodeId};
use crate::storage::node_set::NodeSet;

/// One of the distinct values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlaceId(u32);

impl DenseId for PlaceId {
    fn from_index(index: u32) -> Self {
        Self(index)
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub struct Distinct<T> {
    arena: Arena<PlaceId, (T, NodeSet)>,
    /// Never iterated, hence std's keyed hash does no harm.
    by_value: HashMap<T, PlaceId>,
    /// By node id.
    of_node: Vec<Option<PlaceId>>,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Self { arena: Arena::default(), by_value: HashMap::new(), of_node: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Distinct<T> {
    /// The values and their nodes, in an order that only past events decide.
    pub fn iter(&self) -> impl Iterator<Item = (&T, &NodeSet)> {
        self.arena.iter().map(|(_, (value, nodes))| (value, nodes))
    }

    pub fn of(&self, node: NodeId) -> Option<&T> {
        let place = self.of_node.get(node.index()).copied().flatten()?;
        self.arena.get(place).map(|(value, _)| value)
    }

    pub(crate) fn set(&mut self, node: NodeId, value: Option<&T>) {
        if self.of(node) == value {
            return;
        }
        if let Some(place) = self.of_node.get_mut(node.index()).and_then(Option::take)
            && let Some((_, nodes)) = self.arena.get_mut(place)
        {
            nodes.remove(node);
            if nodes.is_empty()
                && let Some((value, _)) = self.arena.remove(place)
            {
                self.by_value.remove(&value);
            }
        }
        let Some(value) = value else { return };
        let place = self.by_value.get(value).copied().unwrap_or_else(|| {
            let place = self.arena.insert((value.clone(), NodeSet::default()));
            self.by_value.insert(value.clone(), place);
            place
        });
        if let Some((_, nodes)) = self.arena.get_mut(place) {
            nodes.insert(node);
        }
        if self.of_node.len() <= node.index() {
            self.of_node.resize(node.index() + 1, None);
        }
        self.of_node[node.index()] = Some(place);
    }
}
