//! Counts how well the worlds exercise each plugin: how often it rejected a node, and how often its scores differed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::{Answer, Verdict};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginStatistics {
    /// Worlds in which it rejected at least one node, alone or with other plugins.
    pub rejected: usize,
    /// Worlds in which it scored at least two nodes.
    pub scored: usize,
    /// Worlds in which two of its scores differ.
    pub differed: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub worlds: usize,
    /// Worlds with at least two feasible nodes.
    pub with_choice: usize,
    /// Worlds in which no node is feasible.
    pub infeasible: usize,
    plugins: BTreeMap<String, PluginStatistics>,
}

impl Statistics {
    pub fn note(&mut self, answer: &Answer) {
        self.worlds += 1;
        self.with_choice += usize::from(answer.feasible >= 2);
        self.infeasible += usize::from(answer.feasible == 0);
        let rejecting: BTreeSet<&str> = answer
            .nodes
            .iter()
            .filter(|node| node.verdict != Verdict::Feasible)
            .flat_map(|node| node.plugin.split(','))
            .filter(|plugin| !plugin.is_empty())
            .collect();
        for plugin in rejecting {
            self.plugins.entry(plugin.to_owned()).or_default().rejected += 1;
        }
        let mut scores: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for (plugin, score) in answer.nodes.iter().flat_map(|node| &node.scores) {
            scores.entry(plugin).or_default().push(*score);
        }
        for (plugin, scores) in scores.into_iter().filter(|(_, scores)| scores.len() > 1) {
            let row = self.plugins.entry(plugin.to_owned()).or_default();
            row.scored += 1;
            row.differed += usize::from(scores.iter().any(|score| *score != scores[0]));
        }
    }

    #[must_use]
    pub fn plugin(&self, name: &str) -> PluginStatistics {
        self.plugins.get(name).copied().unwrap_or_default()
    }

    /// The share of all worlds in which the plugin rejected a node, in percent.
    #[must_use]
    pub fn rejected_percent(&self, plugin: &str) -> f64 {
        percent(self.plugin(plugin).rejected, self.worlds)
    }

    /// The share of worlds with at least two feasible nodes in which the plugin's scores differ, in percent.
    #[must_use]
    pub fn differed_percent(&self, plugin: &str) -> f64 {
        percent(self.plugin(plugin).differed, self.with_choice)
    }
}

#[allow(clippy::cast_precision_loss)] // Counts of worlds are far below 2^52.
fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} worlds; {} with a choice of nodes, {} without any feasible node",
            self.worlds, self.with_choice, self.infeasible
        )?;
        writeln!(f, "{:<34} {:>9} {:>8} {:>9} {:>9} {:>8}", "plugin", "rejected", "%", "scored", "differed", "%")?;
        for (name, row) in &self.plugins {
            writeln!(
                f,
                "{name:<34} {:>9} {:>8.1} {:>9} {:>9} {:>8.1}",
                row.rejected,
                self.rejected_percent(name),
                row.scored,
                row.differed,
                self.differed_percent(name)
            )?;
        }
        Ok(())
    }
}
