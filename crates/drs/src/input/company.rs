//! Pods whose required affinity calls for another pod on the same host (*company*).
//!
//! In: the pods of a cluster. Out: the pods without such a pod on their own VM, with the VMs that have one. Invariant:
//! a pod counts as company only if it matches all required affinity terms, including those on other topology keys.

use std::collections::BTreeMap;

use model::{PodId, Role, TermId, World};

use super::{Company, PodClass, PodOn, Pods};
use crate::settings::DrsSettings;

/// The required affinity terms of a pod, if one of them is on the host label.
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
    // Handle pods with the same terms together.
    let mut by_terms: BTreeMap<Vec<TermId>, Vec<PodOn>> = BTreeMap::new();
    for PodClass { one, on_vms, .. } in pods.classes.values() {
        if let Some(terms) = terms_of(world, host_key, *one) {
            by_terms.entry(terms).or_default().extend(on_vms);
        }
    }
    let mut found = Vec::new();
    for (terms, carriers) in by_terms {
        let matches_all = |class: &&PodClass| terms.iter().all(|term| world.terms_matching(class.one).contains(term));
        let mut partners: Vec<PodOn> =
            pods.classes.values().filter(matches_all).flat_map(|class| &class.on_vms).copied().collect();
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
