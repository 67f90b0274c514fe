//! Pods whose required affinity needs another pod on their host.
//!
//! In: the pods of a cluster. Out: those that have no such pod on their own VM, with the VMs that have one. Invariant: a pod counts as
//! company only if it matches all terms of affinity, also those about other places than hosts.

use std::collections::BTreeMap;

use model::{PodId, Role, TermId, World};

use super::{Alike, Company, PodOn, Pods};
use crate::settings::DrsSettings;

/// The terms of affinity of a pod, if one of them is about hosts.
pub(super) fn terms_of(
    world: &World,
    host_key: Option<model::storage::intern::Symbol>,
    pod: PodId,
) -> Option<Vec<TermId>> {
    let terms = world.pod_terms(pod).iter().filter(|(_, role)| *role == Role::Affinity);
    let terms: Vec<TermId> = terms.map(|(term, _)| *term).collect();
    let is_of_hosts = |term: &TermId| world.term(*term).is_some_and(|term| Some(term.topology_key) == host_key);
    terms.iter().any(is_of_hosts).then_some(terms)
}

pub(super) fn of(world: &World, pods: &Pods, settings: &DrsSettings) -> Vec<Company> {
    let host_key = world.interner().get(&settings.host_key);
    // Pods with the same terms are looked at together.
    let mut by_terms: BTreeMap<Vec<TermId>, Vec<PodOn>> = BTreeMap::new();
    for Alike { one, on_vms, .. } in pods.alike.values() {
        if let Some(terms) = terms_of(world, host_key, *one) {
            by_terms.entry(terms).or_default().extend(on_vms);
        }
    }
    let mut found = Vec::new();
    for (terms, carriers) in by_terms {
        let would_do = |alike: &&Alike| terms.iter().all(|term| world.terms_matching(alike.one).contains(term));
        let mut partners: Vec<PodOn> =
            pods.alike.values().filter(would_do).flat_map(|alike| &alike.on_vms).copied().collect();
        partners.sort_unstable();
        for (vm, pod) in carriers {
            let others = partners.iter().filter(|(_, other)| *other != pod);
            let mut partners: Vec<usize> = others.map(|(partner, _)| *partner).collect();
            partners.dedup();
            if !partners.is_empty() && !partners.contains(&vm) {
                found.push(Company { pod, vm, partners });
            }
        }
    }
    found.sort_by(|a, b| pods.named[a.pod].cmp(&pods.named[b.pod]));
    found
}
