//! Which plugins run at which extension point.
//!
//! In: the default plugins, the plugins that a profile enables and disables at one point or at all points, and the
//! plugin arguments. Out: a [`Profile`].
//!
//! The precedence is that of kube-scheduler. First the profile's sets are merged into the default sets: a default
//! plugin that is enabled again keeps its position and takes the new weight, other plugins follow. Then the
//! `multiPoint` plugins are expanded to the points they extend. The order at each point is: the `multiPoint` plugins
//! that the point also enables, in the point's order; the other `multiPoint` plugins; the remaining plugins that the
//! point enables. A weight at `score` overrides one at `multiPoint`.
//!
//! Invariant: the `Unsupported` plugin is in every profile, even if the file disables it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::ConfigError;
use super::document::{API_VERSION, PluginEntry, PluginSet, ProfileDocument};
use crate::framework::plugin::Plugin;
use crate::framework::profile::{Profile, ProfilePoints};
use crate::framework::registry::{Built, Registry};
use crate::plugins::Unsupported;

/// The default plugins, at all points they extend, with their score weights. The list is that of kube-scheduler 1.36
/// without the plugins for volumes, resource claims, pod groups and preemption, plus this scheduler's own plugins.
pub(super) const DEFAULT_PLUGINS: &[(&str, i32)] = &[
    ("SchedulingGates", 0),
    ("Unsupported", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("PhysicalHost", 2),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
];

/// Plugins of kube-scheduler that Bridger lacks. A file may disable them, which has no effect.
const ABSENT: &[&str] = &[
    "DefaultPreemption",
    "DynamicResources",
    "GangScheduling",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
];

const EVERY: &str = "*";

/// The plugin that runs in every profile. It keeps pods from being placed without something they require, so no file
/// can turn it off: disabling it, by name or with `*`, has no effect.
const GUARD: &str = Unsupported::NAME;

/// A set of plugins has this many bits.
const PLUGINS_MAX: usize = 64;

pub(super) fn profile(described: &ProfileDocument, name: &str, registry: &Registry) -> Result<Profile, ConfigError> {
    let wrong = |problem: String| ConfigError::Profile { profile: name.to_owned(), problem };
    let plugins = &described.plugins;
    let own_points: [(&'static str, &PluginSet); 12] = [
        ("preEnqueue", &plugins.pre_enqueue),
        ("queueSort", &plugins.queue_sort),
        ("preFilter", &plugins.pre_filter),
        ("filter", &plugins.filter),
        ("postFilter", &plugins.post_filter),
        ("preScore", &plugins.pre_score),
        ("score", &plugins.score),
        ("reserve", &plugins.reserve),
        ("permit", &plugins.permit),
        ("preBind", &plugins.pre_bind),
        ("bind", &plugins.bind),
        ("postBind", &plugins.post_bind),
    ];
    for set in own_points.iter().map(|(_, set)| *set).chain([&plugins.multi_point]) {
        check_names(set, registry).map_err(wrong)?;
    }
    let arguments = arguments(described, registry).map_err(wrong)?;
    // A custom registry may lack some of the default plugins.
    let defaults: Vec<PluginEntry> = DEFAULT_PLUGINS
        .iter()
        .filter(|(name, _)| registry.contains(name))
        .map(|&(name, weight)| PluginEntry { name: name.to_owned(), weight: (weight > 0).then_some(weight) })
        .collect();
    let multi_point = merge(defaults, &plugins.multi_point);

    // Only plugins in use are built, each once.
    let mut names: Vec<&str> = Vec::new();
    let own = own_points.iter().flat_map(|(_, set)| &set.enabled);
    for entry in multi_point.iter().chain(own) {
        if !names.contains(&entry.name.as_str()) {
            names.push(&entry.name);
        }
    }
    if names.len() > PLUGINS_MAX {
        return Err(wrong(format!("has {} plugins, more than {PLUGINS_MAX}", names.len())));
    }
    let mut built = Vec::with_capacity(names.len());
    for plugin in &names {
        let outcome = registry.build(plugin, arguments.get(plugin));
        let outcome = outcome.ok_or_else(|| wrong(format!("plugin {plugin} does not exist")))?;
        built.push(outcome.map_err(|problem| ConfigError::Arguments {
            profile: name.to_owned(),
            plugin: (*plugin).to_owned(),
            problem,
        })?);
    }

    let expand = |point: &'static str, set: &PluginSet, extends: fn(&Built) -> bool| {
        at_point(point, set, &multi_point, &names, &built, extends).map_err(wrong)
    };
    let points = ProfilePoints {
        pre_enqueue: expand("preEnqueue", &plugins.pre_enqueue, |built| built.pre_enqueue.is_some())?,
        queue_sort: expand("queueSort", &plugins.queue_sort, |built| built.queue_sort.is_some())?,
        pre_filter: expand("preFilter", &plugins.pre_filter, |built| built.pre_filter.is_some())?,
        filter: expand("filter", &plugins.filter, |built| built.filter.is_some())?,
        post_filter: expand("postFilter", &plugins.post_filter, |built| built.post_filter.is_some())?,
        pre_score: expand("preScore", &plugins.pre_score, |built| built.pre_score.is_some())?,
        score: expand("score", &plugins.score, |built| built.score.is_some())?,
        reserve: expand("reserve", &plugins.reserve, |built| built.reserve.is_some())?,
        permit: expand("permit", &plugins.permit, |built| built.permit.is_some())?,
        pre_bind: expand("preBind", &plugins.pre_bind, |built| built.pre_bind.is_some())?,
        bind: expand("bind", &plugins.bind, |built| built.bind.is_some())?,
        post_bind: expand("postBind", &plugins.post_bind, |built| built.post_bind.is_some())?,
    };
    match points.queue_sort.len() {
        1 => {}
        0 => return Err(wrong("has no queueSort plugin: one is needed".to_owned())),
        _ => return Err(wrong("has several queueSort plugins: only one can decide the order".to_owned())),
    }
    if points.bind.is_empty() {
        return Err(wrong("has no bind plugin: at least one is needed".to_owned()));
    }
    let weights = weights(&names, &plugins.score.enabled, &multi_point).map_err(wrong)?;
    Ok(Profile::new(name.to_owned(), built, points, weights))
}

impl PluginSet {
    /// Whether the set disables the plugin, by name or with `*`.
    fn disables(&self, name: &str) -> bool {
        name != GUARD && self.disabled.iter().any(|entry| entry.name == EVERY || entry.name == name)
    }
}

/// Merges a profile's plugin set into the default set.
fn merge(defaults: Vec<PluginEntry>, own: &PluginSet) -> Vec<PluginEntry> {
    let mut replacing = BTreeSet::new();
    let mut merged = Vec::new();
    for default in defaults.into_iter().filter(|default| !own.disables(&default.name)) {
        // Of several entries with one name the last wins. The others are appended and later rejected as duplicates.
        match own.enabled.iter().rposition(|entry| entry.name == default.name) {
            Some(index) => {
                replacing.insert(index);
                merged.push(own.enabled[index].clone());
            }
            None => merged.push(default),
        }
    }
    let rest = own.enabled.iter().enumerate().filter(|(index, _)| !replacing.contains(index));
    merged.extend(rest.map(|(_, entry)| entry.clone()));
    merged
}

/// Expands the `multiPoint` plugins at one point.
fn at_point(
    point: &str,
    own: &PluginSet,
    multi_point: &[PluginEntry],
    names: &[&str],
    built: &[Built],
    extends: fn(&Built) -> bool,
) -> Result<Vec<usize>, String> {
    let index = |name: &str| names.iter().position(|known| *known == name);
    let mut own_listed = Vec::new();
    for entry in &own.enabled {
        let Some(index) = index(&entry.name) else { continue };
        if !extends(&built[index]) {
            return Err(format!("plugin {} does not extend {point}", entry.name));
        }
        if own_listed.contains(&index) {
            return Err(format!("plugin {} is enabled twice at {point}", entry.name));
        }
        own_listed.push(index);
    }
    let mut named_again = BTreeSet::new();
    let mut spread = Vec::new();
    for entry in multi_point {
        let Some(index) = index(&entry.name) else { continue };
        if !extends(&built[index]) || own.disables(&entry.name) {
            continue;
        }
        if own_listed.contains(&index) {
            named_again.insert(index);
        } else if spread.contains(&index) {
            return Err(format!("plugin {} is enabled twice at multiPoint", entry.name));
        } else {
            spread.push(index);
        }
    }
    let (first, last): (Vec<usize>, Vec<usize>) = own_listed.into_iter().partition(|index| named_again.contains(index));
    Ok([first, spread, last].concat())
}

/// The weight of each plugin; 1 if none is given.
fn weights(names: &[&str], score: &[PluginEntry], multi_point: &[PluginEntry]) -> Result<Vec<i64>, String> {
    let mut weights = vec![None; names.len()];
    for entry in score.iter().chain(multi_point) {
        let weight = entry.weight.unwrap_or(0);
        if weight < 0 {
            return Err(format!("plugin {} has the negative weight {weight}", entry.name));
        }
        if let Some(index) = names.iter().position(|name| *name == entry.name) {
            weights[index].get_or_insert(i64::from(weight.max(1)));
        }
    }
    Ok(weights.into_iter().map(|weight| weight.unwrap_or(1)).collect())
}

fn check_names(set: &PluginSet, registry: &Registry) -> Result<(), String> {
    for entry in &set.enabled {
        check_name(&entry.name, registry)?;
    }
    for entry in &set.disabled {
        let name = entry.name.as_str();
        if name != EVERY && !ABSENT.contains(&name) && !registry.contains(name) {
            return Err(format!("plugin {name} does not exist"));
        }
    }
    Ok(())
}

fn check_name(name: &str, registry: &Registry) -> Result<(), String> {
    if registry.contains(name) {
        Ok(())
    } else if ABSENT.contains(&name) {
        Err(format!("plugin {name} is not supported"))
    } else {
        Err(format!("plugin {name} does not exist"))
    }
}

/// The arguments by plugin, without `apiVersion` and `kind`. These two must have the upstream values.
fn arguments<'a>(described: &'a ProfileDocument, registry: &Registry) -> Result<BTreeMap<&'a str, Value>, String> {
    let mut arguments = BTreeMap::new();
    for entry in &described.plugin_config {
        let name = entry.name.as_str();
        check_name(name, registry)?;
        let mut args = entry.args.clone();
        if let Value::Object(fields) = &mut args {
            let expected = [("apiVersion", API_VERSION.to_owned()), ("kind", format!("{name}Args"))];
            for (field, expected) in expected {
                match fields.remove(field) {
                    Some(given) if given != expected => {
                        return Err(format!("arguments of plugin {name}: {field} is {given}, not {expected}"));
                    }
                    _ => {}
                }
            }
        }
        if arguments.insert(name, args).is_some() {
            return Err(format!("the arguments of plugin {name} are given twice"));
        }
    }
    Ok(arguments)
}
