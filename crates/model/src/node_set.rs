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
    pub fn iter(&self) -> Members<impl Iterator<Item = u64>> {
        Members::of(self.words.iter().copied())
    }

    /// The members of both, in the order of their ids.
    pub fn common(&self, other: &Self) -> Members<impl Iterator<Item = u64>> {
        Members::of(self.words.iter().zip(&other.words).map(|(word, other)| word & other))
    }
}

/// Walks over members, word by word. A type of its own because loops over thousands of nodes are what decisions are made of.
#[derive(Clone, Debug)]
pub struct Members<W> {
    words: W,
    /// Members of the current word that are still to come.
    left: u64,
    /// The first id of the current word, and of the next one.
    first: u32,
    next: u32,
}

impl<W: Iterator<Item = u64>> Members<W> {
    fn of(words: W) -> Self {
        Self { words, left: 0, first: 0, next: 0 }
    }
}

impl<W: Iterator<Item = u64>> Iterator for Members<W> {
    type Item = NodeId;

    #[inline]
    fn next(&mut self) -> Option<NodeId> {
        while self.left == 0 {
            self.left = self.words.next()?;
            self.first = self.next;
            self.next += u64::BITS;
        }
        let bit = self.left.trailing_zeros();
        self.left &= self.left - 1;
        Some(NodeId::from_index(self.first + bit))
    }

    /// Where all 64 nodes of a word are members, which is the rule, they are counted through.
    #[inline]
    fn fold<B, F: FnMut(B, NodeId) -> B>(self, init: B, mut f: F) -> B {
        let mut folded = init;
        let mut take = |mut folded: B, first: u32, mut left: u64| {
            if left == u64::MAX {
                for id in first..first + u64::BITS {
                    folded = f(folded, NodeId::from_index(id));
                }
                return folded;
            }
            while left != 0 {
                folded = f(folded, NodeId::from_index(first + left.trailing_zeros()));
                left &= left - 1;
            }
            folded
        };
        folded = take(folded, self.first, self.left);
        let mut first = self.next;
        for word in self.words {
            folded = take(folded, first, word);
            first += u64::BITS;
        }
        folded
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

    #[test]
    fn all_ways_to_walk_over_members_are_the_same() {
        // Full words, empty words, and the ends of words.
        let members: Vec<u32> = (0..70).chain([127, 128, 191]).chain(256..320).collect();
        let set: NodeSet = members.iter().map(|&index| NodeId::from_index(index)).collect();
        for taken in 0..=members.len() {
            let mut walk = set.iter();
            let mut walked: Vec<u32> = walk.by_ref().take(taken).map(|node| node.index() as u32).collect();
            walk.for_each(|node| walked.push(node.index() as u32));
            assert_eq!(walked, members, "{taken} one by one, the rest at once");
        }
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
            let common: Vec<u32> = set.common(&ids(&b)).map(|node| node.index() as u32).collect();
            prop_assert_eq!(common, (&a & &b).into_iter().collect::<Vec<_>>());
            let node = NodeId::from_index(one);
            prop_assert_eq!(set.contains(node), a.contains(&one));
            prop_assert_eq!(set.remove(node), a.contains(&one));
            prop_assert!(set.insert(node) && !set.insert(node) && set.contains(node));
        }
    }
}
