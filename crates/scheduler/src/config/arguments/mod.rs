//! `profiles[].pluginConfig`: the arguments of plugins.
//!
//! In: the entries of a profile. Out: the arguments by plugin, without `apiVersion` and `kind`, checked with
//! kube-scheduler's rules where it has the plugin. A plugin of a custom registry checks its own when it is built.
//!
//! - `resources`: NodeResourcesFit, NodeResourcesBalancedAllocation. `spread`: PodTopologySpread. `affinity`:
//!   InterPodAffinity, NodeAffinity. `preemption`: DefaultPreemption. `volumes`: VolumeBinding.

mod affinity;
mod preemption;
mod resources;
mod spread;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::document::{API_GROUP, API_VERSION, PluginConfig, ProfileDocument};
use super::error::{ConfigError, FieldProblem, quoted};
use super::fields::Node;
use super::no_effect::Collected;
use super::path::{FieldPath, shortened};
use super::plugin_names::{self, Known};
use crate::framework::registry::Registry;

/// The arguments of one plugin.
#[derive(Debug)]
pub(super) struct Arguments {
    pub(super) path: FieldPath,
    pub(super) value: Value,
}

pub(super) type ArgumentsByPlugin<'a> = BTreeMap<&'a str, Arguments>;

pub(super) fn read<'a>(
    described: &'a ProfileDocument,
    registry: &Registry,
    without_effect: &mut Collected,
) -> Result<ArgumentsByPlugin<'a>, ConfigError> {
    let mut arguments = ArgumentsByPlugin::new();
    let mut seen = BTreeSet::new();
    for entry in &described.plugin_config {
        let name = entry.name.as_str();
        if !seen.insert(name) {
            return Err(FieldProblem::Duplicate(quoted(name)).at(&entry.path));
        }
        let given = of(entry)?;
        match plugin_names::known(name, registry, &entry.path)? {
            Known::Registered => {
                check(name, &Node { path: given.path.clone(), value: &given.value })?;
                arguments.insert(name, given);
            }
            Known::Absent(why) => without_effect.add(&entry.path, why),
        }
    }
    Ok(arguments)
}

/// Without `apiVersion` and `kind`, which must be those of the plugin, and without fields that are `null`.
fn of(entry: &PluginConfig) -> Result<Arguments, ConfigError> {
    let PluginConfig { path, name, args } = entry;
    let path = path.field("args");
    let mut value = args.clone();
    if let Value::Object(fields) = &mut value {
        let (given, kind) = (fields.remove("apiVersion"), fields.remove("kind"));
        let expected = format!("{name}Args");
        if let Some(given) = given.filter(|given| given != API_VERSION) {
            let node = Node { path: path.field("apiVersion"), value: &given };
            return Err(node.invalid(format!("must be {API_VERSION}")));
        }
        if let Some(kind) = kind.filter(|kind| *kind != expected) {
            let kind = kind.as_str().unwrap_or_default();
            let plugin = quoted(name);
            let why = format!(
                "args for plugin {plugin} were not of type {expected}.{API_GROUP}, got {}.{API_GROUP}",
                shortened(kind)
            );
            return Err(FieldProblem::Unusable(why).at(&path.field("kind")));
        }
    }
    drop_nulls(&mut value);
    resources::complete(name, &mut value);
    Ok(Arguments { path, value })
}

/// In Go, `null` is an absent field. The document is not nested deeply, so neither is the recursion.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn check(plugin: &str, args: &Node<'_>) -> Result<(), ConfigError> {
    if args.value.is_null() {
        return Ok(());
    }
    match plugin {
        "DefaultPreemption" => preemption::check(args),
        "InterPodAffinity" => affinity::inter_pod(args),
        "NodeAffinity" => affinity::node(args),
        "NodeResourcesBalancedAllocation" => resources::balanced_allocation(args),
        "NodeResourcesFit" => resources::fit(args),
        "PodTopologySpread" => spread::check(args),
        "VolumeBinding" => volumes::binding(args),
        _ => Ok(()),
    }
}
