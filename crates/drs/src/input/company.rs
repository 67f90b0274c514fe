//! Pods whose required affinity calls for another pod on the same host (*company*).
//!
//! In: the pods of a cluster. Out: the pods without such a pod on their own VM, with the VMs that have one. Invariant:
//! a pod counts as company only if it matches all required affinity terms, including those on other topology keys.

use std::collections::BTreeMap;

use model::storage::intern::Symbol;
use model::{Role, TermId, World};

use super::{ClassTerms, Classes, Company, PodOn, Pods};

/// The required affinity terms among those that a pod carries, if one of them is on the host label.
pub(super) fn terms_of(world: &World, host_key: Option<Symbol>, carried: &[(TermId, Role)]) -> Option<Vec<TermId>> {
    let terms = carried.iter().filter(|(_, role)| *role == Role::Affinity).map(|(term, _)| *term);
    let is_of_hosts = |term: TermId| world.term(term).is_some_and(|term| Some(term.topology_key) == host_key);
    terms.clone().any(is_of_hosts).then(|| terms.collect())
}

pub(super) fn of(classes: &Classes, pods: &Pods) -> Vec<Company> {
    // Handle pods with the same terms together.
    let mut by_terms: BTreeMap<(&[TermId], Option<Symbol>), Vec<PodOn>> = BTreeMap::new();
    for (class, on_vms) in pods.classes(classes) {
        if let Some(terms) = &class.affinity {
            by_terms.entry((terms, class.affinity_within)).or_default().extend(on_vms);
        }
    }
    let mut found = Vec::new();
    for ((terms, within), carriers) in by_terms {
        let is_within = |class: &ClassTerms| within.is_none_or(|namespace| class.namespace == namespace);
        let matches_all =
            |class: &ClassTerms| is_within(class) && terms.iter().all(|term| class.matching.contains(term));
        let partners = pods.classes(classes).filter(|(class, _)| matches_all(class));
        let mut partners: Vec<PodOn> = partners.flat_map(|(_, on_vms)| on_vms).copied().collect();
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
