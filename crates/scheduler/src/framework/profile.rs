//! A profile: the plugins for the pods of one `schedulerName`, and the points at which they run.
//!
//! In: the expanded configuration. Out: the plugins of each point, in order, as indexes into one list. A set of plugins
//! is a 64-bit mask over these indexes.

use std::fmt;

use crate::framework::erased::AnyQueueSort;
use crate::framework::registry::Built;

/// The plugins of each point, in order, as indexes into the profile's list.
#[derive(Debug)]
pub(crate) struct ProfilePoints {
    pub(crate) pre_enqueue: Vec<usize>,
    pub(crate) queue_sort: Vec<usize>,
    pub(crate) pre_filter: Vec<usize>,
    pub(crate) filter: Vec<usize>,
    pub(crate) post_filter: Vec<usize>,
    pub(crate) pre_score: Vec<usize>,
    pub(crate) score: Vec<usize>,
    pub(crate) reserve: Vec<usize>,
    pub(crate) permit: Vec<usize>,
    pub(crate) pre_bind: Vec<usize>,
    pub(crate) bind: Vec<usize>,
    pub(crate) post_bind: Vec<usize>,
}

impl ProfilePoints {
    /// The plugins that take part after a node is chosen; some more than once.
    pub(crate) fn after_the_choice(&self) -> impl Iterator<Item = usize> {
        let points = [&self.reserve, &self.permit, &self.pre_bind, &self.bind, &self.post_bind];
        points.into_iter().flatten().copied()
    }
}

pub struct Profile {
    name: String,
    pub(crate) plugins: Vec<Built>,
    pub(crate) points: ProfilePoints,
    /// By plugin.
    pub(crate) weights: Vec<i64>,
}

impl Profile {
    pub(crate) fn new(name: String, plugins: Vec<Built>, points: ProfilePoints, weights: Vec<i64>) -> Self {
        Self { name, plugins, points, weights }
    }

    /// The `schedulerName` of its pods.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn plugin_name(&self, index: usize) -> &'static str {
        self.plugins[index].plugin.name()
    }

    pub(crate) fn queue_sort_name(&self) -> &'static str {
        self.points.queue_sort.first().map_or("", |&index| self.plugin_name(index))
    }

    pub(crate) fn queue_sort(&self) -> Option<&dyn AnyQueueSort> {
        self.plugins[*self.points.queue_sort.first()?].queue_sort.as_deref()
    }

    /// The plugins whose work executors do: those that extend PreBind or Bind.
    pub fn plugins_with_work(&self) -> impl Iterator<Item = &'static str> {
        self.points.pre_bind.iter().chain(&self.points.bind).map(|&index| self.plugin_name(index))
    }

    /// The names of the plugins at one point, in order; for messages and tests.
    pub fn plugins_at(&self, point: &str) -> Vec<&'static str> {
        let points = &self.points;
        let indexes = match point {
            "preEnqueue" => &points.pre_enqueue,
            "queueSort" => &points.queue_sort,
            "preFilter" => &points.pre_filter,
            "filter" => &points.filter,
            "postFilter" => &points.post_filter,
            "preScore" => &points.pre_score,
            "score" => &points.score,
            "reserve" => &points.reserve,
            "permit" => &points.permit,
            "preBind" => &points.pre_bind,
            "bind" => &points.bind,
            "postBind" => &points.post_bind,
            _ => return Vec::new(),
        };
        indexes.iter().map(|&index| self.plugin_name(index)).collect()
    }

    /// The weight of a plugin's score.
    pub fn weight(&self, plugin: &str) -> Option<i64> {
        let index = (0..self.plugins.len()).find(|&index| self.plugin_name(index) == plugin)?;
        Some(self.weights[index])
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("name", &self.name).field("points", &self.points).finish_non_exhaustive()
    }
}

/// A set of a profile's plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginBits(u64);

impl PluginBits {
    pub(crate) fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    pub(crate) fn contains(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |&index| self.contains(index))
    }
}

impl FromIterator<usize> for PluginBits {
    fn from_iter<T: IntoIterator<Item = usize>>(indexes: T) -> Self {
        let mut bits = Self::default();
        indexes.into_iter().for_each(|index| bits.insert(index));
        bits
    }
}
