//! The scheduling framework: what a plugin is, where it may take part, what it may answer.
//!
//! - `points`: the extension points, a small trait each. `plugin`: what every plugin declares.
//! - `status`: the answers, with their reasons. `cycle`: what a plugin sees of one attempt.
//! - `registry`: which plugins there are. `profile`: which of them serve a pod. `erased`: plugins of any type, side by side.
//! - `change`: kinds of change in the world, as plugins declare which of them may help a waiting pod.

pub(crate) mod change;
pub(crate) mod cycle;
pub(crate) mod erased;
pub(crate) mod plugin;
pub(crate) mod points;
pub(crate) mod profile;
pub(crate) mod registry;
pub(crate) mod status;
