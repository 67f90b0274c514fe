//! The fields of a `KubeSchedulerConfiguration`, parsed strictly.
//!
//! In: a JSON value. Out: the fields that are used. Invariant: a field that is unknown, or that kube-scheduler knows
//! but that has no effect here, is an error that names it.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ConfigError, field};

pub(super) const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
const KIND: &str = "KubeSchedulerConfiguration";

/// Fields of kube-scheduler that are not supported, and what to do instead.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("extenders", ": write a plugin instead"),
    ("clientConnection", ": connections are configured by $KUBECONFIG or the service account"),
    ("enableProfiling", ""),
    ("enableContentionProfiling", ""),
    ("delayCacheUntilActive", ""),
];

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Fields {
    api_version: String,
    kind: String,
    /// Accepted without effect: one core is enough.
    parallelism: Option<i32>,
    /// Accepted without effect: all nodes are scored.
    percentage_of_nodes_to_score: Option<i32>,
    pod_initial_backoff_seconds: Option<i64>,
    pod_max_backoff_seconds: Option<i64>,
    leader_election: LeaderElection,
    profiles: Vec<Value>,
}

/// `leaderElection`. What it leaves open is for the caller to decide. Durations are texts like `15s`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct LeaderElection {
    pub leader_elect: Option<bool>,
    pub lease_duration: Option<String>,
    pub renew_deadline: Option<String>,
    pub retry_period: Option<String>,
    pub resource_lock: Option<String>,
    pub resource_name: Option<String>,
    pub resource_namespace: Option<String>,
}

#[derive(Debug)]
pub(super) struct Document {
    pub(super) pod_initial_backoff_seconds: Option<i64>,
    pub(super) pod_max_backoff_seconds: Option<i64>,
    pub(super) leader_election: LeaderElection,
    pub(super) profiles: Vec<ProfileDocument>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct ProfileDocument {
    pub(super) scheduler_name: Option<String>,
    /// Accepted without effect: all nodes are scored.
    pub(super) percentage_of_nodes_to_score: Option<i32>,
    pub(super) plugins: PluginsDocument,
    pub(super) plugin_config: Vec<PluginConfigDocument>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct PluginsDocument {
    pub(super) multi_point: PluginSet,
    pub(super) pre_enqueue: PluginSet,
    pub(super) queue_sort: PluginSet,
    pub(super) pre_filter: PluginSet,
    pub(super) filter: PluginSet,
    pub(super) post_filter: PluginSet,
    pub(super) pre_score: PluginSet,
    pub(super) score: PluginSet,
    pub(super) reserve: PluginSet,
    pub(super) permit: PluginSet,
    pub(super) pre_bind: PluginSet,
    pub(super) bind: PluginSet,
    pub(super) post_bind: PluginSet,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PluginSet {
    pub(super) enabled: Vec<PluginEntry>,
    pub(super) disabled: Vec<PluginEntry>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PluginEntry {
    pub(super) name: String,
    pub(super) weight: Option<i32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PluginConfigDocument {
    pub(super) name: String,
    #[serde(default)]
    pub(super) args: Value,
}

impl Document {
    pub(super) fn read(value: &Value) -> Result<Self, ConfigError> {
        let Value::Object(given) = value else { return Err(field("configuration", "is not an object")) };
        if let Some((name, advice)) = UNSUPPORTED.iter().find(|(name, _)| given.contains_key(*name)) {
            return Err(ConfigError::Unsupported { field: (*name).to_owned(), advice });
        }
        let fields: Fields = read("configuration", value)?;
        if fields.api_version != API_VERSION {
            return Err(field("apiVersion", format!("is {:?}, not {API_VERSION}", fields.api_version)));
        }
        if fields.kind != KIND {
            return Err(field("kind", format!("is {:?}, not {KIND}", fields.kind)));
        }
        check_leader_election(&fields.leader_election)?;
        check_parallelism(fields.parallelism)?;
        check_percentage("percentageOfNodesToScore", fields.percentage_of_nodes_to_score)?;
        let mut profiles = Vec::with_capacity(fields.profiles.len());
        for (index, profile) in fields.profiles.iter().enumerate() {
            let profile: ProfileDocument = read(&format!("profiles[{index}]"), profile)?;
            let percentage = profile.percentage_of_nodes_to_score;
            check_percentage(&format!("profiles[{index}].percentageOfNodesToScore"), percentage)?;
            profiles.push(profile);
        }
        Ok(Self {
            pod_initial_backoff_seconds: fields.pod_initial_backoff_seconds,
            pod_max_backoff_seconds: fields.pod_max_backoff_seconds,
            leader_election: fields.leader_election,
            profiles,
        })
    }
}

fn read<T: DeserializeOwned>(path: &str, value: &Value) -> Result<T, ConfigError> {
    T::deserialize(value).map_err(|error| field(path, error.to_string()))
}

/// The only kind of lock that kube-scheduler still has.
fn check_leader_election(given: &LeaderElection) -> Result<(), ConfigError> {
    match given.resource_lock.as_deref() {
        None | Some("" | "leases") => Ok(()),
        Some(other) => Err(field("leaderElection.resourceLock", format!("is {other:?}, not leases"))),
    }
}

fn check_parallelism(given: Option<i32>) -> Result<(), ConfigError> {
    match given {
        Some(given) if given <= 0 => Err(field("parallelism", format!("{given} is not above 0"))),
        _ => Ok(()),
    }
}

fn check_percentage(path: &str, given: Option<i32>) -> Result<(), ConfigError> {
    match given {
        Some(given) if !(0..=100).contains(&given) => Err(field(path, format!("{given} is not between 0 and 100"))),
        _ => Ok(()),
    }
}
