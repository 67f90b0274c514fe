//! What each term wants of the VMs its pods run on, kept until the term is touched.
//!
//! In: the world, the terms that were touched. Out: per term and cluster a [`Part`]: the VMs of the pods that have the term
//! and of those it matches; which workloads are in the middle of a rollout; findings for what rules cannot express.
//!
//! - Anti-affinity makes an edge between the VMs of two pods of which one's term matches the other; pods that match the
//!   same term are not therefore apart from each other.
//! - Terms on the host label count, and anti-affinity on a lifted key, unless pod or namespace opted out.
//! - Pods count while they are bound and not finished. Different clusters never share a host: no edge.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::affinity::Term;
use model::intern::Symbol;
use model::{PodId, Role, TermId, World};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::digest::term_digest;
use crate::finding::{Finding, PodRef};
use crate::places::{Places, Spot, pod_ref};
use crate::settings::DrsSettings;

/// How many pairs of pods on one VM are reported for one term.
const SAME_VM_PAIRS_MAX: usize = 8;

/// A pod with its VM.
pub(crate) type Placed = (u32, PodId);

/// A term, as far as it concerns one cluster; numbers are those of [`Places`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// VMs of the pods that have the term or match it, sorted; two or more.
    pub(crate) vms: Vec<usize>,
    /// The pods that have the term, by VM.
    pub(crate) carriers: Vec<Placed>,
    /// The pods that match it, by VM.
    pub(crate) matches: Vec<Placed>,
}

impl Part {
    /// Whether the term wants these two apart.
    pub(crate) fn wants(&self, a: usize, b: usize) -> bool {
        let (a, b) = (a as u32, b as u32);
        a != b && (has(&self.carriers, a) && has(&self.matches, b) || has(&self.carriers, b) && has(&self.matches, a))
    }
}

fn has(placed: &[Placed], vm: u32) -> bool {
    placed.binary_search_by_key(&vm, |(of, _)| *of).is_ok()
}

/// What is kept of one term.
#[derive(Debug)]
struct Gathered {
    digest: u64,
    rolling: bool,
    /// By cluster.
    parts: Vec<(usize, Arc<Part>)>,
    unplaced: Vec<PodId>,
    same_vm: Vec<Finding>,
}

/// Parts that are other ones now, by cluster and digest of the term; `None` for those that are gone.
pub(crate) type PartChanges = FxHashMap<(usize, u64), Option<Arc<Part>>>;

/// What all terms want.
#[derive(Debug, Default)]
pub(crate) struct Gatherings {
    terms: FxHashMap<TermId, Gathered>,
    /// Digests of terms of which some pods are on their way in or out.
    pub(crate) rolling: FxHashSet<u64>,
    /// Those of which that is not as it was before the last time that terms were looked at.
    pub(crate) turned: FxHashSet<u64>,
    /// Those with something to tell.
    unplaced: BTreeSet<TermId>,
    same_vm: BTreeSet<TermId>,
}

impl Gatherings {
    /// Looks at these terms again, whether or not they are still there.
    pub(crate) fn gather(
        &mut self,
        world: &World,
        places: &Places,
        settings: &DrsSettings,
        touched: impl Iterator<Item = TermId>,
    ) -> PartChanges {
        let touched: Vec<TermId> = touched.collect();
        let mut changes = PartChanges::default();
        let mut rolling: FxHashSet<u64> = FxHashSet::default();
        let mut before: FxHashMap<(usize, u64), Arc<Part>> = FxHashMap::default();
        for id in &touched {
            self.unplaced.remove(id);
            self.same_vm.remove(id);
            let Some(gone) = self.terms.remove(id) else { continue };
            if self.rolling.remove(&gone.digest) {
                rolling.insert(gone.digest);
            }
            for (cluster, part) in gone.parts {
                changes.insert((cluster, gone.digest), None);
                before.insert((cluster, gone.digest), part);
            }
        }
        let keys = Keys::of(world, settings);
        let mut begun: FxHashSet<u64> = FxHashSet::default();
        for id in touched {
            let Some(gathered) = world.term(id).and_then(|term| gather(world, places, &keys, id, term)) else {
                continue;
            };
            for (cluster, part) in &gathered.parts {
                changes.insert((*cluster, gathered.digest), Some(Arc::clone(part)));
            }
            if gathered.rolling {
                self.rolling.insert(gathered.digest);
                begun.insert(gathered.digest);
            }
            if !gathered.unplaced.is_empty() {
                self.unplaced.insert(id);
            }
            if !gathered.same_vm.is_empty() {
                self.same_vm.insert(id);
            }
            self.terms.insert(id, gathered);
        }
        changes.retain(|at, part| before.get(at) != part.as_ref());
        self.turned = rolling.symmetric_difference(&begun).copied().collect();
        changes
    }

    /// Pods of which the VM or its cluster is not known.
    pub(crate) fn unplaced(&self) -> impl Iterator<Item = PodId> {
        self.unplaced.iter().filter_map(|id| self.terms.get(id)).flat_map(|gathered| &gathered.unplaced).copied()
    }

    /// Pairs of pods that are on one VM and want to be apart; one may be told by several terms.
    pub(crate) fn same_vm(&self) -> impl Iterator<Item = &Finding> {
        self.same_vm.iter().filter_map(|id| self.terms.get(id)).flat_map(|gathered| &gathered.same_vm)
    }
}

/// Topology keys that mean hosts.
struct Keys {
    host: Option<Symbol>,
    lifted: Vec<Symbol>,
}

impl Keys {
    fn of(world: &World, settings: &DrsSettings) -> Self {
        let interner = world.interner();
        let lifted = settings.lifted_keys.iter().filter_map(|key| interner.get(key)).collect();
        Self { host: interner.get(&settings.host_key), lifted }
    }
}

/// A pod with its cluster and VM.
type PlacedIn = (usize, u32, PodId);

/// The part of a sorted list that is about one cluster.
fn in_cluster(placed: &[PlacedIn], cluster: usize) -> Vec<Placed> {
    let from = placed.partition_point(|(of, ..)| *of < cluster);
    let to = placed.partition_point(|(of, ..)| *of <= cluster);
    placed[from..to].iter().map(|(_, vm, pod)| (*vm, *pod)).collect()
}

fn gather(world: &World, places: &Places, keys: &Keys, id: TermId, term: &Term) -> Option<Gathered> {
    let on_host = Some(term.topology_key) == keys.host;
    if !on_host && !keys.lifted.contains(&term.topology_key) {
        return None;
    }
    let mut sorting = Sorting { world, places, rolling: false, unplaced: Vec::new() };
    let mut carriers: Vec<PlacedIn> = Vec::new();
    for pod in world.carriers(id, Role::AntiAffinity) {
        if on_host || !opted_out(world, pod) {
            sorting.sort_in(pod, &mut carriers);
        }
    }
    if carriers.is_empty() && !sorting.rolling && sorting.unplaced.is_empty() {
        return None;
    }
    let mut matches: Vec<PlacedIn> = Vec::new();
    for pod in world.pods_matching(id) {
        sorting.sort_in(pod, &mut matches);
    }
    carriers.sort_unstable();
    matches.sort_unstable();
    let Sorting { rolling, unplaced, .. } = sorting;
    let digest = term_digest(world, term);
    let mut gathered = Gathered { digest, rolling, parts: Vec::new(), unplaced, same_vm: Vec::new() };
    let mut clusters: Vec<usize> = carriers.iter().map(|(cluster, ..)| *cluster).collect();
    clusters.dedup();
    for cluster in clusters {
        let (carriers, matches) = (in_cluster(&carriers, cluster), in_cluster(&matches, cluster));
        tell_same_vm(world, places, cluster, (&carriers, &matches), &mut gathered.same_vm);
        let mut vms: Vec<usize> = carriers.iter().chain(&matches).map(|(vm, _)| *vm as usize).collect();
        vms.sort_unstable();
        vms.dedup();
        if vms.len() > 1 && !matches.is_empty() {
            gathered.parts.push((cluster, Arc::new(Part { vms, carriers, matches })));
        }
    }
    Some(gathered)
}

struct Sorting<'a> {
    world: &'a World,
    places: &'a Places,
    /// A pod is on its way in or out.
    rolling: bool,
    unplaced: Vec<PodId>,
}

impl Sorting<'_> {
    fn sort_in(&mut self, id: PodId, placed: &mut Vec<PlacedIn>) {
        match self.places.spot(self.world, id) {
            // A VM's number fits: nodes have ids of 32 bits.
            Spot::At(cluster, vm) => placed.push((cluster, vm as u32, id)),
            Spot::Unknown => self.unplaced.push(id),
            Spot::Elsewhere => (),
            Spot::Unbound => self.rolling = true,
        }
        self.rolling |= self.world.pod(id).is_some_and(|pod| pod.terminating);
    }
}

fn tell_same_vm(
    world: &World,
    places: &Places,
    cluster: usize,
    (carriers, matches): (&[Placed], &[Placed]),
    findings: &mut Vec<Finding>,
) {
    for on_vm in carriers.chunk_by(|(a, _), (b, _)| a == b) {
        let vm = on_vm[0].0;
        let from = matches.partition_point(|(of, _)| *of < vm);
        let to = matches.partition_point(|(of, _)| *of <= vm);
        let matching = &matches[from..to];
        if on_vm.len() + matching.len() < 2 || on_vm == matching && on_vm.len() == 1 {
            continue;
        }
        // Ids follow the order of events; names do not.
        let named =
            |pods: &[Placed]| -> BTreeSet<PodRef> { pods.iter().filter_map(|(_, pod)| pod_ref(world, *pod)).collect() };
        let (carriers, matches) = (named(on_vm), named(matching));
        let place = &places.clusters[cluster].vms[vm as usize];
        let node = world.node_name(place.node).unwrap_or_default();
        let mut told = BTreeSet::new();
        let pairs = carriers.iter().flat_map(|a| matches.iter().map(move |b| (a.min(b), a.max(b))));
        for (a, b) in pairs.filter(|(a, b)| a != b).filter(|pair| told.insert(*pair)).take(SAME_VM_PAIRS_MAX) {
            let pods = (a.clone(), b.clone());
            findings.push(Finding::SameVm { vm: place.name.clone(), node: node.to_owned(), pods });
        }
    }
}

fn opted_out(world: &World, pod: PodId) -> bool {
    world.pod(pod).is_some_and(|pod| {
        pod.lift_off
            || world.namespace(world.interner().text(pod.namespace)).is_some_and(|namespace| namespace.lift_off)
    })
}
