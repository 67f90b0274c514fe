//! The one meaning of affinity terms, kept up to date: which pods carry a term, and which pods it matches.
//!
//! In: pods and namespaces as they come, change and go. Out: for each term its carriers and the pods it matches; for each
//! pod the terms that match it. Both directions without a walk over all pods or all terms.
//!
//! - `selector`, `term`: what a term says. `profiles`: what matters of a pod, once per workload.
//! - `terms`: the distinct terms, and how a new profile finds those that might match it.
//!
//! Invariants: finished pods neither carry nor match; terminating ones do until they are gone; so do pods not yet bound,
//! and callers that mean placed pods look at the node. What is answered equals a comparison of every term with every pod.

mod profiles;
pub mod selector;
mod siblings;
pub mod term;
mod terms;

use std::sync::Arc;

use self::profiles::{Profiles, remove_from};
pub use self::selector::{Requirement, Selector};
pub use self::term::{NamespaceScope, Term};
pub use self::terms::TermId;
use self::terms::Terms;
pub(crate) use crate::arena::ProfileId;
use crate::arena::{DenseId, PodId};
use crate::event::PodFacts;
use crate::intern::{Interner, Symbol};
use crate::label_set::LabelSet;
use crate::nodes::Namespaces;
use crate::world::World;

/// What a pod has a term for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Required affinity.
    Affinity,
    /// Required anti-affinity.
    AntiAffinity,
}

/// What is kept here of a pod.
#[derive(Clone, Copy, Debug)]
struct PodEntry {
    profile: ProfileId,
    /// Where the pod stands in its profile's list; [`NOT_LISTED`] for one that does not count.
    place: u32,
}

/// No list is as long as this: pods have ids of 32 bits.
const NOT_LISTED: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Affinity {
    profiles: Profiles,
    terms: Terms,
    /// By pod id.
    pods: Vec<Option<PodEntry>>,
}

impl Affinity {
    /// Takes in a pod as it is now.
    pub(crate) fn set_pod(&mut self, id: PodId, facts: &PodFacts, namespaces: &Namespaces, interner: &mut Interner) {
        if self.pods.len() <= id.index() {
            self.pods.resize(id.index() + 1, None);
        }
        // First take, then give back: what stays keeps its ids.
        let profile = self.acquire_profile(facts, namespaces, interner);
        let counts = !facts.finished;
        if self.pods[id.index()].is_some_and(|is| is.profile == profile && (is.place != NOT_LISTED) == counts) {
            self.release_profile(profile, interner);
            return;
        }
        self.remove_pod(id, interner);
        let place = match self.profiles.get_mut(profile) {
            Some(kept) if counts => {
                kept.pods.push(id);
                (kept.pods.len() - 1) as u32
            }
            _ => NOT_LISTED,
        };
        self.pods[id.index()] = Some(PodEntry { profile, place });
    }

    pub(crate) fn remove_pod(&mut self, id: PodId, interner: &mut Interner) {
        let Some(PodEntry { profile, place }) = self.pods.get_mut(id.index()).and_then(Option::take) else { return };
        if let Some(kept) = self.profiles.get_mut(profile)
            && (place as usize) < kept.pods.len()
        {
            kept.pods.swap_remove(place as usize);
            let moved = kept.pods.get(place as usize).and_then(|moved| self.pods[moved.index()].as_mut());
            if let Some(moved) = moved {
                moved.place = place;
            }
        }
        self.release_profile(profile, interner);
    }

    /// The labels of a namespace are other ones now; no labels stand for a namespace that is not known.
    pub(crate) fn namespace_changed(
        &mut self,
        namespace: Symbol,
        before: &[(Symbol, Symbol)],
        after: &[(Symbol, Symbol)],
    ) {
        let concerned: Vec<(TermId, bool)> = self
            .terms
            .with_namespace_selector()
            .filter_map(|id| {
                let scope = &self.terms.get(id)?.term.namespaces;
                let (was, is) = (scope.contains(namespace, before), scope.contains(namespace, after));
                (was != is).then_some((id, is))
            })
            .collect();
        if concerned.is_empty() {
            return;
        }
        for profile in self.profiles.in_namespace(namespace).to_vec() {
            for &(term, is) in &concerned {
                let (Some(kept), Some(seen)) = (self.terms.get(term), self.profiles.get(profile)) else { continue };
                if kept.term.selector.matches(seen.labels.pairs()) {
                    if is { self.link(term, profile) } else { self.unlink(term, profile) }
                }
            }
        }
    }

    /// The pod's required terms, without repetitions, in the order of roles and ids.
    fn acquire_terms(
        &mut self,
        facts: &PodFacts,
        namespaces: &Namespaces,
        interner: &mut Interner,
    ) -> Vec<(TermId, Role)> {
        if facts.finished {
            return Vec::new();
        }
        let roles = [(Role::Affinity, &facts.affinity), (Role::AntiAffinity, &facts.anti_affinity)];
        let mut carried = Vec::new();
        for (role, terms) in roles {
            for term in terms {
                let term = Term::acquire(term, &facts.namespace, interner);
                let (id, is_new) = self.terms.acquire(term, interner);
                if is_new {
                    self.match_term(id, namespaces);
                }
                if carried.contains(&(id, role)) {
                    self.release_term(id, interner);
                } else {
                    carried.push((id, role));
                }
            }
        }
        carried.sort_unstable_by_key(|&(term, role)| (role, term));
        carried
    }

    fn acquire_profile(&mut self, facts: &PodFacts, namespaces: &Namespaces, interner: &mut Interner) -> ProfileId {
        let carried = self.acquire_terms(facts, namespaces, interner);
        let namespace = interner.acquire(&facts.namespace);
        let labels = LabelSet::acquire(&facts.labels, interner);
        let (profile, is_new) = self.profiles.acquire(namespace, labels, &carried, interner);
        if is_new {
            carried.iter().for_each(|&(term, role)| self.terms.add_carrier(term, role, profile));
            self.match_profile(profile, namespaces);
        } else {
            carried.iter().for_each(|&(term, _)| self.release_term(term, interner));
        }
        profile
    }

    fn release_term(&mut self, id: TermId, interner: &mut Interner) {
        let Some(kept) = self.terms.release(id, interner) else { return };
        for profile in kept.profiles {
            if let Some(profile) = self.profiles.get_mut(profile) {
                remove_from(&mut profile.terms, id);
            }
        }
    }

    fn release_profile(&mut self, id: ProfileId, interner: &mut Interner) {
        let Some(profile) = self.profiles.release(id) else { return };
        for term in profile.terms {
            if let Some(term) = self.terms.get_mut(term) {
                remove_from(&mut term.profiles, id);
            }
        }
        for &(term, role) in &*profile.carried {
            self.terms.remove_carrier(term, role, id);
            self.release_term(term, interner);
        }
        profile.labels.release_uses(interner);
        interner.release(profile.namespace);
    }

    /// Finds the terms that a new profile satisfies.
    fn match_profile(&mut self, id: ProfileId, namespaces: &Namespaces) {
        let Some(profile) = self.profiles.get(id) else { return };
        let (namespace, labels) = (profile.namespace, profile.labels.pairs());
        let namespace_labels = namespaces.labels(namespace);
        let candidates = self.terms.candidates(namespace, labels);
        let matching: Vec<TermId> = candidates
            .filter(|(_, term)| term.matches(namespace, namespace_labels, labels))
            .map(|(id, _)| id)
            .collect();
        for term in matching {
            self.link(term, id);
        }
    }

    /// Finds the profiles that satisfy a new term.
    fn match_term(&mut self, id: TermId, namespaces: &Namespaces) {
        let Some(term) = self.terms.get(id).map(|kept| Arc::clone(&kept.term)) else { return };
        let matching: Vec<ProfileId> = self
            .profiles_that_may_satisfy(&term)
            .into_iter()
            .filter(|&profile| {
                let Some(profile) = self.profiles.get(profile) else { return false };
                let namespace_labels = namespaces.labels(profile.namespace);
                term.matches(profile.namespace, namespace_labels, profile.labels.pairs())
            })
            .collect();
        for profile in matching {
            self.link(id, profile);
        }
    }

    /// The shortest list that holds all profiles which can satisfy the term.
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
        if let (Some(kept), Some(seen)) = (self.terms.get_mut(term), self.profiles.get_mut(profile)) {
            kept.profiles.push(profile);
            seen.terms.push(term);
        }
    }

    fn unlink(&mut self, term: TermId, profile: ProfileId) {
        if let (Some(kept), Some(seen)) = (self.terms.get_mut(term), self.profiles.get_mut(profile)) {
            remove_from(&mut kept.profiles, profile);
            remove_from(&mut seen.terms, term);
        }
    }

    fn profile_of(&self, pod: PodId) -> Option<&profiles::Profile> {
        self.profiles.get(self.pods.get(pod.index())?.as_ref()?.profile)
    }

    fn pods_of<'a>(&'a self, profiles: &'a [ProfileId]) -> impl Iterator<Item = PodId> + 'a {
        profiles.iter().filter_map(|&profile| self.profiles.get(profile)).flat_map(|profile| &profile.pods).copied()
    }

    /// How much is kept, for tests.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> ([usize; 4], [usize; 3]) {
        (self.profiles.kept(), self.terms.kept())
    }
}

/// What is known of terms.
impl World {
    pub fn term(&self, id: TermId) -> Option<&Term> {
        self.affinity.terms.get(id).map(|kept| &*kept.term)
    }

    /// The distinct terms, in the order of their ids.
    pub fn term_ids(&self) -> impl Iterator<Item = TermId> {
        self.affinity.terms.ids()
    }

    pub fn term_count(&self) -> usize {
        self.affinity.terms.len()
    }

    /// How many different pods there are, as far as terms go: namespace, labels and terms of their own.
    pub fn profile_count(&self) -> usize {
        self.affinity.profiles.len()
    }

    /// The required terms of a pod, by role and id.
    pub fn pod_terms(&self, pod: PodId) -> &[(TermId, Role)] {
        self.affinity.profile_of(pod).map_or(&[], |profile| &profile.carried)
    }

    /// The pods that have the term in this role, in no particular order.
    pub fn carriers(&self, term: TermId, role: Role) -> impl Iterator<Item = PodId> {
        self.affinity.pods_of(self.affinity.terms.carriers(term, role))
    }

    /// The terms that match the pod, whoever has them, in no particular order.
    pub fn terms_matching(&self, pod: PodId) -> &[TermId] {
        let entry = self.affinity.pods.get(pod.index()).copied().flatten();
        let profile = entry.filter(|entry| entry.place != NOT_LISTED);
        profile.and_then(|entry| self.affinity.profiles.get(entry.profile)).map_or(&[], |profile| &profile.terms)
    }

    /// The pods that the term matches, in no particular order.
    pub fn pods_matching(&self, term: TermId) -> impl Iterator<Item = PodId> {
        self.affinity.pods_of(self.affinity.terms.get(term).map_or(&[], |kept| &kept.profiles))
    }

    pub fn pod_labels(&self, pod: PodId) -> Option<&LabelSet> {
        self.affinity.profile_of(pod).map(|profile| &*profile.labels)
    }
}
