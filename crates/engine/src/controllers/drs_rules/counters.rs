//! Counters and problems of the rule writer. Metrics and health checks read them; decisions never do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drs::{ChangeKind, ClusterKey, Finding};

use crate::counters::Counter;
use crate::ports::PortError;

#[derive(Debug, Default)]
pub struct RuleCounters {
    /// Passes started.
    pub passes: Counter,
    pub created: Counter,
    pub edited: Counter,
    pub deleted: Counter,
    pub failures_transient: Counter,
    pub failures_not_found: Counter,
    pub failures_permanent: Counter,
    pub failures_invalid: Counter,
    /// How often the watch was behind a direct read.
    pub lags: Counter,
    owned: AtomicU64,
    behind_seconds: AtomicU64,
    findings: Mutex<BTreeMap<&'static str, u64>>,
    troubles: Mutex<Troubles>,
}

#[derive(Debug, Default)]
struct Troubles {
    clusters: BTreeMap<ClusterKey, RuleProblem>,
    record_store: Option<String>,
    /// Rules that are not created again because they were deleted twice.
    given_up: Vec<(ClusterKey, String)>,
    /// Findings that no plan makes, with their texts.
    notes: BTreeMap<&'static str, Vec<String>>,
}

/// A problem that prevents writes of a cluster's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleProblem {
    /// CamelCase, for machines.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl RuleCounters {
    /// The number of rules that Bridger owns in all clusters.
    #[must_use]
    pub fn owned(&self) -> u64 {
        self.owned.load(Ordering::Relaxed)
    }

    /// How long there have been planned changes that are not applied; 0 if there are none.
    #[must_use]
    pub fn behind_seconds(&self) -> u64 {
        self.behind_seconds.load(Ordering::Relaxed)
    }

    /// The findings of the last plan, by name. A name stays, with count 0, once it was found.
    #[must_use]
    pub fn findings(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.findings).clone()
    }

    /// The problem of each cluster that has one.
    #[must_use]
    pub fn problems(&self) -> BTreeMap<ClusterKey, RuleProblem> {
        lock(&self.troubles).clusters.clone()
    }

    /// One line for people; `None` if there is no problem.
    #[must_use]
    pub fn problem_text(&self) -> Option<String> {
        let troubles = lock(&self.troubles);
        if let Some(record_store) = &troubles.record_store {
            return Some(record_store.clone());
        }
        if let Some((finding, [text, ..])) = troubles.notes.iter().map(|(name, texts)| (name, texts.as_slice())).next()
        {
            return Some(format!("{finding}: {text}"));
        }
        let Some((cluster, problem)) = troubles.clusters.first_key_value() else {
            let (cluster, rule) = troubles.given_up.first()?;
            let more = troubles.given_up.len() - 1;
            let more = if more == 0 { String::new() } else { format!(" ({more} more)") };
            return Some(format!(
                "{}: RuleGivenUp: {rule} was deleted twice and stays deleted{more}: `bridger adopt --restore all` creates it again",
                cluster.id
            ));
        };
        let more = troubles.clusters.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" ({more} more clusters have problems)") };
        Some(format!("{}: {}: {}{more}", cluster.id, problem.reason, problem.message))
    }

    pub(crate) fn set_owned(&self, rules: usize) {
        self.owned.store(u64::try_from(rules).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn set_behind(&self, behind: Duration) {
        self.behind_seconds.store(behind.as_secs(), Ordering::Relaxed);
    }

    pub(crate) fn changed(&self, kind: &ChangeKind) {
        match kind {
            ChangeKind::Create => self.created.add(1),
            ChangeKind::Edit { .. } => self.edited.add(1),
            ChangeKind::Delete { .. } | ChangeKind::DeleteGroups => self.deleted.add(1),
        }
    }

    pub(crate) fn failed(&self, error: &PortError) {
        match error {
            PortError::Transient(_) => self.failures_transient.add(1),
            PortError::NotFound(_) => self.failures_not_found.add(1),
            PortError::Permanent(_) => self.failures_permanent.add(1),
            PortError::Invalid(_) => self.failures_invalid.add(1),
        }
    }

    /// Updates the counts from a plan's findings.
    pub fn found(&self, found: &[Finding]) {
        let given_up = |finding: &Finding| match finding {
            Finding::DeletedByHand { cluster, rule, .. } => Some((cluster.clone(), rule.clone())),
            _ => None,
        };
        let mut troubles = lock(&self.troubles);
        troubles.given_up = found.iter().filter_map(given_up).collect();
        let mut findings = lock(&self.findings);
        findings.values_mut().for_each(|count| *count = 0);
        findings.extend(troubles.notes.iter().map(|(name, texts)| (*name, texts.len() as u64)));
        found.iter().for_each(|finding| *findings.entry(finding.name()).or_default() += 1);
    }

    /// Sets the texts of a finding that no plan makes. A new text is logged.
    pub fn note(&self, finding: &'static str, texts: Vec<String>) {
        let mut troubles = lock(&self.troubles);
        let known = troubles.notes.remove(finding).unwrap_or_default();
        for text in texts.iter().filter(|text| !known.contains(text)) {
            tracing::warn!(finding, "{text}");
        }
        let mut findings = lock(&self.findings);
        if !texts.is_empty() {
            findings.insert(finding, texts.len() as u64);
            troubles.notes.insert(finding, texts);
        } else if let Some(count) = findings.get_mut(finding) {
            *count = 0;
        }
    }

    /// Sets or clears a cluster's problem; a new problem is logged.
    pub fn trouble(&self, cluster: &ClusterKey, problem: Option<RuleProblem>) {
        let mut troubles = lock(&self.troubles);
        let Some(problem) = problem else {
            if troubles.clusters.remove(cluster).is_some() {
                tracing::info!(vcenter = cluster.vcenter.0, cluster = cluster.id, "rules can be written again");
            }
            return;
        };
        if troubles.clusters.get(cluster).is_none_or(|known| known.reason != problem.reason) {
            tracing::warn!(
                vcenter = cluster.vcenter.0,
                cluster = cluster.id,
                reason = problem.reason,
                "{}",
                problem.message
            );
        }
        troubles.clusters.insert(cluster.clone(), problem);
    }

    pub(crate) fn record_trouble(&self, trouble: Option<String>) {
        let mut troubles = lock(&self.troubles);
        if let Some(text) = trouble.as_ref().filter(|text| troubles.record_store.as_ref() != Some(text)) {
            tracing::warn!("{text}");
        }
        troubles.record_store = trouble;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
