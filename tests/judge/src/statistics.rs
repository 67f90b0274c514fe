//! Counts how well the worlds exercise each plugin: how often it rejected a node, how often its scores differed, and what
//! preemption and the volumes decided.

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

/// Worlds in which preemption was tried, and of these the ones in which it came to this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreemptionStatistics {
    pub tried: usize,
    /// The pod may not preempt others: its policy, or victims that still terminate.
    pub never: usize,
    pub terminating: usize,
    pub candidates: usize,
    /// At least two candidates.
    pub choice: usize,
    /// At least two candidates are equally good.
    pub ties: usize,
    /// A candidate violates a budget.
    pub violations: usize,
    /// The best candidates violate a budget.
    pub violating_choice: usize,
    /// Several victims on a node.
    pub several: usize,
    /// A pod of lower priority on a candidate was spared.
    pub reprieves: usize,
    /// A node is no candidate because the pod does not fit without its potential victims either.
    pub helpless: usize,
    /// Another plugin's PostFilter came first.
    pub blocked: usize,
}

/// Worlds with a feasible node on which the pod's claims would get volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeStatistics {
    /// An existing volume would be bound.
    pub bound: usize,
    /// Different volumes on different nodes.
    pub bound_by_node: usize,
    pub provisioned: usize,
    /// Both on one node.
    pub both: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub worlds: usize,
    /// Worlds with at least two feasible nodes.
    pub with_choice: usize,
    /// Worlds in which no node is feasible.
    pub infeasible: usize,
    /// Worlds in which a plugin failed on a node.
    pub errors: usize,
    pub preemption: PreemptionStatistics,
    pub volumes: VolumeStatistics,
    /// Worlds per reason.
    reasons: BTreeMap<String, usize>,
    plugins: BTreeMap<String, PluginStatistics>,
}

impl Statistics {
    pub fn note(&mut self, answer: &Answer) {
        self.worlds += 1;
        self.with_choice += usize::from(answer.feasible >= 2);
        self.infeasible += usize::from(answer.feasible == 0);
        self.errors += usize::from(answer.nodes.iter().any(|node| node.verdict == Verdict::Error));
        self.note_preemption(answer);
        self.note_volumes(answer);
        let reasons: BTreeSet<&String> = answer.nodes.iter().flat_map(|node| &node.reasons).collect();
        for reason in reasons {
            *self.reasons.entry(reason.clone()).or_default() += 1;
        }
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

    fn note_preemption(&mut self, answer: &Answer) {
        let Some(preemption) = &answer.preemption else { return };
        let candidates = &preemption.candidates;
        let violates = |node: &str| preemption.candidate(node).is_some_and(|candidate| candidate.pdb_violations > 0);
        let counts = &mut self.preemption;
        counts.tried += 1;
        counts.never += usize::from(preemption.message.contains("preemptionPolicy=Never"));
        counts.terminating += usize::from(preemption.message.contains("terminating pod on the nominated node"));
        counts.candidates += usize::from(!candidates.is_empty());
        counts.choice += usize::from(candidates.len() > 1);
        counts.ties += usize::from(preemption.best.len() > 1);
        counts.violations += usize::from(candidates.iter().any(|candidate| candidate.pdb_violations > 0));
        counts.violating_choice += usize::from(preemption.best.iter().any(|node| violates(node)));
        counts.several += usize::from(candidates.iter().any(|candidate| candidate.victims.len() > 1));
        let spared = candidates.iter().any(|candidate| candidate.lower_priority > candidate.victims.len());
        counts.reprieves += usize::from(spared);
        let no_victims = "No preemption victims found for incoming pod";
        counts.helpless += usize::from(preemption.rejected.iter().any(|node| node.reason != no_victims));
        counts.blocked += usize::from(preemption.blocked.is_some());
    }

    fn note_volumes(&mut self, answer: &Answer) {
        let decided: Vec<_> = answer.nodes.iter().filter_map(|node| node.volumes.as_ref()).collect();
        let counts = &mut self.volumes;
        counts.bound += usize::from(decided.iter().any(|volumes| !volumes.bind.is_empty()));
        counts.bound_by_node += usize::from(decided.iter().any(|volumes| volumes.bind != decided[0].bind));
        counts.provisioned += usize::from(decided.iter().any(|volumes| !volumes.provision.is_empty()));
        counts.both +=
            usize::from(decided.iter().any(|volumes| !volumes.bind.is_empty() && !volumes.provision.is_empty()));
    }

    /// The worlds in which a node, or the pod as a whole, was rejected for a reason that contains these words.
    #[must_use]
    pub fn reason(&self, words: &str) -> usize {
        self.reasons.iter().filter(|(reason, _)| reason.contains(words)).map(|(_, worlds)| worlds).sum()
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
        if self.errors > 0 {
            writeln!(f, "{} worlds in which a plugin failed", self.errors)?;
        }
        if self.preemption.tried > 0 {
            writeln!(f, "{:?}", self.preemption)?;
        }
        if self.volumes != VolumeStatistics::default() {
            writeln!(f, "{:?}", self.volumes)?;
        }
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
