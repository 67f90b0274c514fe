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

use std::collections::BTreeSet;

use super::arguments;
use super::document::ProfileDocument;
use super::error::{ConfigError, FieldProblem, quoted};
use super::no_effect::Collected;
use super::path::FieldPath;
use super::plugin_names::{self, Known};
use super::plugin_sets::{EVERY_POINT, PluginEntry, PluginSet, PluginsDocument};
use crate::framework::plugin::Plugin;
use crate::framework::profile::{Profile, ProfilePoints};
use crate::framework::registry::{Built, Registry};
use crate::plugins::Unsupported;

/// The default plugins, at all points they extend, with their score weights. The list is that of kube-scheduler 1.36
/// without the plugins for volumes, resource claims and pod groups, plus this scheduler's own plugins.
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
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("PhysicalHost", 2),
    ("HostDatastore", 0),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
];

const EVERY: &str = "*";

/// The plugin that runs in every profile. It keeps pods from being placed without something they require, so no file
/// can turn it off: disabling it, by name or with `*`, has no effect.
const GUARD: &str = Unsupported::NAME;

/// A set of plugins has this many bits.
const PLUGINS_MAX: usize = 64;

pub(super) fn profile(
    described: &ProfileDocument,
    name: &str,
    registry: &Registry,
    without_effect: &mut Collected,
) -> Result<Profile, ConfigError> {
    let ProfileDocument { path, plugins, .. } = described;
    let wrong = |why: String| FieldProblem::Unusable(why).at(path);
    for set in plugins.sets() {
        check_names(set, registry, without_effect)?;
    }
    check_one_queue_sort(path, plugins)?;
    let arguments = arguments::read(described, registry, without_effect)?;
    // A custom registry may lack some of the default plugins.
    let defaults: Vec<PluginEntry> = DEFAULT_PLUGINS
        .iter()
        .filter(|(name, _)| registry.contains(name))
        .map(|&(name, weight)| PluginEntry {
            path: FieldPath::default(),
            name: name.to_owned(),
            weight: (weight > 0).then_some(weight),
        })
        .collect();
    let multi_point = merge(defaults, plugins.at(EVERY_POINT));

    // Only plugins in use are built, each once. Of the plugins that a file may name, the registry lacks some.
    let mut names: Vec<&str> = Vec::new();
    let own = plugins.sets().flat_map(|set| &set.enabled);
    for entry in multi_point.iter().chain(own) {
        if registry.contains(&entry.name) && !names.contains(&entry.name.as_str()) {
            names.push(&entry.name);
        }
    }
    if names.len() > PLUGINS_MAX {
        return Err(wrong(format!("has {} plugins, more than {PLUGINS_MAX}", names.len())));
    }
    let mut built = Vec::with_capacity(names.len());
    for plugin in &names {
        let given = arguments.get(plugin);
        let outcome = registry.build(plugin, given.map(|given| &given.value));
        let outcome = outcome.ok_or_else(|| wrong(format!("plugin {} does not exist", quoted(plugin))))?;
        built.push(outcome.map_err(|problem| match given {
            Some(given) => FieldProblem::Unusable(problem).at(&given.path),
            None => wrong(format!("plugin {}: {problem}", quoted(plugin))),
        })?);
    }

    let expand = |point: &'static str, extends: fn(&Built) -> bool| {
        at_point(point, plugins.at(point), &multi_point, &names, &built, extends)
    };
    let points = ProfilePoints {
        pre_enqueue: expand("preEnqueue", |built| built.pre_enqueue.is_some())?,
        queue_sort: expand("queueSort", |built| built.queue_sort.is_some())?,
        pre_filter: expand("preFilter", |built| built.pre_filter.is_some())?,
        filter: expand("filter", |built| built.filter.is_some())?,
        post_filter: expand("postFilter", |built| built.post_filter.is_some())?,
        pre_score: expand("preScore", |built| built.pre_score.is_some())?,
        score: expand("score", |built| built.score.is_some())?,
        reserve: expand("reserve", |built| built.reserve.is_some())?,
        permit: expand("permit", |built| built.permit.is_some())?,
        pre_bind: expand("preBind", |built| built.pre_bind.is_some())?,
        bind: expand("bind", |built| built.bind.is_some())?,
        post_bind: expand("postBind", |built| built.post_bind.is_some())?,
    };
    let shown = quoted(name);
    if points.queue_sort.len() != 1 {
        let count = points.queue_sort.len();
        let rule = "only one queue sort plugin required for profile with scheduler name";
        return Err(wrong(format!("{rule} {shown}, but got {count}")));
    }
    if points.bind.is_empty() {
        return Err(wrong(format!("at least one bind plugin is needed for profile with scheduler name {shown}")));
    }
    let weights = weights(&names, &plugins.at("score").enabled, &multi_point)?;
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
) -> Result<Vec<usize>, ConfigError> {
    let index = |name: &str| names.iter().position(|known| *known == name);
    let twice = |entry: &PluginEntry, at: &str| {
        FieldProblem::Unusable(format!("plugin {} already registered as {at:?}", quoted(&entry.name))).at(&entry.path)
    };
    let mut own_listed = Vec::new();
    for entry in &own.enabled {
        let Some(index) = index(&entry.name) else { continue };
        if !extends(&built[index]) {
            let why = format!("plugin {} does not extend {point} plugin", quoted(&entry.name));
            return Err(FieldProblem::Unusable(why).at(&entry.path));
        }
        if own_listed.contains(&index) {
            return Err(twice(entry, point));
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
            return Err(twice(entry, EVERY_POINT));
        } else {
            spread.push(index);
        }
    }
    let (first, last): (Vec<usize>, Vec<usize>) = own_listed.into_iter().partition(|index| named_again.contains(index));
    Ok([first, spread, last].concat())
}

/// The weight of each plugin; 1 if none is given.
fn weights(names: &[&str], score: &[PluginEntry], multi_point: &[PluginEntry]) -> Result<Vec<i64>, ConfigError> {
    let mut weights = vec![None; names.len()];
    for entry in score.iter().chain(multi_point) {
        let weight = entry.weight.unwrap_or(0);
        if weight < 0 {
            let rule = "must be zero or positive".to_owned();
            return Err(FieldProblem::Invalid { value: weight.to_string(), rule }.at(&entry.path.field("weight")));
        }
        if let Some(index) = names.iter().position(|name| *name == entry.name) {
            weights[index].get_or_insert(i64::from(weight.max(1)));
        }
    }
    Ok(weights.into_iter().map(|weight| weight.unwrap_or(1)).collect())
}

fn check_names(set: &PluginSet, registry: &Registry, without_effect: &mut Collected) -> Result<(), ConfigError> {
    for entry in &set.enabled {
        if let Known::Absent(why) = plugin_names::known(&entry.name, registry, &entry.path)? {
            without_effect.add(&entry.path, why);
        }
    }
    for entry in &set.disabled {
        let name = entry.name.as_str();
        if name == GUARD {
            without_effect.add(&entry.path, "pods are never placed without checking what they need");
        } else if name != EVERY && !plugin_names::may_be_disabled(name, registry) {
            let why = format!("plugin {} does not exist", quoted(name));
            return Err(FieldProblem::Unusable(why).at(&entry.path));
        }
    }
    Ok(())
}

fn check_one_queue_sort(profile: &FieldPath, plugins: &PluginsDocument) -> Result<(), ConfigError> {
    let count = plugins.at("queueSort").enabled.len();
    if count <= 1 {
        return Ok(());
    }
    let rule = "only one queue sort plugin can be enabled".to_owned();
    let path = profile.field("plugins").field("queueSort").field("enabled");
    Err(FieldProblem::Invalid { value: count.to_string(), rule }.at(&path))
}
