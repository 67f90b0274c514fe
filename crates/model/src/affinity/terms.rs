//! The distinct terms, who has them, and how those that might match a pod are found without walking all of them.
//!
//! In: terms as pods bring them. Out: an id each, the profiles that carry it, and the terms that a profile might satisfy.
//!
//! Each term is filed under one label pair that it requires (and under its namespaces, where it names them), or, when it
//! requires none, under its namespaces alone; one without either is looked at for every new profile. A profile looks
//! under its own pairs. Invariant: a term that matches a profile is filed where that profile looks.

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

/// A term that would have to be indexed under more keys than this is indexed by less.
const INDEX_KEYS_MAX: usize = 64;

/// A key that terms are indexed by; `None` stands for any.
type IndexKey = (Option<Symbol>, Option<(Symbol, Symbol)>);

#[derive(Debug)]
pub(crate) struct KeptTerm {
    pub(crate) term: Arc<Term>,
    /// Worked out once: plans for DRS ask for thousands at a time.
    pub(crate) digest: u64,
    /// Those it matches, in no particular order.
    pub(crate) profiles: Vec<ProfileId>,
    /// The pods it matches.
    pub(crate) matched: Counts,
    pub(crate) carriers: Vec<Carriers>,
    pub(crate) spaces: Spaces,
    /// The term by which a pod that has this one and is being placed looks at others, where it is another one. A use of
    /// it is held.
    pub(crate) for_incoming: Option<TermId>,
    /// When a count of it changed last.
    pub(crate) changed: Stamp,
    keys: Box<[IndexKey]>,
    uses: u32,
}

/// Who has a term in one role.
#[derive(Debug)]
pub(crate) struct Carriers {
    pub(crate) role: Role,
    /// To these the term holds between hosts.
    pub(crate) lifts: bool,
    /// In no particular order.
    pub(crate) profiles: Vec<ProfileId>,
    pub(crate) counts: Counts,
}

impl KeptTerm {
    /// Whether the term is lifted, to a pod that has it in this role and may lift its terms.
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
    /// Those whose matches depend on the labels of namespaces.
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

    /// Counts one more use of a term that is known.
    pub(crate) fn retain(&mut self, id: TermId) {
        if let Some(kept) = self.arena.get_mut(id) {
            kept.uses += 1;
        }
    }

    /// Takes over a term that is not known yet, its symbols and the uses of its spaces.
    pub(crate) fn insert(&mut self, term: Term, spaces: Spaces, now: Stamp, interner: &Interner) -> TermId {
        let term = Arc::new(term);
        let keys = self.keys(&term);
        let id = self.arena.insert(KeptTerm {
            term: Arc::clone(&term),
            digest: term_digest(&term, interner),
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

    /// Gives back one use; returns the term when that was the last one. Its spaces and the term it looks by are still
    /// held then.
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
        // Most terms have one role.
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

    /// The terms that a pod with these labels might satisfy: few more than it does. None is named twice.
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
        // A name that all terms require (`tier: backend`) tells little: the least used pair serves best.
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

    /// How much is kept, for tests.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> [usize; 3] {
        [self.arena.len(), self.by_content.len(), self.with_namespace_selector.len()]
    }
}
