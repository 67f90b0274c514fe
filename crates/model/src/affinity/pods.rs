//! Adds and removes pods, their profiles and their terms.
//!
//! In: the current facts of a pod, or its removal. Out: its profile, created once per workload, and its terms, created
//! once each. Invariant: a profile or term is stored exactly as long as a pod uses it; the last pod that releases it
//! removes it.

use std::sync::Arc;

use super::profiles::{Content, remove_from};
use super::term::Term;
use super::topology::Spaces;
use super::{Affinity, Around, NOT_LISTED, PodEntry, Role};
use crate::event::{PodFacts, TermFacts};
use crate::storage::arena::{DenseId, NodeId, PodId, ProfileId, TermId};
use crate::storage::intern::{Interner, Symbol};
use crate::storage::label_set::LabelSet;

/// The terms of a pod as written; none if the pod is finished.
pub(super) fn written_terms(facts: &PodFacts) -> impl Iterator<Item = (Role, &TermFacts)> {
    let affinity = facts.affinity.iter().map(|term| (Role::Affinity, term));
    let anti_affinity = facts.anti_affinity.iter().map(|term| (Role::AntiAffinity, term));
    let preferred = facts.preferred_affinity.iter().map(|of| (Role::PreferredAffinity(of.weight), &of.term));
    let avoided = facts.preferred_anti_affinity.iter().map(|of| (Role::PreferredAntiAffinity(of.weight), &of.term));
    affinity.chain(anti_affinity).chain(preferred).chain(avoided).filter(|_| !facts.finished)
}

/// Sorts carried terms. Removes and returns repeated required anti-affinity terms, which have no effect; a repeated
/// term in any other role adds to scores.
pub(super) fn put_in_order(carried: &mut Vec<(TermId, Role)>) -> Vec<TermId> {
    carried.sort_unstable_by_key(|&(term, role)| (role, term));
    let mut repeated = Vec::new();
    carried.dedup_by(|later, earlier| {
        let is_repeated = later == earlier && later.1 == Role::AntiAffinity;
        if is_repeated {
            repeated.push(later.0);
        }
        is_repeated
    });
    repeated
}

/// The distinct topology keys of terms.
pub(super) fn keys_of(terms: &[&Term]) -> Vec<Symbol> {
    let mut keys: Vec<Symbol> = terms.iter().map(|term| term.topology_key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl Affinity {
    /// Sets the facts of a pod, and the node it is placed on if the node is known.
    pub(crate) fn set_pod(
        &mut self,
        id: PodId,
        facts: &PodFacts,
        node: Option<NodeId>,
        around: Around<'_>,
        interner: &mut Interner,
    ) {
        if self.pods.len() <= id.index() {
            self.pods.resize(id.index() + 1, None);
        }
        // Acquire before releasing: terms and profiles that stay keep their ids.
        let profile = self.acquire_profile(facts, around, interner);
        let counts = !facts.finished;
        if self.pods[id.index()].is_some_and(|is| is.profile == profile && (is.index != NOT_LISTED) == counts) {
            self.release_profile(profile, interner);
        } else {
            self.remove_pod(id, interner);
            let index = match self.profiles.get_mut(profile) {
                Some(kept) if counts => {
                    kept.pods.push(id);
                    (kept.pods.len() - 1) as u32
                }
                _ => NOT_LISTED,
            };
            self.pods[id.index()] = Some(PodEntry { profile, index, node: None });
        }
        self.place(id, node);
    }

    pub(crate) fn remove_pod(&mut self, id: PodId, interner: &mut Interner) {
        self.place(id, None);
        let entry = self.pods.get_mut(id.index()).and_then(Option::take);
        let Some(PodEntry { profile, index, .. }) = entry else { return };
        if let Some(kept) = self.profiles.get_mut(profile)
            && (index as usize) < kept.pods.len()
        {
            kept.pods.swap_remove(index as usize);
            let moved = kept.pods.get(index as usize).and_then(|moved| self.pods[moved.index()].as_mut());
            if let Some(moved) = moved {
                moved.index = index;
            }
        }
        self.release_profile(profile, interner);
    }

    fn acquire_profile(&mut self, facts: &PodFacts, around: Around<'_>, interner: &mut Interner) -> ProfileId {
        let mut carried: Vec<(TermId, Role)> = written_terms(facts)
            .map(|(role, term)| {
                let term = Term::acquire(term, &facts.namespace, interner);
                (self.acquire_term(term, around, interner), role)
            })
            .collect();
        for repeated in put_in_order(&mut carried) {
            self.release_term(repeated, interner);
        }
        let namespace = interner.acquire(&facts.namespace);
        let labels = LabelSet::acquire(&facts.labels, interner);
        let content = Content { namespace, labels: &labels, carried: &carried, lift_off: facts.lift_off };
        if let Some(profile) = self.profiles.find(content) {
            self.profiles.retain(profile);
            labels.release(interner);
            interner.release(namespace);
            carried.iter().for_each(|&(term, _)| self.release_term(term, interner));
            return profile;
        }
        let now = self.tick();
        let profile = self.profiles.insert(namespace, labels, &carried, facts.lift_off, now);
        // Before acquiring the joint terms: new terms find the profile by themselves.
        self.match_profile(profile, around.namespaces);
        let joint = self.acquire_joint(&carried, around, interner);
        let namespace_lift_off = around.namespaces.get(namespace).is_some_and(|namespace| namespace.lift_off);
        let lifts = !facts.lift_off && !namespace_lift_off;
        if let Some(kept) = self.profiles.get_mut(profile) {
            (kept.joint, kept.lifts) = (joint, lifts);
        }
        carried.dedup();
        carried.iter().for_each(|&(term, role)| self.terms.add_carrier(term, role, lifts, profile));
        profile
    }

    /// The terms that match what all required affinity terms match, if there are several.
    fn acquire_joint(
        &mut self,
        carried: &[(TermId, Role)],
        around: Around<'_>,
        interner: &mut Interner,
    ) -> Box<[TermId]> {
        let affinity = carried.iter().filter(|(_, role)| *role == Role::Affinity).map(|&(term, _)| term);
        let mut affinity: Vec<TermId> = affinity.collect();
        affinity.dedup();
        if affinity.len() < 2 {
            return Box::default();
        }
        let terms: Vec<Arc<Term>> =
            affinity.iter().filter_map(|&id| Some(Arc::clone(&self.terms.get(id)?.term))).collect();
        let terms: Vec<&Term> = terms.iter().map(|term| &**term).collect();
        let joint = keys_of(&terms).into_iter().map(|key| {
            let term = Term::joint(&terms, key, interner);
            self.acquire_term(term, around, interner)
        });
        joint.collect()
    }

    /// Takes ownership of the term and its symbols.
    fn acquire_term(&mut self, term: Term, around: Around<'_>, interner: &mut Interner) -> TermId {
        if let Some(id) = self.terms.find(&term) {
            term.release(interner);
            self.terms.retain(id);
            return id;
        }
        let key = term.topology_key;
        let is_lifted = self.settings.lifted_keys.contains(interner.text(key));
        let concerns_hosts = is_lifted || self.settings.host_key == interner.text(key);
        let spaces = Spaces {
            written: self.topology.acquire(key, false, around.nodes, interner),
            host: is_lifted.then(|| self.topology.acquire(key, true, around.nodes, interner)),
        };
        let for_incoming = term.for_incoming(interner);
        let now = self.tick();
        let id = self.terms.insert(term, spaces, concerns_hosts, now, interner);
        self.match_term(id, around.namespaces);
        if let Some(for_incoming) = for_incoming {
            let for_incoming = self.acquire_term(for_incoming, around, interner);
            if let Some(kept) = self.terms.get_mut(id) {
                kept.for_incoming = Some(for_incoming);
            }
        }
        id
    }

    fn release_term(&mut self, id: TermId, interner: &mut Interner) {
        let Some(kept) = self.terms.release(id, interner) else { return };
        let now = self.tick();
        for profile in kept.profiles {
            if let Some(profile) = self.profiles.get_mut(profile) {
                remove_from(&mut profile.terms, id);
                profile.changed = now;
            }
        }
        for space in [Some(kept.spaces.written), kept.spaces.host].into_iter().flatten() {
            self.topology.release(space, interner);
        }
        if let Some(for_incoming) = kept.for_incoming {
            self.release_term(for_incoming, interner);
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
            self.terms.remove_carrier(term, role, profile.lifts, id);
            self.release_term(term, interner);
        }
        profile.joint.iter().for_each(|&term| self.release_term(term, interner));
        profile.labels.release_uses(interner);
        interner.release(profile.namespace);
    }
}
