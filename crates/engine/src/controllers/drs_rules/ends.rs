//! Handles the end of a pass: what the cluster waits for next, for how long, and which problem is reported.
//!
//! In: the end of a cluster's pass. Out: the cluster's next phase, counters, and the rejected changes, which are
//! deferred.

use std::time::Duration;

use drs::ClusterKey;
use tokio::time::Instant;

use super::controller::{BACKOFF, Cluster, DrsRules, Phase};
use super::counters::RuleProblem;
use super::pass::{Carried, End, PassStage};
use crate::ports::PortError;
use crate::runtime::Backoff;

/// How long the watch may be behind before it is reported.
const LAG_REPORTED_AFTER: Duration = Duration::from_secs(30);
const LAG_BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(5) };
/// A rejected change is tried immediately when its plan changes; an unchanged retry is unlikely to succeed.
const REJECTED_BACKOFF: Backoff = Backoff { first: Duration::from_secs(10), longest: Duration::from_secs(600) };

impl DrsRules {
    pub(super) fn ended(&mut self, name: &ClusterKey, end: End, now: Instant) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        match end {
            End::Settled => {
                cluster.phase = Phase::Idle;
                cluster.ran_well();
                self.counters.trouble(name, None);
            }
            End::Outdated => {
                cluster.phase = Phase::Idle;
                self.plan_by(now);
            }
            End::Lagging { found } => {
                cluster.lags = cluster.lags.saturating_add(1);
                self.counters.lags.add(1);
                let since = *cluster.lag_since.get_or_insert(now);
                let until = now + LAG_BACKOFF.wait(cluster.lags, &mut self.jitter);
                cluster.phase = Phase::AwaitingEcho { expected: found, until };
                self.is_cluster_touched = true;
                let lag = now.saturating_duration_since(since);
                if lag >= LAG_REPORTED_AFTER {
                    let message = format!("the watch has been behind the vCenter for {} s", lag.as_secs());
                    self.counters.trouble(name, Some(RuleProblem { reason: "WatchLags", message }));
                }
            }
            End::Failed { stage, error } => self.failed(name, stage, &error, now),
            End::Carried(carried) => {
                cluster.rest(now);
                self.carried(name, *carried, now);
            }
        }
        self.counters.set_owned(self.records.owned().len());
    }

    fn failed(&mut self, name: &ClusterKey, stage: PassStage, error: &PortError, now: Instant) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        self.counters.failed(error);
        cluster.failures = cluster.failures.saturating_add(1);
        let wait = match error {
            PortError::Transient(_) => BACKOFF.wait(cluster.failures, &mut self.jitter),
            PortError::Permanent(_) | PortError::NotFound(_) | PortError::Invalid(_) => BACKOFF.longest,
        };
        if matches!(stage, PassStage::SavingIntent | PassStage::SavingOutcome) {
            // Only the record store knows whether this write succeeded, or what another client wrote.
            let is_deleted = matches!(error, PortError::NotFound(_));
            if is_deleted {
                self.records.removed(name);
            }
            cluster.phase = Phase::AwaitingRecord { until: now + if is_deleted { BACKOFF.first } else { wait } };
            self.loads.next = self.loads.next.min(now + wait.min(BACKOFF.first));
        } else {
            cluster.phase = Phase::Waiting { until: now + wait };
        }
        let (reason, attempt) = match stage {
            PassStage::Reading | PassStage::ReadingBack => ("CannotRead", "read its rules"),
            PassStage::SavingIntent | PassStage::SavingOutcome => ("CannotRecord", "record its rules"),
            PassStage::Changing => ("CannotChange", "change its rules"),
        };
        let message = format!("cannot {attempt}: {error}");
        self.counters.trouble(name, Some(RuleProblem { reason, message }));
    }

    fn carried(&mut self, name: &ClusterKey, carried: Carried, now: Instant) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        let Carried { found, done, culprits, missing } = carried;
        done.iter().for_each(|kind| self.counters.changed(kind));
        let problem = match (culprits.first(), missing.first()) {
            (Some((change, why)), _) => {
                let message =
                    format!("{} of its rules cannot be written, for example {}: {why}", culprits.len(), change.rule);
                Some(RuleProblem { reason: "RuleRejected", message })
            }
            (None, Some(rule)) => {
                let message =
                    format!("{} changes were accepted but are not visible, for example {rule}", missing.len());
                Some(RuleProblem { reason: "ChangeDoesNotShow", message })
            }
            (None, None) => None,
        };
        for (change, why) in culprits {
            self.counters.failed(&PortError::Invalid(why));
            cluster.deferred.put(change, now, &REJECTED_BACKOFF, &mut self.jitter);
        }
        if missing.is_empty() {
            cluster.ran_well();
            cluster.phase = Phase::AwaitingEcho { expected: found, until: now + self.settings.echo_within };
            // The watch may have shown the rules before the last response arrived.
            self.is_cluster_touched = true;
        } else {
            cluster.failures = cluster.failures.saturating_add(1);
            cluster.phase = Phase::Waiting { until: now + BACKOFF.wait(cluster.failures, &mut self.jitter) };
        }
        if problem.is_some() || cluster.deferred.len() == 0 {
            self.counters.trouble(name, problem);
        }
    }
}

impl Cluster {
    fn ran_well(&mut self) {
        self.failures = 0;
        self.lags = 0;
        self.lag_since = None;
    }
}
