//! The scheduling framework: plugins, extension points and statuses.
//!
//! - `points`: the extension points, a small trait each. `plugin`: what every plugin declares.
//! - `status`: the results of plugins, with their reasons. `cycle`: the input of a plugin in one attempt.
//! - `handle`: what a plugin can see and ask for. `work`: what its executor does, as data. `sort_key`: its order of pods.
//! - `probe`: measures plugins.
//! - `registry`: the available plugins. `profile`: the plugins that run for a pod. `erased`: type erasure for plugins.
//! - `change`: kinds of change in the world. Plugins declare which of them may help a waiting pod.

pub(crate) mod change;
pub(crate) mod cycle;
pub(crate) mod erased;
pub(crate) mod handle;
pub(crate) mod plugin;
pub(crate) mod points;
pub(crate) mod probe;
pub(crate) mod profile;
pub(crate) mod registry;
pub(crate) mod sort_key;
pub(crate) mod status;
pub(crate) mod work;
