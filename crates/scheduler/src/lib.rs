//! The scheduling framework and the plugins on it. Pure: no I/O, no clock, no randomness of its own, no async.
//!
//! - `points`: the extension points, a small trait each. `plugin`: what every plugin says of itself.
//! - `status`: the answers, with their reasons. `cycle`: what a plugin sees of one attempt.
//! - `registry`: which plugins there are.
//! - `change`: what happened in the world, as plugins are asked whether it helps a waiting pod.
//!
//! Invariants: what a plugin answers depends on nothing but the pod, the world and its own configuration.

mod change;
mod classes;
mod config;
mod cycle;
mod effect;
mod erased;
mod evaluate;
pub mod explain;
mod journal;
mod message;
pub mod observe;
mod plugin;
pub mod plugins;
mod points;
mod profile;
mod queue;
mod registry;
mod scheduler;
mod status;
#[cfg(test)]
mod testing;

pub use change::{Change, ChangeKinds, ChangedPod};
pub use config::{Backoff, ConfigError, Configuration, DEFAULT_SCHEDULER_NAME};
pub use cycle::Cycle;
pub use effect::{AttemptResult, ConditionReason, Effect, Input, PodEvent, PodRef};
pub use explain::{Explanation, NodeExplanation, VerdictKind, explain};
pub use model::NodeSet;
pub use observe::Changes;
pub use plugin::{Plugin, Reads};
pub use points::*;
pub use profile::Profile;
pub use queue::{Attempts, Incoming, Pending, QueueCounts};
pub use registry::{NoArgs, Points, Register, Registry};
pub use scheduler::{CacheSizes, Figures, Scheduler, UnschedulableBy};
pub use status::{Reasons, Rejection, RejectionId, Rejections, Status};
