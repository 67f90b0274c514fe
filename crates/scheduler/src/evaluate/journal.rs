//! A journal of recent node changes. It lets cached verdicts be updated instead of recomputed.
//!
//! In: each node change. Out: for a position in the journal, the nodes that changed since. Invariants: positions only
//! grow; for a position older than the journal, or older than the last added or removed node, the answer is
//! "everything".

use std::collections::VecDeque;

use model::storage::arena::DenseId;
use model::{NodeId, World};

use model::NodeSet;

/// After more changes than this, recomputing everything is cheaper.
const ENTRIES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(u64);

/// Which part of a node changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aspect {
    /// Its facts from Kubernetes and vSphere.
    Description,
    /// The pods on it.
    Pods,
    /// What only dry runs read: when its pods started, and the pods that are nominated to it.
    DryRun,
}

#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: VecDeque<(NodeId, Aspect)>,
    /// The position of the first entry.
    start: u64,
    all: NodeSet,
    width: usize,
}

/// The nodes that changed since a position.
#[derive(Debug, Default)]
pub(crate) struct Since {
    /// Everything must be recomputed.
    pub(crate) everything: bool,
    pub(crate) described: NodeSet,
    /// Nodes whose description or pods changed.
    pub(crate) either: NodeSet,
    /// Nodes of which anything changed.
    pub(crate) any: NodeSet,
}

impl Journal {
    pub(crate) fn position(&self) -> Position {
        Position(self.start + self.entries.len() as u64)
    }

    /// All nodes.
    pub(crate) fn all(&self) -> &NodeSet {
        &self.all
    }

    /// One more than the greatest node index.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn changed(&mut self, node: NodeId, aspect: Aspect) {
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
            self.start += 1;
        }
        self.entries.push_back((node, aspect));
    }

    /// Nodes were added or removed, or it is unknown what changed.
    pub(crate) fn everything_changed(&mut self, world: &World) {
        self.start = self.position().0 + 1;
        self.entries.clear();
        self.all.clear();
        self.width = 0;
        for node in world.node_ids() {
            self.all.insert(node);
            self.width = self.width.max(node.index() + 1);
        }
    }

    /// Fills `since` with what changed since `position`.
    pub(crate) fn since(&self, position: Position, since: &mut Since) {
        since.described.clear();
        since.either.clear();
        since.any.clear();
        since.everything = position.0 < self.start;
        if since.everything {
            return;
        }
        // The position lies between the first entry and the end, so the cast is lossless.
        for &(node, aspect) in self.entries.range((position.0 - self.start) as usize..) {
            since.any.insert(node);
            if aspect != Aspect::DryRun {
                since.either.insert(node);
            }
            if aspect == Aspect::Description {
                since.described.insert(node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(index: u32) -> NodeId {
        NodeId::from_index(index)
    }

    #[test]
    fn changes_since_a_position_are_listed_until_the_position_is_too_old() {
        let mut journal = Journal::default();
        let (mut since, start) = (Since::default(), journal.position());
        journal.changed(node(3), Aspect::Pods);
        let middle = journal.position();
        journal.changed(node(3), Aspect::Description);
        journal.changed(node(7), Aspect::Pods);
        journal.since(start, &mut since);
        assert_eq!((since.everything, since.either.len(), since.described.len()), (false, 2, 1));
        journal.since(middle, &mut since);
        assert!(since.described.contains(node(3)) && !since.described.contains(node(7)));
        journal.changed(node(5), Aspect::DryRun);
        journal.since(middle, &mut since);
        assert!(since.any.contains(node(5)) && !since.either.contains(node(5)) && since.any.len() == 3);
        journal.since(journal.position(), &mut since);
        assert!(since.either.is_empty());
        for _ in 0..ENTRIES_MAX {
            journal.changed(node(1), Aspect::Pods);
        }
        journal.since(middle, &mut since);
        assert!(since.everything);
    }

    #[test]
    fn an_added_or_removed_node_changes_everything() {
        let mut journal = Journal::default();
        let start = journal.position();
        journal.everything_changed(&World::default());
        let mut since = Since::default();
        journal.since(start, &mut since);
        assert!(since.everything);
        journal.since(journal.position(), &mut since);
        assert!(!since.everything);
    }
}
