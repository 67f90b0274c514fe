//! Sets of nodes, as bits.
//!
//! In: node ids. Out: set operations on a block of nodes at a time. Invariant: two sets are equal exactly when their
//! members are, regardless of their allocated lengths.
//!
//! This wraps `fixedbitset` for two reasons. Its iteration over members, one by one, makes decisions up to 30 % slower
//! than [`Members`], which loops over full blocks; and its sets of different lengths are never equal.

use std::fmt;

use fixedbitset::{Block, FixedBitSet};

use crate::storage::arena::{DenseId, NodeId};

/// A set of nodes.
#[derive(Default)]
pub struct NodeSet {
    bits: FixedBitSet,
}

impl NodeSet {
    /// Returns whether the node is new.
    pub fn insert(&mut self, node: NodeId) -> bool {
        // Grow by whole blocks: ids mostly arrive in order, and each of them would otherwise grow the set.
        self.bits.grow((node.index() | (BLOCK_BITS - 1)) + 1);
        !self.bits.put(node.index())
    }

    /// Returns whether the node was in the set.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let was = self.contains(node);
        if was {
            self.bits.remove(node.index());
        }
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
        self.bits.contains(node.index())
    }

    pub fn union_with(&mut self, other: &Self) {
        self.bits.union_with(&other.bits);
    }

    pub fn intersect_with(&mut self, other: &Self) {
        self.bits.intersect_with(&other.bits);
    }

    pub fn subtract(&mut self, other: &Self) {
        self.bits.difference_with(&other.bits);
    }

    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.bits.is_disjoint(&other.bits)
    }

    pub fn len(&self) -> usize {
        self.bits.count_ones(..)
    }

    pub fn is_empty(&self) -> bool {
        self.bits.is_clear()
    }

    /// Empties the set and keeps its allocation.
    pub fn clear(&mut self) {
        self.bits.clear();
    }

    /// Copies the other set into the existing allocation.
    pub fn copy_from(&mut self, other: &Self) {
        self.bits.clone_from(&other.bits);
    }

    /// The members, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> {
        Members::of(self.bits.as_slice().iter().copied())
    }

    /// The members of both, in the order of their ids.
    pub fn common(&self, other: &Self) -> impl Iterator<Item = NodeId> {
        let blocks = self.bits.as_slice().iter().zip(other.bits.as_slice());
        Members::of(blocks.map(|(block, other)| block & other))
    }
}

const BLOCK_BITS: usize = Block::BITS as usize;

/// Iterates over members, block by block. Optimised because decisions are mostly loops over thousands of nodes.
#[derive(Clone, Debug)]
struct Members<W> {
    blocks: W,
    /// Members of the current block that were not returned yet.
    left: Block,
    /// The first id of the current block, and of the next one.
    first: u32,
    next: u32,
}

impl<W: Iterator<Item = Block>> Members<W> {
    fn of(blocks: W) -> Self {
        Self { blocks, left: 0, first: 0, next: 0 }
    }
}

impl<W: Iterator<Item = Block>> Iterator for Members<W> {
    type Item = NodeId;

    #[inline]
    fn next(&mut self) -> Option<NodeId> {
        while self.left == 0 {
            self.left = self.blocks.next()?;
            self.first = self.next;
            self.next += Block::BITS;
        }
        let bit = self.left.trailing_zeros();
        self.left &= self.left - 1;
        Some(NodeId::from_index(self.first + bit))
    }

    /// If all 64 nodes of a block are members, which is the common case, loops over their ids without testing bits.
    #[inline]
    fn fold<B, F: FnMut(B, NodeId) -> B>(self, init: B, mut f: F) -> B {
        let mut folded = init;
        let mut take = |mut folded: B, first: u32, mut left: Block| {
            if left == Block::MAX {
                for id in first..first + Block::BITS {
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
        for block in self.blocks {
            folded = take(folded, first, block);
            first += Block::BITS;
        }
        folded
    }
}

impl Clone for NodeSet {
    fn clone(&self) -> Self {
        Self { bits: self.bits.clone() }
    }

    fn clone_from(&mut self, source: &Self) {
        self.copy_from(source);
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl PartialEq for NodeSet {
    fn eq(&self, other: &Self) -> bool {
        let (own, other) = (self.bits.as_slice(), other.bits.as_slice());
        let common = own.len().min(other.len());
        let rest = own[common..].iter().chain(&other[common..]);
        own[..common] == other[..common] && rest.into_iter().all(|block| *block == 0)
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
    fn all_ways_to_iterate_return_the_same_members() {
        // Full blocks, empty blocks, and the ends of blocks.
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
