//! Why a pod goes where it goes: every node's verdict, reason and score.
//!
//! In: the world, a pod and a profile. Out: all nodes by name, in the shape of `bridger explain -o json`. The same plugins, filters
//! and sums as in a scheduling cycle; nothing is changed. A pod that already runs is explained as if it did not. Where room is
//! being made on a node for pods that matter as much or more, the node must do with them and without them, as in a cycle. Where
//! another pod is in the way, it is named; equal worlds name the same one.

use std::collections::BTreeMap;

use model::{NodeId, NodeSet, PodId, View, World};
use serde::Serialize;

use crate::evaluate::journal::Journal;
use crate::evaluate::{Answers, Refused, Scratch, Trial, kept_free, names};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::profile::Profile;
use crate::plugins::SchedulingGates;
use crate::queue::Nominations;

/// What every node says to the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// `namespace/name`.
    pub pod: String,
    /// By name.
    pub nodes: Vec<NodeExplanation>,
    /// How many nodes can run it.
    pub feasible: usize,
    /// The nodes with the highest total, by name.
    pub best: Vec<String>,
    /// The scheduling gates for which it is not tried at all yet, whatever the nodes say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gated: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeExplanation {
    pub name: String,
    pub verdict: VerdictKind,
    /// The plugin that refuses the node; several, sorted and joined by commas, where PreFilter left it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Which pod is in the way, and where, in one line; `None` where it is no other pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocker: Option<String>,
    /// The weighted sum of the scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// By plugin, normalised, before its weight. A plugin that skipped is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<BTreeMap<&'static str, i64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum VerdictKind {
    Feasible,
    /// Taking pods off the node may help.
    Unschedulable,
    UnschedulableAndUnresolvable,
}

/// `Err` for a pod that is not known, or when a plugin fails.
pub fn explain(world: &World, pod: PodId, profile: &Profile) -> Result<Explanation, String> {
    let cycle = Cycle::of(world, pod).ok_or("the pod is not known")?;
    // Where it runs must not speak against the very same place.
    let view = if cycle.pod.placed_on().is_some() { View::default().without(pod) } else { View::default() };
    let cycle = Cycle { view: &view, ..cycle };
    let mut journal = Journal::default();
    journal.everything_changed(world);
    let mut answers = Answers::new(profile);
    let nominations = nominations(&cycle, profile);
    // A node is looked at with the nominated pods first, so theirs is the reason that is told.
    let kept_free = |trial: &Trial<'_>| kept_free(&nominations, trial, |node| trial.answers.filters.is_filtered(node));
    let kept_free = answers.refresh(profile, &cycle, &journal, &mut Scratch::default(), kept_free)?;
    let mut blockers = blockers(&Trial { profile, cycle: &cycle, answers: &answers }, journal.all(), &kept_free);
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
                    total: None,
                    scores: None,
                },
            })
        })
        .collect();
    nodes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let highest = nodes.iter().filter_map(|node| node.total).max();
    let best = nodes.iter().filter(|node| node.total.is_some() && node.total == highest);
    Ok(Explanation {
        pod: format!("{}/{}", world.interner().text(cycle.pod.namespace), cycle.pod.name),
        best: best.map(|node| node.name.clone()).collect(),
        feasible: nodes.iter().filter(|node| node.verdict == VerdictKind::Feasible).count(),
        nodes,
        gated: gates(&cycle, profile),
    })
}

fn of_node(kept_free: &[(NodeId, Refused)], node: NodeId) -> Option<&Refused> {
    let place = kept_free.binary_search_by_key(&node, |(node, _)| *node).ok()?;
    Some(&kept_free[place].1)
}

/// Who is in the way on the nodes that are refused, where a plugin can tell. Each plugin is asked once.
fn blockers(trial: &Trial<'_>, all: &NodeSet, kept_free: &[(NodeId, Refused)]) -> BTreeMap<NodeId, String> {
    let &Trial { profile, cycle, answers } = trial;
    let mut refused_by: BTreeMap<usize, NodeSet> = BTreeMap::new();
    for node in all.iter().filter(|node| of_node(kept_free, *node).is_none()) {
        let places = answers.filters.verdict(profile, node).into_iter().flat_map(|verdict| verdict.by.iter());
        places.for_each(|place| {
            refused_by.entry(place).or_default().insert(node);
        });
    }
    let of_plugins = refused_by.iter().flat_map(|(&place, nodes)| {
        let filter = profile.plugins[place].filter.iter();
        filter.flat_map(move |filter| filter.blockers(cycle, &answers.slots()[place], nodes))
    });
    let of_trials = kept_free.iter().filter_map(|(node, refused)| Some((*node, trial.blocker(*node, refused)?)));
    of_plugins.chain(of_trials).collect()
}

/// What keeps the pod from being tried, where the profile goes by it.
fn gates(cycle: &Cycle<'_>, profile: &Profile) -> Vec<String> {
    let goes_by_gates = profile.plugins_at("preEnqueue").contains(&SchedulingGates::NAME);
    if goes_by_gates { cycle.facts().gates.clone() } else { Vec::new() }
}

/// The pods for which room is being made, as the scheduler of this pod knows them: it knows the pods that wait for it alone.
fn nominations(cycle: &Cycle<'_>, profile: &Profile) -> Nominations {
    let (world, own_scheduler) = (cycle.world, cycle.facts().scheduler_name.as_str());
    let mut nominations = Nominations::default();
    for (id, pod) in world.pods() {
        let Some(node) = world.nominated_node(id).and_then(|name| world.node_id(name)) else { continue };
        let scheduler = pod.scheduling.as_ref().map_or("", |facts| facts.scheduler_name.as_str());
        let is_ours = scheduler == own_scheduler || scheduler == profile.name();
        // One that is being deleted keeps its room until it is gone, as upstream has it.
        if is_ours && pod.placed_on().is_none() && !pod.finished {
            nominations.set(id, Some(node));
        }
    }
    nominations
}

#[cfg(test)]
mod tests;
