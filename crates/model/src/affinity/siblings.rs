//! Pods by namespace and selector, for those who count pods without a topology key.
//!
//! In: a selector, in symbols. Out: the pods that satisfy it, found through the label pairs it requires.

use std::sync::Arc;

use super::Affinity;
use super::selector::{Requirement, Selector};
use super::term::{NamespaceScope, Term};
use crate::arena::PodId;
use crate::event::{Operator, RequirementFacts, SelectorFacts};
use crate::intern::{Interner, Symbol};
use crate::label_set::LabelSet;

impl Affinity {
    pub(crate) fn labels_of(&self, pod: PodId) -> Option<&Arc<LabelSet>> {
        self.profile_of(pod).map(|profile| &profile.labels)
    }

    /// The pods of a namespace that satisfy the selector, finished ones not.
    pub(crate) fn pods_with(&self, namespace: Symbol, selector: &Selector) -> Vec<PodId> {
        let namespaces = NamespaceScope { names: Box::new([namespace]), selector: Selector::Nothing };
        // The key says between which places a term holds; here nobody asks.
        let term = Term { topology_key: namespace, selector: selector.clone(), namespaces };
        let profiles = self.profiles_that_may_satisfy(&term);
        let matching = profiles.into_iter().filter(|profile| {
            let profile = self.profiles.get(*profile);
            profile.is_some_and(|profile| profile.namespace == namespace && selector.matches(profile.labels.pairs()))
        });
        let matching: Vec<_> = matching.collect();
        self.pods_of(&matching).collect()
    }
}

impl Selector {
    /// One more use of each of its symbols.
    pub(crate) fn retain(&self, interner: &mut Interner) {
        for requirement in self.requirements() {
            match requirement {
                Requirement::In(key, values) | Requirement::NotIn(key, values) => {
                    interner.retain(*key);
                    values.iter().for_each(|value| interner.retain(*value));
                }
                Requirement::Exists(key) | Requirement::DoesNotExist(key) => interner.retain(*key),
            }
        }
    }

    /// A selector in the symbols there are: what nobody has heard of, nobody has. Holds no uses.
    pub(crate) fn as_known(facts: Option<&SelectorFacts>, interner: &Interner) -> Self {
        let Some(facts) = facts else { return Self::Nothing };
        let equal = facts.labels.iter().map(|(key, value)| RequirementFacts {
            key: key.clone(),
            operator: Operator::In,
            values: vec![value.clone()],
        });
        let mut requirements = Vec::new();
        for facts in equal.chain(facts.expressions.iter().cloned()) {
            let mut values: Vec<Symbol> = facts.values.iter().filter_map(|value| interner.get(value)).collect();
            values.sort_unstable();
            values.dedup();
            let requirement = match (facts.operator, interner.get(&facts.key)) {
                (Operator::In, Some(key)) => Requirement::In(key, values.into()),
                (Operator::NotIn, Some(key)) => Requirement::NotIn(key, values.into()),
                (Operator::Exists, Some(key)) => Requirement::Exists(key),
                (Operator::DoesNotExist, Some(key)) => Requirement::DoesNotExist(key),
                (Operator::NotIn | Operator::DoesNotExist, None) => continue,
                (Operator::In | Operator::Exists, None) | (Operator::Gt | Operator::Lt, _) => return Self::Nothing,
            };
            requirements.push(requirement);
        }
        requirements.sort_unstable();
        requirements.dedup();
        Self::Requires(requirements.into())
    }
}
