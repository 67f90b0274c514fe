//! Topology spread: for each distinct selector of a spread constraint, how many pods it counts on each node.
//!
//! In: selectors of pending pods; pods added to and removed from nodes. Out: counts by node. As in kube-scheduler,
//! terminating pods do not count, and the empty selector counts none.
//!
//! A group is indexed by a label pair that it requires, so that a pod finds the groups that count it by its own pairs.
//! A group that no pending pod uses is kept up to date for a while: the next pod of the same workload usually comes
//! soon, and recounting would visit all its siblings. Invariant: each group's counts equal a count over all placed
//! pods.

use std::collections::{HashMap, VecDeque};

use rustc_hash::FxHashMap;

use crate::affinity::{Requirement, Selector};
use crate::storage::arena::{Arena, DenseId, NodeId};
use crate::storage::intern::{Interner, Symbol};

/// The maximum number of unused groups to keep.
const IDLE_MAX: usize = 4096;

/// A requirement with more values than this is not used as an index key.
const FILED_VALUES_MAX: usize = 8;

/// The number of pods per node, without zeros; sorted by node id.
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

/// A group of pods; valid until the last pod that uses it is placed or deleted.
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
    /// The change counter at the last change of the counts.
    pub(crate) changed: u64,
    users: u32,
}

/// A namespace, and the required label pair if there is one.
type IndexKey = (Symbol, Option<(Symbol, Symbol)>);

#[derive(Debug, Default)]
pub(crate) struct Groups {
    arena: Arena<GroupId, Group>,
    /// Tenants choose selectors, hence std's keyed hash. Never iterated.
    by_content: HashMap<(Symbol, Selector), GroupId>,
    filed: FxHashMap<IndexKey, Vec<GroupId>>,
    /// Groups that were unused when they were added here, the oldest first.
    idle: VecDeque<GroupId>,
    changes: u64,
}

impl Groups {
    pub(crate) fn get(&self, id: GroupId) -> Option<&Group> {
        self.arena.get(id)
    }

    pub(crate) fn find(&self, namespace: Symbol, selector: &Selector) -> Option<GroupId> {
        // Cloning is acceptable: only the slow path, for pods that are not pending, calls this.
        self.by_content.get(&(namespace, selector.clone())).copied()
    }

    /// Takes ownership of the selector and of one use of the namespace. The returned flag says whether the group is new
    /// and must be counted.
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
        // It may be in use again.
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

    /// Adds `by` pods with these labels to a node's counts.
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

    /// Sets the counts of a new group.
    pub(crate) fn fill(&mut self, id: GroupId, nodes: impl Iterator<Item = NodeId>) {
        if let Some(group) = self.arena.get_mut(id) {
            nodes.for_each(|node| group.tally.change(node, 1));
        }
    }

    /// Drops unused groups, for tests.
    #[cfg(test)]
    pub(crate) fn forget_idle(&mut self, interner: &mut Interner) -> usize {
        while !self.idle.is_empty() {
            self.drop_oldest_idle(interner);
        }
        self.arena.len() + self.by_content.len() + self.filed.len()
    }
}

/// The index keys of a group; empty if it counts no pod.
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
