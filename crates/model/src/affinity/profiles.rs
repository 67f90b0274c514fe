//! Pod profiles: what terms depend on in a pod, which is its namespace, its labels, its own terms and whether they may
//! be lifted. The pods of one workload mostly share a profile, so it is stored once, and terms are matched against
//! profiles instead of pods.
//!
//! In: the labels and terms of pods. Out: a profile each, indexed by label pair and namespace. Invariants: no two
//! profiles are equal; a profile is stored as long as a pod has it. A profile holds one use of each of its symbols and
//! terms.

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
    /// Shared with callers that distinguish profiles by its address.
    pub(crate) labels: Arc<LabelSet>,
    /// Its own terms, by role and id. A term that adds to scores is listed as often as it is written.
    pub(crate) carried: Box<[(TermId, Role)]>,
    /// Per topology key, one term that matches what all required affinity terms match; empty if there are fewer than
    /// two. The profile holds a use of each.
    pub(crate) joint: Box<[TermId]>,
    /// The pods opted out of lifting.
    pub(crate) lift_off: bool,
    /// Neither the pods nor their namespace opted out of lifting.
    pub(crate) lifts: bool,
    /// The last change of the matching terms.
    pub(crate) changed: Stamp,
    /// The pods that count, in no particular order.
    pub(crate) pods: Vec<PodId>,
    /// The matching terms, in no particular order.
    pub(crate) terms: Vec<TermId>,
    /// The number of pods with this profile, including those that do not count.
    users: u32,
}

/// What distinguishes profiles.
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

/// A list that usually has one entry: many label pairs belong to a single pod.
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

    /// Returns whether any entries are left.
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

/// Removes one entry from an unordered list.
pub(crate) fn remove_from<T: PartialEq + Copy>(list: &mut Vec<T>, entry: T) {
    if let Some(index) = list.iter().position(|other| *other == entry) {
        list.swap_remove(index);
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

    /// Counts one more use of an existing profile.
    pub(crate) fn retain(&mut self, id: ProfileId) {
        if let Some(profile) = self.arena.get_mut(id) {
            profile.users += 1;
        }
    }

    /// Adds a new profile. Takes ownership of its labels and of one use of the namespace and of each term.
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

    /// Releases one use; returns the profile if it was the last one. The caller must release its symbols and terms.
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

    /// The number of stored entries, for tests.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> [usize; 4] {
        [self.arena.len(), self.by_content.len(), self.by_pair.len(), self.by_namespace.len()]
    }
}
