//! What pods want of the VMs they run on: which must not share a host, and which need company.
//!
//! In: the world. Out: per cluster a graph of VMs to be kept apart, with the terms behind it, and the pods that need
//! another pod on their host. Findings for what rules cannot express.
//!
//! - Anti-affinity makes an edge between the VMs of two pods of which one's term matches the other; pods that match the
//!   same term are not therefore apart from each other.
//! - Terms on the host label count, and anti-affinity on a lifted key, unless pod or namespace opted out.
//! - Pods count while they are bound and not finished. Different clusters never share a host: no edge.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use model::affinity::{Requirement, Selector, Term};
use model::intern::Symbol;
use model::{PodId, Role, TermId, World};
use sha2::{Digest, Sha256};

use crate::finding::{Finding, PodRef};
use crate::graph::Graph;
use crate::places::{Places, pod_ref};
use crate::record::{ClusterName, Owned};
use crate::settings::DrsSettings;

/// How many pairs of pods on one VM are reported for one term.
const SAME_VM_PAIRS_MAX: usize = 8;

/// What all pods want.
#[derive(Debug)]
pub struct Wanted {
    pub(crate) clusters: Vec<ClusterWanted>,
    pub findings: Vec<Finding>,
    /// Digests of terms of which some pods are on their way in or out.
    pub(crate) rolling: BTreeSet<String>,
    vm_ids: Vec<(ClusterName, Vec<String>)>,
}

impl Wanted {
    /// The pairs of VMs, by id, that shall not share a host.
    pub fn apart(&self) -> BTreeSet<(ClusterName, String, String)> {
        let clusters = self.clusters.iter().zip(&self.vm_ids);
        clusters
            .flat_map(|(wanted, (name, ids))| {
                wanted.apart.edges().map(move |(a, b)| (name.clone(), ids[a].clone(), ids[b].clone()))
            })
            .collect()
    }
}

/// What pods want in one cluster; numbers are those of [`Places`].
#[derive(Debug)]
pub(crate) struct ClusterWanted {
    pub(crate) apart: Graph,
    /// The terms behind the edges, by digest.
    pub(crate) sources: Vec<Source>,
    /// Per VM, the places of the terms that concern it.
    pub(crate) sources_of_vm: Vec<Vec<usize>>,
    pub(crate) needs: Vec<Need>,
}

/// A term, as far as it concerns one cluster.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) digest: String,
    /// VMs of the pods that have the term or match it, sorted.
    pub(crate) vms: Vec<usize>,
    /// The pods that have the term, with their VMs.
    pub(crate) carriers: Vec<(usize, PodId)>,
    /// The pods that match it, with their VMs.
    pub(crate) matches: Vec<(usize, PodId)>,
}

/// A pod that needs one of others on its host.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    pub(crate) pod: PodId,
    pub(crate) vm: usize,
    /// VMs with a pod that would do; never empty, never its own.
    pub(crate) partners: Vec<usize>,
}

/// What pods want now.
pub fn wanted(world: &World, settings: &DrsSettings) -> Wanted {
    wanted_in(world, &Places::of(world, &Owned::default()), settings)
}

pub(crate) fn wanted_in(world: &World, places: &Places, settings: &DrsSettings) -> Wanted {
    let mut gathering = Gathering {
        world,
        places,
        clusters: places
            .clusters
            .iter()
            .map(|cluster| ClusterWanted {
                apart: Graph::new(cluster.vms.len()),
                sources: Vec::new(),
                sources_of_vm: vec![Vec::new(); cluster.vms.len()],
                needs: Vec::new(),
            })
            .collect(),
        findings: Vec::new(),
        rolling: BTreeSet::new(),
        unplaced: BTreeMap::new(),
        same_vm: BTreeSet::new(),
    };
    let interner = world.interner();
    let host_key = interner.get(&settings.host_key);
    let lifted: BTreeSet<Symbol> = settings.lifted_keys.iter().filter_map(|key| interner.get(key)).collect();
    let mut with_needs: BTreeSet<PodId> = BTreeSet::new();
    for id in world.term_ids() {
        let Some(term) = world.term(id) else { continue };
        let on_host = Some(term.topology_key) == host_key;
        if on_host || lifted.contains(&term.topology_key) {
            gathering.gather_term(id, term, !on_host);
        }
        if on_host {
            with_needs.extend(world.carriers(id, Role::Affinity));
        }
    }
    for pod in with_needs {
        gathering.gather_need(pod);
    }
    gathering.finish()
}

struct Gathering<'a> {
    world: &'a World,
    places: &'a Places,
    clusters: Vec<ClusterWanted>,
    findings: Vec<Finding>,
    rolling: BTreeSet<String>,
    /// By node name.
    unplaced: BTreeMap<String, BTreeSet<PodId>>,
    /// Pairs already told.
    same_vm: BTreeSet<(PodRef, PodRef)>,
}

/// A pod with its cluster and VM.
type Placed = (usize, usize, PodId);

/// The part of a sorted list that is about one cluster.
fn in_cluster(placed: &[Placed], cluster: usize) -> &[Placed] {
    let from = placed.partition_point(|(of, ..)| *of < cluster);
    let to = placed.partition_point(|(of, ..)| *of <= cluster);
    &placed[from..to]
}

fn vms_of(placed: &[Placed]) -> Vec<usize> {
    let mut vms: Vec<usize> = placed.iter().map(|(_, vm, _)| *vm).collect();
    vms.dedup();
    vms
}

impl Gathering<'_> {
    fn gather_term(&mut self, id: TermId, term: &Term, is_lifted: bool) {
        let world = self.world;
        let mut rolling = false;
        let mut carriers: Vec<Placed> = Vec::new();
        for pod in world.carriers(id, Role::AntiAffinity) {
            if !(is_lifted && opted_out(world, pod)) {
                rolling |= self.sort_in(pod, &mut carriers);
            }
        }
        if carriers.is_empty() && !rolling {
            return;
        }
        let mut matches: Vec<Placed> = Vec::new();
        for pod in world.pods_matching(id) {
            rolling |= self.sort_in(pod, &mut matches);
        }
        if rolling {
            self.rolling.insert(digest(world, term));
        }
        carriers.sort_unstable();
        matches.sort_unstable();
        let mut clusters: Vec<usize> = carriers.iter().map(|(cluster, ..)| *cluster).collect();
        clusters.dedup();
        for cluster in clusters {
            self.gather_in_cluster(cluster, term, in_cluster(&carriers, cluster), in_cluster(&matches, cluster));
        }
    }

    fn gather_in_cluster(&mut self, cluster: usize, term: &Term, carriers: &[Placed], matches: &[Placed]) {
        let (carrier_vms, matching_vms) = (vms_of(carriers), vms_of(matches));
        let wanted = &mut self.clusters[cluster];
        for carrier in &carrier_vms {
            wanted.apart.add_star(*carrier, &matching_vms);
        }
        let mut vms = [carrier_vms.as_slice(), matching_vms.as_slice()].concat();
        vms.sort_unstable();
        vms.dedup();
        if vms.len() > 1 && !matches.is_empty() {
            let pods = |placed: &[Placed]| placed.iter().map(|(_, vm, pod)| (*vm, *pod)).collect();
            let digest = digest(self.world, term);
            wanted.sources.push(Source { digest, vms, carriers: pods(carriers), matches: pods(matches) });
        }
        for vm in carrier_vms {
            let on_vm = |placed: &[Placed]| -> Vec<PodId> {
                let from = placed.partition_point(|(_, of, _)| *of < vm);
                placed[from..].iter().take_while(|(_, of, _)| *of == vm).map(|(.., pod)| *pod).collect()
            };
            let (carriers, matches) = (on_vm(carriers), on_vm(matches));
            if carriers.len() + matches.len() > 2 || carriers != matches {
                self.report_same_vm(cluster, vm, &carriers, &matches);
            }
        }
    }

    /// Tells whether the pod is on its way in or out.
    fn sort_in(&mut self, id: PodId, placed: &mut Vec<Placed>) -> bool {
        let Some(pod) = self.world.pod(id) else { return false };
        let Some(node) = pod.node() else { return true };
        match self.places.of_pod(self.world, id) {
            Some((cluster, vm)) => placed.push((cluster, vm, id)),
            None => {
                let node = self.world.interner().text(node).to_owned();
                self.unplaced.entry(node).or_default().insert(id);
            }
        }
        pod.terminating
    }

    fn report_same_vm(&mut self, cluster: usize, vm: usize, carriers: &[PodId], matches: &[PodId]) {
        // Ids follow the order of events; names do not.
        let named =
            |pods: &[PodId]| -> BTreeSet<PodRef> { pods.iter().filter_map(|pod| pod_ref(self.world, *pod)).collect() };
        let (carriers, matches) = (named(carriers), named(matches));
        let place = &self.places.clusters[cluster].vms[vm];
        let node = self.world.node_name(place.node).unwrap_or_default();
        let pairs = carriers.iter().flat_map(|a| matches.iter().map(move |b| (a.min(b), a.max(b))));
        for (a, b) in pairs.filter(|(a, b)| a != b).take(SAME_VM_PAIRS_MAX) {
            let pods = (a.clone(), b.clone());
            if self.same_vm.insert(pods.clone()) {
                self.findings.push(Finding::SameVm { vm: place.name.clone(), node: node.to_owned(), pods });
            }
        }
    }

    /// A pod counts as company only if it matches all terms of affinity.
    fn gather_need(&mut self, pod: PodId) {
        let world = self.world;
        let terms: Vec<TermId> =
            world.pod_terms(pod).iter().filter(|(_, role)| *role == Role::Affinity).map(|(term, _)| *term).collect();
        let Some((cluster, vm)) = self.places.of_pod(world, pod) else {
            if let Some(node) = world.pod(pod).and_then(|pod| pod.node()) {
                let node = world.interner().text(node).to_owned();
                self.unplaced.entry(node).or_default().insert(pod);
            }
            return;
        };
        let Some(first) = terms.first() else { return };
        let mut partners = BTreeSet::new();
        for other in world.pods_matching(*first) {
            let matching = world.terms_matching(other);
            if other == pod || !terms.iter().all(|term| matching.contains(term)) {
                continue;
            }
            if let Some((of, partner)) = self.places.of_pod(world, other)
                && of == cluster
            {
                partners.insert(partner);
            }
        }
        if !partners.is_empty() && !partners.contains(&vm) {
            self.clusters[cluster].needs.push(Need { pod, vm, partners: partners.into_iter().collect() });
        }
    }

    fn finish(mut self) -> Wanted {
        let (mut terms, mut pods) = (0, 0);
        for (_, pod) in self.world.pods().filter(|(_, pod)| !pod.finished && pod.preferred_terms > 0) {
            terms += pod.preferred_terms as usize;
            pods += 1;
        }
        if pods > 0 {
            self.findings.push(Finding::PreferredLeftOut { terms, pods });
        }
        let unplaced = std::mem::take(&mut self.unplaced);
        self.findings.extend(unplaced.into_iter().map(|(node, pods)| Finding::UnknownVm { node, pods: pods.len() }));
        let world = self.world;
        for cluster in &mut self.clusters {
            cluster.sources.sort_by(|a, b| a.digest.cmp(&b.digest));
            for (place, source) in cluster.sources.iter().enumerate() {
                source.vms.iter().for_each(|vm| cluster.sources_of_vm[*vm].push(place));
            }
            // Ids follow the order of events; names do not.
            cluster.needs.sort_by_cached_key(|need| pod_ref(world, need.pod));
        }
        self.findings.sort_by_cached_key(ToString::to_string);
        let ids = |cluster: &crate::places::ClusterPlaces| cluster.vms.iter().map(|vm| vm.id.clone()).collect();
        let vm_ids = self.places.clusters.iter().map(|cluster| (cluster.name.clone(), ids(cluster))).collect();
        Wanted { clusters: self.clusters, findings: self.findings, rolling: self.rolling, vm_ids }
    }
}

fn opted_out(world: &World, pod: PodId) -> bool {
    world.pod(pod).is_some_and(|pod| {
        pod.lift_off
            || world.namespace(world.interner().text(pod.namespace)).is_some_and(|namespace| namespace.lift_off)
    })
}

/// A short name for what a term says, the same in every process.
fn digest(world: &World, term: &Term) -> String {
    let text = |symbol: Symbol| world.interner().text(symbol);
    let selector = |selector: &Selector| -> String {
        let values = |values: &[Symbol]| {
            let mut values: Vec<&str> = values.iter().map(|value| text(*value)).collect();
            values.sort_unstable();
            values.join(",")
        };
        let mut parts: Vec<String> = selector
            .requirements()
            .iter()
            .map(|requirement| match requirement {
                Requirement::In(key, of) => format!("{} in {}", text(*key), values(of)),
                Requirement::NotIn(key, of) => format!("{} notin {}", text(*key), values(of)),
                Requirement::Exists(key) => format!("{} exists", text(*key)),
                Requirement::DoesNotExist(key) => format!("{} absent", text(*key)),
            })
            .collect();
        parts.sort_unstable();
        if *selector == Selector::Nothing { "nothing".to_owned() } else { parts.join(";") }
    };
    let mut names: Vec<&str> = term.namespaces.names.iter().map(|name| text(*name)).collect();
    names.sort_unstable();
    short_digest(&[
        text(term.topology_key),
        &selector(&term.selector),
        &names.join(","),
        &selector(&term.namespaces.selector),
    ])
}

/// 64 bits of a hash over parts, in hexadecimal.
pub(crate) fn short_digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(8).fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
