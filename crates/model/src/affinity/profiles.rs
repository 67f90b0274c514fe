//! What matters of a pod here: its namespace, its labels, its own terms and whether these may be lifted. The pods of one workload mostly have the same,
//! so these are kept once, and terms are matched against them instead of against each pod.
//!
//! In: the labels and terms of pods. Out: a profile each, found again by a label pair or by its namespace. Invariants: two
//! profiles differ; one lives as long as a pod has it. A profile holds one use of each of its symbols and terms.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::terms::TermId;
use super::{ProfileId, Role, Stamp};
use crate::storage::arena::{Arena, PodId};
use crate::storage::finder::Finder;
use crate::storage::intern::Symbol;
use crate::storage::label_set::LabelSet;

#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) namespace: Symbol,
    /// Shared with those who tell profiles apart by its address.
    pub(crate) labels: Arc<LabelSet>,
    /// Its own terms, by role and id. A term that adds to scores stands here as often as it is written.
    pub(crate) carried: Box<[(TermId, Role)]>,
    /// What matches all of several required affinity terms, one per topology key; none where there are less than two. A use
    /// of each is held.
    pub(crate) joint: Box<[TermId]>,
    /// The pods opted out of lifting.
    pub(crate) lift_off: bool,
    /// Neither the pods nor their namespace opted out.
    pub(crate) lifts: bool,
    /// When the terms that match changed last.
    pub(crate) changed: Stamp,
    /// The pods that count, in no particular order.
    pub(crate) pods: Vec<PodId>,
    /// The terms that match, in no particular order.
    pub(crate) terms: Vec<TermId>,
    /// Pods that have it, also those that do not count.
    users: u32,
}

/// What tells profiles apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Content<'a> {
    pub(crate) namespace: Symbol,
    pub(crate) labels: &'a LabelSet,
    pub(crate) carried: &'a [(TermId, Role)],
    pub(crate) lift_off: bool,
}

impl Profile {
    fn content(&self) -> Content<'_> {
        let Self { namespace, labels, carried, lift_off, .. } = self;
        Content { namespace: *namespace, labels, carried, lift_off: *lift_off }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Profiles {
    arena: Arena<ProfileId, Profile>,
    by_content: Finder<ProfileId>,
    by_pair: FxHashMap<(Symbol, Symbol), Few>,
    by_namespace: FxHashMap<Symbol, Vec<ProfileId>>,
}

/// A list that mostly has one entry: many label pairs are a single pod's.
#[derive(Debug)]
enum Few {
    One(ProfileId),
    Many(Vec<ProfileId>),
}

impl Few {
    fn as_slice(&self) -> &[ProfileId] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    fn push(&mut self, profile: ProfileId) {
        match self {
            Self::One(one) => *self = Self::Many(vec![*one, profile]),
            Self::Many(many) => many.push(profile),
        }
    }

    /// Whether any are left.
    fn remove(&mut self, profile: ProfileId) -> bool {
        match self {
            Self::One(one) => *one != profile,
            Self::Many(many) => {
                remove_from(many, profile);
                !many.is_empty()
            }
        }
    }
}

/// Takes one entry out of a list without an order.
pub(crate) fn remove_from<T: PartialEq + Copy>(list: &mut Vec<T>, entry: T) {
    if let Some(place) = list.iter().position(|other| *other == entry) {
        list.swap_remove(place);
    }
}

impl Profiles {
    pub(crate) fn get(&self, id: ProfileId) -> Option<&Profile> {
        self.arena.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: ProfileId) -> Option<&mut Profile> {
        self.arena.get_mut(id)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.arena.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ProfileId> {
        self.arena.ids()
    }

    pub(crate) fn with_pair(&self, pair: (Symbol, Symbol)) -> &[ProfileId] {
        self.by_pair.get(&pair).map_or(&[], Few::as_slice)
    }

    pub(crate) fn in_namespace(&self, namespace: Symbol) -> &[ProfileId] {
        self.by_namespace.get(&namespace).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn find(&self, content: Content<'_>) -> Option<ProfileId> {
        self.by_content
            .find(&Some(content), |id| self.arena.get(id).is_some_and(|profile| profile.content() == content))
    }

    /// Counts one more use of a profile that is known.
    pub(crate) fn retain(&mut self, id: ProfileId) {
        if let Some(profile) = self.arena.get_mut(id) {
            profile.users += 1;
        }
    }

    /// Takes over a profile that is not known yet: its labels, a use of the namespace and of each term.
    pub(crate) fn insert(
        &mut self,
        namespace: Symbol,
        labels: LabelSet,
        carried: &[(TermId, Role)],
        lift_off: bool,
        now: Stamp,
    ) -> ProfileId {
        let pairs = labels.pairs().to_vec();
        let id = self.arena.insert(Profile {
            namespace,
            labels: Arc::new(labels),
            carried: carried.into(),
            joint: Box::default(),
            lift_off,
            lifts: !lift_off,
            changed: now,
            pods: Vec::new(),
            terms: Vec::new(),
            users: 1,
        });
        self.by_content.insert(id, |id| self.arena.get(id).map(Profile::content));
        for pair in pairs {
            self.by_pair.entry(pair).and_modify(|few| few.push(id)).or_insert(Few::One(id));
        }
        self.by_namespace.entry(namespace).or_default().push(id);
        id
    }

    /// Gives back one use; returns the profile when that was the last one. Its symbols and terms are still held then.
    pub(crate) fn release(&mut self, id: ProfileId) -> Option<Profile> {
        let profile = self.arena.get_mut(id)?;
        profile.users -= 1;
        if profile.users > 0 {
            return None;
        }
        let profile = self.arena.remove(id)?;
        self.by_content.remove(id, &Some(profile.content()));
        for pair in profile.labels.pairs() {
            if self.by_pair.get_mut(pair).is_some_and(|few| !few.remove(id)) {
                self.by_pair.remove(pair);
            }
        }
        if let Some(list) = self.by_namespace.get_mut(&profile.namespace) {
            remove_from(list, id);
            if list.is_empty() {
                self.by_namespace.remove(&profile.namespace);
            }
        }
        Some(profile)
    }

    /// How much is kept, for tests.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> [usize; 4] {
        [self.arena.len(), self.by_content.len(), self.by_pair.len(), self.by_namespace.len()]
    }
}
