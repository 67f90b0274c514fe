//! Services and controllers, whose selectors identify sibling pods.
//!
//! In: their selectors, as they are added, changed and removed. Out: for a pod the selector of its siblings, as
//! kube-scheduler derives it for its default spread constraints.
//!
//! Invariants: only objects in the pod's namespace count; a Service is found by one of its own label pairs, not by a
//! walk over all Services. A stored object holds one use of each of its symbols.

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxHashMap;

use super::facts::{WorkloadFacts, WorkloadKind};
use crate::affinity::{Requirement, Selector};
use crate::storage::intern::{Interner, Symbol};
use crate::world::sync::Generation;

#[derive(Debug)]
struct Kept {
    selector: Selector,
    generation: Generation,
}

type KindInNamespace = (WorkloadKind, Symbol);
/// A namespace and a label pair.
type PairInNamespace = (Symbol, (Symbol, Symbol));

#[derive(Debug, Default)]
pub(crate) struct Workloads {
    /// By kind and namespace; tenants choose the names, hence std's keyed hash within.
    by_name: FxHashMap<KindInNamespace, HashMap<Box<str>, Kept>>,
    /// Services by namespace and the first pair of their selector.
    services: FxHashMap<PairInNamespace, Vec<Box<str>>>,
}

impl Workloads {
    pub(crate) fn apply(&mut self, facts: &WorkloadFacts, generation: Generation, interner: &mut Interner) {
        // Acquire before releasing: strings that stay keep their symbols.
        let namespace = interner.acquire(&facts.namespace);
        let selector = Selector::acquire(facts.selector.as_ref(), interner);
        self.remove((facts.kind, namespace), &facts.name, interner);
        if facts.kind == WorkloadKind::Service
            && let Some(pair) = first_pair(&selector)
        {
            self.services.entry((namespace, pair)).or_default().push(facts.name.as_str().into());
        }
        let names = self.by_name.entry((facts.kind, namespace)).or_default();
        names.insert(facts.name.as_str().into(), Kept { selector, generation });
    }

    pub(crate) fn remove(&mut self, kind_in_namespace: KindInNamespace, name: &str, interner: &mut Interner) {
        let Some(names) = self.by_name.get_mut(&kind_in_namespace) else { return };
        let Some(kept) = names.remove(name) else { return };
        if names.is_empty() {
            self.by_name.remove(&kind_in_namespace);
        }
        let (kind, namespace) = kind_in_namespace;
        if kind == WorkloadKind::Service
            && let Some(pair) = first_pair(&kept.selector)
            && let Some(services) = self.services.get_mut(&(namespace, pair))
        {
            services.retain(|service| **service != *name);
            if services.is_empty() {
                self.services.remove(&(namespace, pair));
            }
        }
        kept.selector.release(interner);
        interner.release(namespace);
    }

    /// The objects that the relist of this generation did not contain.
    pub(crate) fn not_of(&self, kind: WorkloadKind, generation: Generation) -> Vec<(Symbol, Box<str>)> {
        let of_kind = self.by_name.iter().filter(|((of, _), _)| *of == kind);
        let mut gone: Vec<_> = of_kind
            .flat_map(|(&(_, namespace), names)| names.iter().map(move |(name, kept)| (namespace, name, kept)))
            .filter(|(_, _, kept)| kept.generation != generation)
            .map(|(namespace, name, _)| (namespace, name.clone()))
            .collect();
        gone.sort_unstable();
        gone
    }

    /// The selector of a pod's siblings; `None` if no selector applies. It borrows the symbols of the stored objects.
    pub(crate) fn siblings(
        &self,
        namespace: Symbol,
        labels: &[(Symbol, Symbol)],
        controller: Option<(WorkloadKind, &str)>,
    ) -> Option<Selector> {
        let mut merged: BTreeMap<Symbol, Symbol> = BTreeMap::new();
        for pair in labels {
            for service in self.services.get(&(namespace, *pair)).into_iter().flatten() {
                let selector = self.selector((WorkloadKind::Service, namespace), service);
                merged.extend(selector.filter(|selector| selector.matches(labels)).into_iter().flat_map(pairs));
            }
        }
        let mut more: &[Requirement] = &[];
        if let Some((kind, name)) = controller
            && let Some(selector) = self.selector((kind, namespace), name)
        {
            if kind == WorkloadKind::ReplicationController {
                merged.extend(pairs(selector));
            } else {
                more = selector.requirements();
            }
        }
        let equal = merged.into_iter().map(|(key, value)| Requirement::In(key, Box::new([value])));
        let mut requirements: Vec<Requirement> = equal.chain(more.iter().cloned()).collect();
        requirements.sort_unstable();
        requirements.dedup();
        (!requirements.is_empty()).then(|| Selector::Requires(requirements.into()))
    }

    fn selector(&self, kind_in_namespace: KindInNamespace, name: &str) -> Option<&Selector> {
        Some(&self.by_name.get(&kind_in_namespace)?.get(name)?.selector)
    }

    /// The number of stored entries, for tests.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> [usize; 2] {
        [self.by_name.values().map(HashMap::len).sum(), self.services.len()]
    }
}

/// The pairs of a selector made of labels only.
fn pairs(selector: &Selector) -> impl Iterator<Item = (Symbol, Symbol)> {
    selector.requirements().iter().filter_map(|requirement| match requirement {
        Requirement::In(key, values) => values.first().map(|value| (*key, *value)),
        _ => None,
    })
}

fn first_pair(selector: &Selector) -> Option<(Symbol, Symbol)> {
    pairs(selector).next()
}
