//! Filters and scores the nodes for a pod.
//!
//! In: the pod, the cache. Out: the feasible nodes with their scores, or why there are none. It changes nothing and
//! draws no random numbers: the caller breaks ties.
//!
//! The filters run in kube-scheduler's order, and the first one that rejects the node gives the reason. Scores: least
//! allocated (weight 1), preferred node affinity (2), PreferNoSchedule taints (3), preferred pod affinity (2).

use std::collections::BTreeMap;
use std::ops::Bound;

use super::cache::{Cache, NodeInfo, Usage};
use super::inter_pod::{InterPod, Objection};
use super::pod_info::PodInfo;
use super::resources::Resources;
use super::volumes::Volumes;
use crate::kubernetes::store::{ObjectKey, Store};
use crate::kubernetes::taints::{Taint, untolerated};

/// The highest score of one criterion.
pub(crate) const SCORE_MAX: i64 = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub node: String,
    pub score: i64,
}

/// Why nodes are not feasible, counted by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reasons {
    counts: BTreeMap<String, usize>,
}

impl Reasons {
    pub(crate) fn add(&mut self, reason: &str) {
        *self.counts.entry(reason.to_owned()).or_default() += 1;
    }

    /// `0/12 nodes are available: 3 Insufficient cpu, ...`
    pub(crate) fn message(&self, nodes: usize) -> String {
        if nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let mut parts: Vec<String> = self.counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        parts.sort();
        format!(
            "0/{nodes} nodes are available: {}. preemption: 0/{nodes} nodes are available: {nodes} Preemption is not \
             helpful for scheduling.",
            parts.join(", ")
        )
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Ordered by name.
    pub feasible: Vec<Candidate>,
    pub reasons: Reasons,
    /// Why no node was considered.
    pub blocked: Option<String>,
    /// Claims that get their volume on the node that is chosen. Until they have it, the pod is not bound.
    pub unbound: Vec<ObjectKey>,
    /// The node at which the next search starts; empty for the first node.
    pub next: String,
}

impl Decision {
    /// Why there is no feasible node.
    pub(crate) fn message(&self, nodes: usize) -> String {
        match &self.blocked {
            Some(why) => format!("0/{nodes} nodes are available: {why}. not found"),
            None => self.reasons.message(nodes),
        }
    }

    /// The best candidate; `draw(n)` picks one of n equal ones.
    pub(crate) fn best(&self, draw: impl FnOnce(u64) -> u64) -> Option<&Candidate> {
        let highest = self.feasible.iter().map(|candidate| candidate.score).max()?;
        let equals: Vec<&Candidate> = self.feasible.iter().filter(|candidate| candidate.score == highest).collect();
        let pick = if equals.len() > 1 { draw(equals.len() as u64) } else { 0 };
        equals.get(usize::try_from(pick).unwrap_or(0)).copied()
    }
}

/// How many feasible nodes are enough: in a large cluster a fraction of the nodes, as in kube-scheduler.
fn enough(nodes: usize) -> usize {
    const ALWAYS_ALL: usize = 100;
    let percentage = 50_usize.saturating_sub(nodes / 125).max(5);
    if nodes <= ALWAYS_ALL { nodes } else { (nodes * percentage / 100).max(ALWAYS_ALL) }
}

/// Starts at the node `from`, so that a large cluster is searched in rotation; `next` in the result continues.
pub(crate) fn decide(store: &Store, cache: &Cache, pod: &PodInfo, from: &str) -> Decision {
    let volumes = Volumes::of(store, &pod.object);
    if volumes.blocked.is_some() {
        return Decision { blocked: volumes.blocked, next: from.to_owned(), ..Decision::default() };
    }
    let inter_pod = InterPod::of(store, cache, pod);
    let enough = enough(cache.nodes.len());
    let nothing = Usage::default();
    let mut decision = Decision { unbound: volumes.unbound.clone(), ..Decision::default() };
    let mut feasible: Vec<(&str, &NodeInfo, &Usage)> = Vec::new();
    let onwards = cache.nodes.range::<str, _>((Bound::Included(from), Bound::Unbounded));
    let in_turn = onwards.chain(cache.nodes.range::<str, _>((Bound::Unbounded, Bound::Excluded(from))));
    for (name, node) in in_turn {
        if feasible.len() == enough {
            decision.next.clone_from(name);
            break;
        }
        let usage = cache.usage(name).unwrap_or(&nothing);
        let objections = objections(pod, name, node, usage, &volumes, &inter_pod);
        if objections.is_empty() {
            feasible.push((name, node, usage));
        }
        for reason in objections {
            decision.reasons.add(&reason);
        }
    }
    feasible.sort_by_key(|(name, _, _)| *name);
    decision.feasible = score(pod, &feasible, &inter_pod);
    decision
}

fn objections(
    pod: &PodInfo,
    name: &str,
    node: &NodeInfo,
    usage: &Usage,
    volumes: &Volumes,
    inter_pod: &InterPod<'_>,
) -> Vec<String> {
    let one = |reason: &str| vec![reason.to_owned()];
    if node.unschedulable {
        let cordon = Taint {
            key: "node.kubernetes.io/unschedulable".to_owned(),
            value: String::new(),
            effect: "NoSchedule".to_owned(),
        };
        if !pod.tolerations.iter().any(|toleration| toleration.covers(&cordon)) {
            return one("node(s) were unschedulable");
        }
    }
    if untolerated(&node.taints, &pod.tolerations, &["NoSchedule", "NoExecute"]).is_some() {
        return one("node(s) had untolerated taint(s)");
    }
    if !pod.node_affinity.allows(name, &node.labels) {
        return one("node(s) didn't match Pod's node affinity/selector");
    }
    if pod.host_ports.iter().any(|port| usage.host_ports.iter().any(|taken| taken.clashes(port))) {
        return one("node(s) didn't have free ports for the requested pod ports");
    }
    let lacking = lacking(pod, node, usage);
    if !lacking.is_empty() {
        return lacking;
    }
    if let Some(reason) = volumes.objection(name, &node.labels) {
        return one(reason);
    }
    match inter_pod.objection(&node.labels) {
        None => Vec::new(),
        Some(Objection::Affinity) => one("node(s) didn't match pod affinity rules"),
        Some(Objection::AntiAffinity) => one("node(s) didn't match pod anti-affinity rules"),
        Some(Objection::ExistingAntiAffinity) => one("node(s) didn't satisfy existing pods anti-affinity rules"),
    }
}

/// All insufficient resources.
fn lacking(pod: &PodInfo, node: &NodeInfo, usage: &Usage) -> Vec<String> {
    let mut reasons = Vec::new();
    if usage.pods >= node.pods_max {
        reasons.push("Too many pods".to_owned());
    }
    let (wanted, used, offered) = (&pod.request.requested, &usage.requested, &node.allocatable);
    for (name, wanted, used, offered) in [
        ("cpu", wanted.milli_cpu, used.milli_cpu, offered.milli_cpu),
        ("memory", wanted.memory, used.memory, offered.memory),
        ("ephemeral-storage", wanted.ephemeral_storage, used.ephemeral_storage, offered.ephemeral_storage),
    ] {
        if wanted > 0 && wanted > offered.saturating_sub(used) {
            reasons.push(format!("Insufficient {name}"));
        }
    }
    for (name, wanted) in wanted.extended.iter().filter(|(_, wanted)| **wanted > 0) {
        let of = |resources: &Resources| resources.extended.get(name).copied().unwrap_or(0);
        if *wanted > of(offered).saturating_sub(of(used)) {
            reasons.push(format!("Insufficient {name}"));
        }
    }
    reasons
}

fn score(pod: &PodInfo, feasible: &[(&str, &NodeInfo, &Usage)], inter_pod: &InterPod<'_>) -> Vec<Candidate> {
    let affinity: Vec<i64> =
        feasible.iter().map(|(name, node, _)| pod.node_affinity.score(name, &node.labels)).collect();
    let repelling: Vec<i64> = feasible
        .iter()
        .map(|(_, node, _)| {
            let prefer_not = node.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
            let untolerated = prefer_not.filter(|taint| !pod.tolerations.iter().any(|known| known.covers(taint)));
            i64::try_from(untolerated.count()).unwrap_or(i64::MAX)
        })
        .collect();
    let pod_affinity: Vec<i64> = if inter_pod.scores_anything() {
        feasible.iter().map(|(_, node, _)| inter_pod.score(&node.labels)).collect()
    } else {
        vec![0; feasible.len()]
    };
    let (affinity_max, repelling_max) =
        (affinity.iter().copied().max().unwrap_or(0), repelling.iter().copied().max().unwrap_or(0));
    let (pod_affinity_min, pod_affinity_max) =
        (pod_affinity.iter().copied().min().unwrap_or(0), pod_affinity.iter().copied().max().unwrap_or(0));
    let share = |part: i64, whole: i64| if whole > 0 { part.saturating_mul(SCORE_MAX) / whole } else { 0 };
    feasible
        .iter()
        .enumerate()
        .map(|(at, (name, node, usage))| Candidate {
            node: (*name).to_owned(),
            score: least_allocated(pod, node, usage)
                + 2 * share(affinity[at], affinity_max)
                + 3 * (SCORE_MAX - share(repelling[at], repelling_max))
                + 2 * share(pod_affinity[at] - pod_affinity_min, pod_affinity_max - pod_affinity_min),
        })
        .collect()
}

/// The average free fraction of CPU and memory after placement.
fn least_allocated(pod: &PodInfo, node: &NodeInfo, usage: &Usage) -> i64 {
    let free = |wanted: i64, used: i64, offered: i64| {
        let left = offered.saturating_sub(used).saturating_sub(wanted);
        if offered <= 0 || left <= 0 {
            0
        } else {
            i64::try_from(i128::from(left) * 100 / i128::from(offered)).unwrap_or(0)
        }
    };
    let (wanted, used) = (&pod.request.for_score, &usage.for_score);
    (free(wanted.milli_cpu, used.milli_cpu, node.allocatable.milli_cpu)
        + free(wanted.memory, used.memory, node.allocatable.memory))
        / 2
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
