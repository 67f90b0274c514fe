//! Pods that are spread: for each distinct selector of a spread constraint, how many pods it counts on each node.
//!
//! In: selectors that waiting pods have; pods put on nodes and taken off. Out: counts by node. Pods that are being deleted do not
//! count, and the empty selector counts none, as in kube-scheduler.
//!
//! A group is filed under a label pair that it requires, so that a pod finds the groups that count it by its own pairs. A
//! group that no waiting pod needs is kept up to date for a while: the next pod of the same workload comes soon, and counting
//! anew means to look at all its siblings. Invariant: each group's counts are what a count of all placed pods would give.

use std::collections::{HashMap, VecDeque};

use rustc_hash::FxHashMap;

use crate::affinity::{Requirement, Selector};
use crate::storage::arena::{Arena, DenseId, NodeId};
use crate::storage::intern::{Interner, Symbol};

/// So many groups that nobody needs are kept.
const IDLE_MAX: usize = 4096;

/// A requirement with more values than this is not filed by them.
const FILED_VALUES_MAX: usize = 8;

/// How many pods are on each node, where there are any; by node id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTally(Vec<(NodeId, u32)>);

impl NodeTally {
    pub(crate) fn change(&mut self, node: NodeId, by: i32) {
        match self.0.binary_search_by_key(&node, |&(node, _)| node) {
            Ok(position) => {
                self.0[position].1 = self.0[position].1.saturating_add_signed(by);
                if self.0[position].1 == 0 {
                    self.0.remove(position);
                }
            }
            Err(position) => {
                if let Ok(count @ 1..) = u32::try_from(by) {
                    self.0.insert(position, (node, count));
                }
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (NodeId, u32)> {
        self.0.iter().copied()
    }

    pub fn get(&self, node: NodeId) -> u32 {
        self.0.binary_search_by_key(&node, |&(node, _)| node).map_or(0, |position| self.0[position].1)
    }
}

/// A group of pods; means something until the last pod that needs it is placed or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupId(u32);

impl DenseId for GroupId {
    fn from_index(index: u32) -> Self {
        Self(index)
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) namespace: Symbol,
    pub(crate) selector: Selector,
    pub(crate) tally: NodeTally,
    /// When the counts changed last, by a count of changes.
    pub(crate) changed: u64,
    users: u32,
}

/// A namespace, and a label pair where one is required.
type IndexKey = (Symbol, Option<(Symbol, Symbol)>);

#[derive(Debug, Default)]
pub(crate) struct Groups {
    arena: Arena<GroupId, Group>,
    /// Tenants choose selectors, hence std's keyed hash. Never iterated.
    by_content: HashMap<(Symbol, Selector), GroupId>,
    filed: FxHashMap<IndexKey, Vec<GroupId>>,
    /// Groups that nobody needed when they were put here, the longest ago first.
    idle: VecDeque<GroupId>,
    changes: u64,
}

impl Groups {
    pub(crate) fn get(&self, id: GroupId) -> Option<&Group> {
        self.arena.get(id)
    }

    pub(crate) fn find(&self, namespace: Symbol, selector: &Selector) -> Option<GroupId> {
        // Slow ways ask this alone: those of pods that are not waiting.
        self.by_content.get(&(namespace, selector.clone())).copied()
    }

    /// Takes over the selector and a use of the namespace. A new group has to be counted.
    pub(crate) fn acquire(
        &mut self,
        namespace: Symbol,
        selector: Selector,
        interner: &mut Interner,
    ) -> (GroupId, bool) {
        let content = (namespace, selector);
        if let Some(&id) = self.by_content.get(&content) {
            content.1.release(interner);
            interner.release(namespace);
            if let Some(group) = self.arena.get_mut(id) {
                group.users += 1;
            }
            return (id, false);
        }
        let selector = content.1.clone();
        self.changes += 1;
        let group = Group { namespace, selector, tally: NodeTally::default(), changed: self.changes, users: 1 };
        let keys = index_keys(&group);
        let id = self.arena.insert(group);
        self.by_content.insert(content, id);
        for key in keys {
            self.filed.entry(key).or_default().push(id);
        }
        (id, true)
    }

    pub(crate) fn release(&mut self, id: GroupId, interner: &mut Interner) {
        let Some(group) = self.arena.get_mut(id) else { return };
        group.users -= 1;
        if group.users == 0 {
            self.idle.push_back(id);
        }
        while self.idle.len() > IDLE_MAX {
            self.drop_oldest_idle(interner);
        }
    }

    fn drop_oldest_idle(&mut self, interner: &mut Interner) {
        let Some(id) = self.idle.pop_front() else { return };
        // It may be needed again since.
        if self.arena.get(id).is_none_or(|group| group.users > 0) {
            return;
        }
        let Some(group) = self.arena.remove(id) else { return };
        for key in index_keys(&group) {
            if let Some(filed) = self.filed.get_mut(&key) {
                filed.retain(|other| *other != id);
                if filed.is_empty() {
                    self.filed.remove(&key);
                }
            }
        }
        group.selector.release(interner);
        interner.release(group.namespace);
        self.by_content.remove(&(group.namespace, group.selector));
    }

    /// One pod with these labels more or less on a node.
    pub(crate) fn count(&mut self, namespace: Symbol, labels: &[(Symbol, Symbol)], node: NodeId, by: i32) {
        if self.filed.is_empty() {
            return;
        }
        let pairs = std::iter::once(None).chain(labels.iter().copied().map(Some));
        for key in pairs.map(|pair| (namespace, pair)) {
            for id in self.filed.get(&key).into_iter().flatten() {
                if let Some(group) = self.arena.get_mut(*id)
                    && group.selector.matches(labels)
                {
                    self.changes += 1;
                    group.tally.change(node, by);
                    group.changed = self.changes;
                }
            }
        }
    }

    /// The counts of a new group.
    pub(crate) fn fill(&mut self, id: GroupId, nodes: impl Iterator<Item = NodeId>) {
        if let Some(group) = self.arena.get_mut(id) {
            nodes.for_each(|node| group.tally.change(node, 1));
        }
    }

    /// Forgets what nobody needs, for tests.
    #[cfg(test)]
    pub(crate) fn forget_idle(&mut self, interner: &mut Interner) -> usize {
        while !self.idle.is_empty() {
            self.drop_oldest_idle(interner);
        }
        self.arena.len() + self.by_content.len() + self.filed.len()
    }
}

/// Where a group is filed; nowhere when it counts no pod.
fn index_keys(group: &Group) -> Vec<IndexKey> {
    if group.selector == Selector::Nothing || group.selector.is_everything() {
        return Vec::new();
    }
    let by_values = group.selector.requirements().iter().filter_map(|requirement| match requirement {
        Requirement::In(key, values) if values.len() <= FILED_VALUES_MAX => Some((*key, values)),
        _ => None,
    });
    match by_values.min_by_key(|(_, values)| values.len()) {
        Some((key, values)) => values.iter().map(|value| (group.namespace, Some((key, *value)))).collect(),
        None => vec![(group.namespace, None)],
    }
}
