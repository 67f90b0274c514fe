//! Pods that need another pod on their host, kept until one of their terms is touched.
//!
//! In: the world, the terms that were touched. Out: per cluster the needs. Pods with the same terms of affinity are gathered
//! together. Invariant: a pod counts as company only if it matches all terms of affinity.

use std::collections::BTreeMap;

use model::{PodId, Role, TermId, World};
use rustc_hash::FxHashMap;

use crate::places::{Places, Spot, pod_ref};
use crate::settings::DrsSettings;

/// A pod that needs one of others on its host.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    pub(crate) pod: PodId,
    pub(crate) vm: usize,
    /// VMs with a pod that would do; never empty, never its own.
    pub(crate) partners: Vec<usize>,
}

/// What pods with the same terms of affinity need.
#[derive(Debug, Default)]
struct Company {
    /// With their clusters.
    needs: Vec<(usize, Need)>,
    unplaced: Vec<PodId>,
}

#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// By terms, sorted.
    by_terms: BTreeMap<Vec<TermId>, Company>,
    with_term: FxHashMap<TermId, Vec<Vec<TermId>>>,
}

fn affinity_terms(world: &World, pod: PodId) -> Vec<TermId> {
    let terms = world.pod_terms(pod).iter().filter(|(_, role)| *role == Role::Affinity);
    terms.map(|(term, _)| *term).collect()
}

impl Needs {
    /// Looks at these terms again, whether or not they are still there.
    pub(crate) fn gather(
        &mut self,
        world: &World,
        places: &Places,
        settings: &DrsSettings,
        touched: impl Iterator<Item = TermId>,
    ) {
        let host_key = world.interner().get(&settings.host_key);
        let touched: Vec<TermId> = touched.collect();
        for term in &touched {
            for terms in self.with_term.remove(term).unwrap_or_default() {
                self.by_terms.remove(&terms);
                for other in &terms {
                    if let Some(lists) = self.with_term.get_mut(other) {
                        lists.retain(|list| *list != terms);
                    }
                }
            }
        }
        let of_hosts = |term: &TermId| world.term(*term).is_some_and(|term| Some(term.topology_key) == host_key);
        for term in touched {
            for pod in world.carriers(term, Role::Affinity) {
                let terms = affinity_terms(world, pod);
                // All terms must hold; those about other places are not DRS's.
                if !terms.iter().any(of_hosts) || self.by_terms.contains_key(&terms) {
                    continue;
                }
                for other in &terms {
                    self.with_term.entry(*other).or_default().push(terms.clone());
                }
                let company = company(world, places, &terms);
                self.by_terms.insert(terms, company);
            }
        }
    }

    /// By the pods' names: ids follow the order of events, names do not.
    pub(crate) fn of_cluster(&self, world: &World, cluster: usize) -> Vec<Need> {
        let needs = self.by_terms.values().flat_map(|company| &company.needs);
        let mut needs: Vec<Need> = needs.filter(|(of, _)| *of == cluster).map(|(_, need)| need.clone()).collect();
        needs.sort_by_cached_key(|need| pod_ref(world, need.pod));
        needs
    }

    /// Pods of which the VM or its cluster is not known.
    pub(crate) fn unplaced(&self) -> impl Iterator<Item = PodId> {
        self.by_terms.values().flat_map(|company| &company.unplaced).copied()
    }
}

fn company(world: &World, places: &Places, terms: &[TermId]) -> Company {
    let mut found = Company::default();
    let Some(first) = terms.first() else { return found };
    let mut partners: Vec<(usize, usize, PodId)> = Vec::new();
    for other in world.pods_matching(*first) {
        let matching = world.terms_matching(other);
        if let Spot::At(cluster, vm) = places.spot(world, other)
            && terms.iter().all(|term| matching.contains(term))
        {
            partners.push((cluster, vm, other));
        }
    }
    partners.sort_unstable();
    for pod in world.carriers(*first, Role::Affinity).filter(|pod| affinity_terms(world, *pod) == terms) {
        match places.spot(world, pod) {
            Spot::At(cluster, vm) => {
                let others = partners.iter().filter(|(of, _, other)| *of == cluster && *other != pod);
                let mut vms: Vec<usize> = others.map(|(_, partner, _)| *partner).collect();
                vms.dedup();
                if !vms.is_empty() && !vms.contains(&vm) {
                    found.needs.push((cluster, Need { pod, vm, partners: vms }));
                }
            }
            Spot::Unknown => found.unplaced.push(pod),
            Spot::Elsewhere | Spot::Unbound => (),
        }
    }
    found
}
