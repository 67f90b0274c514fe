//! What required anti-affinity means for the VMs that pods run on.
//!
//! In: the pods of a cluster. Out: each term with the VMs of the pods that carry it and of those it matches; pairs of
//! pods that no rule can separate, because they are on one VM.
//!
//! - Two VMs must run on different hosts if a term of a pod on one matches a pod on the other; pods that only match the
//!   same term may share a host.
//! - Terms on the host label count, and terms on a lifted key, unless the pod or its namespace opted out.
//! - With [`AcrossNamespaces::Labelled`], a term counts across namespaces only if the namespace of its pod has the label;
//!   otherwise it counts as if it were written for that namespace alone.
//! - Different clusters never share a host.

use std::collections::BTreeSet;

use model::affinity::ProfileTerms;
use model::storage::intern::Symbol;
use model::{PodId, Role, TermId, World};
use rustc_hash::FxHashMap;

use super::digest::digest_text;
use super::{Classes, PodOn, Pods, Term, Vm, has_cluster_rules};
use crate::finding::{Finding, RulePod};
use crate::settings::{AcrossNamespaces, DrsSettings};

/// The maximum number of reported pod pairs on one VM, for one term.
const SAME_VM_PAIRS_MAX: usize = 8;

/// A term, and the namespace that it is confined to, if it would reach others.
pub(super) type TermKey = (TermId, Option<Symbol>);

/// Topology keys that mean hosts, and which terms count across namespaces.
pub(super) struct Keys {
    host: Option<Symbol>,
    lifted: Vec<Symbol>,
    across: AcrossNamespaces,
}

impl Keys {
    pub(super) fn of(world: &World, settings: &DrsSettings) -> Self {
        let interner = world.interner();
        let lifted = settings.lifted_keys.iter().filter_map(|key| interner.get(key)).collect();
        Self { host: interner.get(&settings.host_key), lifted, across: settings.across_namespaces }
    }

    /// Whether the term applies between hosts; `lifts`: neither its pod nor the namespace opted out of lifting. Asked
    /// last: for a term that many pods carry it is expensive.
    fn counts(&self, world: &World, term: TermId, lifts: impl FnOnce() -> bool) -> bool {
        let key = world.term(term).map(|term| term.topology_key);
        key.is_some_and(|key| Some(key) == self.host || self.lifted.contains(&key) && lifts())
    }

    /// The namespace of the term's pod, if the term reaches others but counts only there.
    pub(super) fn within(&self, world: &World, namespace: Symbol, term: TermId) -> Option<Symbol> {
        let is_confined = self.across == AcrossNamespaces::Labelled && !has_cluster_rules(world, namespace);
        let reaches_others = || world.term(term).is_some_and(|term| !term.namespaces.is_only(namespace));
        (is_confined && reaches_others()).then_some(namespace)
    }

    /// The anti-affinity terms that apply between hosts.
    pub(super) fn separating<'a>(
        &'a self,
        world: &'a World,
        of: ProfileTerms<'a>,
    ) -> impl Iterator<Item = TermId> + 'a {
        let terms = of.carried.iter().filter(|(_, role)| *role == Role::AntiAffinity).map(|(term, _)| *term);
        terms.filter(move |term| self.counts(world, *term, || of.lifts))
    }
}

/// What the rules of the term are for, in names and records.
pub(super) fn digest(world: &World, (term, within): TermKey) -> Option<u64> {
    let digest = world.term_digest(term)?;
    let confined = |within| model::digest(&["within", world.interner().text(within), &digest_text(digest)]);
    Some(within.map_or(digest, confined))
}

/// The pods that carry a term, and those that match it.
#[derive(Default)]
struct Gathered {
    digest: u64,
    carriers: Vec<PodOn>,
    matches: Vec<PodOn>,
}

pub(super) fn of(classes: &Classes, pods: &Pods, vms: &[Vm]) -> (Vec<Term>, Vec<Finding>) {
    let mut gathered: FxHashMap<TermKey, Gathered> = FxHashMap::default();
    for (class, on_vms) in pods.classes(classes) {
        for (key, digest) in &class.separating {
            let gathered = gathered.entry(*key).or_default();
            gathered.digest = *digest;
            gathered.carriers.extend(on_vms);
        }
    }
    for (class, on_vms) in pods.classes(classes) {
        for term in &class.matching {
            for within in [None, Some(class.namespace)] {
                if let Some(gathered) = gathered.get_mut(&(*term, within)) {
                    gathered.matches.extend(on_vms);
                }
            }
        }
    }
    let mut terms = Vec::with_capacity(gathered.len());
    let mut same_vm = BTreeSet::new();
    for Gathered { digest, mut carriers, mut matches } in gathered.into_values() {
        carriers.sort_unstable();
        matches.sort_unstable();
        let mut vms: Vec<usize> = carriers.iter().chain(&matches).map(|(vm, _)| *vm).collect();
        vms.sort_unstable();
        vms.dedup();
        // Usually carriers and matches are the same pods, each on its own VM.
        if carriers != matches || vms.len() < carriers.len() {
            same_vm.extend(on_one_vm(&pods.named, &carriers, &matches));
        }
        if vms.len() > 1 && !matches.is_empty() {
            terms.push(Term { digest, vms, carriers, matches });
        }
    }
    terms.sort_unstable_by_key(|term| term.digest);
    let same_vm = same_vm.into_iter().map(|(a, b, vm)| {
        let vm = &vms[vm];
        Finding::SameVm { vm: vm.name.clone(), node: vm.node.to_string(), pods: (a, b) }
    });
    (terms, same_vm.collect())
}

/// Pairs of pods on one VM where a term of one matches the other.
fn on_one_vm(named: &[RulePod], carriers: &[PodOn], matches: &[PodOn]) -> Vec<(RulePod, RulePod, usize)> {
    let mut found = Vec::new();
    for on_vm in carriers.chunk_by(|(a, _), (b, _)| a == b) {
        let vm = on_vm[0].0;
        let from = matches.partition_point(|(of, _)| *of < vm);
        let to = matches.partition_point(|(of, _)| *of <= vm);
        let matching = &matches[from..to];
        if on_vm.len() + matching.len() < 2 || on_vm == matching && on_vm.len() == 1 {
            continue;
        }
        let sorted = |pods: &[PodOn]| -> BTreeSet<&RulePod> { pods.iter().map(|(_, pod)| &named[*pod]).collect() };
        let (carriers, matches) = (sorted(on_vm), sorted(matching));
        let pairs = carriers.iter().flat_map(|a| matches.iter().map(move |b| (*a.min(b), *a.max(b))));
        let pairs: BTreeSet<(&RulePod, &RulePod)> = pairs.filter(|(a, b)| a != b).collect();
        found.extend(pairs.into_iter().take(SAME_VM_PAIRS_MAX).map(|(a, b)| (a.clone(), b.clone(), vm)));
    }
    found
}

/// The terms that count and that a pod carries or matches.
pub(super) fn concerning<'a>(world: &'a World, keys: &'a Keys, pod: PodId) -> impl Iterator<Item = TermId> + 'a {
    let own = world.pod_profile(pod).and_then(|profile| world.profile_terms(profile));
    let lifts =
        |pod| world.pod_profile(pod).and_then(|profile| world.profile_terms(profile)).is_some_and(|of| of.lifts);
    let has_carriers = move |term: &&TermId| {
        let mut carriers = world.carriers(**term, Role::AntiAffinity).peekable();
        carriers.peek().is_some() && keys.counts(world, **term, || carriers.any(lifts))
    };
    let own = own.into_iter().flat_map(|of| keys.separating(world, of));
    own.chain(world.terms_matching(pod).iter().filter(has_carriers).copied())
}
