//! One term of pod affinity or anti-affinity: which pods it is about, and between which places it holds.
//!
//! In: a term as Kubernetes writes it, and the namespace of the pod that has it. Out: whether it matches a pod.
//!
//! Invariants: the meaning is that of kube-scheduler. Namespaces are the union of the names and of those the selector
//! picks; the pod's own when neither is given. A namespace that is not known has no labels.

use super::selector::{Pairs, Selector};
use crate::event::TermFacts;
use crate::intern::{Interner, Symbol};

/// In which namespaces a term looks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamespaceScope {
    /// By name, sorted; none when the selector picks all.
    pub names: Box<[Symbol]>,
    pub selector: Selector,
}

impl NamespaceScope {
    fn acquire(facts: &TermFacts, own: &str, interner: &mut Interner) -> Self {
        let selector = Selector::acquire(facts.namespace_selector.as_ref(), interner);
        let own = (facts.namespaces.is_empty() && facts.namespace_selector.is_none()).then_some(own);
        let given = facts.namespaces.iter().map(String::as_str).filter(|_| !selector.is_everything());
        let mut names: Vec<&str> = given.chain(own).collect();
        names.sort_unstable();
        names.dedup();
        let mut names: Box<[Symbol]> = names.into_iter().map(|name| interner.acquire(name)).collect();
        names.sort_unstable();
        Self { names, selector }
    }

    pub fn contains(&self, namespace: Symbol, labels: &[(Symbol, Symbol)]) -> bool {
        self.names.contains(&namespace) || self.selector.matches(labels)
    }
}

/// A term; equal ones are kept once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// The node label whose values are the places.
    pub topology_key: Symbol,
    pub selector: Selector,
    pub namespaces: NamespaceScope,
}

impl Term {
    pub(crate) fn acquire(facts: &TermFacts, own_namespace: &str, interner: &mut Interner) -> Self {
        Self {
            topology_key: interner.acquire(&facts.topology_key),
            selector: Selector::acquire(facts.selector.as_ref(), interner),
            namespaces: NamespaceScope::acquire(facts, own_namespace, interner),
        }
    }

    pub(crate) fn release(&self, interner: &mut Interner) {
        interner.release(self.topology_key);
        self.selector.release(interner);
        self.namespaces.selector.release(interner);
        self.namespaces.names.iter().for_each(|name| interner.release(*name));
    }

    /// Whether it matches a pod with these labels, in a namespace with these.
    pub fn matches(&self, namespace: Symbol, namespace_labels: &Pairs, labels: &Pairs) -> bool {
        self.namespaces.contains(namespace, namespace_labels) && self.selector.matches(labels)
    }

    /// The same for a pod that is being placed and looks at the pods that are there with its own terms. Here kube-scheduler
    /// takes a namespace selector that empty labels satisfy (`NotIn`, `DoesNotExist`) to pick every namespace.
    pub fn matches_for_incoming(&self, namespace: Symbol, namespace_labels: &Pairs, labels: &Pairs) -> bool {
        let every_namespace = self.namespaces.selector.matches(&[]);
        (every_namespace || self.namespaces.contains(namespace, namespace_labels)) && self.selector.matches(labels)
    }
}
