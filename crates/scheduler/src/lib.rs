//! The scheduling framework and the plugins on it. Pure: no I/O, no clock, no randomness of its own, no async.
//!
//! - `framework`: what a plugin is, where it may take part, what it may answer. [`plugins`]: those that Bridger brings.
//! - `config`: `KubeSchedulerConfiguration`, read into profiles.
//! - `queue`: the pods that wait. `evaluate`: filters and scores of all nodes. `scheduler`: from a pod to its binding.
//! - [`explain`]: why a pod goes where it goes.
//!
//! Invariants: what a plugin answers depends on nothing but the pod, the world and its own configuration.

mod config;
mod evaluate;
pub mod explain;
mod framework;
pub mod plugins;
mod queue;
mod scheduler;
#[cfg(test)]
mod testing;

pub use config::{Backoff, ConfigError, Configuration, DEFAULT_SCHEDULER_NAME};
pub use explain::{Explanation, NodeExplanation, VerdictKind, explain};
pub use framework::change::{Change, ChangeKinds, ChangedPod};
pub use framework::cycle::Cycle;
pub use framework::plugin::{Plugin, Reads};
pub use framework::points::*;
pub use framework::profile::Profile;
pub use framework::registry::{NoArgs, Points, Register, Registry};
pub use framework::status::{Reasons, Rejection, RejectionId, Rejections, Status};
pub use model::NodeSet;
pub use queue::{Arrivals, Attempts, Pending, QueueCounts};
pub use scheduler::effect::{AttemptResult, ConditionReason, Effect, Input, PodEvent, PodRef};
pub use scheduler::observe::{self, Changes};
pub use scheduler::{CacheSizes, Figures, Scheduler, UnschedulableBy};
