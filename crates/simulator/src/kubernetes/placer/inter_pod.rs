//! Pod affinity and anti-affinity, computed once per placement.
//!
//! In: the pod to place and the existing pods. Out: per topology value, the terms and weights for and against it.
//!
//! - Required affinity: an existing pod counts only if it matches all terms; a node needs such a pod in each term's
//!   topology. If no pod matches anywhere, a pod that matches its own terms may start the group.
//! - Required anti-affinity: one matching term is enough to exclude, in both directions. A node without the topology
//!   label is not excluded.
//! - Preferred terms add and subtract weights, for the pod's own terms and those of the existing pods.

use std::collections::BTreeMap;

use super::cache::Cache;
use super::node_affinity::Labels;
use super::pod_info::{AffinityTerm, PodInfo};
use crate::kubernetes::store::Store;

/// Weights by topology key and value.
type Topologies = BTreeMap<String, BTreeMap<String, i64>>;

/// The score that an existing pod's required affinity adds to its topology.
const HARD_AFFINITY_WEIGHT: i64 = 1;

#[derive(Debug, Default)]
pub(crate) struct InterPod<'a> {
    pod: Option<&'a PodInfo>,
    affine: Topologies,
    may_start_group: bool,
    avoided: Topologies,
    avoiding: Topologies,
    scores: Topologies,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Objection {
    Affinity,
    AntiAffinity,
    ExistingAntiAffinity,
}

impl<'a> InterPod<'a> {
    pub(crate) fn of(store: &Store, cache: &Cache, pod: &'a PodInfo) -> InterPod<'a> {
        let mut result = InterPod { pod: Some(pod), ..InterPod::default() };
        let own_terms = !(pod.required_affinity.is_empty()
            && pod.required_anti_affinity.is_empty()
            && pod.preferred_affinity.is_empty()
            && pod.preferred_anti_affinity.is_empty());
        if own_terms {
            for existing in cache.pods.values() {
                result.note_own(store, cache, pod, existing);
            }
        }
        for key in &cache.with_anti_affinity {
            if let Some(existing) = cache.pods.get(key) {
                for term in existing.required_anti_affinity.iter().filter(|term| term.matches(store, pod)) {
                    add(&mut result.avoiding, cache, existing, term, 1);
                }
            }
        }
        for key in &cache.with_affinity {
            if let Some(existing) = cache.pods.get(key) {
                result.note_preferences_of(store, cache, pod, existing);
            }
        }
        result.may_start_group =
            result.affine.is_empty() && pod.required_affinity.iter().all(|term| term.matches(store, pod));
        result
    }

    fn note_own(&mut self, store: &Store, cache: &Cache, pod: &PodInfo, existing: &PodInfo) {
        let terms = &pod.required_affinity;
        if !terms.is_empty() && terms.iter().all(|term| term.matches(store, existing)) {
            for term in terms {
                add(&mut self.affine, cache, existing, term, 1);
            }
        }
        for term in pod.required_anti_affinity.iter().filter(|term| term.matches(store, existing)) {
            add(&mut self.avoided, cache, existing, term, 1);
        }
        for (preferred, sign) in [(&pod.preferred_affinity, 1), (&pod.preferred_anti_affinity, -1)] {
            for weighted in preferred.iter().filter(|weighted| weighted.term.matches(store, existing)) {
                add(&mut self.scores, cache, existing, &weighted.term, sign * weighted.weight);
            }
        }
    }

    fn note_preferences_of(&mut self, store: &Store, cache: &Cache, pod: &PodInfo, existing: &PodInfo) {
        for (preferred, sign) in [(&existing.preferred_affinity, 1), (&existing.preferred_anti_affinity, -1)] {
            for weighted in preferred.iter().filter(|weighted| weighted.term.matches(store, pod)) {
                add(&mut self.scores, cache, existing, &weighted.term, sign * weighted.weight);
            }
        }
        for term in existing.required_affinity.iter().filter(|term| term.matches(store, pod)) {
            add(&mut self.scores, cache, existing, term, HARD_AFFINITY_WEIGHT);
        }
    }

    /// Why a node with these labels is not feasible.
    pub(crate) fn objection(&self, labels: &Labels) -> Option<Objection> {
        let pod = self.pod?;
        let present = |topologies: &Topologies, term: &AffinityTerm| {
            let value = labels.get(&term.topology_key)?;
            Some(topologies.get(&term.topology_key).is_some_and(|values| values.contains_key(value)))
        };
        let satisfied = pod
            .required_affinity
            .iter()
            .all(|term| present(&self.affine, term).is_some_and(|is| is || self.may_start_group));
        if !satisfied {
            return Some(Objection::Affinity);
        }
        if pod.required_anti_affinity.iter().any(|term| present(&self.avoided, term) == Some(true)) {
            return Some(Objection::AntiAffinity);
        }
        here(&self.avoiding, labels).next().map(|_| Objection::ExistingAntiAffinity)
    }

    pub(crate) fn score(&self, labels: &Labels) -> i64 {
        here(&self.scores, labels).sum()
    }

    pub(crate) fn scores_anything(&self) -> bool {
        !self.scores.is_empty()
    }
}

/// Adds the weight to the existing pod's topology value; adds nothing if its node lacks the label.
fn add(topologies: &mut Topologies, cache: &Cache, existing: &PodInfo, term: &AffinityTerm, weight: i64) {
    if let Some(value) = cache.topology(existing, &term.topology_key) {
        *topologies.entry(term.topology_key.clone()).or_default().entry(value.to_owned()).or_default() += weight;
    }
}

/// The weights that apply to a node with these labels.
fn here<'a>(topologies: &'a Topologies, labels: &'a Labels) -> impl Iterator<Item = i64> + 'a {
    topologies.iter().filter_map(|(key, values)| values.get(labels.get(key)?).copied())
}
