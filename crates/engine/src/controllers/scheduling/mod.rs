//! The scheduler at work: changes in, decisions out, effects carried out.
//!
//! In: changes of the world. Out: bound pods; conditions, nominations and Events on the others. The decisions are the pure
//! scheduler's; here is only what keeps them safe and everything bounded.
//!
//! - [`controller`]: when pods are decided, and what becomes of effects. `execute`: effects carried out. `bind`: one binding, read
//!   again when it fails.
//!
//! Invariants: nothing is decided before all of Kubernetes is in sync and, for a bounded time, before every vCenter has been read
//! once; a vCenter that is lost later does not matter; a pod is assumed on its node before it is bound, and counts there until the
//! binding is known to have failed; a write names the pod by its UID.

mod bind;
pub mod controller;
mod execute;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use model::event::VcenterId;
use scheduler::{AttemptResult, Figures};

use crate::ports::{Binder, PodStatusWriter};

pub use controller::Scheduling;
pub use execute::SchedulingExecutor;

/// What the outside does for the scheduler.
#[derive(Clone)]
pub struct SchedulingPorts {
    pub binder: Arc<dyn Binder>,
    pub pods: Arc<dyn PodStatusWriter>,
}

#[derive(Clone, Debug)]
pub struct SchedulingSettings {
    /// Those that physical hosts come from; empty: from the labels of nodes alone.
    pub vcenters: Vec<VcenterId>,
    /// How long the first decision waits for all of them to be read once. After that hosts come from the labels of nodes, until
    /// a vCenter says otherwise: a cluster must not stand still because a vCenter does.
    pub vcenter_patience: Duration,
    /// Bindings on their way at once.
    pub binds_in_flight_max: usize,
    /// Writes to the status of pods on their way at once.
    pub status_in_flight_max: usize,
    /// Decides between nodes that are equally good.
    pub seed: u64,
}

impl Default for SchedulingSettings {
    fn default() -> SchedulingSettings {
        SchedulingSettings {
            vcenters: Vec::new(),
            vcenter_patience: Duration::from_secs(30),
            binds_in_flight_max: 64,
            status_in_flight_max: 16,
            seed: 0,
        }
    }
}

/// An attempt to place a pod that came to its end.
#[derive(Clone, Debug)]
pub struct Attempt<'a> {
    pub profile: &'a str,
    pub result: AttemptResult,
    /// How often the pod was tried, this time included.
    pub count: u32,
    /// From the decision to the end of the binding.
    pub took: Duration,
    /// Since the pod was first seen.
    pub waited: Duration,
}

/// What the scheduler counts. Must not block.
pub trait SchedulingMetrics: Send + Sync {
    fn attempted(&self, attempt: &Attempt<'_>);
    /// The computation of one decision.
    fn decided(&self, took: Duration);
    /// How things stand, some times a second while anything happens.
    fn figures(&self, figures: &Figures);
    /// A status was not written, because too many waited to be.
    fn status_dropped(&self);
}
