//! Links between profiles and the terms that match them.
//!
//! In: a new profile, a new term, a namespace with changed labels. Out: links in both directions, and updated counts.
//! Invariant: a term and a profile are linked exactly when the term matches the profile.

use std::sync::Arc;

use super::profiles::remove_from;
use super::selector::{Pairs, Requirement, Selector};
use super::term::Term;
use super::{Affinity, ProfileId, TermId};
use crate::storage::intern::Symbol;
use crate::world::nodes::Namespaces;

impl Affinity {
    /// The labels of a namespace changed; an unknown namespace has no labels. Returns whether any term starts or stops
    /// selecting this namespace.
    pub(crate) fn namespace_changed(&mut self, namespace: Symbol, before: &Pairs, after: &Pairs) -> bool {
        let affected: Vec<(TermId, bool)> = self
            .terms
            .with_namespace_selector()
            .filter_map(|id| {
                let term = &self.terms.get(id)?.term;
                let (was, is) = (term.looks_in(namespace, before), term.looks_in(namespace, after));
                (was != is).then_some((id, is))
            })
            .collect();
        for profile in self.profiles.in_namespace(namespace).to_vec() {
            for &(term, is) in &affected {
                let (Some(kept), Some(other)) = (self.terms.get(term), self.profiles.get(profile)) else { continue };
                if kept.term.selector.matches(other.labels.pairs()) {
                    if is { self.link(term, profile) } else { self.unlink(term, profile) }
                }
            }
        }
        !affected.is_empty()
    }

    /// Finds the terms that a new profile satisfies.
    pub(super) fn match_profile(&mut self, id: ProfileId, namespaces: &Namespaces) {
        let Some(profile) = self.profiles.get(id) else { return };
        let namespace = profile.namespace;
        for term in self.terms_for(namespace, namespaces.labels(namespace), profile.labels.pairs()) {
            self.link(term, id);
        }
    }

    /// The terms that match a pod with these labels.
    pub(super) fn terms_for(&self, namespace: Symbol, namespace_labels: &Pairs, labels: &Pairs) -> Vec<TermId> {
        let candidates = self.terms.candidates(namespace, labels);
        let matching = candidates.filter(|(_, term)| term.matches(namespace, namespace_labels, labels));
        matching.map(|(id, _)| id).collect()
    }

    /// Finds the profiles that satisfy a new term.
    pub(super) fn match_term(&mut self, id: TermId, namespaces: &Namespaces) {
        let Some(term) = self.terms.get(id).map(|kept| Arc::clone(&kept.term)) else { return };
        for profile in self.profiles_for(&term, namespaces) {
            self.link(id, profile);
        }
    }

    /// The profiles that satisfy a term.
    pub(super) fn profiles_for(&self, term: &Term, namespaces: &Namespaces) -> Vec<ProfileId> {
        let mut profiles = self.profiles_that_may_satisfy(term);
        profiles.retain(|&profile| {
            let Some(profile) = self.profiles.get(profile) else { return false };
            term.matches(profile.namespace, namespaces.labels(profile.namespace), profile.labels.pairs())
        });
        profiles
    }

    /// The shortest indexed list that contains all profiles that can satisfy the term.
    fn profiles_that_may_satisfy(&self, term: &Term) -> Vec<ProfileId> {
        if term.selector == Selector::Nothing {
            return Vec::new();
        }
        let mut lists: Vec<Vec<&[ProfileId]>> = Vec::new();
        if term.namespaces.selector == Selector::Nothing {
            lists.push(term.namespaces.names.iter().map(|name| self.profiles.in_namespace(*name)).collect());
        }
        for requirement in term.selector.requirements() {
            if let Requirement::In(key, values) = requirement {
                lists.push(values.iter().map(|value| self.profiles.with_pair((*key, *value))).collect());
            }
        }
        let shortest = lists.into_iter().min_by_key(|lists| lists.iter().map(|list| list.len()).sum::<usize>());
        shortest.map_or_else(|| self.profiles.ids().collect(), |lists| lists.concat())
    }

    fn link(&mut self, term: TermId, profile: ProfileId) {
        if let (Some(kept), Some(other)) = (self.terms.get_mut(term), self.profiles.get_mut(profile)) {
            kept.profiles.push(profile);
            other.terms.push(term);
            self.count_matches(term, profile, 1);
        }
    }

    fn unlink(&mut self, term: TermId, profile: ProfileId) {
        if let (Some(kept), Some(other)) = (self.terms.get_mut(term), self.profiles.get_mut(profile)) {
            remove_from(&mut kept.profiles, profile);
            remove_from(&mut other.terms, term);
            self.count_matches(term, profile, -1);
        }
    }
}
