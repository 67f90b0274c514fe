//! The only implementation of affinity terms, kept up to date: which pods carry a term, which pods it matches, and how
//! many of both are in each topology domain.
//!
//! In: pods, namespaces and nodes as they are added, changed and removed. Out: for each term its carriers and the pods
//! it matches; for each pod the terms that match it; for an incoming pod, every node's verdict and score. None of this
//! walks all pods or all terms.
//!
//! - `selector`, `term`, `digest`: the content of a term. `profiles`: what terms depend on in a pod, once per workload.
//! - `terms`: the distinct terms, and the index by which a new profile finds those that might match it.
//! - `pods`, `matching`: adding, linking and removing pods, profiles and terms.
//! - `topology`, `lift`: which nodes are in one domain. `tally`, `counting`: how many pods are in a domain.
//! - [`node`]: what node selectors and node affinity mean.
//! - `incoming`, `verdict`, `score`, `view`, `blockers`, `host_conflicts`: the queries.
//!
//! Invariants: finished pods neither carry nor match; terminating pods do until they are deleted; so do pods that are
//! not bound yet, and callers that need placed pods only check the node. Only pods on known nodes are counted. Every
//! answer equals a comparison of every term with every pod.

mod blockers;
mod counted_term;
mod counting;
mod digest;
mod host_conflicts;
mod incoming;
pub(crate) mod lift;
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
pub use self::host_conflicts::HostConflicts;
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
use crate::storage::node_set::NodeSet;
use crate::world::World;
use crate::world::nodes::{Namespaces, Nodes};

/// The role of a term in a pod. Preferred terms include their weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Required affinity.
    Affinity,
    /// Required anti-affinity.
    AntiAffinity,
    PreferredAffinity(i32),
    PreferredAntiAffinity(i32),
}

/// The value of the change counter at a change. An answer is valid as long as its stamp is unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

/// What is stored here for a pod.
#[derive(Clone, Copy, Debug)]
struct PodEntry {
    profile: ProfileId,
    /// The pod's index in its profile's list; [`NOT_LISTED`] if the pod does not count.
    index: u32,
    /// The node it is counted on.
    node: Option<NodeId>,
}

/// No list is this long: pod ids have 32 bits.
const NOT_LISTED: u32 = u32::MAX;

/// The parts of the world that affinity depends on.
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
    /// The last time a node was added, removed or moved to another domain.
    topology_changed: Stamp,
}

impl Affinity {
    pub(crate) fn new(settings: LiftSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    pub(crate) fn settings(&self) -> &LiftSettings {
        &self.settings
    }

    /// Changes whenever the pod's profile changes, or whether the pod counts.
    /// Whether the pod has, or is matched by, a term on the host label or on a lifted key.
    pub(crate) fn concerns_hosts(&self, id: PodId) -> bool {
        let Some(entry) = self.entry(id) else { return false };
        let Some(profile) = self.profiles.get(entry.profile) else { return false };
        let matching = profile.terms.iter().filter(|_| entry.index != NOT_LISTED);
        let mut terms = profile.carried.iter().map(|(term, _)| term).chain(matching);
        terms.any(|term| self.terms.get(*term).is_some_and(|kept| kept.concerns_hosts))
    }

    pub(crate) fn mark_of(&self, id: PodId) -> Option<(ProfileId, bool)> {
        let entry = self.entry(id)?;
        Some((entry.profile, entry.index != NOT_LISTED))
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The stamp of a new change.
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

    /// The number of stored entries, for tests.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> ([usize; 4], [usize; 3], [usize; 5]) {
        (self.profiles.kept(), self.terms.kept(), self.topology.kept())
    }
}

/// Queries about terms.
/// The terms of pods that terms do not distinguish.
#[derive(Clone, Copy, Debug)]
pub struct ProfileTerms<'a> {
    /// Of the pods.
    pub namespace: Symbol,
    pub carried: &'a [(TermId, Role)],
    /// The terms that match the pods, from any pod, in no particular order.
    pub matching: &'a [TermId],
    /// Neither the pods nor their namespace opted out of lifting.
    pub lifts: bool,
}

impl World {
    pub fn term(&self, id: TermId) -> Option<&Term> {
        self.affinity.terms.get(id).map(|kept| &*kept.term)
    }

    /// The digest of the term's content, the same in every process.
    pub fn term_digest(&self, id: TermId) -> Option<u64> {
        self.affinity.terms.get(id).map(|kept| kept.digest)
    }

    /// The distinct terms, in the order of their ids; includes terms that no pod has written but that are derived for
    /// incoming pods.
    pub fn term_ids(&self) -> impl Iterator<Item = TermId> {
        self.affinity.terms.ids()
    }

    pub fn term_count(&self) -> usize {
        self.affinity.terms.len()
    }

    /// The number of distinct pods as terms distinguish them: by namespace, labels and own terms.
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

    /// The terms that match the pod, from any pod, in no particular order.
    pub fn terms_matching(&self, pod: PodId) -> &[TermId] {
        let profile = self.affinity.entry(pod).filter(|entry| entry.index != NOT_LISTED);
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

    /// The terms of the pods with this profile.
    pub fn profile_terms(&self, id: ProfileId) -> Option<ProfileTerms<'_>> {
        let profile = self.affinity.profiles.get(id)?;
        let (namespace, lifts) = (profile.namespace, profile.lifts);
        Some(ProfileTerms { namespace, carried: &profile.carried, matching: &profile.terms, lifts })
    }

    /// The labels as one shared value for exactly the pods with the same namespace, labels and terms: pods can be
    /// compared by its address.
    pub fn pod_profile_labels(&self, pod: PodId) -> Option<&Arc<LabelSet>> {
        self.affinity.profile_of(pod).map(|profile| &profile.labels)
    }

    pub fn lifting(&self) -> &LiftSettings {
        self.affinity.settings()
    }

    /// The other nodes on the node's physical host; none if the host is unknown.
    pub fn nodes_beside(&self, node: NodeId) -> NodeSet {
        self.affinity.topology.beside(node)
    }

    /// The physical host of a node: from vSphere, else from the node's label.
    pub fn host_name_of(&self, node: NodeId) -> Option<&str> {
        self.affinity.topology.host(node).map(|host: Symbol| self.interner.text(host))
    }
}
