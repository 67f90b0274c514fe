//! A pod to be placed: its terms, and the terms of other pods that match it.
//!
//! In: the pod's facts, or its id if the world knows it. Out: the input for verdicts, scores and blockers.
//!
//! Invariants: the world is not changed; a pod that the world knows and an unknown pod with equal facts give the same
//! answers. The result is valid while [`Incoming::is_current`] returns true; answers are equal while
//! [`Incoming::stamp`] stays the same, so equal pods can share them.

use super::counted_term::CountedTerm;
use super::pods::{keys_of, put_in_order, written_terms};
use super::profiles::Content;
use super::term::Term;
use super::{ProfileId, Role, Stamp, TermId};
use crate::event::PodFacts;
use crate::storage::arena::PodId;
use crate::storage::intern::{Lookup, Symbol, Symbols};
use crate::storage::label_set::LabelSet;
use crate::world::World;

/// A pod to be placed.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Required affinity: per topology key, one term that matches what all terms match.
    pub(crate) affinity: Vec<CountedTerm>,
    /// The pod matches all its own required affinity terms.
    pub(crate) is_own_match: bool,
    pub(crate) anti_affinity: Vec<CountedTerm>,
    /// Preferred affinity and anti-affinity terms.
    pub(crate) preferred: Vec<(CountedTerm, Role)>,
    /// The terms that match it, from any pod.
    pub(crate) matched_by: Vec<TermId>,
    /// Neither the pod nor its namespace opted out of lifting.
    pub(crate) lifts: bool,
    profile: Option<ProfileId>,
    made: Stamp,
}

impl Incoming {
    /// Any pod, whether or not the world knows it.
    pub fn of(world: &World, facts: &PodFacts) -> Self {
        let mut lookup = Lookup::new(&world.interner);
        let namespace = lookup.acquire(&facts.namespace);
        let labels = LabelSet::acquire(&facts.labels, &mut lookup);
        let namespace_labels = world.namespaces.labels(namespace);
        let terms: Vec<(Role, Term)> = written_terms(facts)
            .map(|(role, term)| (role, Term::acquire(term, &facts.namespace, &mut lookup)))
            .collect();

        let namespace_lift_off = world.namespaces.get(namespace).is_some_and(|namespace| namespace.lift_off);
        let mut incoming = Self {
            affinity: Vec::new(),
            is_own_match: false,
            anti_affinity: Vec::new(),
            preferred: Vec::new(),
            matched_by: Vec::new(),
            lifts: !facts.lift_off && !namespace_lift_off,
            profile: None,
            made: world.affinity.now,
        };
        let mut affinity: Vec<&Term> = Vec::new();
        for (role, term) in &terms {
            if *role == Role::Affinity {
                if !affinity.contains(&term) {
                    affinity.push(term);
                }
                continue;
            }
            let for_incoming = term.for_incoming(&mut lookup).unwrap_or_else(|| term.clone());
            incoming.add(*role, CountedTerm::find(world, for_incoming, &mut lookup));
        }
        for key in keys_of(&affinity) {
            let all = Term::joint(&affinity, key, &mut lookup);
            incoming.is_own_match = all.matches(namespace, namespace_labels, labels.pairs());
            incoming.affinity.push(CountedTerm::find(world, all, &mut lookup));
        }

        incoming.profile = profile(world, namespace, &labels, &terms, facts.lift_off);
        let known = incoming.profile.and_then(|id| world.affinity.profiles.get(id));
        match known {
            Some(profile) => {
                incoming.matched_by = profile.terms.clone();
                incoming.made = profile.changed;
            }
            None => incoming.matched_by = world.affinity.terms_for(namespace, namespace_labels, labels.pairs()),
        }
        incoming
    }

    /// A pod of the world; its current node, if any, is ignored. `None` if the pod is not known.
    pub fn of_pod(world: &World, pod: PodId) -> Option<Self> {
        let id = world.affinity.entry(pod)?.profile;
        let profile = world.affinity.profiles.get(id)?;
        let mut incoming = Self {
            affinity: profile.joint.iter().map(|&term| CountedTerm::Indexed(term)).collect(),
            is_own_match: false,
            anti_affinity: Vec::new(),
            preferred: Vec::new(),
            matched_by: profile.terms.clone(),
            lifts: profile.lifts,
            profile: Some(id),
            made: profile.changed,
        };
        for &(term, role) in &*profile.carried {
            let for_incoming = world.affinity.terms.get(term).and_then(|kept| kept.for_incoming).unwrap_or(term);
            match role {
                // `joint` covers several distinct terms; a repeated term is added once.
                Role::Affinity if incoming.affinity.is_empty() => {
                    incoming.affinity.push(CountedTerm::Indexed(for_incoming));
                }
                Role::Affinity => {}
                _ => incoming.add(role, CountedTerm::Indexed(for_incoming)),
            }
        }
        let all = incoming.affinity.first().and_then(|term| term.term(world));
        incoming.is_own_match = all.is_some_and(|term| {
            term.matches(profile.namespace, world.namespaces.labels(profile.namespace), profile.labels.pairs())
        });
        Some(incoming)
    }

    fn add(&mut self, role: Role, term: CountedTerm) {
        match role {
            Role::Affinity => self.affinity.push(term),
            Role::AntiAffinity => self.anti_affinity.push(term),
            Role::PreferredAffinity(_) | Role::PreferredAntiAffinity(_) => self.preferred.push((term, role)),
        }
    }

    /// Whether the found terms are still valid; counts may have changed.
    pub fn is_current(&self, world: &World) -> bool {
        let profile = self.profile.filter(|_| !self.has_unindexed_terms());
        let now = match profile {
            Some(profile) => world.affinity.profiles.get(profile).map(|profile| profile.changed),
            None => Some(world.affinity.now),
        };
        now == Some(self.made)
    }

    /// The stamp of the last change of anything that its verdicts and scores depend on.
    pub fn stamp(&self, world: &World) -> Stamp {
        if self.profile.is_none() || self.has_unindexed_terms() {
            return world.affinity.now;
        }
        let known =
            self.counted_terms().filter_map(|term| if let CountedTerm::Indexed(id) = term { Some(*id) } else { None });
        let terms = known.chain(self.matched_by.iter().copied());
        let changed = terms.filter_map(|id| Some(world.affinity.terms.get(id)?.changed));
        changed.fold(world.affinity.topology_changed().max(self.made), Stamp::max)
    }

    fn counted_terms(&self) -> impl Iterator<Item = &CountedTerm> {
        let preferred = self.preferred.iter().map(|(term, _)| term);
        self.affinity.iter().chain(&self.anti_affinity).chain(preferred)
    }

    fn has_unindexed_terms(&self) -> bool {
        self.counted_terms().any(|term| matches!(term, CountedTerm::NotIndexed(_)))
    }
}

/// The profile of a pod with these terms, if any pod has it.
fn profile(
    world: &World,
    namespace: Symbol,
    labels: &LabelSet,
    terms: &[(Role, Term)],
    lift_off: bool,
) -> Option<ProfileId> {
    let known = terms.iter().map(|(role, term)| Some((world.affinity.terms.find(term)?, *role)));
    let mut carried: Vec<(TermId, Role)> = known.collect::<Option<_>>()?;
    put_in_order(&mut carried);
    world.affinity.profiles.find(Content { namespace, labels, carried: &carried, lift_off })
}
