//! One order for all: the profiles share a queue, so they use one queueSort plugin with the same arguments.
//!
//! In: the profiles as described, and as expanded. Out: the first profile that differs from the first one. What counts
//! is the plugin that orders the pods, not the place in the file that enables it.

use serde_json::Value;

use super::document::{PluginConfig, ProfileDocument};
use super::error::{ConfigError, FieldProblem, quoted, shown};
use crate::framework::profile::Profile;

pub(super) fn check_common(described: &[ProfileDocument], profiles: &[Profile]) -> Result<(), ConfigError> {
    let (Some(first), Some(plugin)) = (described.first(), profiles.first().map(Profile::queue_sort_name)) else {
        return Ok(());
    };
    let first_args = args(given(first, plugin));
    for (described, profile) in described.iter().zip(profiles).skip(1) {
        let own = profile.queue_sort_name();
        if own != plugin {
            let path = described.path.field("plugins").field("queueSort");
            let rule = "must be the same for all profiles".to_owned();
            return Err(FieldProblem::Invalid { value: quoted(own), rule }.at(&path));
        }
        let entry = given(described, plugin);
        let own_args = args(entry);
        if own_args != first_args {
            let path = match entry {
                Some(entry) => entry.path.field("args"),
                None => described.path.field("pluginConfig"),
            };
            let rule = "queueSort must be the same for all profiles".to_owned();
            return Err(FieldProblem::Invalid { value: shown(&own_args), rule }.at(&path));
        }
    }
    Ok(())
}

fn given<'a>(profile: &'a ProfileDocument, plugin: &str) -> Option<&'a PluginConfig> {
    profile.plugin_config.iter().find(|entry| entry.name == plugin)
}

/// What reaches the plugin: without the type of the arguments. No arguments are empty ones.
fn args(entry: Option<&PluginConfig>) -> Value {
    let mut args = entry.map_or(Value::Null, |entry| entry.args.clone());
    if let Value::Object(fields) = &mut args {
        fields.retain(|name, value| name != "apiVersion" && name != "kind" && !value.is_null());
    }
    if args.as_object().is_some_and(serde_json::Map::is_empty) { Value::Null } else { args }
}
