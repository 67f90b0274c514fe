//! Topology domains: which nodes are in one domain under a topology key.
//!
//! In: the labels and the host of each node. Out: per key that a term uses, the domain of a node and the nodes of a
//! domain.
//!
//! A *space* is a topology key as written, or the same key lifted to physical hosts. Under a lifted key, a node's
//! domain is its host; if the host is unknown, the value of the key's own label; if the node lacks the label, it has no
//! domain.
//!
//! Invariants: a space exists as long as a term uses it, a domain as long as a node is in it. Each holds one use of its
//! symbol. Domains are dense numbers, reused after a domain is removed.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::tally::DomainId;
use crate::storage::arena::{Arena, DenseId, NodeId, SpaceId};
use crate::storage::intern::{Interner, Symbol, Symbols};
use crate::storage::label_set::LabelSet;
use crate::storage::node_set::NodeSet;
use crate::world::nodes::Nodes;

/// A domain with more nodes than this stores them as bits.
const LISTED_MAX: usize = 16;

const NO_DOMAIN: DomainId = DomainId(u32::MAX);

/// The nodes of a domain: one under `kubernetes.io/hostname`, a third of all in a zone.
#[derive(Clone, Debug)]
enum Members {
    One(NodeId),
    Few(Vec<NodeId>),
    Many(NodeSet),
}

impl Members {
    fn insert(&mut self, node: NodeId) {
        match self {
            Self::One(one) => *self = Self::Few(vec![*one, node]),
            Self::Few(few) if few.len() < LISTED_MAX => few.push(node),
            Self::Few(few) => *self = Self::Many(few.iter().copied().chain([node]).collect()),
            Self::Many(many) => {
                many.insert(node);
            }
        }
    }

    /// Returns whether any nodes are left.
    fn remove(&mut self, node: NodeId) -> bool {
        match self {
            Self::One(one) => *one != node,
            Self::Few(few) => {
                few.retain(|other| *other != node);
                !few.is_empty()
            }
            Self::Many(many) => {
                many.remove(node);
                !many.is_empty()
            }
        }
    }

    fn mark(&self, set: &mut NodeSet) {
        match self {
            Self::One(one) => {
                set.insert(*one);
            }
            Self::Few(few) => few.iter().for_each(|node| {
                set.insert(*node);
            }),
            Self::Many(many) => set.union_with(many),
        }
    }
}

#[derive(Clone, Debug)]
struct Domain {
    value: Symbol,
    members: Members,
}

#[derive(Clone, Debug)]
pub(crate) struct Space {
    key: Symbol,
    is_lifted: bool,
    /// By node id.
    domain_of: Vec<DomainId>,
    domains: Vec<Option<Domain>>,
    by_value: FxHashMap<Symbol, DomainId>,
    free: Vec<DomainId>,
    /// The nodes that are in a domain.
    inside: NodeSet,
    uses: u32,
}

impl Space {
    fn new(key: Symbol, is_lifted: bool) -> Self {
        Self {
            key,
            is_lifted,
            domain_of: Vec::new(),
            domains: Vec::new(),
            by_value: FxHashMap::default(),
            free: Vec::new(),
            inside: NodeSet::default(),
            uses: 0,
        }
    }

    pub(crate) fn domain(&self, node: NodeId) -> Option<DomainId> {
        self.domain_of.get(node.index()).copied().filter(|domain| *domain != NO_DOMAIN)
    }

    /// The nodes that are in a domain: under a key as written, those with the label.
    pub(crate) fn inside(&self) -> &NodeSet {
        &self.inside
    }

    /// Adds the nodes of the domain to a set.
    pub(crate) fn mark(&self, domain: DomainId, set: &mut NodeSet) {
        if let Some(Some(domain)) = self.domains.get(domain.0 as usize) {
            domain.members.mark(set);
        }
    }

    /// The name of the domain: the label's value or the host.
    pub(crate) fn value(&self, domain: DomainId) -> Option<Symbol> {
        Some(self.domains.get(domain.0 as usize)?.as_ref()?.value)
    }

    /// One more than the greatest domain number.
    pub(crate) fn width(&self) -> usize {
        self.domains.len()
    }

    fn value_for(&self, labels: &LabelSet, host: Option<Symbol>) -> Option<Symbol> {
        host.filter(|_| self.is_lifted).or_else(|| labels.get(self.key))
    }

    fn assign(&mut self, node: NodeId, value: Option<Symbol>, symbols: &mut impl Symbols) {
        let (before, after) = (self.domain(node), value.map(|value| self.domain_for(value, node, symbols)));
        if before == after {
            return;
        }
        if self.domain_of.len() <= node.index() {
            self.domain_of.resize(node.index() + 1, NO_DOMAIN);
        }
        self.domain_of[node.index()] = after.unwrap_or(NO_DOMAIN);
        self.inside.set(node, after.is_some());
        let Some(before) = before else { return };
        let slot = &mut self.domains[before.0 as usize];
        if let Some(domain) = slot
            && !domain.members.remove(node)
        {
            self.by_value.remove(&domain.value);
            symbols.release(domain.value);
            *slot = None;
            self.free.push(before);
        }
    }

    /// Adds the node to the domain with this value.
    fn domain_for(&mut self, value: Symbol, node: NodeId, symbols: &mut impl Symbols) -> DomainId {
        if let Some(&domain) = self.by_value.get(&value) {
            if let Some(Some(known)) = self.domains.get_mut(domain.0 as usize)
                && self.domain_of.get(node.index()) != Some(&domain)
            {
                known.members.insert(node);
            }
            return domain;
        }
        symbols.retain(value);
        let new = Some(Domain { value, members: Members::One(node) });
        let domain = match self.free.pop() {
            Some(domain) => {
                self.domains[domain.0 as usize] = new;
                domain
            }
            None => {
                self.domains.push(new);
                // The cast is lossless: there are at most as many domains as nodes, and node ids have 32 bits.
                DomainId(self.domains.len() as u32 - 1)
            }
        };
        self.by_value.insert(value, domain);
        domain
    }
}

/// The spaces of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spaces {
    pub(crate) written: SpaceId,
    /// Present if the key is lifted.
    pub(crate) host: Option<SpaceId>,
}

#[derive(Debug, Default)]
pub(crate) struct Topology {
    spaces: Arena<SpaceId, Space>,
    by_key: FxHashMap<(Symbol, bool), SpaceId>,
    known: NodeSet,
    /// By node id; each holds a use.
    hosts: Vec<Option<Symbol>>,
    hosts_known: usize,
    nodes_by_host: FxHashMap<Symbol, Members>,
}

impl Topology {
    /// All known nodes.
    pub(crate) fn known(&self) -> &NodeSet {
        &self.known
    }

    /// Whether any node's host is known; if none is, no term can be lifted.
    pub(crate) fn knows_hosts(&self) -> bool {
        self.hosts_known > 0
    }

    pub(crate) fn host(&self, node: NodeId) -> Option<Symbol> {
        self.hosts.get(node.index()).copied().flatten()
    }

    /// The other nodes on the node's host; none if its host is unknown.
    pub(crate) fn beside(&self, node: NodeId) -> NodeSet {
        let mut nodes = NodeSet::default();
        if let Some(members) = self.host(node).and_then(|host| self.nodes_by_host.get(&host)) {
            members.mark(&mut nodes);
        }
        nodes.remove(node);
        nodes
    }

    pub(crate) fn space(&self, id: SpaceId) -> Option<&Space> {
        self.spaces.get(id)
    }

    pub(crate) fn find(&self, key: Symbol, is_lifted: bool) -> Option<SpaceId> {
        self.by_key.get(&(key, is_lifted)).copied()
    }

    pub(crate) fn acquire(
        &mut self,
        key: Symbol,
        is_lifted: bool,
        nodes: &Nodes,
        symbols: &mut impl Symbols,
    ) -> SpaceId {
        let id = self.find(key, is_lifted).unwrap_or_else(|| {
            symbols.retain(key);
            let space = self.made(key, is_lifted, nodes, symbols);
            let id = self.spaces.insert(space);
            self.by_key.insert((key, is_lifted), id);
            id
        });
        if let Some(space) = self.spaces.get_mut(id) {
            space.uses += 1;
        }
        id
    }

    /// A new space for a key that no term uses; visits every node.
    pub(crate) fn made(&self, key: Symbol, is_lifted: bool, nodes: &Nodes, symbols: &mut impl Symbols) -> Space {
        let mut space = Space::new(key, is_lifted);
        for node in self.known.iter() {
            if let Some(kept) = nodes.arena().get(node) {
                let value = space.value_for(&kept.labels, self.host(node));
                space.assign(node, value, symbols);
            }
        }
        space
    }

    pub(crate) fn release(&mut self, id: SpaceId, interner: &mut Interner) {
        let Some(space) = self.spaces.get_mut(id) else { return };
        space.uses -= 1;
        if space.uses > 0 {
            return;
        }
        if let Some(space) = self.spaces.remove(id) {
            self.by_key.remove(&(space.key, space.is_lifted));
            space.domains.iter().flatten().for_each(|domain| interner.release(domain.value));
            interner.release(space.key);
        }
    }

    /// Whether the node's host or any of its domains differ from the stored ones.
    pub(crate) fn differs(&self, node: NodeId, labels: &LabelSet, host: Option<Symbol>) -> bool {
        let moved = |space: &Space| {
            let now = space.value_for(labels, host);
            now != space.domain(node).and_then(|domain| space.value(domain))
        };
        !self.known.contains(node) || self.host(node) != host || self.spaces.iter().any(|(_, space)| moved(space))
    }

    /// Updates the node's host and domains. Takes ownership of the use of the host.
    pub(crate) fn set_node(&mut self, node: NodeId, labels: &LabelSet, host: Option<Symbol>, interner: &mut Interner) {
        self.known.insert(node);
        self.set_host(node, host, interner);
        for space in self.spaces.iter_mut() {
            let value = space.value_for(labels, host);
            space.assign(node, value, interner);
        }
    }

    pub(crate) fn remove_node(&mut self, node: NodeId, interner: &mut Interner) {
        self.known.remove(node);
        for space in self.spaces.iter_mut() {
            space.assign(node, None, interner);
        }
        self.set_host(node, None, interner);
    }

    fn set_host(&mut self, node: NodeId, host: Option<Symbol>, interner: &mut Interner) {
        if self.hosts.len() <= node.index() {
            self.hosts.resize(node.index() + 1, None);
        }
        let before = std::mem::replace(&mut self.hosts[node.index()], host);
        self.hosts_known = self.hosts_known + usize::from(host.is_some()) - usize::from(before.is_some());
        if before != host {
            if let Some(before) = before
                && let Entry::Occupied(mut members) = self.nodes_by_host.entry(before)
                && !members.get_mut().remove(node)
            {
                members.remove();
            }
            if let Some(host) = host {
                let members = self.nodes_by_host.entry(host);
                members.and_modify(|members| members.insert(node)).or_insert(Members::One(node));
            }
        }
        if let Some(before) = before {
            interner.release(before);
        }
    }

    /// The number of stored entries, for tests.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> [usize; 5] {
        let domains = self.spaces.iter().map(|(_, space)| space.by_value.len()).sum();
        [self.spaces.len(), self.by_key.len(), domains, self.hosts_known, self.nodes_by_host.len()]
    }
}
