//! The Kubernetes nodes and namespaces.
//!
//! In: their facts. Out: each by name. The keys that match a node to a VM are in `identity`, its pods in `pods`.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::event::{NamespaceFacts, NodeFacts};
use crate::labels::{RULES_KEY, RULES_OF_CLUSTER};
use crate::scheduling::NodeSchedulingFacts;
use crate::storage::arena::{Arena, NodeId};
use crate::storage::intern::{Interner, Symbol};
use crate::storage::label_set::LabelSet;
use crate::storage::node_names::NodeNames;
use crate::storage::uid::Uid;
use crate::world::sync::Generation;

/// A stored node.
#[derive(Debug)]
pub struct Node {
    pub name: Symbol,
    pub uid: Uid,
    pub labels: LabelSet,
    /// The Ready condition is True.
    pub ready: bool,
    /// What a scheduler reads from it, without its images; `None` if no scheduler runs.
    pub scheduling: Option<Arc<NodeSchedulingFacts>>,
    generation: Generation,
}

#[derive(Debug, Default)]
pub(crate) struct Nodes {
    arena: Arena<NodeId, Node>,
    by_name: FxHashMap<Symbol, NodeId>,
    names: NodeNames,
}

impl Nodes {
    pub(crate) fn arena(&self) -> &Arena<NodeId, Node> {
        &self.arena
    }

    pub(crate) fn find(&self, name: Symbol) -> Option<NodeId> {
        self.by_name.get(&name).copied()
    }

    pub(crate) fn named(&self, name: &str) -> Option<NodeId> {
        self.names.find(name)
    }

    /// Returns the node's id, and whether the node is new or its labels or UID changed.
    pub(crate) fn apply(
        &mut self,
        facts: &NodeFacts,
        generation: Generation,
        interner: &mut Interner,
    ) -> (NodeId, bool) {
        let name = interner.acquire(&facts.name);
        let labels = LabelSet::acquire(&facts.labels, interner);
        let uid = Uid::from(facts.uid.as_str());
        // Images are stored by name, for all nodes together: 50 names on each of 5000 nodes need a lot of memory.
        let scheduling = facts.scheduling.as_ref().map(|facts| Arc::new(facts.without_images()));
        let known = self.find(name).and_then(|id| Some((id, self.arena.get_mut(id)?)));
        if let Some((id, node)) = known {
            // The node already holds a use of its name.
            interner.release(name);
            let changed = node.labels != labels || node.uid != uid;
            std::mem::replace(&mut node.labels, labels).release(interner);
            (node.uid, node.ready, node.generation) = (uid, facts.ready, generation);
            node.scheduling = scheduling;
            (id, changed)
        } else {
            let id = self.arena.insert(Node { name, uid, labels, ready: facts.ready, scheduling, generation });
            self.by_name.insert(name, id);
            self.names.insert(&facts.name, id);
            (id, true)
        }
    }

    pub(crate) fn remove(&mut self, id: NodeId, interner: &mut Interner) {
        let Some(node) = self.arena.remove(id) else { return };
        self.by_name.remove(&node.name);
        self.names.remove(interner.text(node.name));
        interner.release(node.name);
        node.labels.release(interner);
    }

    /// The nodes that the relist of this generation did not contain.
    pub(crate) fn not_of(&self, generation: Generation) -> Vec<NodeId> {
        self.arena.iter().filter(|(_, node)| node.generation != generation).map(|(id, _)| id).collect()
    }
}

/// A stored namespace.
#[derive(Debug)]
pub struct Namespace {
    pub uid: Uid,
    pub labels: LabelSet,
    /// The anti-affinity of its pods between nodes does not apply between hosts.
    pub lift_off: bool,
    /// Its label says that DRS rules for its pods may concern the whole cluster.
    pub has_cluster_rules: bool,
    generation: Generation,
}

#[derive(Debug, Default)]
pub(crate) struct Namespaces(FxHashMap<Symbol, Namespace>);

impl Namespaces {
    pub(crate) fn get(&self, name: Symbol) -> Option<&Namespace> {
        self.0.get(&name)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The labels of a namespace; empty if it is not known.
    pub(crate) fn labels(&self, name: Symbol) -> &[(Symbol, Symbol)] {
        self.0.get(&name).map_or(&[], |namespace| namespace.labels.pairs())
    }

    /// Returns the name and the previous namespace, which still holds its symbol uses.
    pub(crate) fn apply(
        &mut self,
        facts: &NamespaceFacts,
        generation: Generation,
        interner: &mut Interner,
    ) -> (Symbol, Option<Namespace>) {
        let name = interner.acquire(&facts.name);
        let labels = LabelSet::acquire(&facts.labels, interner);
        let (uid, lift_off) = (Uid::from(facts.uid.as_str()), facts.lift_off);
        let has_cluster_rules = facts.labels.get(RULES_KEY).is_some_and(|value| value == RULES_OF_CLUSTER);
        let namespace = Namespace { uid, labels, lift_off, has_cluster_rules, generation };
        (name, self.0.insert(name, namespace))
    }

    /// Returns the removed namespace, which still holds its symbol uses.
    pub(crate) fn remove(&mut self, name: Symbol) -> Option<Namespace> {
        self.0.remove(&name)
    }

    /// The namespaces that the relist of this generation did not contain.
    pub(crate) fn not_of(&self, generation: Generation) -> Vec<Symbol> {
        let is_gone = |namespace: &Namespace| namespace.generation != generation;
        let mut gone: Vec<Symbol> =
            self.0.iter().filter(|(_, namespace)| is_gone(namespace)).map(|(&name, _)| name).collect();
        gone.sort_unstable();
        gone
    }
}
