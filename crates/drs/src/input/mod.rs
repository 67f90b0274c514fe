//! A copy of one cluster's part of the world: the input of a plan, besides the record, the settings and the time.
//!
//! In: the world. Out: a [`ClusterView`]: hosts, VMs that are nodes, observed rules and groups, and what pods on these
//! VMs require. Copying takes one pass over the cluster's pods, so that the world need not be held while the plan is
//! computed.
//!
//! - `nodes`: the VMs of a cluster that are nodes. `terms`: required anti-affinity. `company`: required affinity.
//!   `uncertain`: members of rules that may be nodes. `surroundings`: what is not specific to one cluster. `copy`: reads
//!   the world in steps. `fingerprint`: whether the input changed. `digest`: the text form of digests.
//!
//! Invariant: a pod counts while it is bound and not finished.

mod company;
mod copy;
pub(crate) mod digest;
mod fingerprint;
mod nodes;
mod surroundings;
mod terms;
mod uncertain;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use model::event::{ClusterFacts, NodeAffinityFacts, VcenterId};
use model::storage::intern::Symbol;
use model::{ClusterId, Pod, ProfileId, TermId, World};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Serialize, Serializer};

use self::copy::{ClassTerms, NodeCopy, PodCopy};
pub use self::copy::{ClusterCopy, NodeCopies};
pub use self::fingerprint::Fingerprint;
pub use self::surroundings::Surroundings;
pub(crate) use self::uncertain::{UncertainVm, UncertainVms};
use crate::finding::{Finding, RulePod, pods_named};
use crate::record::RecordedRules;
use crate::settings::{DrsSettings, TERMS_PER_POD_MAX};

/// A cluster: its vCenter and its id there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ClusterKey {
    #[serde(serialize_with = "number")]
    pub vcenter: VcenterId,
    pub id: String,
}

impl ClusterKey {
    #[must_use]
    pub fn new(vcenter: VcenterId, id: impl Into<String>) -> Self {
        Self { vcenter, id: id.into() }
    }
}

fn number<S: Serializer>(vcenter: &VcenterId, serializer: S) -> Result<S::Ok, S::Error> {
    vcenter.0.serialize(serializer)
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.vcenter.0, self.id)
    }
}

/// What to look at for the plan of a cluster.
#[derive(Clone, Copy)]
pub struct PlanScope<'a> {
    pub cluster: ClusterId,
    /// Those recorded for the cluster.
    pub rules: &'a RecordedRules,
    pub surroundings: &'a Surroundings,
    pub settings: &'a DrsSettings,
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
    /// Its namespace has the label for rules of the whole cluster.
    pub(crate) has_cluster_rules: bool,
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
    /// Members of owned rules that are not in `vms` and may be nodes: they stay in these rules.
    pub(crate) uncertain: Arc<UncertainVms>,
    /// The pods that the fields below refer to.
    pub(crate) pods: Vec<RulePod>,
    /// Sorted by digest.
    pub(crate) terms: Vec<Term>,
    /// Sorted by pod name.
    pub(crate) company: Vec<Company>,
    pub(crate) host_affinity: Vec<HostAffinity>,
    /// The digests of recorded rules' terms whose workloads are rolling out.
    pub(crate) rolling: BTreeSet<String>,
    /// About pods whose terms do not become rules.
    pub(crate) findings: Vec<Finding>,
}

impl ClusterView {
    /// `None` for a cluster that is unknown or not selected by the settings.
    #[must_use]
    pub fn of(world: &World, scope: PlanScope<'_>) -> Option<Self> {
        let mut copies = NodeCopies::default();
        copies.refresh(world, scope, usize::MAX);
        ClusterCopy::of(world, scope, &copies).map(|copy| Self::from_copy(copy, scope))
    }

    /// The same from a copy that was made with this scope.
    #[must_use]
    pub fn from_copy(copy: ClusterCopy<'_>, scope: PlanScope<'_>) -> Self {
        let host_index: FxHashMap<_, _> = copy.hosts.iter().enumerate().map(|(index, (id, _))| (*id, index)).collect();
        let nodes = copy.copies.ids.iter().filter_map(|id| copy.copies.nodes.get(id)?.1.as_ref());
        let nodes: BTreeMap<&str, &NodeCopy> = nodes.map(|node| (node.vm_id.as_str(), node)).collect();
        let mut classes: Classes = copy.classes.into_iter().collect();
        let separating = classes.values().flat_map(|class| class.separating.iter().map(|((term, _), _)| term));
        let by_affinity = classes.values().flat_map(|class| class.affinity.iter().flatten());
        let relevant: FxHashSet<TermId> = separating.chain(by_affinity).copied().collect();
        classes.values_mut().for_each(|class| class.matching.retain(|term| relevant.contains(term)));
        let (mut vms, mut pods, mut host_affinity) = (Vec::with_capacity(nodes.len()), Pods::default(), Vec::new());
        let (mut over, mut confined) = (LeftOut::default(), LeftOut::default());
        pods.named.reserve(nodes.values().map(|node| node.pods.len()).sum());
        for (vm, (id, node)) in nodes.into_iter().enumerate() {
            let host = node.host.and_then(|host| host_index.get(&host).copied());
            vms.push(Vm { id: id.to_owned(), name: node.vm_name.clone(), node: Arc::clone(&node.name), host });
            for PodCopy { profile, pod, accepts } in &node.pods {
                let Some(class) = classes.get(profile) else { continue };
                over.add(class.terms_over, pod);
                confined.add(class.terms_confined, pod);
                let is_concerned =
                    !(class.separating.is_empty() && class.matching.is_empty() && class.affinity.is_none());
                if !is_concerned && accepts.is_none() {
                    continue;
                }
                let index = pods.named.len();
                pods.named.push(pod.clone());
                if is_concerned {
                    pods.on_vms.entry(*profile).or_default().push((vm, index));
                }
                let has_cluster_rules = class.has_cluster_rules;
                host_affinity.extend(accepts.clone().map(|accepts| HostAffinity {
                    pod: index,
                    vm,
                    accepts,
                    has_cluster_rules,
                }));
            }
        }
        let (terms, mut findings) = terms::of(&classes, &pods, &vms);
        let (cluster, limit) = (&copy.key, TERMS_PER_POD_MAX);
        findings.extend(over.found(|terms, pods| Finding::TermLimit { cluster: cluster.clone(), terms, limit, pods }));
        let confined =
            confined.found(|terms, pods| Finding::ConfinedToNamespace { cluster: cluster.clone(), terms, pods });
        findings.extend(confined);
        Self {
            company: company::of(&classes, &pods),
            uncertain: scope.surroundings.uncertain_of(copy.key.vcenter),
            key: copy.key,
            facts: copy.facts,
            prefix: Arc::clone(&scope.surroundings.prefix),
            hosts: copy.hosts.into_iter().map(|(_, host)| host).collect(),
            vms,
            terms,
            host_affinity,
            rolling: scope.surroundings.rolling_of(scope.rules),
            pods: pods.named,
            findings,
        }
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
    pub(crate) fn pod_refs(&self, pods: impl IntoIterator<Item = usize>) -> Vec<RulePod> {
        let mut refs: Vec<RulePod> = pods.into_iter().map(|pod| self.pods[pod].clone()).collect();
        refs.sort_unstable();
        refs.dedup();
        refs
    }
}

/// The pod's node affinity, if it uses the host label.
fn host_affinity<'p>(pod: &'p Pod, settings: &DrsSettings) -> Option<&'p Arc<NodeAffinityFacts>> {
    pod.node_affinity.as_ref().filter(|affinity| affinity.uses_label(&settings.host_key))
}

pub(crate) fn is_selected(facts: &ClusterFacts, settings: &DrsSettings) -> bool {
    settings.clusters.as_ref().is_none_or(|names| names.contains(&facts.name))
}

/// Whether the namespace has the label for rules of the whole cluster.
fn has_cluster_rules(world: &World, namespace: Symbol) -> bool {
    world.namespace_of(namespace).is_some_and(|namespace| namespace.has_cluster_rules)
}

/// Terms that do not become rules, and the pods that carry them.
#[derive(Default)]
struct LeftOut {
    terms: usize,
    pods: BTreeSet<RulePod>,
}

impl LeftOut {
    fn add(&mut self, terms: usize, pod: &RulePod) {
        if terms > 0 {
            self.terms += terms;
            self.pods.insert(pod.clone());
        }
    }

    fn found(self, finding: impl FnOnce(usize, Vec<RulePod>) -> Finding) -> Option<Finding> {
        (self.terms > 0).then(|| finding(self.terms, pods_named(&self.pods)))
    }
}

type Classes = FxHashMap<ProfileId, ClassTerms>;

/// The pods on a cluster's VMs that terms or host affinity refer to.
#[derive(Default)]
struct Pods {
    named: Vec<RulePod>,
    /// By class: pods that carry the same terms and are matched by the same terms. Sorted by VM.
    on_vms: FxHashMap<ProfileId, Vec<PodOn>>,
}

impl Pods {
    /// The classes with their terms, and their pods.
    fn classes<'a>(&'a self, terms: &'a Classes) -> impl Iterator<Item = (&'a ClassTerms, &'a [PodOn])> {
        self.on_vms.iter().filter_map(|(profile, on_vms)| Some((terms.get(profile)?, on_vms.as_slice())))
    }
}
