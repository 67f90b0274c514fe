//! `profiles[].plugins`: the plugins that a profile enables and disables, at each point or at all points.

use std::collections::BTreeMap;

use super::error::{ConfigError, FieldProblem, quoted};
use super::fields::Node;
use super::path::FieldPath;

pub(super) const EVERY_POINT: &str = "multiPoint";

const POINTS: &[&str] = &[
    EVERY_POINT,
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
];

/// Of pod groups, which Bridger does not place as a whole. No plugin can run there.
const GROUP_POINTS: &[&str] = &["placementGenerate", "placementScore"];

/// The sets that a profile gives, by point.
#[derive(Debug, Default)]
pub(super) struct PluginsDocument(BTreeMap<&'static str, PluginSet>);

#[derive(Debug, Default)]
pub(super) struct PluginSet {
    pub(super) enabled: Vec<PluginEntry>,
    pub(super) disabled: Vec<PluginEntry>,
}

#[derive(Clone, Debug)]
pub(super) struct PluginEntry {
    pub(super) path: FieldPath,
    pub(super) name: String,
    pub(super) weight: Option<i32>,
}

static EMPTY: PluginSet = PluginSet { enabled: Vec::new(), disabled: Vec::new() };

impl PluginsDocument {
    pub(super) fn at(&self, point: &str) -> &PluginSet {
        self.0.get(point).unwrap_or(&EMPTY)
    }

    /// The sets that are given, from the first point of a cycle to the last.
    pub(super) fn sets(&self) -> impl Iterator<Item = &PluginSet> {
        POINTS.iter().chain(GROUP_POINTS).filter_map(move |point| self.0.get(point))
    }
}

pub(super) fn read(node: &Node<'_>) -> Result<PluginsDocument, ConfigError> {
    let mut fields = node.fields()?;
    let mut sets: BTreeMap<&'static str, PluginSet> = BTreeMap::new();
    for point in POINTS.iter().chain(GROUP_POINTS) {
        if let Some(set) = fields.read(point, plugin_set)? {
            sets.insert(*point, set);
        }
    }
    fields.done()?;
    for point in GROUP_POINTS {
        let enabled = sets.get(point).and_then(|set| set.enabled.first());
        if let Some(PluginEntry { path, name, .. }) = enabled {
            let why = format!("plugin {} is not supported at {point}", quoted(name));
            return Err(FieldProblem::Unusable(why).at(path));
        }
    }
    Ok(PluginsDocument(sets))
}

fn plugin_set(node: &Node<'_>) -> Result<PluginSet, ConfigError> {
    let mut fields = node.fields()?;
    let enabled = fields.list("enabled")?;
    let disabled = fields.list("disabled")?;
    fields.done()?;
    let entries = |nodes: Vec<Node<'_>>| nodes.iter().map(entry).collect::<Result<Vec<_>, _>>();
    Ok(PluginSet { enabled: entries(enabled)?, disabled: entries(disabled)? })
}

fn entry(node: &Node<'_>) -> Result<PluginEntry, ConfigError> {
    let mut fields = node.fields()?;
    let name = fields.filled_text("name")?;
    let weight = fields.read("weight", Node::int32)?;
    fields.done()?;
    let name = name.ok_or_else(|| FieldProblem::Required("").at(&node.path.field("name")))?;
    Ok(PluginEntry { path: node.path.clone(), name, weight })
}
