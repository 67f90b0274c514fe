//! Why a pod goes where it goes: every node's verdict, reason and score.
//!
//! In: the world, a pod and a profile. Out: all nodes by name, in the shape of `bridger explain -o json`. The same plugins, filters
//! and sums as in a scheduling cycle; nothing is changed. A pod that already runs is explained as if it did not.

use std::collections::BTreeMap;

use model::{PodId, View, World};
use serde::Serialize;

use crate::cycle::Cycle;
use crate::evaluate::{Answers, Scratch, names};
use crate::journal::Journal;
use crate::profile::Profile;

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
    answers.refresh(profile, &cycle, &journal, true, &mut Scratch::default())?;

    let mut nodes: Vec<NodeExplanation> = journal
        .all()
        .iter()
        .filter_map(|node| {
            let name = world.node_name(node)?.to_owned();
            Some(match answers.filters.verdict(profile, node) {
                None => NodeExplanation {
                    name,
                    verdict: VerdictKind::Feasible,
                    plugin: None,
                    reason: None,
                    total: Some(answers.scores.total(node)),
                    scores: Some(answers.scores.of(profile, node).into_iter().collect()),
                },
                Some(verdict) => NodeExplanation {
                    name,
                    verdict: if verdict.rejection.resolvable {
                        VerdictKind::Unschedulable
                    } else {
                        VerdictKind::UnschedulableAndUnresolvable
                    },
                    plugin: Some(names(profile, verdict.by).join(",")),
                    reason: Some(verdict.rejection.reasons.message()),
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
    })
}
