//! The scheduling framework and its plugins. Pure: no I/O, no clock, no randomness of its own, no async.
//!
//! - `framework`: the plugin trait, the extension points and the statuses. [`plugins`]: the plugins that Bridger ships.
//! - `config`: `KubeSchedulerConfiguration`, parsed into profiles.
//! - `queue`: the pending pods. `evaluate`: filters and scores all nodes. `scheduler`: takes a pod to its binding.
//! - [`mod@explain`]: why a pod fits, or does not fit, each node.
//!
//! Invariants: a plugin's result depends only on the pod, the world and the plugin's configuration.

mod config;
mod evaluate;
pub mod explain;
mod framework;
pub mod plugins;
mod queue;
mod scheduler;
#[cfg(test)]
mod testing;

pub use config::{
    ClientConnection, ConfigError, Configuration, DEFAULT_SCHEDULER_NAME, ExtenderTls, FieldPath, FieldProblem,
    LeaderElection, ManagedResource, NoEffect, OutgoingExtender, PathStep, PodBackoff,
};
pub use evaluate::one_node::{Misfit, NodeChecks};
pub use explain::preemption::{CandidateExplanation, PreemptionExplanation};
pub use explain::{Explanation, NodeExplanation, VerdictKind, explain};
pub use framework::change::{Change, ChangeKinds, ChangedPod, ChangedVolume};
pub use framework::cycle::Cycle;
pub use framework::handle::{Handle, NodeRefusal, WaitingPod};
pub use framework::plugin::{Plugin, Reads};
pub use framework::points::*;
pub use framework::probe::{ExtensionPoint, Probe, Run};
pub use framework::profile::Profile;
pub use framework::registry::{NoArgs, Points, Register, Registry};
pub use framework::status::{Reasons, Rejection, RejectionId, Rejections, Status};
pub use framework::work::Work;
pub use model::NodeSet;
pub use queue::{Arrivals, Attempts, Pending, QueueCounts};
pub use scheduler::effect::{AttemptResult, ConditionReason, Effect, Input, NominationWrite, PodEvent, PodRef, Victim};
pub use scheduler::observe::{self, Changes};
pub use scheduler::{CacheSizes, Figures, Scheduler, UnschedulableBy};
