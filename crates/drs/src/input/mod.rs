//! A copy of one cluster's part of the world: the input of a plan, besides the record, the settings and the time.
//!
//! In: the world. Out: a [`ClusterView`]: hosts, VMs that are nodes, observed rules and groups, and what pods on these
//! VMs require. Copying takes one pass over the cluster's pods, so that the world need not be held while the plan is
//! computed.
//!
//! - `nodes`: the VMs of a cluster that are nodes. `terms`: required anti-affinity. `company`: required affinity.
//!   `hosts`: node affinity on the host label. `surroundings`: what is not specific to one cluster. `fingerprint`:
//!   whether the input changed. `digest`: the text form of digests.
//!
//! Invariant: a pod counts while it is bound and not finished.

mod company;
pub(crate) mod digest;
mod fingerprint;
mod hosts;
mod nodes;
mod surroundings;
mod terms;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use model::event::{ClusterFacts, NodeAffinityFacts, VcenterId};
use model::{ClusterId, Pod, PodId, ProfileId, World, label_value};
use rustc_hash::FxHashMap;
use serde::ser::{Serialize, SerializeStruct, Serializer};

pub use self::fingerprint::Fingerprint;
pub use self::surroundings::Surroundings;
use crate::finding::{Finding, PodRef};
use crate::record::Rules;
use crate::settings::DrsSettings;

/// A cluster: its vCenter and its id there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    pub vcenter: VcenterId,
    pub id: String,
}

impl ClusterKey {
    #[must_use]
    pub fn new(vcenter: VcenterId, id: impl Into<String>) -> Self {
        Self { vcenter, id: id.into() }
    }
}

impl Serialize for ClusterKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut key = serializer.serialize_struct("ClusterKey", 2)?;
        key.serialize_field("vcenter", &self.vcenter.0)?;
        key.serialize_field("id", &self.id)?;
        key.end()
    }
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.vcenter.0, self.id)
    }
}

/// The id of a host within its vCenter: `host-12`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostId(pub(crate) String);

/// The name shown to users: `esx-1.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostName(pub(crate) String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) id: HostId,
    pub(crate) name: HostName,
    /// Its name as a node label value.
    pub(crate) label: Option<String>,
    pub(crate) maintenance: bool,
}

/// A VM that is a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vm {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) node: Arc<str>,
    /// Index in the view's hosts; `None` while the host is unknown.
    pub(crate) host: Option<usize>,
}

/// The index of a pod's VM, and the index of the pod in the view's pods.
pub(crate) type PodOn = (usize, usize);

/// A required anti-affinity term between hosts, limited to this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) digest: u64,
    /// VMs of the pods that carry the term or match it, sorted; two or more.
    pub(crate) vms: Vec<usize>,
    /// The pods that carry the term, sorted by VM.
    pub(crate) carriers: Vec<PodOn>,
    /// The pods that match it, sorted by VM.
    pub(crate) matches: Vec<PodOn>,
}

impl Term {
    /// Whether the term requires all its VMs to be on different hosts.
    pub(crate) fn separates_all(&self) -> bool {
        let has = |pods: &[PodOn], vm: usize| pods.binary_search_by_key(&vm, |(of, _)| *of).is_ok();
        self.vms.iter().all(|vm| has(&self.carriers, *vm) && has(&self.matches, *vm))
    }

    /// Whether the term requires these two VMs to be on different hosts.
    pub(crate) fn separates(&self, a: usize, b: usize) -> bool {
        let has = |pods: &[PodOn], vm: usize| pods.binary_search_by_key(&vm, |(of, _)| *of).is_ok();
        a != b && (has(&self.carriers, a) && has(&self.matches, b) || has(&self.carriers, b) && has(&self.matches, a))
    }
}

/// A pod whose required affinity calls for another pod on its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Company {
    pub(crate) pod: usize,
    pub(crate) vm: usize,
    /// VMs with a matching pod; never empty, never includes its own VM.
    pub(crate) partners: Vec<usize>,
}

/// A pod that accepts only certain physical hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostAffinity {
    pub(crate) pod: usize,
    pub(crate) vm: usize,
    pub(crate) accepts: Arc<NodeAffinityFacts>,
}

#[derive(Clone, Debug)]
pub struct ClusterView {
    pub(crate) key: ClusterKey,
    /// Includes the observed rules and groups.
    pub(crate) facts: Arc<ClusterFacts>,
    /// The name prefix of this Kubernetes cluster's rules.
    pub(crate) prefix: Arc<str>,
    /// Sorted by id.
    pub(crate) hosts: Vec<Host>,
    /// Sorted by id.
    pub(crate) vms: Vec<Vm>,
    /// The pods that the fields below refer to.
    pub(crate) pods: Vec<PodRef>,
    /// Sorted by digest.
    pub(crate) terms: Vec<Term>,
    /// Sorted by pod name.
    pub(crate) company: Vec<Company>,
    pub(crate) host_affinity: Vec<HostAffinity>,
    /// The digests of recorded rules' terms whose workloads are rolling out.
    pub(crate) rolling: BTreeSet<String>,
    pub(crate) same_vm: Vec<Finding>,
}

impl ClusterView {
    /// `None` for a cluster that is unknown or not selected by the settings. `rules` are those recorded for it.
    #[must_use]
    pub fn of(
        world: &World,
        cluster: ClusterId,
        rules: &Rules,
        surroundings: &Surroundings,
        settings: &DrsSettings,
    ) -> Option<Self> {
        let (vcenter, facts) = world.cluster(cluster).filter(|(_, facts)| is_selected(facts, settings))?;
        let mut hosts: Vec<Host> = world
            .hosts_in(cluster)
            .filter_map(|id| world.host(id))
            .map(|host| Host {
                id: HostId(host.facts.id.clone()),
                name: HostName(host.name().to_owned()),
                label: label_value(host.name()),
                maintenance: host.maintenance(),
            })
            .collect();
        hosts.sort_by(|a, b| a.id.cmp(&b.id));
        let located = nodes::in_cluster(world, nodes::ids(world, cluster, rules, &surroundings.hostless), &hosts);
        let (mut pods, mut host_affinity) = (Pods::default(), Vec::new());
        pods.named.reserve(located.iter().map(|node| world.pods_on(node.id).len()).sum());
        for (vm, node) in located.iter().enumerate() {
            for &id in world.pods_on(node.id) {
                let Some(pod) = world.pod(id).filter(|pod| !pod.finished && pod.node().is_some()) else { continue };
                pods.add(world, vm, id, pod);
                if let Some(accepts) = hosts::of(pod, settings) {
                    host_affinity.push(HostAffinity { pod: pods.name(world, pod), vm, accepts: Arc::clone(accepts) });
                }
            }
        }
        let (terms, same_vm) = terms::of(world, &pods, &located, settings);
        let company = company::of(world, &pods, settings);
        Some(Self {
            key: ClusterKey::new(vcenter, facts.id.clone()),
            facts: Arc::clone(facts),
            prefix: Arc::clone(&surroundings.prefix),
            hosts,
            vms: located.into_iter().map(|node| node.vm).collect(),
            terms,
            company,
            host_affinity,
            rolling: surroundings.rolling_of(rules),
            pods: pods.named,
            same_vm,
        })
    }

    #[must_use]
    pub fn key(&self) -> &ClusterKey {
        &self.key
    }

    /// Includes the observed rules and groups.
    #[must_use]
    pub fn facts(&self) -> &Arc<ClusterFacts> {
        &self.facts
    }

    pub(crate) fn vm_ids(&self, members: &[usize]) -> Vec<String> {
        members.iter().map(|vm| self.vms[*vm].id.clone()).collect()
    }

    pub(crate) fn host_ids(&self, hosts: &[usize]) -> Vec<String> {
        hosts.iter().map(|host| self.hosts[*host].id.0.clone()).collect()
    }

    /// Sorted by name, without duplicates.
    pub(crate) fn pod_refs(&self, pods: impl IntoIterator<Item = usize>) -> Vec<PodRef> {
        let mut refs: Vec<PodRef> = pods.into_iter().map(|pod| self.pods[pod].clone()).collect();
        refs.sort_unstable();
        refs.dedup();
        refs
    }
}

pub(crate) fn is_selected(facts: &ClusterFacts, settings: &DrsSettings) -> bool {
    settings.clusters.as_ref().is_none_or(|names| names.contains(&facts.name))
}

/// A pod class: pods on a cluster's VMs that carry the same terms and are matched by the same terms.
struct PodClass {
    /// One pod of the class.
    one: PodId,
    /// The pods carry a term, or a term matches them.
    is_concerned: bool,
    /// Sorted by VM; empty unless `is_concerned`.
    on_vms: Vec<PodOn>,
}

impl PodClass {
    fn new(world: &World, one: PodId) -> Self {
        let is_concerned = !world.pod_terms(one).is_empty() || !world.terms_matching(one).is_empty();
        Self { one, is_concerned, on_vms: Vec::new() }
    }
}

/// The pods on a cluster's VMs that terms or host affinity refer to.
#[derive(Default)]
struct Pods {
    named: Vec<PodRef>,
    classes: FxHashMap<(ProfileId, bool), PodClass>,
}

impl Pods {
    fn add(&mut self, world: &World, vm: usize, id: PodId, pod: &Pod) {
        let Some(profile) = world.pod_profile(id) else { return };
        let class = self.classes.entry((profile, pod.lift_off)).or_insert_with(|| PodClass::new(world, id));
        if class.is_concerned {
            class.on_vms.push((vm, self.named.len()));
            self.name(world, pod);
        }
    }

    /// Adds the pod to `named` and returns its index there.
    fn name(&mut self, world: &World, pod: &Pod) -> usize {
        let (namespace, name) = (world.interner().shared(pod.namespace), Arc::clone(&pod.name));
        self.named.push(PodRef { namespace, name, uid: pod.uid.clone() });
        self.named.len() - 1
    }
}
