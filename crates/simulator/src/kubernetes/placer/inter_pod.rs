//! Affinity and anti-affinity between pods, worked out once per placement.
//!
//! Input: the pod to be placed and the pods that are. Output: per topology value, what speaks for and against it.
//!
//! - Required affinity: an existing pod counts only if it matches all terms; a node needs a counting pod in each
//!   term's topology. If nothing counts anywhere, a pod that matches its own terms may begin the group.
//! - Required anti-affinity: any one matching term excludes, in both directions. A node without the topology label is
//!   not excluded.
//! - Preferences add and subtract weights, the pod's own and those of the pods that are there.

use std::collections::BTreeMap;

use super::cache::Cache;
use super::node_affinity::Labels;
use super::pod_info::{AffinityTerm, PodInfo};
use crate::kubernetes::store::Store;

/// Weights by topology key and value.
type Topologies = BTreeMap<String, BTreeMap<String, i64>>;

/// What an existing pod's required affinity adds to the score of its surroundings.
const HARD_AFFINITY_WEIGHT: i64 = 1;

#[derive(Debug, Default)]
pub(crate) struct InterPod<'a> {
    pod: Option<&'a PodInfo>,
    company: Topologies,
    may_begin: bool,
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
                result.note_wishes_of(store, cache, pod, existing);
            }
        }
        result.may_begin =
            result.company.is_empty() && pod.required_affinity.iter().all(|term| term.matches(store, pod));
        result
    }

    fn note_own(&mut self, store: &Store, cache: &Cache, pod: &PodInfo, existing: &PodInfo) {
        let terms = &pod.required_affinity;
        if !terms.is_empty() && terms.iter().all(|term| term.matches(store, existing)) {
            for term in terms {
                add(&mut self.company, cache, existing, term, 1);
            }
        }
        for term in pod.required_anti_affinity.iter().filter(|term| term.matches(store, existing)) {
            add(&mut self.avoided, cache, existing, term, 1);
        }
        for (wishes, sign) in [(&pod.preferred_affinity, 1), (&pod.preferred_anti_affinity, -1)] {
            for wish in wishes.iter().filter(|wish| wish.term.matches(store, existing)) {
                add(&mut self.scores, cache, existing, &wish.term, sign * wish.weight);
            }
        }
    }

    fn note_wishes_of(&mut self, store: &Store, cache: &Cache, pod: &PodInfo, existing: &PodInfo) {
        for (wishes, sign) in [(&existing.preferred_affinity, 1), (&existing.preferred_anti_affinity, -1)] {
            for wish in wishes.iter().filter(|wish| wish.term.matches(store, pod)) {
                add(&mut self.scores, cache, existing, &wish.term, sign * wish.weight);
            }
        }
        for term in existing.required_affinity.iter().filter(|term| term.matches(store, pod)) {
            add(&mut self.scores, cache, existing, term, HARD_AFFINITY_WEIGHT);
        }
    }

    /// Why the pod cannot be on a node with these labels.
    pub(crate) fn objection(&self, labels: &Labels) -> Option<Objection> {
        let pod = self.pod?;
        let present = |topologies: &Topologies, term: &AffinityTerm| {
            let value = labels.get(&term.topology_key)?;
            Some(topologies.get(&term.topology_key).is_some_and(|values| values.contains_key(value)))
        };
        let together = pod
            .required_affinity
            .iter()
            .all(|term| present(&self.company, term).is_some_and(|is| is || self.may_begin));
        if !together {
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

/// Adds weight where the existing pod is in the term's topology; nowhere when its node lacks the label.
fn add(topologies: &mut Topologies, cache: &Cache, existing: &PodInfo, term: &AffinityTerm, weight: i64) {
    if let Some(value) = cache.topology(existing, &term.topology_key) {
        *topologies.entry(term.topology_key.clone()).or_default().entry(value.to_owned()).or_default() += weight;
    }
}

/// The weights that hold on a node with these labels.
fn here<'a>(topologies: &'a Topologies, labels: &'a Labels) -> impl Iterator<Item = i64> + 'a {
    topologies.iter().filter_map(|(key, values)| values.get(labels.get(key)?).copied())
}
