//! A set of nodes as a bitset over their dense ids.
//!
//! In: node ids below the width the set was made for, and beyond (it grows). Out: membership, set operations on whole words.
//! Invariant: no bit is set at or beyond the width.

use model::NodeId;
use model::arena::DenseId;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSet {
    words: Vec<u64>,
}

impl NodeSet {
    /// An empty set with room for nodes whose index is below `width`.
    pub fn with_width(width: usize) -> Self {
        Self { words: vec![0; width.div_ceil(64)] }
    }

    /// Empties the set and gives it this width.
    pub fn reset(&mut self, width: usize) {
        self.words.clear();
        self.words.resize(width.div_ceil(64), 0);
    }

    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    pub fn insert(&mut self, node: NodeId) {
        let (word, bit) = (node.index() / 64, node.index() % 64);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << bit;
    }

    pub fn remove(&mut self, node: NodeId) {
        if let Some(word) = self.words.get_mut(node.index() / 64) {
            *word &= !(1 << (node.index() % 64));
        }
    }

    pub fn contains(&self, node: NodeId) -> bool {
        self.words.get(node.index() / 64).is_some_and(|word| word & (1 << (node.index() % 64)) != 0)
    }

    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// In the order of ids.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.words.iter().enumerate().flat_map(|(place, &word)| Bits(word).map(move |bit| node(place * 64 + bit)))
    }

    pub fn union_with(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    pub fn intersect_with(&mut self, other: &Self) {
        let common = self.words.len().min(other.words.len());
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
        self.words[common..].fill(0);
    }

    pub fn subtract(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= !other;
        }
    }

    /// Makes it a copy of the other one, in the room it has.
    pub fn copy_from(&mut self, other: &Self) {
        self.words.clone_from(&other.words);
    }

    /// The bits, 64 nodes to a word, in the order of ids.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        let mut set = Self::default();
        for node in nodes {
            set.insert(node);
        }
        set
    }
}

/// The index fits: it came from a node id.
fn node(index: usize) -> NodeId {
    NodeId::from_index(index as u32)
}

struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn both(indexes: &[u32]) -> (NodeSet, BTreeSet<NodeId>) {
        let nodes = indexes.iter().map(|&index| NodeId::from_index(index));
        (nodes.clone().collect(), nodes.collect())
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_set(a in proptest::collection::vec(0u32..200, 0..30), b in proptest::collection::vec(0u32..200, 0..30)) {
            let ((a, plain_a), (b, plain_b)) = (both(&a), both(&b));
            prop_assert!(a.iter().eq(plain_a.iter().copied()));
            prop_assert_eq!(a.len(), plain_a.len());
            prop_assert_eq!(a.is_empty(), plain_a.is_empty());
            let combined = |combine: fn(&mut NodeSet, &NodeSet)| { let mut set = a.clone(); combine(&mut set, &b); set };
            prop_assert!(combined(NodeSet::union_with).iter().eq(plain_a.union(&plain_b).copied()));
            prop_assert!(combined(NodeSet::intersect_with).iter().eq(plain_a.intersection(&plain_b).copied()));
            prop_assert!(combined(NodeSet::subtract).iter().eq(plain_a.difference(&plain_b).copied()));
            for index in 0..220 {
                let node = NodeId::from_index(index);
                prop_assert_eq!(a.contains(node), plain_a.contains(&node));
            }
        }
    }
}
