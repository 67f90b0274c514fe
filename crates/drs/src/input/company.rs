//! Pods whose required affinity needs another pod on their host.
//!
//! In: the pods of a cluster. Out: those that have no such pod on their own VM, with the VMs that have one. Invariant: a pod counts as
//! company only if it matches all terms of affinity, also those about other places than hosts.

use std::collections::BTreeMap;

use model::{PodId, Role, TermId, World};

use super::{Company, Pods};

/// The terms of affinity of a pod, if one of them is about hosts.
pub(super) fn terms_of(world: &World, host_key: Option<model::intern::Symbol>, pod: PodId) -> Option<Vec<TermId>> {
    let terms = world.pod_terms(pod).iter().filter(|(_, role)| *role == Role::Affinity);
    let terms: Vec<TermId> = terms.map(|(term, _)| *term).collect();
    let is_of_hosts = |term: &TermId| world.term(*term).is_some_and(|term| Some(term.topology_key) == host_key);
    terms.iter().any(is_of_hosts).then_some(terms)
}

/// Pods with the same terms, by their numbers, are looked at together.
pub(super) type ByTerms = BTreeMap<Vec<TermId>, Vec<usize>>;

pub(super) fn of(world: &World, pods: &mut Pods, by_terms: ByTerms) -> Vec<Company> {
    let mut found = Vec::new();
    for (terms, carriers) in by_terms {
        let would_do = |(_, pod): &&(usize, PodId)| {
            let matching = world.terms_matching(*pod);
            terms.iter().all(|term| matching.contains(term))
        };
        let partners: Vec<(usize, PodId)> = pods.on_vms.iter().filter(would_do).copied().collect();
        for number in carriers {
            let (vm, pod) = pods.on_vms[number];
            let others = partners.iter().filter(|(_, other)| *other != pod);
            let mut partners: Vec<usize> = others.map(|(partner, _)| *partner).collect();
            partners.dedup();
            if !partners.is_empty() && !partners.contains(&vm) {
                found.push(Company { pod: pods.name(world, number), vm, partners });
            }
        }
    }
    found.sort_by(|a, b| pods.named[a.pod].cmp(&pods.named[b.pod]));
    found
}
