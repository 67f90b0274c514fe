//! Configuration: a `KubeSchedulerConfiguration` of `kubescheduler.config.k8s.io/v1`, as written for kube-scheduler.
//!
//! In: the document as a JSON value. Out: profiles ready to run, or an error that names the field.
//!
//! - `document`: strict parsing of the fields. `expand`: which plugins run at which point, with upstream's precedence.
//!
//! Invariant: no setting is silently ignored. An unsupported field is rejected by name.

mod document;
mod expand;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

pub use self::document::LeaderElection;
use self::document::{Document, ProfileDocument};
use crate::framework::erased::AnyQueueSort;
use crate::framework::profile::Profile;
use crate::framework::registry::Registry;

/// The `schedulerName` of pods that the default profile schedules.
pub const DEFAULT_SCHEDULER_NAME: &str = "bridger";

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{path}: {problem}")]
    Field { path: String, problem: String },
    #[error("{field} is not supported{advice}")]
    Unsupported { field: String, advice: &'static str },
    #[error("profile {profile}: {problem}")]
    Profile { profile: String, problem: String },
    #[error("profile {profile}: arguments of plugin {plugin}: {problem}")]
    Arguments { profile: String, plugin: String, problem: String },
}

/// A scheduler's settings.
pub struct Configuration {
    pub(crate) profiles: Vec<Profile>,
    pub(crate) backoff: PodBackoff,
    /// The queue order, which all profiles share.
    pub(crate) order: Arc<dyn AnyQueueSort>,
    leader_election: LeaderElection,
}

/// How long a pod waits after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodBackoff {
    /// After the first failure. Doubles with each further failure.
    pub initial: Duration,
    pub max: Duration,
}

impl Default for PodBackoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_secs(10) }
    }
}

impl Configuration {
    /// The default profile alone, under the given name.
    pub fn with_name(name: &str, registry: &Registry) -> Result<Self, ConfigError> {
        let profile = ProfileDocument { scheduler_name: Some(name.to_owned()), ..ProfileDocument::default() };
        let profiles = vec![expand::profile(&profile, name, registry)?];
        let order = one_order_for_all(&profiles)?;
        Ok(Self { profiles, backoff: PodBackoff::default(), order, leader_election: LeaderElection::default() })
    }

    /// Reads a document.
    pub fn from_value(value: &Value, registry: &Registry) -> Result<Self, ConfigError> {
        let document = Document::read(value)?;
        let backoff = backoff(&document)?;
        let mut profiles: Vec<Profile> = Vec::new();
        let defaults = [ProfileDocument::default()];
        let described: &[ProfileDocument] = if document.profiles.is_empty() { &defaults } else { &document.profiles };
        for (index, profile) in described.iter().enumerate() {
            let name = match &profile.scheduler_name {
                Some(name) if !name.is_empty() => name.as_str(),
                _ if described.len() == 1 => DEFAULT_SCHEDULER_NAME,
                _ => {
                    return Err(field(
                        format!("profiles[{index}].schedulerName"),
                        "is needed when there are several profiles",
                    ));
                }
            };
            if profiles.iter().any(|other| other.name() == name) {
                return Err(field(format!("profiles[{index}].schedulerName"), format!("{name} is used twice")));
            }
            profiles.push(expand::profile(profile, name, registry)?);
        }
        let order = one_order_for_all(&profiles)?;
        Ok(Self { profiles, backoff, order, leader_election: document.leader_election })
    }

    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    pub fn backoff(&self) -> PodBackoff {
        self.backoff
    }

    pub fn leader_election(&self) -> &LeaderElection {
        &self.leader_election
    }
}

fn field(path: impl Into<String>, problem: impl Into<String>) -> ConfigError {
    ConfigError::Field { path: path.into(), problem: problem.into() }
}

fn backoff(document: &Document) -> Result<PodBackoff, ConfigError> {
    let default = PodBackoff::default();
    let seconds = |name: &str, given: Option<i64>, default: Duration, least: i64| match given {
        None => Ok(default),
        // A day is longer than any useful back-off, and sums of times cannot overflow.
        Some(given) if (least..=86_400).contains(&given) => Ok(Duration::from_secs(given.unsigned_abs())),
        Some(given) => Err(field(name, format!("{given} is not between {least} and 86400"))),
    };
    let initial = seconds("podInitialBackoffSeconds", document.pod_initial_backoff_seconds, default.initial, 1)?;
    let max = seconds("podMaxBackoffSeconds", document.pod_max_backoff_seconds, default.max, 1)?;
    if max < initial {
        return Err(field("podMaxBackoffSeconds", "must not be less than podInitialBackoffSeconds"));
    }
    Ok(PodBackoff { initial, max })
}

/// All profiles share one queue, so they must agree on its order.
fn one_order_for_all(profiles: &[Profile]) -> Result<Arc<dyn AnyQueueSort>, ConfigError> {
    let mut orders = BTreeMap::new();
    for profile in profiles {
        orders.entry(profile.queue_sort_name()).or_insert_with(|| profile.name());
    }
    if orders.len() > 1 {
        let named: Vec<String> = orders.iter().map(|(order, profile)| format!("{order} in {profile}")).collect();
        return Err(field("profiles", format!("all must use the same queueSort plugin, not {}", named.join(" and "))));
    }
    let order = profiles.first().and_then(Profile::queue_sort);
    order.ok_or_else(|| field("profiles", "none has a queueSort plugin"))
}

#[cfg(test)]
mod tests;
