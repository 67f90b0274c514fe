//! Node labels, one column per key: the value of each node, as a small number.
//!
//! In: the labels of each node. Out: per key the value of each node, and the nodes that have the key, so that a
//! selector over thousands of nodes compares numbers, and nodes with the same value (a zone) can be counted in a plain
//! array.
//!
//! Invariants: two nodes have the same number under a key exactly when they have the same value. Each value holds one
//! use of its symbol, each column one of its key.

use rustc_hash::FxHashMap;

use crate::storage::arena::{DenseId, NodeId};
use crate::storage::intern::{Interner, Symbol};
use crate::storage::label_set::LabelSet;
use crate::storage::node_set::NodeSet;

/// A key that more nodes have than this is stored as an array, otherwise as a list, because a label may be on one node
/// only.
const LISTED_MAX: usize = 64;

/// A label value, as a number; valid only within its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueId(u32);

impl ValueId {
    const NONE: Self = Self(u32::MAX);

    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
enum Values {
    Listed(Vec<(NodeId, ValueId)>),
    /// By node id.
    Array(Vec<ValueId>),
}

#[derive(Debug)]
struct Value {
    symbol: Symbol,
    nodes: u32,
}

/// One label key, over all nodes.
#[derive(Debug)]
pub struct LabelColumn {
    of_node: Values,
    nodes: NodeSet,
    values: Vec<Option<Value>>,
    by_symbol: FxHashMap<Symbol, ValueId>,
    free: Vec<ValueId>,
}

impl Default for LabelColumn {
    fn default() -> Self {
        Self {
            of_node: Values::Listed(Vec::new()),
            nodes: NodeSet::default(),
            values: Vec::new(),
            by_symbol: FxHashMap::default(),
            free: Vec::new(),
        }
    }
}

impl LabelColumn {
    pub fn value_of(&self, node: NodeId) -> Option<ValueId> {
        match &self.of_node {
            Values::Listed(_) if !self.nodes.contains(node) => None,
            Values::Listed(list) => list.iter().find(|(other, _)| *other == node).map(|(_, value)| *value),
            Values::Array(array) => array.get(node.index()).copied().filter(|value| *value != ValueId::NONE),
        }
    }

    /// The nodes that have the key.
    pub fn nodes(&self) -> &NodeSet {
        &self.nodes
    }

    /// The id of this value, if any node has it.
    pub fn value(&self, symbol: Symbol) -> Option<ValueId> {
        self.by_symbol.get(&symbol).copied()
    }

    /// All values with their symbols.
    pub fn values(&self) -> impl Iterator<Item = (ValueId, Symbol)> {
        let numbered = (0u32..).map(ValueId).zip(&self.values);
        numbered.filter_map(|(id, value)| Some((id, value.as_ref()?.symbol)))
    }

    /// The number of distinct values.
    pub fn value_count(&self) -> usize {
        self.by_symbol.len()
    }

    /// One more than the greatest index of a value.
    pub fn width(&self) -> usize {
        self.values.len()
    }

    fn set(&mut self, node: NodeId, symbol: Symbol, interner: &mut Interner) {
        let value = self.by_symbol.get(&symbol).copied().unwrap_or_else(|| {
            interner.retain(symbol);
            let new = Some(Value { symbol, nodes: 0 });
            let id = self.free.pop().unwrap_or_else(|| {
                self.values.push(None);
                // The cast is lossless: there are at most as many values as nodes, and node ids have 32 bits.
                ValueId(self.values.len() as u32 - 1)
            });
            self.values[id.index()] = new;
            self.by_symbol.insert(symbol, id);
            id
        });
        if let Some(kept) = &mut self.values[value.index()] {
            kept.nodes += 1;
        }
        self.nodes.insert(node);
        match &mut self.of_node {
            Values::Listed(list) if list.len() < LISTED_MAX => list.push((node, value)),
            Values::Listed(list) => {
                let mut array = Vec::new();
                for (node, value) in list.drain(..).chain([(node, value)]) {
                    put(&mut array, node, value);
                }
                self.of_node = Values::Array(array);
            }
            Values::Array(array) => put(array, node, value),
        }
    }

    fn unset(&mut self, node: NodeId, interner: &mut Interner) {
        let Some(value) = self.value_of(node) else { return };
        self.nodes.remove(node);
        match &mut self.of_node {
            Values::Listed(list) => list.retain(|(other, _)| *other != node),
            Values::Array(array) => array[node.index()] = ValueId::NONE,
        }
        let slot = &mut self.values[value.index()];
        if let Some(kept) = slot {
            kept.nodes -= 1;
            if kept.nodes == 0 {
                self.by_symbol.remove(&kept.symbol);
                interner.release(kept.symbol);
                *slot = None;
                self.free.push(value);
            }
        }
    }
}

fn put(array: &mut Vec<ValueId>, node: NodeId, value: ValueId) {
    if array.len() <= node.index() {
        array.resize(node.index() + 1, ValueId::NONE);
    }
    array[node.index()] = value;
}

#[derive(Debug, Default)]
pub(crate) struct NodeLabels(FxHashMap<Symbol, LabelColumn>);

impl NodeLabels {
    pub(crate) fn column(&self, key: Symbol) -> Option<&LabelColumn> {
        self.0.get(&key)
    }

    /// Replaces the labels of a node.
    pub(crate) fn change(
        &mut self,
        node: NodeId,
        before: &[(Symbol, Symbol)],
        after: &LabelSet,
        interner: &mut Interner,
    ) {
        for &(key, value) in after.pairs() {
            if before.contains(&(key, value)) {
                continue;
            }
            let column = self.0.entry(key).or_insert_with(|| {
                interner.retain(key);
                LabelColumn::default()
            });
            column.unset(node, interner);
            column.set(node, value, interner);
        }
        for &(key, _) in before {
            if after.get(key).is_none() {
                self.unset(node, key, interner);
            }
        }
    }

    pub(crate) fn remove(&mut self, node: NodeId, before: &[(Symbol, Symbol)], interner: &mut Interner) {
        before.iter().for_each(|&(key, _)| self.unset(node, key, interner));
    }

    fn unset(&mut self, node: NodeId, key: Symbol, interner: &mut Interner) {
        let Some(column) = self.0.get_mut(&key) else { return };
        column.unset(node, interner);
        if column.nodes.is_empty() {
            self.0.remove(&key);
            interner.release(key);
        }
    }

    /// The number of stored columns, for tests.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.0.len()
    }
}
