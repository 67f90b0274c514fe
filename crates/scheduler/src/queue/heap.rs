//! The active pods in the order of the QueueSort plugin.
//!
//! In: pods with their sort key and a ticket. Out: the first pod. A pod that leaves early is not removed from the heap:
//! its ticket no longer matches its entry, and the queue skips it when it is popped. Equal pods are ordered by ticket.

use std::cmp::Ordering;

use model::PodId;

use crate::framework::sort_key::SortKey;

#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) key: SortKey,
    pub(super) ticket: u64,
    pub(super) pod: PodId,
}

#[derive(Debug, Default)]
pub(super) struct Heap {
    items: Vec<Item>,
}

impl Heap {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn push(&mut self, item: Item) {
        self.items.push(item);
        let mut child = self.items.len() - 1;
        while child > 0 {
            let parent = (child - 1) / 2;
            if !self.before(child, parent) {
                break;
            }
            self.items.swap(child, parent);
            child = parent;
        }
    }

    pub(super) fn pop(&mut self) -> Option<Item> {
        if self.items.is_empty() {
            return None;
        }
        let first = self.items.swap_remove(0);
        self.sink(0);
        Some(first)
    }

    /// Drops what is passed over anyway, when that is most of it.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Item) -> bool) {
        self.items.retain(keep);
        for parent in (0..self.items.len() / 2).rev() {
            self.sink(parent);
        }
    }

    fn sink(&mut self, mut parent: usize) {
        loop {
            let (left, right) = (2 * parent + 1, 2 * parent + 2);
            let mut first = parent;
            for child in [left, right] {
                if child < self.items.len() && self.before(child, first) {
                    first = child;
                }
            }
            if first == parent {
                return;
            }
            self.items.swap(parent, first);
            parent = first;
        }
    }

    fn before(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.items[a], &self.items[b]);
        a.key.compare(&b.key).then(a.ticket.cmp(&b.ticket)) == Ordering::Less
    }
}
