//! The one meaning of affinity terms, kept up to date: which pods carry a term, which pods it matches, and how many of
//! both there are in each place.
//!
//! In: pods, namespaces and nodes as they come, change and go. Out: for each term its carriers and the pods it matches; for
//! each pod the terms that match it; for a pod that is to be placed, every node's verdict and score. All of it without a
//! walk over all pods or all terms.
//!
//! - `selector`, `term`, `digest`: what a term says. `profiles`: what matters of a pod, once per workload.
//! - `terms`: the distinct terms, and how a new profile finds those that might match it.
//! - `pods`, `matching`: how pods, profiles and terms come, meet and go.
//! - `topology`, `lift`: which nodes are one place. `tally`, `counting`: how many pods are there.
//! - [`node`]: what node selectors and node affinity mean.
//! - `incoming`, `verdict`, `score`, `view`, `blockers`: the questions.
//!
//! Invariants: finished pods neither carry nor match; terminating ones do until they are gone; so do pods not yet bound,
//! and callers that mean placed pods look at the node. Only pods on known nodes are counted. What is answered equals a
//! comparison of every term with every pod.

mod blockers;
mod counted_term;
mod counting;
mod digest;
mod incoming;
mod lift;
mod matching;
pub mod node;
mod pods;
mod profiles;
mod score;
mod selector;
mod siblings;
mod tally;
mod term;
mod terms;
mod topology;
mod verdict;
mod view;

pub use self::blockers::{Blocker, Obstacle};
pub use self::incoming::Incoming;
pub use self::lift::{LiftMode, LiftSettings, Reading, TOO_FEW_HOSTS};
use std::sync::Arc;

use self::profiles::Profiles;
pub use self::score::{ScoreSettings, Scores};
pub use self::selector::{Requirement, Selector};
pub use self::term::{NamespaceScope, Term};
pub use self::terms::TermId;
use self::terms::Terms;
use self::topology::Topology;
pub use self::verdict::{Refusal, Refusals, Verdicts};
pub use self::view::View;
pub(crate) use crate::storage::arena::ProfileId;
use crate::storage::arena::{DenseId, NodeId, PodId};
use crate::storage::intern::Symbol;
use crate::storage::label_set::LabelSet;
use crate::world::World;
use crate::world::nodes::{Namespaces, Nodes};

/// What a pod has a term for. Preferred ones have their weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Required affinity.
    Affinity,
    /// Required anti-affinity.
    AntiAffinity,
    PreferredAffinity(i32),
    PreferredAntiAffinity(i32),
}

/// When something changed last, by a count of changes. An answer holds as long as its stamp is what it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

/// What is kept here of a pod.
#[derive(Clone, Copy, Debug)]
struct PodEntry {
    profile: ProfileId,
    /// Where the pod stands in its profile's list; [`NOT_LISTED`] for one that does not count.
    place: u32,
    /// The node it is counted on.
    node: Option<NodeId>,
}

/// No list is as long as this: pods have ids of 32 bits.
const NOT_LISTED: u32 = u32::MAX;

/// What of the world matters here.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) namespaces: &'a Namespaces,
    pub(crate) nodes: &'a Nodes,
}

#[derive(Debug, Default)]
pub(crate) struct Affinity {
    settings: LiftSettings,
    profiles: Profiles,
    terms: Terms,
    topology: Topology,
    /// By pod id.
    pods: Vec<Option<PodEntry>>,
    now: Stamp,
    /// When a node came, went or moved to another domain last.
    topology_changed: Stamp,
}

impl Affinity {
    pub(crate) fn new(settings: LiftSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    pub(crate) fn settings(&self) -> &LiftSettings {
        &self.settings
    }

    /// What tells whether anything kept here of a pod has changed.
    pub(crate) fn mark_of(&self, id: PodId) -> Option<(ProfileId, bool)> {
        let entry = self.entry(id)?;
        Some((entry.profile, entry.place != NOT_LISTED))
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The moment of a change.
    fn tick(&mut self) -> Stamp {
        self.now.0 += 1;
        self.now
    }

    fn entry(&self, pod: PodId) -> Option<PodEntry> {
        self.pods.get(pod.index()).copied().flatten()
    }

    fn profile_of(&self, pod: PodId) -> Option<&profiles::Profile> {
        self.profiles.get(self.entry(pod)?.profile)
    }

    fn pods_of<'a>(&'a self, profiles: impl Iterator<Item = ProfileId> + 'a) -> impl Iterator<Item = PodId> + 'a {
        profiles.filter_map(|profile| self.profiles.get(profile)).flat_map(|profile| &profile.pods).copied()
    }

    /// How much is kept, for tests.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> ([usize; 4], [usize; 3], [usize; 4]) {
        (self.profiles.kept(), self.terms.kept(), self.topology.kept())
    }
}

/// What is known of terms.
impl World {
    pub fn term(&self, id: TermId) -> Option<&Term> {
        self.affinity.terms.get(id).map(|kept| &*kept.term)
    }

    /// A short name for what the term says, the same in every process.
    pub fn term_digest(&self, id: TermId) -> Option<u64> {
        self.affinity.terms.get(id).map(|kept| kept.digest)
    }

    /// The distinct terms, in the order of their ids; also such as no pod has written, but by which some look at others.
    pub fn term_ids(&self) -> impl Iterator<Item = TermId> {
        self.affinity.terms.ids()
    }

    pub fn term_count(&self) -> usize {
        self.affinity.terms.len()
    }

    /// How many different pods there are, as far as terms go: namespace, labels and terms of their own.
    #[cfg(test)]
    pub(crate) fn profile_count(&self) -> usize {
        self.affinity.profiles.len()
    }

    /// The terms of a pod, by role and id.
    pub fn pod_terms(&self, pod: PodId) -> &[(TermId, Role)] {
        self.affinity.profile_of(pod).map_or(&[], |profile| &profile.carried)
    }

    /// The pods that have the term in this role, in no particular order.
    pub fn carriers(&self, term: TermId, role: Role) -> impl Iterator<Item = PodId> {
        self.affinity.pods_of(self.affinity.terms.carriers(term, role))
    }

    /// The terms that match the pod, whoever has them, in no particular order.
    pub fn terms_matching(&self, pod: PodId) -> &[TermId] {
        let profile = self.affinity.entry(pod).filter(|entry| entry.place != NOT_LISTED);
        profile.and_then(|entry| self.affinity.profiles.get(entry.profile)).map_or(&[], |profile| &profile.terms)
    }

    /// The pods that the term matches, in no particular order.
    pub fn pods_matching(&self, term: TermId) -> impl Iterator<Item = PodId> {
        let profiles = self.affinity.terms.get(term).into_iter().flat_map(|kept| &kept.profiles);
        self.affinity.pods_of(profiles.copied())
    }

    pub(crate) fn pod_labels(&self, pod: PodId) -> Option<&LabelSet> {
        self.affinity.profile_of(pod).map(|profile| &*profile.labels)
    }

    /// Pods with the same namespace, labels and terms have the same profile.
    pub fn pod_profile(&self, pod: PodId) -> Option<ProfileId> {
        self.affinity.entry(pod).map(|entry| entry.profile)
    }

    /// The labels as one value for all pods with the same namespace, labels and terms, and for no others: pods can be
    /// compared by its address.
    pub fn pod_profile_labels(&self, pod: PodId) -> Option<&Arc<LabelSet>> {
        self.affinity.profile_of(pod).map(|profile| &profile.labels)
    }

    /// How keys are lifted.
    pub fn lifting(&self) -> &LiftSettings {
        self.affinity.settings()
    }

    /// The physical host of a node: as vSphere tells it now, else as the node's label says.
    pub fn host_name_of(&self, node: NodeId) -> Option<&str> {
        self.affinity.topology.host(node).map(|host: Symbol| self.interner.text(host))
    }
}
