//! Pods by namespace and selector, for callers that count pods without a topology key.
//!
//! In: a selector, in symbols. Out: the pods that satisfy it, found through the label pairs it requires.

use std::sync::Arc;

use super::Affinity;
use super::selector::Selector;
use super::term::{NamespaceScope, Term};
use crate::storage::arena::PodId;
use crate::storage::intern::Symbol;
use crate::storage::label_set::LabelSet;
use crate::world::nodes::Namespaces;

impl Affinity {
    pub(crate) fn labels_of(&self, pod: PodId) -> Option<&Arc<LabelSet>> {
        self.profile_of(pod).map(|profile| &profile.labels)
    }

    /// The pods of a namespace that satisfy the selector, without finished ones.
    pub(crate) fn pods_with(&self, namespace: Symbol, selector: &Selector, namespaces: &Namespaces) -> Vec<PodId> {
        let scope = NamespaceScope { names: Box::new([namespace]), selector: Selector::Nothing };
        // The topology key is not used here; any symbol will do.
        let term =
            Term { topology_key: namespace, selector: selector.clone(), namespaces: scope, also_in: Box::default() };
        self.pods_of(self.profiles_for(&term, namespaces).into_iter()).collect()
    }
}
