//! A pod affinity or anti-affinity term: which pods it matches, and the topology key it applies to.
//!
//! In: a term as Kubernetes writes it, and the namespace of the pod that has it. Out: whether it matches a pod; and the
//! terms that apply to an incoming pod, which are not always the written ones.
//!
//! Invariants: semantics are those of kube-scheduler. Namespaces are the union of the names and of those the selector
//! selects; the pod's own namespace if neither is given. An unknown namespace has no labels.

use super::selector::{Pairs, Selector};
use crate::event::TermFacts;
use crate::storage::intern::{Interner, Symbol, Symbols};

/// The namespaces that a term selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceScope {
    /// Names, sorted; empty if the selector selects all namespaces.
    pub names: Box<[Symbol]>,
    pub selector: Selector,
}

impl NamespaceScope {
    fn acquire<S: Symbols>(facts: &TermFacts, own: &str, symbols: &mut S) -> Self {
        let selector = Selector::acquire(facts.namespace_selector.as_ref(), symbols);
        let own = (facts.namespaces.is_empty() && facts.namespace_selector.is_none()).then_some(own);
        let given = facts.namespaces.iter().map(String::as_str).filter(|_| !selector.is_everything());
        let mut names: Vec<&str> = given.chain(own).collect();
        names.sort_unstable();
        names.dedup();
        let mut names: Box<[Symbol]> = names.into_iter().map(|name| symbols.acquire(name)).collect();
        names.sort_unstable();
        Self { names, selector }
    }

    fn everywhere() -> Self {
        Self { names: Box::default(), selector: Selector::Requires(Box::default()) }
    }

    fn retained<S: Symbols>(&self, symbols: &mut S) -> Self {
        self.names.iter().for_each(|name| symbols.retain(*name));
        Self { names: self.names.clone(), selector: self.selector.retained(symbols) }
    }

    fn release<S: Symbols>(&self, symbols: &mut S) {
        self.names.iter().for_each(|name| symbols.release(*name));
        self.selector.release(symbols);
    }

    /// For the terms of an incoming pod, kube-scheduler treats a namespace selector that empty labels satisfy (`NotIn`,
    /// `DoesNotExist`) as one that selects every namespace.
    fn is_everywhere_for_incoming(&self) -> bool {
        self.selector.matches(&[])
    }

    /// Whether it names this namespace and no other.
    pub fn is_only(&self, namespace: Symbol) -> bool {
        *self.names == [namespace] && self.selector == Selector::Nothing
    }

    pub fn contains(&self, namespace: Symbol, labels: &[(Symbol, Symbol)]) -> bool {
        self.names.contains(&namespace) || self.selector.matches(labels)
    }
}

/// A term; equal terms are stored once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// The node label whose values are the topology domains.
    pub topology_key: Symbol,
    pub selector: Selector,
    pub namespaces: NamespaceScope,
    /// Further scopes, sorted, that must contain the namespace too: from several terms combined into one. Empty in a
    /// term that a pod has written.
    pub also_in: Box<[NamespaceScope]>,
}

impl Term {
    pub(crate) fn acquire<S: Symbols>(facts: &TermFacts, own_namespace: &str, symbols: &mut S) -> Self {
        Self {
            topology_key: symbols.acquire(&facts.topology_key),
            selector: Selector::acquire(facts.selector.as_ref(), symbols),
            namespaces: NamespaceScope::acquire(facts, own_namespace, symbols),
            also_in: Box::default(),
        }
    }

    pub(crate) fn release(&self, interner: &mut Interner) {
        interner.release(self.topology_key);
        self.selector.release(interner);
        self.scopes().for_each(|scope| scope.release(interner));
    }

    fn scopes(&self) -> impl Iterator<Item = &NamespaceScope> {
        std::iter::once(&self.namespaces).chain(&self.also_in)
    }

    /// Whether it depends on the labels of namespaces.
    pub(crate) fn has_namespace_selector(&self) -> bool {
        self.scopes().any(|scope| !scope.selector.requirements().is_empty())
    }

    /// Whether it selects a namespace with these labels.
    pub(crate) fn looks_in(&self, namespace: Symbol, namespace_labels: &Pairs) -> bool {
        self.scopes().all(|scope| scope.contains(namespace, namespace_labels))
    }

    /// Whether it matches a pod with `labels` in a namespace with `namespace_labels`.
    pub fn matches(&self, namespace: Symbol, namespace_labels: &Pairs, labels: &Pairs) -> bool {
        self.looks_in(namespace, namespace_labels) && self.selector.matches(labels)
    }

    /// The term that applies instead of this one to an incoming pod, if they differ.
    pub(crate) fn for_incoming<S: Symbols>(&self, symbols: &mut S) -> Option<Self> {
        let differs = !self.namespaces.selector.is_everything() && self.namespaces.is_everywhere_for_incoming();
        differs.then(|| Self::joint(&[self], self.topology_key, symbols))
    }

    /// One term that matches what all these terms of an incoming pod match, for one topology key: kube-scheduler counts
    /// an existing pod for required affinity only if all terms match it.
    pub(crate) fn joint<S: Symbols>(terms: &[&Self], topology_key: Symbol, symbols: &mut S) -> Self {
        symbols.retain(topology_key);
        let selectors: Vec<Selector> = terms.iter().map(|term| term.selector.retained(symbols)).collect();
        let limits = terms.iter().map(|term| &term.namespaces).filter(|scope| !scope.is_everywhere_for_incoming());
        let mut limits: Vec<&NamespaceScope> = limits.collect();
        limits.sort_unstable();
        limits.dedup();
        let mut scopes = limits.into_iter().map(|scope| scope.retained(symbols)).collect::<Vec<_>>().into_iter();
        Self {
            topology_key,
            selector: Selector::all_of(&selectors, symbols),
            namespaces: scopes.next().unwrap_or_else(NamespaceScope::everywhere),
            also_in: scopes.collect(),
        }
    }
}
