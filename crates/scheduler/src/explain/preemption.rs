//! What evicting other pods would do for a pod that fits no node.
//!
//! In: the pod and the nodes that reject it. Out: on which nodes eviction makes room, whom it takes, and the node that
//! would be chosen. All nodes are examined.

use std::cell::RefCell;
use std::collections::BTreeMap;

use model::{NodeId, NodeSet, PodId, World};
use serde::Serialize;

use crate::evaluate::{Refused, RejectedInCycle, Trial, resolvable};
use crate::framework::plugin::Plugin;
use crate::plugins::DefaultPreemption;
use crate::plugins::default_preemption::{Search, ineligible};
use crate::queue::Nominations;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionExplanation {
    /// Whether the pod may preempt others.
    pub eligible: bool,
    /// Why it may not, or why that would not help, in kube-scheduler's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// By the name of the node.
    pub candidates: Vec<CandidateExplanation>,
    /// The node that would be chosen.
    pub node: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CandidateExplanation {
    pub node: String,
    /// `namespace/name`, the most important first.
    pub victims: Vec<String>,
    /// The victims on other nodes of the physical host, with their nodes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub victims_elsewhere: BTreeMap<String, String>,
    /// How many of the victims a PodDisruptionBudget protects.
    pub pdb_violations: usize,
}

/// `None` if the profile does not preempt.
pub(super) fn explain(
    trial: Trial<'_>,
    nominations: &Nominations,
    all: &NodeSet,
    kept: &[(NodeId, Refused)],
) -> Option<PreemptionExplanation> {
    if !trial.profile.plugins_at("postFilter").contains(&DefaultPreemption::NAME) {
        return None;
    }
    let (cycle, world) = (trial.cycle, trial.cycle.world);
    let resolvable = resolvable(&trial, all, kept);
    let rejected = RejectedInCycle { trial, nominations, resolvable: &resolvable, kept, examined: RefCell::default() };
    if let Some(why) = ineligible(cycle, &rejected) {
        return Some(PreemptionExplanation { reason: Some(why.to_owned()), ..PreemptionExplanation::default() });
    }
    let search = Search::of(cycle, &rejected);
    let mut candidates: Vec<CandidateExplanation> = search
        .candidates
        .iter()
        .filter_map(|candidate| {
            let elsewhere = candidate.victims.iter().filter_map(|pod| {
                let node = world.pod_node(*pod).filter(|node| *node != candidate.node)?;
                Some((name_of(world, *pod)?, world.node_name(node)?.to_owned()))
            });
            Some(CandidateExplanation {
                node: world.node_name(candidate.node)?.to_owned(),
                victims_elsewhere: elsewhere.collect(),
                victims: candidate.victims.iter().filter_map(|pod| name_of(world, *pod)).collect(),
                pdb_violations: candidate.pdb_violations,
            })
        })
        .collect();
    candidates.sort_unstable_by(|a, b| a.node.cmp(&b.node));
    let node = search.best(world).and_then(|node| world.node_name(node)).map(str::to_owned);
    let reason = candidates.is_empty().then(|| search.message(world));
    Some(PreemptionExplanation { eligible: true, reason, candidates, node })
}

fn name_of(world: &World, pod: PodId) -> Option<String> {
    let pod = world.pod(pod)?;
    Some(format!("{}/{}", world.interner().text(pod.namespace), pod.name))
}
