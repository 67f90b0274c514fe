//! What a plan needs of one cluster, copied from the world a few nodes at a time.
//!
//! In: the world, locked for each step alone, so that no step delays those who change it; the copies that the last plan was made from.
//! Out: a [`ClusterCopy`], which the rest is computed from without the world.
//!
//! Invariant: in the last step every copy of a node is current, because one whose node has another revision by now is made again. What
//! terms mean is copied in the last step as a whole.

use std::sync::Arc;

use model::affinity::ProfileTerms;
use model::event::{ClusterFacts, NodeAffinityFacts};
use model::storage::intern::Symbol;
use model::{NodeId, Placement, ProfileId, Revision, TermId, World};
use rustc_hash::{FxHashMap, FxHashSet};

use super::terms::{Keys, TermKey, digest};
use super::{
    ClusterKey, Host, HostId, HostName, PlanScope, company, has_cluster_rules, host_affinity, is_selected, nodes,
};
use crate::finding::RulePod;
use crate::settings::{DrsSettings, TERMS_PER_POD_MAX};

/// A node that is a VM, and its pods.
#[derive(Debug)]
pub(super) struct NodeCopy {
    pub(super) vm_id: String,
    pub(super) vm_name: String,
    pub(super) name: Arc<str>,
    /// `None` while it is unknown.
    pub(super) host: Option<model::HostId>,
    pub(super) pods: Vec<PodCopy>,
}

#[derive(Debug)]
pub(super) struct PodCopy {
    pub(super) profile: ProfileId,
    pub(super) pod: RulePod,
    /// Its node affinity, if it uses the host label.
    pub(super) accepts: Option<Arc<NodeAffinityFacts>>,
}

/// The terms of the pods of a class: those with the same profile.
pub(super) struct ClassTerms {
    pub(super) namespace: Symbol,
    /// The namespace has the label for rules of the whole cluster.
    pub(super) has_cluster_rules: bool,
    /// The anti-affinity terms that apply between hosts, with their digests.
    pub(super) separating: Vec<(TermKey, u64)>,
    pub(super) matching: Vec<TermId>,
    /// The required affinity terms, if one of them is on the host label.
    pub(super) affinity: Option<Vec<TermId>>,
    /// The namespace that pods must be in to match these, if terms over other namespaces do not count.
    pub(super) affinity_within: Option<Symbol>,
    /// The number of terms that do not become rules, because a pod has too many.
    pub(super) terms_over: usize,
    /// The number of terms over other namespaces that count only within their own.
    pub(super) terms_confined: usize,
}

impl ClassTerms {
    fn of(world: &World, keys: &Keys, host_key: Option<Symbol>, terms: ProfileTerms<'_>) -> Self {
        let ProfileTerms { namespace, carried, matching, .. } = terms;
        let within = |term: TermId| keys.within(world, namespace, term);
        let keyed = keys.separating(world, terms).map(|term| (term, within(term)));
        let mut separating: Vec<(TermKey, u64)> = keyed.filter_map(|key| Some((key, digest(world, key)?))).collect();
        let mut affinity = company::terms_of(world, host_key, carried);
        // Affinity to all of the terms has no meaning with some of them.
        let affinity_over = affinity.take_if(|terms| terms.len() > TERMS_PER_POD_MAX).map_or(0, |terms| terms.len());
        let terms_over = separating.len().saturating_sub(TERMS_PER_POD_MAX) + affinity_over;
        if separating.len() > TERMS_PER_POD_MAX {
            separating.sort_unstable_by_key(|(_, digest)| *digest);
            separating.truncate(TERMS_PER_POD_MAX);
        }
        let affinity_within = affinity.iter().flatten().find_map(|term| within(*term));
        let confined = separating.iter().filter(|((_, within), _)| within.is_some()).count();
        let terms_confined = confined + affinity.iter().flatten().filter(|term| within(**term).is_some()).count();
        let (matching, has_cluster_rules) = (matching.to_vec(), has_cluster_rules(world, namespace));
        Self {
            namespace,
            has_cluster_rules,
            separating,
            matching,
            affinity,
            affinity_within,
            terms_over,
            terms_confined,
        }
    }
}

/// The nodes of a cluster that have been copied so far.
#[derive(Debug, Default)]
pub struct NodeCopies {
    /// The nodes of the cluster at the last refresh, in no particular order.
    pub(super) ids: Vec<NodeId>,
    /// `None`: the node is not a VM.
    pub(super) nodes: FxHashMap<NodeId, ([Revision; 2], Option<NodeCopy>)>,
    /// How many of the copied pods have each.
    profiles: FxHashMap<ProfileId, usize>,
}

impl NodeCopies {
    /// Copies nodes whose copy is missing or outdated, until that took about so many pods. Returns whether all are current.
    pub fn refresh(&mut self, world: &World, scope: PlanScope<'_>, pods_max: usize) -> bool {
        let mut pods = 0;
        self.ids = nodes::ids(world, scope);
        for id in self.ids.clone() {
            // A pod that no term refers to yet has no part in the node's own revision.
            let revision = [world.node_revision(id), world.pods_revision(id)];
            if self.nodes.get(&id).is_some_and(|(of, _)| *of == revision) {
                continue;
            }
            if pods > pods_max {
                return false;
            }
            let copy = self.copy(world, id, scope.settings);
            pods += 1 + copy.as_ref().map_or(0, |copy| copy.pods.len());
            let before = self.nodes.insert(id, (revision, copy));
            self.uncount(before.and_then(|(_, copy)| copy));
        }
        if self.nodes.len() > self.ids.len() {
            let ids: FxHashSet<NodeId> = self.ids.iter().copied().collect();
            let left: Vec<_> = self.nodes.extract_if(|id, _| !ids.contains(id)).collect();
            left.into_iter().for_each(|(_, (_, copy))| self.uncount(copy));
        }
        self.profiles.retain(|_, count| *count > 0);
        true
    }

    fn uncount(&mut self, copy: Option<NodeCopy>) {
        for pod in copy.into_iter().flat_map(|copy| copy.pods) {
            self.profiles.entry(pod.profile).and_modify(|count| *count -= 1);
        }
    }

    fn copy(&mut self, world: &World, id: NodeId, settings: &DrsSettings) -> Option<NodeCopy> {
        let (vm, host) = match world.placement(id) {
            Placement::On { vm, host, .. } => (vm, Some(host)),
            Placement::HostUnknown { vm } => (vm, None),
            Placement::NotMatched => return None,
        };
        let ((_, vm), name) = (world.vm(vm)?, world.interner().shared(world.node(id)?.name));
        let mut pods = Vec::with_capacity(world.pods_on(id).len());
        for &id in world.pods_on(id) {
            let counts = world.pod(id).filter(|pod| !pod.finished && pod.node().is_some());
            let (Some(pod), Some(profile)) = (counts, world.pod_profile(id)) else { continue };
            let namespace = world.interner().shared(pod.namespace);
            let pod_ref = RulePod { namespace, name: Arc::clone(&pod.name), uid: pod.uid.clone() };
            *self.profiles.entry(profile).or_default() += 1;
            pods.push(PodCopy { profile, pod: pod_ref, accepts: host_affinity(pod, settings).cloned() });
        }
        Some(NodeCopy { vm_id: vm.id.clone(), vm_name: vm.name.clone(), name, host, pods })
    }
}

/// A cluster's part of the world at one moment.
pub struct ClusterCopy<'c> {
    pub(super) key: ClusterKey,
    pub(super) facts: Arc<ClusterFacts>,
    /// Sorted by id, each with its id in the world.
    pub(super) hosts: Vec<(model::HostId, Host)>,
    pub(super) copies: &'c NodeCopies,
    pub(super) classes: Vec<(ProfileId, ClassTerms)>,
}

impl<'c> ClusterCopy<'c> {
    /// The last step: all copies must be current. `None` for a cluster that is unknown or not selected by the settings.
    #[must_use]
    pub fn of(world: &World, scope: PlanScope<'_>, copies: &'c NodeCopies) -> Option<Self> {
        let PlanScope { cluster, settings, .. } = scope;
        let (vcenter, facts) = world.cluster(cluster).filter(|(_, facts)| is_selected(facts, settings))?;
        let hosts = world.hosts_in(cluster).filter_map(|id| Some((id, world.host(id)?)));
        let mut hosts: Vec<(model::HostId, Host)> = hosts
            .map(|(id, host)| {
                let (name, label) = (HostName(host.name().to_owned()), world.host_label(&host));
                (id, Host { id: HostId(host.facts.id.clone()), name, label, maintenance: host.maintenance() })
            })
            .collect();
        hosts.sort_by(|(_, a), (_, b)| a.id.cmp(&b.id));
        let (keys, host_key) = (Keys::of(world, settings), world.interner().get(&settings.host_key));
        let mut classes = Vec::with_capacity(copies.profiles.len());
        for &profile in copies.profiles.keys() {
            let Some(terms) = world.profile_terms(profile) else { continue };
            classes.push((profile, ClassTerms::of(world, &keys, host_key, terms)));
        }
        let (key, facts) = (ClusterKey::new(vcenter, facts.id.clone()), Arc::clone(facts));
        Some(Self { key, facts, hosts, copies, classes })
    }
}
