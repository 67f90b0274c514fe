//! The fields of a `KubeSchedulerConfiguration`, read strictly.
//!
//! In: a JSON value. Out: its fields, each checked by itself; `expand` checks what depends on the plugins. Invariant: a
//! field that is unknown is an error that names it, and a known one without effect is in the list of those.

use std::time::Duration;

use serde_json::Value;

use super::client_connection::ClientConnection;
use super::error::{ConfigError, FieldProblem};
use super::extenders::OutgoingExtender;
use super::fields::Node;
use super::leader_election::LeaderElection;
use super::no_effect::Collected;
use super::path::FieldPath;
use super::plugin_sets::PluginsDocument;
use super::{PodBackoff, client_connection, extenders, leader_election, plugin_sets};

pub(super) const API_GROUP: &str = "kubescheduler.config.k8s.io";
pub(super) const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
const KIND: &str = "KubeSchedulerConfiguration";

/// No useful back-off is longer than a day, and sums of times cannot overflow.
const BACKOFF_SECONDS_MAX: i64 = 86_400;

const ALL_SCORED: &str = "all nodes are evaluated for every pod";
const NO_PROFILING: &str = "there is no /debug/pprof";

/// Fields of earlier versions that v1 does not have.
const REMOVED: [&str; 2] = ["healthzBindAddress", "metricsBindAddress"];

#[derive(Debug)]
pub(super) struct Document {
    pub(super) backoff: PodBackoff,
    pub(super) leader_election: LeaderElection,
    pub(super) client_connection: ClientConnection,
    pub(super) extenders: Vec<OutgoingExtender>,
    pub(super) profiles: Vec<ProfileDocument>,
}

#[derive(Debug, Default)]
pub(super) struct ProfileDocument {
    pub(super) path: FieldPath,
    pub(super) scheduler_name: Option<String>,
    pub(super) plugins: PluginsDocument,
    pub(super) plugin_config: Vec<PluginConfig>,
}

/// The arguments of a plugin as they are given.
#[derive(Debug)]
pub(super) struct PluginConfig {
    pub(super) path: FieldPath,
    pub(super) name: String,
    /// `Null` if there are none.
    pub(super) args: Value,
}

impl Document {
    pub(super) fn read(value: &Value, without_effect: &mut Collected) -> Result<Self, ConfigError> {
        let mut fields = Node::document(value).fields()?;
        for (name, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            match fields.take(name) {
                Some(node) if node.value == expected => {}
                Some(node) => return Err(node.invalid(format!("must be {expected}"))),
                None => return Err(FieldProblem::Required(expected).at(&fields.path().field(name))),
            }
        }
        for name in REMOVED {
            if let Some(node) = fields.take(name) {
                let why = format!("unknown field: {API_VERSION} does not have it, use --listen and --port");
                return Err(FieldProblem::Unusable(why).at(&node.path));
            }
        }
        let parallelism = fields.take("parallelism");
        let percentage = fields.take("percentageOfNodesToScore");
        let initial = fields.take("podInitialBackoffSeconds");
        let max = fields.take("podMaxBackoffSeconds");
        let election = fields.take("leaderElection");
        let connection = fields.take("clientConnection");
        let extender_list = fields.take("extenders");
        let profile_list = fields.list("profiles")?;
        let switches = [
            ("enableProfiling", NO_PROFILING),
            ("enableContentionProfiling", NO_PROFILING),
            ("delayCacheUntilActive", "every instance keeps its state up to date, so that a new leader starts at once"),
        ];
        for (name, why) in switches {
            let node = fields.take(name);
            // Switched off it is what happens anyway.
            if node.as_ref().map(Node::flag).transpose()? == Some(true) {
                without_effect.add_given(node.as_ref(), why);
            }
        }
        fields.done()?;
        if let Some(node) = &parallelism
            && node.int32()? <= 0
        {
            return Err(node.invalid("should be an integer value greater than zero"));
        }
        without_effect.add_given(parallelism.as_ref(), "one thread decides about all nodes");
        read_percentage(percentage.as_ref(), without_effect)?;
        let profile = |node: &Node<'_>| ProfileDocument::read(node, without_effect);
        let profiles = profile_list.iter().map(profile).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            backoff: backoff(initial.as_ref(), max.as_ref())?,
            leader_election: election.map(|node| leader_election::read(&node)).transpose()?.unwrap_or_default(),
            client_connection: match connection {
                Some(node) => client_connection::read(&node, without_effect)?,
                None => ClientConnection::default(),
            },
            extenders: extender_list.map(|node| extenders::read(&node)).transpose()?.unwrap_or_default(),
            profiles,
        })
    }
}

impl ProfileDocument {
    fn read(node: &Node<'_>, without_effect: &mut Collected) -> Result<Self, ConfigError> {
        let mut fields = node.fields()?;
        let scheduler_name = fields.read("schedulerName", Node::text)?.map(str::to_owned);
        let percentage = fields.take("percentageOfNodesToScore");
        let plugins = fields.read("plugins", plugin_sets::read)?.unwrap_or_default();
        let plugin_config = fields.list("pluginConfig")?;
        fields.done()?;
        read_percentage(percentage.as_ref(), without_effect)?;
        if scheduler_name.as_ref().is_some_and(String::is_empty) {
            return Err(FieldProblem::Required("").at(&node.path.field("schedulerName")));
        }
        let plugin_config = plugin_config.iter().map(PluginConfig::read).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { path: node.path.clone(), scheduler_name, plugins, plugin_config })
    }
}

impl PluginConfig {
    fn read(node: &Node<'_>) -> Result<Self, ConfigError> {
        let mut fields = node.fields()?;
        let name = fields.filled_text("name")?;
        let args = fields.take("args").map_or(Value::Null, |args| args.value.clone());
        fields.done()?;
        let name = name.ok_or_else(|| FieldProblem::Required("").at(&node.path.field("name")))?;
        Ok(Self { path: node.path.clone(), name, args })
    }
}

fn read_percentage(node: Option<&Node<'_>>, without_effect: &mut Collected) -> Result<(), ConfigError> {
    let Some(node) = node else { return Ok(()) };
    if !(0..=100).contains(&node.int32()?) {
        return Err(node.invalid("not in valid range [0-100]"));
    }
    without_effect.add(&node.path, ALL_SCORED);
    Ok(())
}

fn backoff(initial: Option<&Node<'_>>, max: Option<&Node<'_>>) -> Result<PodBackoff, ConfigError> {
    let seconds = |node: &Node<'_>, least: i64, below_least: &str| match node.int64()? {
        given if given < least => Err(node.invalid(below_least)),
        given if given > BACKOFF_SECONDS_MAX => Err(node.invalid(format!("must be at most {BACKOFF_SECONDS_MAX}"))),
        given => Ok(given),
    };
    let default = PodBackoff::default();
    let initial = match initial {
        Some(node) => Duration::from_secs(seconds(node, 1, "must be greater than 0")?.unsigned_abs()),
        None => default.initial,
    };
    let rule = "must be greater than or equal to PodInitialBackoffSeconds";
    let max = match max {
        Some(node) => Duration::from_secs(seconds(node, initial.as_secs() as i64, rule)?.unsigned_abs()),
        None if default.max < initial => {
            let value = default.max.as_secs().to_string();
            let path = FieldPath::default().field("podMaxBackoffSeconds");
            return Err(FieldProblem::Invalid { value, rule: rule.to_owned() }.at(&path));
        }
        None => default.max,
    };
    Ok(PodBackoff { initial, max })
}
