//! What required anti-affinity asks of the VMs that pods run on.
//!
//! In: the pods of a cluster. Out: each term with the VMs of the pods that have it and of those it matches; pairs of pods that no rule
//! can part, because they are on one VM.
//!
//! - Two VMs are to be on different hosts if a term of a pod on one matches a pod on the other; pods that match the same term need
//!   not therefore be apart from each other.
//! - Terms on the host label count, and those on a lifted key, unless pod or namespace opted out.
//! - Different clusters never share a host.

use std::collections::BTreeSet;

use model::intern::Symbol;
use model::{Pod, PodId, Role, TermId, World};
use rustc_hash::FxHashMap;

use super::digest::term_digest;
use super::nodes::Node;
use super::{PodOn, Pods, Term};
use crate::finding::{Finding, PodRef};
use crate::settings::DrsSettings;

/// How many pairs of pods on one VM are reported for one term.
const SAME_VM_PAIRS_MAX: usize = 8;

/// Topology keys that mean hosts.
pub(super) struct Keys {
    host: Option<Symbol>,
    lifted: Vec<Symbol>,
}

impl Keys {
    pub(super) fn of(world: &World, settings: &DrsSettings) -> Self {
        let interner = world.interner();
        let lifted = settings.lifted_keys.iter().filter_map(|key| interner.get(key)).collect();
        Self { host: interner.get(&settings.host_key), lifted }
    }

    /// Whether this term of this pod keeps it from sharing a host.
    pub(super) fn counts(&self, world: &World, pod: &Pod, term: TermId) -> bool {
        self.meaning(world, term).counts(world, pod)
    }

    fn meaning(&self, world: &World, term: TermId) -> KeyMeaning {
        match world.term(term).map(|term| term.topology_key) {
            key if key.is_some() && key == self.host => KeyMeaning::Hosts,
            Some(key) if self.lifted.contains(&key) => KeyMeaning::Lifted,
            _ => KeyMeaning::Other,
        }
    }
}

/// What a term's topology key means.
#[derive(Clone, Copy)]
enum KeyMeaning {
    Hosts,
    /// Nodes, and therefore hosts too.
    Lifted,
    Other,
}

impl KeyMeaning {
    fn counts(self, world: &World, pod: &Pod) -> bool {
        let is_off = |namespace: Symbol| world.namespace_of(namespace).is_some_and(|namespace| namespace.lift_off);
        match self {
            Self::Hosts => true,
            Self::Lifted => !pod.lift_off && !is_off(pod.namespace),
            Self::Other => false,
        }
    }
}

/// The terms of anti-affinity that a pod has.
fn of_pod(world: &World, pod: PodId) -> impl Iterator<Item = TermId> {
    let terms = world.pod_terms(pod).iter().filter(|(_, role)| *role == Role::AntiAffinity);
    terms.map(|(term, _)| *term)
}

struct Gathered {
    meaning: KeyMeaning,
    carriers: Vec<PodOn>,
    matches: Vec<PodOn>,
}

/// The terms of a cluster's pods, pod by pod.
pub(super) struct Gathering {
    keys: Keys,
    terms: FxHashMap<TermId, Gathered>,
}

impl Gathering {
    pub(super) fn new(world: &World, settings: &DrsSettings) -> Self {
        Self { keys: Keys::of(world, settings), terms: FxHashMap::default() }
    }

    /// `number` is the pod's among those of the cluster; they come in the order of their VMs.
    pub(super) fn add(&mut self, world: &World, pods: &mut Pods, number: usize, pod: &Pod) {
        let (vm, id) = pods.on_vms[number];
        for term in of_pod(world, id) {
            let new =
                || Gathered { meaning: self.keys.meaning(world, term), carriers: Vec::new(), matches: Vec::new() };
            let gathered = self.terms.entry(term).or_insert_with(new);
            if gathered.meaning.counts(world, pod) {
                gathered.carriers.push((vm, pods.name(world, number)));
            }
        }
    }

    /// Once all pods were added.
    pub(super) fn terms(mut self, world: &World, pods: &mut Pods, nodes: &[Node]) -> (Vec<Term>, Vec<Finding>) {
        self.terms.retain(|_, gathered| !gathered.carriers.is_empty());
        for number in 0..pods.on_vms.len() {
            let (vm, pod) = pods.on_vms[number];
            for term in world.terms_matching(pod) {
                if let Some(gathered) = self.terms.get_mut(term) {
                    gathered.matches.push((vm, pods.name(world, number)));
                }
            }
        }
        let mut terms = Vec::with_capacity(self.terms.len());
        let mut same_vm = BTreeSet::new();
        for (id, Gathered { carriers, matches, .. }) in self.terms {
            let mut vms: Vec<usize> = carriers.iter().chain(&matches).map(|(vm, _)| *vm).collect();
            vms.sort_unstable();
            vms.dedup();
            // Mostly the same pods, each on a VM of its own.
            if carriers != matches || vms.len() < carriers.len() {
                same_vm.extend(on_one_vm(&pods.named, &carriers, &matches));
            }
            if vms.len() > 1
                && !matches.is_empty()
                && let Some(term) = world.term(id)
            {
                terms.push(Term { digest: term_digest(world, term), vms, carriers, matches });
            }
        }
        terms.sort_unstable_by_key(|term| term.digest);
        let same_vm = same_vm.into_iter().map(|(a, b, vm)| {
            let vm = &nodes[vm].vm;
            Finding::SameVm { vm: vm.name.clone(), node: vm.node.to_string(), pods: (a, b) }
        });
        (terms, same_vm.collect())
    }
}

/// Pairs of pods on one VM of which one's term matches the other.
fn on_one_vm(named: &[PodRef], carriers: &[PodOn], matches: &[PodOn]) -> Vec<(PodRef, PodRef, usize)> {
    let mut found = Vec::new();
    for on_vm in carriers.chunk_by(|(a, _), (b, _)| a == b) {
        let vm = on_vm[0].0;
        let from = matches.partition_point(|(of, _)| *of < vm);
        let to = matches.partition_point(|(of, _)| *of <= vm);
        let matching = &matches[from..to];
        if on_vm.len() + matching.len() < 2 || on_vm == matching && on_vm.len() == 1 {
            continue;
        }
        let sorted = |pods: &[PodOn]| -> BTreeSet<&PodRef> { pods.iter().map(|(_, pod)| &named[*pod]).collect() };
        let (carriers, matches) = (sorted(on_vm), sorted(matching));
        let pairs = carriers.iter().flat_map(|a| matches.iter().map(move |b| (*a.min(b), *a.max(b))));
        let pairs: BTreeSet<(&PodRef, &PodRef)> = pairs.filter(|(a, b)| a != b).collect();
        found.extend(pairs.into_iter().take(SAME_VM_PAIRS_MAX).map(|(a, b)| (a.clone(), b.clone(), vm)));
    }
    found
}

/// The terms that count and that a pod has, or that match it.
pub(super) fn concerning<'a>(world: &'a World, keys: &'a Keys, pod: PodId) -> impl Iterator<Item = TermId> + 'a {
    let counts = |pod: PodId, term: TermId| world.pod(pod).is_some_and(|pod| keys.counts(world, pod, term));
    let has_carriers = move |term: &TermId| world.carriers(*term, Role::AntiAffinity).any(|pod| counts(pod, *term));
    let own = of_pod(world, pod).filter(move |term| counts(pod, *term));
    own.chain(world.terms_matching(pod).iter().copied().filter(has_carriers))
}
