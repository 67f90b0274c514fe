//! Which plugins run at which point.
//!
//! In: the default plugins, what a profile enables and disables by point or at all points, and the arguments. Out: a [`Profile`].
//!
//! The precedence is kube-scheduler's: first the profile's sets are merged into the default ones (a plugin that is named again
//! keeps its place and takes the new weight; others follow), then the plugins of `multiPoint` are spread over the points they
//! extend. At each point come first the `multiPoint` plugins that the point names again, in the point's order, then the other
//! `multiPoint` plugins, then the rest of the point's own. A weight given at `score` wins over one at `multiPoint`.
//!
//! Invariant: the guard against placing pods blindly is in every profile, whatever was disabled.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::ConfigError;
use super::document::{API_VERSION, PluginEntry, PluginSet, ProfileDocument};
use crate::framework::plugin::Plugin;
use crate::framework::profile::{Profile, ProfilePoints};
use crate::framework::registry::{Built, Registry};
use crate::plugins::Unsupported;

/// The default plugins, at all points they extend, with the weight of their score. As kube-scheduler 1.36 has them, without the
/// ones for volumes, resource claims, pod groups and preemption, and with this scheduler's own.
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

/// kube-scheduler's plugins that are not here. A file may disable them, which changes nothing.
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

/// Runs in every profile. That a pod is not placed without what it needs is no choice between plugins: a file that disables it,
/// by name or with all others, changes nothing.
const GUARD: &str = Unsupported::NAME;

/// Plugins are kept in sets of this many bits.
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
    // A registry of somebody's own may do without some of them.
    let defaults: Vec<PluginEntry> = DEFAULT_PLUGINS
        .iter()
        .filter(|(name, _)| registry.contains(name))
        .map(|&(name, weight)| PluginEntry { name: name.to_owned(), weight: (weight > 0).then_some(weight) })
        .collect();
    let multi_point = merge(defaults, &plugins.multi_point);

    // Only plugins that are in use are built, each once.
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
    /// Whether it turns the plugin off, by name or with all others.
    fn disables(&self, name: &str) -> bool {
        name != GUARD && self.disabled.iter().any(|entry| entry.name == EVERY || entry.name == name)
    }
}

/// Merges what a profile says into a default set.
fn merge(defaults: Vec<PluginEntry>, own: &PluginSet) -> Vec<PluginEntry> {
    let mut replacing = BTreeSet::new();
    let mut merged = Vec::new();
    for default in defaults.into_iter().filter(|default| !own.disables(&default.name)) {
        // Of several entries of one name the last counts; the others follow, and are then told as repeated.
        match own.enabled.iter().rposition(|entry| entry.name == default.name) {
            Some(place) => {
                replacing.insert(place);
                merged.push(own.enabled[place].clone());
            }
            None => merged.push(default),
        }
    }
    let rest = own.enabled.iter().enumerate().filter(|(place, _)| !replacing.contains(place));
    merged.extend(rest.map(|(_, entry)| entry.clone()));
    merged
}

/// Spreads the plugins of `multiPoint` over one point.
fn at_point(
    point: &str,
    own: &PluginSet,
    multi_point: &[PluginEntry],
    names: &[&str],
    built: &[Built],
    extends: fn(&Built) -> bool,
) -> Result<Vec<usize>, String> {
    let place = |name: &str| names.iter().position(|known| *known == name);
    let mut own_places = Vec::new();
    for entry in &own.enabled {
        let Some(place) = place(&entry.name) else { continue };
        if !extends(&built[place]) {
            return Err(format!("plugin {} does not extend {point}", entry.name));
        }
        if own_places.contains(&place) {
            return Err(format!("plugin {} is enabled twice at {point}", entry.name));
        }
        own_places.push(place);
    }
    let mut named_again = BTreeSet::new();
    let mut spread = Vec::new();
    for entry in multi_point {
        let Some(place) = place(&entry.name) else { continue };
        if !extends(&built[place]) || own.disables(&entry.name) {
            continue;
        }
        if own_places.contains(&place) {
            named_again.insert(place);
        } else if spread.contains(&place) {
            return Err(format!("plugin {} is enabled twice at multiPoint", entry.name));
        } else {
            spread.push(place);
        }
    }
    let (first, last): (Vec<usize>, Vec<usize>) = own_places.into_iter().partition(|place| named_again.contains(place));
    Ok([first, spread, last].concat())
}

/// By plugin. One that names none counts once.
fn weights(names: &[&str], score: &[PluginEntry], multi_point: &[PluginEntry]) -> Result<Vec<i64>, String> {
    let mut weights = vec![None; names.len()];
    for entry in score.iter().chain(multi_point) {
        let weight = entry.weight.unwrap_or(0);
        if weight < 0 {
            return Err(format!("plugin {} has the negative weight {weight}", entry.name));
        }
        if let Some(place) = names.iter().position(|name| *name == entry.name) {
            weights[place].get_or_insert(i64::from(weight.max(1)));
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

/// By plugin, without `apiVersion` and `kind`, which must be what they are upstream.
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
