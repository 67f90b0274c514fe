//! A line-by-line port of kube-scheduler's InterPodAffinity: plain facts, maps of strings, every pod visited. Shares
//! only the facts with the index.

use std::collections::{BTreeMap, HashMap};

use super::policy::selects;
use crate::event::*;

/// A node with the pods on it.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeInfo {
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) pods: Vec<PodFacts>,
}

/// The input of the plugin.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    pub(super) nodes: Vec<NodeInfo>,
    /// Labels by name.
    pub(super) namespaces: BTreeMap<String, Labels>,
}

/// `AffinityTerm`: after `newAffinityTerm` and, for an incoming pod, after `mergeAffinityTermNamespacesIfNotEmpty`.
struct AffinityTerm {
    namespaces: Vec<String>,
    selector: Option<SelectorFacts>,
    topology_key: String,
    namespace_selector: Option<SelectorFacts>,
}

impl AffinityTerm {
    fn new(pod: &PodFacts, term: &TermFacts) -> Self {
        let own = term.namespaces.is_empty() && term.namespace_selector.is_none();
        Self {
            namespaces: if own { vec![pod.namespace.clone()] } else { term.namespaces.clone() },
            selector: term.selector.clone(),
            topology_key: term.topology_key.clone(),
            namespace_selector: term.namespace_selector.clone(),
        }
    }

    /// 1.36 passes the term by value: the names reach the shared set, the emptied selector does not.
    fn merged(mut self, cluster: &Cluster) -> Self {
        for (name, labels) in &cluster.namespaces {
            if selects(self.namespace_selector.as_ref(), labels) {
                self.namespaces.push(name.clone());
            }
        }
        self
    }

    fn matches(&self, pod: &PodFacts, namespace_labels: &Labels) -> bool {
        (self.namespaces.contains(&pod.namespace) || selects(self.namespace_selector.as_ref(), namespace_labels))
            && selects(self.selector.as_ref(), &pod.labels)
    }
}

fn terms(pod: &PodFacts, facts: &[TermFacts]) -> Vec<AffinityTerm> {
    facts.iter().map(|term| AffinityTerm::new(pod, term)).collect()
}

fn weighted(pod: &PodFacts, facts: &[WeightedTermFacts]) -> Vec<(AffinityTerm, i64)> {
    facts.iter().map(|of| (AffinityTerm::new(pod, &of.term), i64::from(of.weight))).collect()
}

type Pair = (String, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Success,
    Affinity,
    AntiAffinity,
    ExistingAntiAffinity,
}

/// `preFilterState`.
pub(super) struct Filter {
    existing_anti_affinity: HashMap<Pair, i64>,
    affinity_counts: HashMap<Pair, i64>,
    anti_affinity_counts: HashMap<Pair, i64>,
    affinity_terms: Vec<AffinityTerm>,
    anti_affinity_terms: Vec<AffinityTerm>,
    matches_itself: bool,
    pub(super) skipped: bool,
}

fn update(map: &mut HashMap<Pair, i64>, node: &NodeInfo, key: &str) {
    if let Some(value) = node.labels.get(key) {
        *map.entry((key.to_owned(), value.clone())).or_default() += 1;
    }
}

fn matches_all(terms: &[AffinityTerm], pod: &PodFacts) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches(pod, &Labels::new()))
}

impl Filter {
    /// `PreFilter`.
    pub(super) fn new(cluster: &Cluster, pod: &PodFacts) -> Self {
        let no_labels = Labels::new();
        let merged = |terms: Vec<AffinityTerm>| -> Vec<AffinityTerm> {
            terms.into_iter().map(|term| term.merged(cluster)).collect()
        };
        let affinity_terms = merged(terms(pod, &pod.affinity));
        let anti_affinity_terms = merged(terms(pod, &pod.anti_affinity));
        let namespace_labels = cluster.namespaces.get(&pod.namespace).unwrap_or(&no_labels);
        let mut state = Self {
            existing_anti_affinity: HashMap::new(),
            affinity_counts: HashMap::new(),
            anti_affinity_counts: HashMap::new(),
            matches_itself: matches_all(&affinity_terms, pod),
            affinity_terms,
            anti_affinity_terms,
            skipped: false,
        };
        for node in &cluster.nodes {
            for existing in &node.pods {
                for term in terms(existing, &existing.anti_affinity) {
                    if term.matches(pod, namespace_labels) {
                        update(&mut state.existing_anti_affinity, node, &term.topology_key);
                    }
                }
                if matches_all(&state.affinity_terms, existing) {
                    for term in &state.affinity_terms {
                        update(&mut state.affinity_counts, node, &term.topology_key);
                    }
                }
                for term in &state.anti_affinity_terms {
                    if term.matches(existing, &no_labels) {
                        update(&mut state.anti_affinity_counts, node, &term.topology_key);
                    }
                }
            }
        }
        state.skipped =
            state.existing_anti_affinity.is_empty() && pod.affinity.is_empty() && pod.anti_affinity.is_empty();
        state
    }

    /// `Filter`.
    pub(super) fn status(&self, node: &NodeInfo) -> Status {
        if !self.satisfies_affinity(node) {
            return Status::Affinity;
        }
        for term in &self.anti_affinity_terms {
            if let Some(value) = node.labels.get(&term.topology_key)
                && self.anti_affinity_counts.get(&(term.topology_key.clone(), value.clone())).is_some_and(|n| *n > 0)
            {
                return Status::AntiAffinity;
            }
        }
        for (key, value) in &node.labels {
            if self.existing_anti_affinity.get(&(key.clone(), value.clone())).is_some_and(|n| *n > 0) {
                return Status::ExistingAntiAffinity;
            }
        }
        Status::Success
    }

    fn satisfies_affinity(&self, node: &NodeInfo) -> bool {
        let mut pods_exist = true;
        for term in &self.affinity_terms {
            let Some(value) = node.labels.get(&term.topology_key) else { return false };
            let pair = (term.topology_key.clone(), value.clone());
            if self.affinity_counts.get(&pair).is_none_or(|count| *count <= 0) {
                pods_exist = false;
            }
        }
        pods_exist || (self.affinity_counts.is_empty() && self.matches_itself)
    }
}

/// `PreScore` and `Score`: `None` if the plugin is skipped, else each node's raw score.
pub(super) fn score(cluster: &Cluster, pod: &PodFacts, hard_weight: i64, ignore_existing: bool) -> Option<Vec<i64>> {
    let no_labels = Labels::new();
    let merged = |terms: Vec<(AffinityTerm, i64)>| -> Vec<(AffinityTerm, i64)> {
        terms.into_iter().map(|(term, weight)| (term.merged(cluster), weight)).collect()
    };
    let preferred = merged(weighted(pod, &pod.preferred_affinity));
    let avoided = merged(weighted(pod, &pod.preferred_anti_affinity));
    if ignore_existing && preferred.is_empty() && avoided.is_empty() {
        return None;
    }
    let namespace_labels = cluster.namespaces.get(&pod.namespace).unwrap_or(&no_labels);
    let mut scores: HashMap<Pair, i64> = HashMap::new();
    for node in &cluster.nodes {
        let mut process = |term: &AffinityTerm, weight: i64, target: &PodFacts, labels: &Labels| {
            if term.matches(target, labels)
                && let Some(value) = node.labels.get(&term.topology_key)
            {
                *scores.entry((term.topology_key.clone(), value.clone())).or_default() += weight;
            }
        };
        for existing in &node.pods {
            preferred.iter().for_each(|(term, weight)| process(term, *weight, existing, &no_labels));
            avoided.iter().for_each(|(term, weight)| process(term, -weight, existing, &no_labels));
            if hard_weight > 0 {
                let required = terms(existing, &existing.affinity);
                required.iter().for_each(|term| process(term, hard_weight, pod, namespace_labels));
            }
            for (term, weight) in weighted(existing, &existing.preferred_affinity) {
                process(&term, weight, pod, namespace_labels);
            }
            for (term, weight) in weighted(existing, &existing.preferred_anti_affinity) {
                process(&term, -weight, pod, namespace_labels);
            }
        }
    }
    if scores.is_empty() {
        return None;
    }
    let of_node = |node: &NodeInfo| {
        let pairs = node.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
        pairs.filter_map(|pair| scores.get(&pair)).sum()
    };
    Some(cluster.nodes.iter().map(of_node).collect())
}
