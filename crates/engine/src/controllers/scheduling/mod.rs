//! Runs the scheduler: passes changes to it and executes its effects.
//!
//! In: changes of the world. Out: bound pods; conditions, nominations and Events on the others. The pure scheduler
//! decides; this module keeps the execution safe and everything bounded.
//!
//! - [`controller`]: when pods are scheduled, and what happens to effects. `execute`: executes effects. `evict`: evicts
//!   pods to make room. [`work`]: executors of plugins. [`volumes`]: the executor of VolumeBinding. [`messages`]: messages
//!   to plugins. `status_order`: the order of writes. A binding is that of `crate::binding`: the pod is read
//!   again if it fails.
//!
//! Invariants: nothing is decided before all of Kubernetes is in sync and, for a bounded time, before every vCenter has
//! been in sync once; a vCenter that is lost later does not matter. A pod is assumed on its node before it is bound,
//! and counts there until the binding is known to have failed. A write identifies the pod by its UID.

pub mod controller;
mod evict;
mod execute;
pub mod messages;
mod status_order;
#[cfg(test)]
mod tests;
pub mod volumes;
pub mod work;

use std::sync::Arc;
use std::time::Duration;

use model::event::VcenterId;
use scheduler::{AttemptResult, Figures, Probe};

use crate::ports::{Binder, PodStatusWriter};
use crate::runtime::Rate;

pub use controller::Scheduling;
pub use execute::SchedulingExecutor;
pub use messages::{MessageRefused, Messages, Notifier};
pub use volumes::{VolumeChanges, VolumeExecutor};
pub use work::{Executes, Executors, WorkEnd, WorkError, WorkPoint};

/// The ports of the scheduling controller.
#[derive(Clone)]
pub struct SchedulingPorts {
    pub binder: Arc<dyn Binder>,
    pub pods: Arc<dyn PodStatusWriter>,
}

/// What plugins bring along, besides their decisions.
#[derive(Clone, Default)]
pub struct PluginTools {
    pub executors: Executors,
    pub messages: Messages,
    /// Wakes the executors that wait for volumes.
    pub volume_changes: VolumeChanges,
}

#[derive(Clone, Debug)]
pub struct SchedulingSettings {
    /// The vCenters that know the physical hosts; if empty, hosts come from node labels alone.
    pub vcenters: Vec<VcenterId>,
    /// How long the first decision waits until all of them are in sync or known to be down. After that, hosts come from
    /// node labels until a vCenter is in sync: a vCenter that is down must not stop the cluster.
    pub vcenter_wait_max: Duration,
    pub binds_in_flight_max: usize,
    /// Writes to the status of pods.
    pub status_in_flight_max: usize,
    /// Preemptions whose victims are being evicted.
    pub evictions_in_flight_max: usize,
    /// Work of PreBind plugins, which may take minutes.
    pub work_in_flight_max: usize,
    /// How many bindings, and how many writes to the status of pods, may start per second; `None`: limited by what is in
    /// flight alone.
    pub writes: Option<Rate>,
    /// For the random choice among nodes with equal scores.
    pub seed: u64,
}

impl Default for SchedulingSettings {
    fn default() -> SchedulingSettings {
        SchedulingSettings {
            vcenters: Vec::new(),
            vcenter_wait_max: Duration::from_secs(30),
            binds_in_flight_max: 64,
            status_in_flight_max: 16,
            evictions_in_flight_max: 16,
            work_in_flight_max: 1024,
            writes: None,
            seed: 0,
        }
    }
}

/// A completed attempt to schedule a pod.
#[derive(Clone, Debug)]
pub struct Attempt<'a> {
    pub profile: &'a str,
    pub result: AttemptResult,
    /// How often the pod was tried, including this attempt.
    pub count: u32,
    /// From the decision to the end of the binding.
    pub took: Duration,
    /// Since the pod was first observed.
    pub waited: Duration,
}

/// Receives the scheduler's measurements. Must not block.
pub trait SchedulingMetrics: Send + Sync {
    fn attempted(&self, attempt: &Attempt<'_>);
    /// The duration of the computation of one decision.
    fn decided(&self, took: Duration);
    /// The current state; called some times a second while anything happens.
    fn figures(&self, figures: &Figures);
    /// So many pods give up their places for another one.
    fn preempted(&self, victims: usize);

    /// A pod was placed where it may not work, for this reason.
    fn doubted(&self, reason: &'static str);
    /// A status was not written because too many were waiting.
    fn status_dropped(&self);
    /// Measures plugins in some of the cycles; `None`: in none.
    fn probe(&self) -> Option<Arc<dyn Probe>> {
        None
    }
}
