//! The distinct terms, their carriers, and an index that finds the terms that might match a pod without walking all of
//! them.
//!
//! In: the terms of pods. Out: an id each, the profiles that carry it, and the terms that a profile might satisfy.
//!
//! Each term is indexed by one label pair that it requires (and by its namespaces, if it names them), or by its
//! namespaces only if it requires no pair; a term with neither is checked for every new profile. A profile looks up its
//! own pairs. Invariant: a term that matches a profile is indexed under a key that the profile looks up.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::counting::Counts;
use super::digest::term_digest;
use super::profiles::remove_from;
use super::selector::{Requirement, Selector};
use super::term::Term;
use super::topology::Spaces;
use super::{ProfileId, Role, Stamp};
use crate::storage::arena::Arena;
pub use crate::storage::arena::TermId;
use crate::storage::intern::{Interner, Symbol};

/// A term that needs more index keys than this is indexed less precisely.
const INDEX_KEYS_MAX: usize = 64;

/// A key that terms are indexed by; `None` means any.
type IndexKey = (Option<Symbol>, Option<(Symbol, Symbol)>);

#[derive(Debug)]
pub(crate) struct KeptTerm {
    pub(crate) term: Arc<Term>,
    /// Computed once: DRS plans read thousands at a time.
    pub(crate) digest: u64,
    /// On the host label or on a lifted key: DRS rules may depend on it.
    pub(crate) concerns_hosts: bool,
    /// The profiles it matches, in no particular order.
    pub(crate) profiles: Vec<ProfileId>,
    /// The pods it matches.
    pub(crate) matched: Counts,
    pub(crate) carriers: Vec<Carriers>,
    pub(crate) spaces: Spaces,
    /// The term that applies instead of this one to an incoming pod, if they differ. Holds a use of it.
    pub(crate) for_incoming: Option<TermId>,
    /// The last change of its counts.
    pub(crate) changed: Stamp,
    keys: Box<[IndexKey]>,
    uses: u32,
}

/// The profiles that carry a term in one role.
#[derive(Debug)]
pub(crate) struct Carriers {
    pub(crate) role: Role,
    /// For these carriers, the term applies between hosts.
    pub(crate) lifts: bool,
    /// In no particular order.
    pub(crate) profiles: Vec<ProfileId>,
    pub(crate) counts: Counts,
}

impl KeptTerm {
    /// Whether the term is lifted for a pod that carries it in this role; `may_lift` is whether the pod allows lifting.
    pub(crate) fn is_lifted(&self, role: Role, may_lift: bool) -> bool {
        may_lift && role.is_anti_affinity() && self.spaces.host.is_some()
    }

    pub(crate) fn carriers_mut(&mut self, role: Role, may_lift: bool) -> Option<&mut Carriers> {
        let lifts = self.is_lifted(role, may_lift);
        self.carriers.iter_mut().find(|carriers| carriers.role == role && carriers.lifts == lifts)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Terms {
    arena: Arena<TermId, KeptTerm>,
    /// Tenants choose terms, hence std's keyed hash. Never iterated.
    by_content: HashMap<Arc<Term>, TermId>,
    filed: FxHashMap<IndexKey, Vec<TermId>>,
    /// The terms whose matches depend on namespace labels.
    with_namespace_selector: BTreeSet<TermId>,
}

impl Terms {
    pub(crate) fn get(&self, id: TermId) -> Option<&KeptTerm> {
        self.arena.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: TermId) -> Option<&mut KeptTerm> {
        self.arena.get_mut(id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = TermId> {
        self.arena.ids()
    }

    pub(crate) fn len(&self) -> usize {
        self.arena.len()
    }

    pub(crate) fn with_namespace_selector(&self) -> impl Iterator<Item = TermId> {
        self.with_namespace_selector.iter().copied()
    }

    pub(crate) fn carriers(&self, id: TermId, role: Role) -> impl Iterator<Item = ProfileId> {
        let carriers = self.arena.get(id).into_iter().flat_map(|kept| &kept.carriers);
        carriers.filter(move |carriers| carriers.role == role).flat_map(|carriers| &carriers.profiles).copied()
    }

    pub(crate) fn find(&self, term: &Term) -> Option<TermId> {
        self.by_content.get(term).copied()
    }

    /// Counts one more use of an existing term.
    pub(crate) fn retain(&mut self, id: TermId) {
        if let Some(kept) = self.arena.get_mut(id) {
            kept.uses += 1;
        }
    }

    /// Adds a new term. Takes ownership of its symbols and of the uses of its spaces.
    pub(crate) fn insert(
        &mut self,
        term: Term,
        spaces: Spaces,
        concerns_hosts: bool,
        now: Stamp,
        interner: &Interner,
    ) -> TermId {
        let term = Arc::new(term);
        let keys = self.keys(&term);
        let id = self.arena.insert(KeptTerm {
            term: Arc::clone(&term),
            digest: term_digest(&term, interner),
            concerns_hosts,
            profiles: Vec::new(),
            matched: Counts::default(),
            carriers: Vec::new(),
            spaces,
            for_incoming: None,
            changed: now,
            keys: keys.clone(),
            uses: 1,
        });
        for key in keys {
            self.filed.entry(key).or_default().push(id);
        }
        if term.has_namespace_selector() {
            self.with_namespace_selector.insert(id);
        }
        self.by_content.insert(term, id);
        id
    }

    /// Releases one use; returns the term if it was the last one. The caller must release its spaces and its
    /// `for_incoming` term.
    pub(crate) fn release(&mut self, id: TermId, interner: &mut Interner) -> Option<KeptTerm> {
        let kept = self.arena.get_mut(id)?;
        kept.uses -= 1;
        if kept.uses > 0 {
            return None;
        }
        let kept = self.arena.remove(id)?;
        self.by_content.remove(&kept.term);
        self.with_namespace_selector.remove(&id);
        for key in &kept.keys {
            if let Some(list) = self.filed.get_mut(key) {
                remove_from(list, id);
                if list.is_empty() {
                    self.filed.remove(key);
                }
            }
        }
        kept.term.release(interner);
        Some(kept)
    }

    pub(crate) fn add_carrier(&mut self, id: TermId, role: Role, may_lift: bool, profile: ProfileId) {
        let Some(kept) = self.arena.get_mut(id) else { return };
        if let Some(carriers) = kept.carriers_mut(role, may_lift) {
            carriers.profiles.push(profile);
            return;
        }
        let lifts = kept.is_lifted(role, may_lift);
        // Most terms have one role, so do not over-allocate.
        kept.carriers.reserve_exact(1);
        kept.carriers.push(Carriers { role, lifts, profiles: vec![profile], counts: Counts::default() });
    }

    pub(crate) fn remove_carrier(&mut self, id: TermId, role: Role, may_lift: bool, profile: ProfileId) {
        let Some(kept) = self.arena.get_mut(id) else { return };
        if let Some(carriers) = kept.carriers_mut(role, may_lift) {
            remove_from(&mut carriers.profiles, profile);
        }
        kept.carriers.retain(|carriers| !carriers.profiles.is_empty());
    }

    /// The terms that a pod with these labels might satisfy: only slightly more than it does. No duplicates.
    pub(crate) fn candidates(
        &self,
        namespace: Symbol,
        labels: &[(Symbol, Symbol)],
    ) -> impl Iterator<Item = (TermId, &Arc<Term>)> {
        let pairs = std::iter::once(None).chain(labels.iter().copied().map(Some));
        pairs
            .flat_map(move |pair| [(Some(namespace), pair), (None, pair)])
            .filter_map(|key| self.filed.get(&key))
            .flatten()
            .filter_map(|&id| Some((id, &self.arena.get(id)?.term)))
    }

    fn keys(&self, term: &Term) -> Box<[IndexKey]> {
        if term.selector == Selector::Nothing {
            return Box::default();
        }
        let any = [None];
        let named: Vec<Option<Symbol>> = match term.namespaces.selector {
            Selector::Nothing => term.namespaces.names.iter().copied().map(Some).collect(),
            Selector::Requires(_) => any.to_vec(),
        };
        // A pair that all terms require (`tier: backend`) is not selective: use the least used pair.
        let load = |key: Symbol, values: &[Symbol]| -> usize {
            let keys = named.iter().flat_map(|name| values.iter().map(move |value| (*name, Some((key, *value)))));
            keys.take(INDEX_KEYS_MAX).map(|key| self.filed.get(&key).map_or(0, Vec::len)).sum()
        };
        let required = term.selector.requirements().iter().filter_map(|requirement| match requirement {
            Requirement::In(key, values) if values.len() <= INDEX_KEYS_MAX => Some((*key, values)),
            _ => None,
        });
        let best = required.min_by_key(|(key, values)| (values.len(), load(*key, values), *key));
        let pairs: Vec<Option<(Symbol, Symbol)>> = match best {
            Some((key, values)) => values.iter().map(|value| Some((key, *value))).collect(),
            None => vec![None],
        };
        let namespaces = if named.len() * pairs.len() <= INDEX_KEYS_MAX { named.as_slice() } else { &any };
        namespaces.iter().flat_map(|&namespace| pairs.iter().map(move |&pair| (namespace, pair))).collect()
    }

    /// The number of stored entries, for tests.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> [usize; 3] {
        [self.arena.len(), self.by_content.len(), self.with_namespace_selector.len()]
    }
}
