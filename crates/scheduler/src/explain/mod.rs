//! Why a pod fits, or does not fit, each node: verdict, reason and score.
//!
//! In: the world, a pod and a profile. Out: all nodes by name, in the format of `bridger explain -o json`. Explain uses
//! the same plugins, filters and totals as a scheduling cycle and changes nothing. A pod that already runs is explained
//! as if it were not placed. If pods of the same or higher priority are nominated to a node, the pod must fit both with
//! and without them, as in a scheduling cycle. If another pod blocks a node, it is named; equal worlds name the same
//! pod.

use std::collections::BTreeMap;

use model::{NodeId, NodeSet, PodId, View, World};
use serde::Serialize;

use self::preemption::PreemptionExplanation;
use crate::evaluate::journal::Journal;
use crate::evaluate::{Answers, Refused, Scratch, Trial, kept_free, names};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::probe::Meter;
use crate::framework::profile::Profile;
use crate::plugins::SchedulingGates;
use crate::queue::Nominations;

/// The result for a pod and all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// `namespace/name`.
    pub pod: String,
    /// By name.
    pub nodes: Vec<NodeExplanation>,
    /// The number of nodes that can run the pod.
    pub feasible: usize,
    /// The nodes with the highest total, by name.
    pub best: Vec<String>,
    /// If no node can run the pod: what evicting others would do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<PreemptionExplanation>,
    /// The scheduling gates that keep the pod from being tried at all, regardless of the nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gated: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeExplanation {
    pub name: String,
    pub verdict: VerdictKind,
    /// The plugin that rejects the node. If PreFilter excluded it: all plugins that did, sorted and joined by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The pod that blocks the node, and where it runs, in one line. `None` if the reason is not another pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocker: Option<String>,
    /// Why the pod may not work on a node that it fits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// The weighted sum of the scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// The normalised score by plugin, without its weight. Plugins that skipped are omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<BTreeMap<&'static str, i64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum VerdictKind {
    Feasible,
    /// Removing pods from the node may help.
    Unschedulable,
    UnschedulableAndUnresolvable,
}

/// `Err` if the pod is unknown or a plugin fails.
pub fn explain(world: &World, pod: PodId, profile: &Profile) -> Result<Explanation, String> {
    let cycle = Cycle::of(world, pod).ok_or("the pod is not known")?;
    // A pod that runs must not count against its own node.
    let view = if cycle.pod.placed_on().is_some() { View::default().without(pod) } else { View::default() };
    let cycle = Cycle { view: &view, ..cycle };
    let mut journal = Journal::default();
    journal.everything_changed(world);
    let mut answers = Answers::new(profile);
    let nominations = nominations(&cycle, profile);
    // As in a scheduling cycle, the trial with the nominated pods comes first, so its reason is the one reported.
    let kept_free = |trial: &Trial<'_>| kept_free(&nominations, trial, |node| trial.answers.filters.is_filtered(node));
    let kept_free = answers.refresh(profile, &cycle, &journal, &mut Scratch::default(), Meter::off(), kept_free)?;
    let trial = Trial { profile, cycle: &cycle, answers: &answers };
    let mut blockers = blockers(&trial, journal.all(), &kept_free);
    let refusal = |node: NodeId| match of_node(&kept_free, node) {
        Some(refused) => Some((profile.plugin_name(refused.by).to_owned(), &refused.rejection)),
        None => {
            let verdict = answers.filters.verdict(profile, node)?;
            Some((names(profile, verdict.by).join(","), verdict.rejection))
        }
    };

    let mut nodes: Vec<NodeExplanation> = journal
        .all()
        .iter()
        .filter_map(|node| {
            let name = world.node_name(node)?.to_owned();
            Some(match refusal(node) {
                None => NodeExplanation {
                    name,
                    verdict: VerdictKind::Feasible,
                    plugin: None,
                    reason: None,
                    blocker: None,
                    doubts: trial.doubts(node).into_iter().map(|doubt| doubt.message).collect(),
                    total: Some(answers.scores.total(node)),
                    scores: Some(answers.scores.of(profile, node).into_iter().collect()),
                },
                Some((plugin, rejection)) => NodeExplanation {
                    name,
                    verdict: if rejection.resolvable {
                        VerdictKind::Unschedulable
                    } else {
                        VerdictKind::UnschedulableAndUnresolvable
                    },
                    plugin: Some(plugin),
                    reason: Some(rejection.reasons.message()),
                    blocker: blockers.remove(&node),
                    doubts: Vec::new(),
                    total: None,
                    scores: None,
                },
            })
        })
        .collect();
    nodes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let highest = nodes.iter().filter_map(|node| node.total).max();
    let best = nodes.iter().filter(|node| node.total.is_some() && node.total == highest);
    let preemption = highest.is_none().then(|| preemption::explain(trial, &nominations, journal.all(), &kept_free));
    Ok(Explanation {
        preemption: preemption.flatten(),
        pod: format!("{}/{}", world.interner().text(cycle.pod.namespace), cycle.pod.name),
        best: best.map(|node| node.name.clone()).collect(),
        feasible: nodes.iter().filter(|node| node.verdict == VerdictKind::Feasible).count(),
        nodes,
        gated: gates(&cycle, profile),
    })
}

fn of_node(kept_free: &[(NodeId, Refused)], node: NodeId) -> Option<&Refused> {
    let index = kept_free.binary_search_by_key(&node, |(node, _)| *node).ok()?;
    Some(&kept_free[index].1)
}

/// The pods that block the rejected nodes, as far as the plugins know them. Each plugin is called once.
fn blockers(trial: &Trial<'_>, all: &NodeSet, kept_free: &[(NodeId, Refused)]) -> BTreeMap<NodeId, String> {
    let &Trial { profile, cycle, answers } = trial;
    let mut refused_by: BTreeMap<usize, NodeSet> = BTreeMap::new();
    for node in all.iter().filter(|node| of_node(kept_free, *node).is_none()) {
        let plugins = answers.filters.verdict(profile, node).into_iter().flat_map(|verdict| verdict.by.iter());
        plugins.for_each(|index| {
            refused_by.entry(index).or_default().insert(node);
        });
    }
    let of_plugins = refused_by.iter().flat_map(|(&index, nodes)| {
        let filter = profile.plugins[index].filter.iter();
        filter.flat_map(move |filter| filter.blockers(cycle, &answers.slots()[index], nodes))
    });
    let of_trials = kept_free.iter().filter_map(|(node, refused)| Some((*node, trial.blocker(*node, refused)?)));
    of_plugins.chain(of_trials).collect()
}

/// The pod's scheduling gates, if the profile has the SchedulingGates plugin.
fn gates(cycle: &Cycle<'_>, profile: &Profile) -> Vec<String> {
    let has_gates_plugin = profile.plugins_at("preEnqueue").contains(&SchedulingGates::NAME);
    if has_gates_plugin { cycle.facts().gates.clone() } else { Vec::new() }
}

/// The nominated pods that the scheduler of this pod knows. It only knows the pods that wait for it.
fn nominations(cycle: &Cycle<'_>, profile: &Profile) -> Nominations {
    let (world, own_scheduler) = (cycle.world, cycle.facts().scheduler_name.as_str());
    let mut nominations = Nominations::default();
    for (id, pod) in world.pods() {
        let Some(node) = world.nominated_node(id).and_then(|name| world.node_id(name)) else { continue };
        let scheduler = pod.scheduling.as_ref().map_or("", |facts| facts.scheduler_name.as_str());
        let is_ours = scheduler == own_scheduler || scheduler == profile.name();
        // A pod that is being deleted keeps its nomination until it is gone, as upstream.
        if is_ours && pod.placed_on().is_none() && !pod.finished {
            nominations.set(id, Some(node));
        }
    }
    nominations
}

pub mod preemption;
#[cfg(test)]
mod tests;
