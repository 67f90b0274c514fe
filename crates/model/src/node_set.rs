//! Sets of nodes, as bits.
//!
//! In: node ids. Out: the usual operations, 64 nodes at a time. Invariant: two sets are equal exactly when their members
//! are, however long they have been.

use crate::arena::{DenseId, NodeId};

const BITS: usize = u64::BITS as usize;

/// A set of nodes.
#[derive(Clone, Debug, Default)]
pub struct NodeSet {
    words: Vec<u64>,
}

impl NodeSet {
    /// Tells whether it is new.
    pub fn insert(&mut self, node: NodeId) -> bool {
        let (word, bit) = place(node);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let was = self.words[word] & bit != 0;
        self.words[word] |= bit;
        !was
    }

    /// Tells whether it was there.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let (word, bit) = place(node);
        let Some(word) = self.words.get_mut(word) else { return false };
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }

    pub fn set(&mut self, node: NodeId, is_member: bool) {
        if is_member {
            self.insert(node);
        } else {
            self.remove(node);
        }
    }

    pub fn contains(&self, node: NodeId) -> bool {
        let (word, bit) = place(node);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    pub fn union_with(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    pub fn intersect_with(&mut self, other: &Self) {
        self.words.truncate(other.words.len());
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= other);
    }

    pub fn subtract(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= !other);
    }

    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(word, other)| word & other == 0)
    }

    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Empties the set, and keeps its room.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Makes it equal to the other one, in the room it has.
    pub fn copy_from(&mut self, other: &Self) {
        self.words.clone_from(&other.words);
    }

    /// The members, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> {
        self.words.iter().enumerate().flat_map(|(place, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                // Ids have 32 bits, and these came from ids.
                Some(NodeId::from_index((place * BITS) as u32 + bit))
            })
        })
    }
}

fn place(node: NodeId) -> (usize, u64) {
    (node.index() / BITS, 1 << (node.index() % BITS))
}

impl PartialEq for NodeSet {
    fn eq(&self, other: &Self) -> bool {
        let common = self.words.len().min(other.words.len());
        let rest = self.words[common..].iter().chain(&other.words[common..]);
        self.words[..common] == other.words[..common] && rest.into_iter().all(|word| *word == 0)
    }
}

impl Eq for NodeSet {}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<T: IntoIterator<Item = NodeId>>(nodes: T) -> Self {
        let mut set = Self::default();
        nodes.into_iter().for_each(|node| {
            set.insert(node);
        });
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ids(of: &BTreeSet<u32>) -> NodeSet {
        of.iter().map(|&index| NodeId::from_index(index)).collect()
    }

    proptest! {
        #[test]
        fn operations_are_those_of_sets(a in prop::collection::btree_set(0..200u32, 0..20), b in prop::collection::btree_set(0..200u32, 0..20), one in 0..200u32) {
            let changed = |change: fn(&mut NodeSet, &NodeSet)| {
                let mut set = ids(&a);
                change(&mut set, &ids(&b));
                set
            };
            prop_assert_eq!(changed(NodeSet::union_with), ids(&(&a | &b)));
            prop_assert_eq!(changed(NodeSet::intersect_with), ids(&(&a & &b)));
            prop_assert_eq!(changed(NodeSet::subtract), ids(&(&a - &b)));
            prop_assert_eq!(ids(&a).is_disjoint(&ids(&b)), a.is_disjoint(&b));
            prop_assert_eq!(ids(&a) == ids(&b), a == b);
            let mut set = ids(&a);
            prop_assert_eq!((set.len(), set.is_empty()), (a.len(), a.is_empty()));
            prop_assert!(set.iter().map(|node| node.index() as u32).eq(a.iter().copied()));
            let node = NodeId::from_index(one);
            prop_assert_eq!(set.contains(node), a.contains(&one));
            prop_assert_eq!(set.remove(node), a.contains(&one));
            prop_assert!(set.insert(node) && !set.insert(node) && set.contains(node));
        }
    }
}
