//! The judge's answer for a world: the JSON of `bridger explain`, plus details.

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::{Preemption, Volumes};

/// Whether the pod fits on a node, and if not, whether preemption might help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Verdict {
    Feasible,
    Unschedulable,
    UnschedulableAndUnresolvable,
    Error,
}

/// Nodes are sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// `namespace/name`.
    pub pod: String,
    pub nodes: Vec<NodeAnswer>,
    pub feasible: usize,
    /// All nodes with the highest total, sorted by name.
    pub best: Vec<String>,

    /// The scheduler profile used.
    #[serde(default)]
    pub profile: String,
    /// Set when the pod would not enter the active queue (scheduling gates). The other fields are filled in regardless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_enqueue: Option<Rejection>,
    /// Set when PreFilter rejected the pod for all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_filter: Option<Rejection>,
    /// The plugins whose PreFilter restricted the set of nodes.
    #[serde(default)]
    pub narrowed_by: Vec<String>,
    /// Plugins that skipped Filter.
    #[serde(default)]
    pub skipped_filter: Vec<String>,
    /// Plugins that skipped Score.
    #[serde(default)]
    pub skipped_score: Vec<String>,
    /// The weights of the profile's score plugins.
    #[serde(default)]
    pub weights: BTreeMap<String, i64>,
    /// What preemption would do, if requested. Only if there are nodes, none of them is feasible, and no plugin returned
    /// an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption: Option<Preemption>,
    /// Validation errors of the API server for the world's objects, if requested.
    #[serde(default)]
    pub invalid: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAnswer {
    pub name: String,
    pub verdict: Verdict,
    /// The plugin that rejected the node; several, comma-joined, if PreFilter restricted the set of nodes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub plugin: String,
    /// The reasons, comma-joined. Sorted, because upstream's order is the iteration order of a Go map.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Weighted sum over the plugins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// By plugin, normalised, before weight; a plugin that skipped is absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, i64>,
    /// By plugin, before normalisation, if requested.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub raw: BTreeMap<String, i64>,
    /// Only on feasible nodes, and only if the pod has claims without a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Volumes>,
}

/// A verdict that applies to all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    pub verdict: Verdict,
    pub plugin: String,
    pub reasons: Vec<String>,
}

impl Answer {
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodeAnswer> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Removes a plugin's scores, for comparison with a scheduler that does not have the plugin. Totals are reduced by
    /// the plugin's weighted score.
    pub fn forget_scores_of(&mut self, plugin: &str) {
        let weight = self.weights.remove(plugin).unwrap_or(0);
        for node in &mut self.nodes {
            node.raw.remove(plugin);
            if let Some(score) = node.scores.remove(plugin) {
                node.total = node.total.map(|total| total - score * weight);
            }
        }
        let top =
            self.nodes.iter().filter(|node| node.verdict == Verdict::Feasible).filter_map(|node| node.total).max();
        self.best = self
            .nodes
            .iter()
            .filter(|node| node.verdict == Verdict::Feasible && top.is_some() && node.total == top)
            .map(|node| node.name.clone())
            .collect();
    }

    /// The differences from another answer to the same request (for example, parsed from `bridger explain -o json`),
    /// one line each. Reasons are free text and may differ; verdict, plugin, scores, totals and the best nodes may not.
    #[must_use]
    pub fn differences_from(&self, other: &Answer) -> Vec<String> {
        let mut differences = Vec::new();
        let mut compare = |what: String, here: &dyn Debug, there: &dyn Debug| {
            let (here, there) = (format!("{here:?}"), format!("{there:?}"));
            if here != there {
                differences.push(format!("{what}: {here}, in the other answer {there}"));
            }
        };
        compare("pod".to_owned(), &self.pod, &other.pod);
        let names = |answer: &Answer| answer.nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
        compare("nodes".to_owned(), &names(self), &names(other));
        compare("feasible".to_owned(), &self.feasible, &other.feasible);
        compare("best".to_owned(), &self.best, &other.best);
        for node in &self.nodes {
            let Some(there) = other.node(&node.name) else { continue };
            compare(format!("{} verdict", node.name), &node.verdict, &there.verdict);
            compare(format!("{} plugin", node.name), &node.plugin, &there.plugin);
            compare(format!("{} scores", node.name), &node.scores, &there.scores);
            compare(format!("{} total", node.name), &node.total, &there.total);
        }
        differences
    }

    /// The answer as `bridger explain -o json` prints it, without the details.
    #[must_use]
    pub fn explained(&self) -> serde_json::Value {
        let nodes: Vec<serde_json::Value> = self
            .nodes
            .iter()
            .map(|node| match node.verdict {
                Verdict::Feasible => serde_json::json!({ "name": node.name, "verdict": node.verdict,
                    "total": node.total, "scores": node.scores }),
                _ => serde_json::json!({ "name": node.name, "verdict": node.verdict, "plugin": node.plugin,
                    "reason": node.reason }),
            })
            .collect();
        serde_json::json!({ "pod": self.pod, "nodes": nodes, "feasible": self.feasible, "best": self.best })
    }
}
