//! One cluster's part of the world, copied: all that a plan for it is made from, beside the record, the settings and the moment.
//!
//! In: the world. Out: a [`ClusterView`]: hosts, VMs that are nodes, observed rules and groups, and what pods on these VMs require.
//! Copying takes a pass over the cluster's pods, so that the world need not be held while the plan is computed.
//!
//! - `nodes`: the VMs of a cluster that are nodes. `terms`: required anti-affinity. `company`: required affinity. `hosts`: node
//!   affinity on the host label. `surroundings`: what is not about one cluster. `fingerprint`: whether it changed. `digest`: short names for terms.
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

use model::event::{ClusterFacts, PinningFacts, VcenterId};
use model::{ClusterId, PodId, World, label_value};
use serde::ser::{Serialize, SerializeStruct, Serializer};

pub use self::fingerprint::Fingerprint;
pub use self::surroundings::Surroundings;
use crate::finding::{Finding, PodRef};
use crate::record::Rules;
use crate::settings::DrsSettings;

/// A cluster: its vCenter, and its id within that.
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

/// What people call it: `esx-1.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostName(pub(crate) String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) id: HostId,
    pub(crate) name: HostName,
    /// Its name as the value of a node label.
    pub(crate) label: Option<String>,
    pub(crate) maintenance: bool,
}

/// A VM that is a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vm {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) node: Arc<str>,
    /// Position among the hosts; `None` while it is not known.
    pub(crate) host: Option<usize>,
}

/// A pod by its VM and its position among the view's pods.
pub(crate) type PodOn = (usize, usize);

/// A term of required anti-affinity between hosts, as far as it concerns this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) digest: u64,
    /// VMs of the pods that have the term or match it, sorted; two or more.
    pub(crate) vms: Vec<usize>,
    /// The pods that have the term, by VM.
    pub(crate) carriers: Vec<PodOn>,
    /// The pods that match it, by VM.
    pub(crate) matches: Vec<PodOn>,
}

impl Term {
    /// Whether the term requires all its VMs to be on different hosts.
    pub(crate) fn parts_all(&self) -> bool {
        let has = |pods: &[PodOn], vm: usize| pods.binary_search_by_key(&vm, |(of, _)| *of).is_ok();
        self.vms.iter().all(|vm| has(&self.carriers, *vm) && has(&self.matches, *vm))
    }

    /// Whether the term requires these two VMs to be on different hosts.
    pub(crate) fn parts(&self, a: usize, b: usize) -> bool {
        let has = |pods: &[PodOn], vm: usize| pods.binary_search_by_key(&vm, |(of, _)| *of).is_ok();
        a != b && (has(&self.carriers, a) && has(&self.matches, b) || has(&self.carriers, b) && has(&self.matches, a))
    }
}

/// A pod whose required affinity needs another pod on its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Company {
    pub(crate) pod: usize,
    pub(crate) vm: usize,
    /// VMs with a pod that would do; never empty, never its own.
    pub(crate) partners: Vec<usize>,
}

/// A pod that accepts certain physical hosts only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostAffinity {
    pub(crate) pod: usize,
    pub(crate) vm: usize,
    pub(crate) accepts: Arc<PinningFacts>,
}

#[derive(Clone, Debug)]
pub struct ClusterView {
    pub(crate) key: ClusterKey,
    /// Its rules and groups among them, as they are observed.
    pub(crate) facts: Arc<ClusterFacts>,
    /// What the names of this Kubernetes cluster's rules begin with.
    pub(crate) prefix: Arc<str>,
    /// In the order of their ids.
    pub(crate) hosts: Vec<Host>,
    /// In the order of their ids.
    pub(crate) vms: Vec<Vm>,
    /// Those that anything below is about.
    pub(crate) pods: Vec<PodRef>,
    /// In the order of their digests.
    pub(crate) terms: Vec<Term>,
    /// In the order of the pods' names.
    pub(crate) company: Vec<Company>,
    pub(crate) host_affinity: Vec<HostAffinity>,
    /// Of the recorded rules' terms those whose workloads are in the middle of a rollout.
    pub(crate) rolling: BTreeSet<String>,
    pub(crate) same_vm: Vec<Finding>,
}

impl ClusterView {
    /// `None` for a cluster that is not known, or not to be planned for. `rules` are those recorded for it.
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
        let host_key = world.interner().get(&settings.host_key);
        let (mut pods, mut terms) = (Pods::for_nodes(world, &located), terms::Gathering::new(world, settings));
        let (mut company, mut host_affinity) = (company::ByTerms::new(), Vec::new());
        for (vm, node) in located.iter().enumerate() {
            for &id in world.pods_on(node.id) {
                let Some(pod) = world.pod(id).filter(|pod| !pod.finished && pod.node().is_some()) else { continue };
                let number = pods.add(vm, id);
                terms.add(world, &mut pods, number, pod);
                if let Some(terms) = company::terms_of(world, host_key, id) {
                    company.entry(terms).or_default().push(number);
                }
                if let Some(accepts) = hosts::of(pod, settings) {
                    let accepts = Arc::clone(accepts);
                    host_affinity.push(HostAffinity { pod: pods.name(world, number), vm, accepts });
                }
            }
        }
        let (terms, same_vm) = terms.terms(world, &mut pods, &located);
        let company = company::of(world, &mut pods, company);
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

    /// With its rules and groups as they are observed.
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

    /// By name.
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

/// The pods on a cluster's VMs, and those of them that are named.
struct Pods {
    /// By VM.
    on_vms: Vec<(usize, PodId)>,
    named: Vec<PodRef>,
    /// By the position in `on_vms`.
    positions: Vec<Option<u32>>,
}

impl Pods {
    /// Room for all of them, and none of them yet.
    fn for_nodes(world: &World, nodes: &[nodes::Node]) -> Self {
        let count = nodes.iter().map(|node| world.pods_on(node.id).len()).sum();
        let (on_vms, positions) = (Vec::with_capacity(count), Vec::with_capacity(count));
        Self { on_vms, named: Vec::with_capacity(count), positions }
    }

    fn add(&mut self, vm: usize, pod: PodId) -> usize {
        self.on_vms.push((vm, pod));
        self.positions.push(None);
        self.on_vms.len() - 1
    }

    /// The position of a pod among those that are named.
    fn name(&mut self, world: &World, number: usize) -> usize {
        let (named, pod) = (&mut self.named, self.on_vms[number].1);
        let position = self.positions[number].get_or_insert_with(|| {
            named.extend(pod_ref(world, pod));
            named.len() as u32 - 1
        });
        *position as usize
    }
}

pub(crate) fn pod_ref(world: &World, pod: PodId) -> Option<PodRef> {
    let pod = world.pod(pod)?;
    Some(PodRef {
        namespace: world.interner().shared(pod.namespace),
        name: Arc::clone(&pod.name),
        uid: pod.uid.clone(),
    })
}
