//! The result of either side for a pod and all nodes, in the terms of kube-scheduler's extender protocol.

use std::collections::BTreeMap;

use judge::{Answer, Verdict};

use crate::PLUGIN;

/// The combined answer to filter and prioritize.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opinion {
    /// By node, with the reason of a rejection.
    pub verdicts: BTreeMap<String, (Verdict, String)>,
    /// From 0 to 10, for the feasible nodes.
    pub scores: BTreeMap<String, i64>,
}

impl Opinion {
    pub fn of_plugin(answer: &Answer) -> Opinion {
        let verdicts = answer.nodes.iter().map(|node| (node.name.clone(), (node.verdict, node.reason.clone())));
        let feasible = answer.nodes.iter().filter(|node| node.verdict == Verdict::Feasible);
        // A plugin that skips a cycle adds zero to every node.
        let raw: Vec<(&String, i64)> =
            feasible.map(|node| (&node.name, node.raw.get(PLUGIN).copied().unwrap_or(0))).collect();
        let least = raw.iter().map(|(_, score)| *score).min().unwrap_or(0);
        let most = raw.iter().map(|(_, score)| *score).max().unwrap_or(0);
        let scores = raw.iter().map(|(name, score)| ((*name).clone(), to_ten(*score, least, most)));
        Opinion { verdicts: verdicts.collect(), scores: scores.collect() }
    }

    #[must_use]
    pub fn without_reasons(mut self) -> Opinion {
        self.verdicts.values_mut().for_each(|(_, reason)| reason.clear());
        self
    }

    /// A line for each node on which the two differ.
    pub fn differences_from(&self, expected: &Opinion) -> Vec<String> {
        let mut lines = Vec::new();
        compare("verdict", &self.verdicts, &expected.verdicts, &mut lines);
        compare("score", &self.scores, &expected.scores, &mut lines);
        lines
    }
}

/// Normalises as the plugin does, with a maximum of 10 instead of 100.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // Scores are small; truncation is intended.
fn to_ten(score: i64, least: i64, most: i64) -> i64 {
    if most == least { 0 } else { (10.0 * ((score - least) as f64 / (most - least) as f64)) as i64 }
}

fn compare<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: &BTreeMap<String, T>,
    expected: &BTreeMap<String, T>,
    lines: &mut Vec<String>,
) {
    let names = found.keys().chain(expected.keys().filter(|name| !found.contains_key(*name)));
    for name in names.filter(|name| found.get(*name) != expected.get(*name)) {
        let (found, expected) = (found.get(name), expected.get(name));
        lines.push(format!("{what} of {name}: {found:?}, the plugin has {expected:?}"));
    }
}
