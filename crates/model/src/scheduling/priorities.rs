//! The priorities of the pods on each node, so that a node without a pod of lower priority is skipped without a look at
//! its pods.
//!
//! In: pods as they come and go. Out: the lowest priority on a node, and of all nodes. A node has few distinct
//! priorities, so they are a short list.

use std::collections::BTreeMap;

use crate::storage::arena::{DenseId, NodeId};

#[derive(Debug, Default)]
pub(crate) struct Priorities {
    /// By node index: the number of pods by priority, sorted.
    on_node: Vec<Vec<(i32, u32)>>,
    anywhere: BTreeMap<i32, u32>,
}

impl Priorities {
    pub(crate) fn count(&mut self, node: NodeId, priority: i32, by: i32) {
        if self.on_node.len() <= node.index() {
            self.on_node.resize(node.index() + 1, Vec::new());
        }
        let counts = &mut self.on_node[node.index()];
        match counts.binary_search_by_key(&priority, |(priority, _)| *priority) {
            Ok(at) => {
                counts[at].1 = counts[at].1.saturating_add_signed(by);
                if counts[at].1 == 0 {
                    counts.remove(at);
                }
            }
            Err(at) if by > 0 => counts.insert(at, (priority, 1)),
            Err(_) => {}
        }
        let of_all = self.anywhere.entry(priority).or_default();
        *of_all = of_all.saturating_add_signed(by);
        if *of_all == 0 {
            self.anywhere.remove(&priority);
        }
    }

    pub(crate) fn lowest_on(&self, node: NodeId) -> Option<i32> {
        self.on_node.get(node.index())?.first().map(|(priority, _)| *priority)
    }

    pub(crate) fn lowest(&self) -> Option<i32> {
        self.anywhere.first_key_value().map(|(priority, _)| *priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_priority_follows_the_pods() {
        let (a, b) = (NodeId::from_index(0), NodeId::from_index(3));
        let mut priorities = Priorities::default();
        let lowest = |priorities: &Priorities| (priorities.lowest_on(a), priorities.lowest_on(b), priorities.lowest());
        assert_eq!(lowest(&priorities), (None, None, None));
        for (node, priority) in [(a, 5), (a, 5), (a, 7), (b, -3)] {
            priorities.count(node, priority, 1);
        }
        assert_eq!(lowest(&priorities), (Some(5), Some(-3), Some(-3)));
        priorities.count(a, 5, -1);
        priorities.count(b, -3, -1);
        assert_eq!(lowest(&priorities), (Some(5), None, Some(5)));
        priorities.count(a, 5, -1);
        assert_eq!(lowest(&priorities), (Some(7), None, Some(7)));
    }
}
