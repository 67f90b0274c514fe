//! The scheduler at work: events in, decisions out, effects carried out.
//!
//! In: the events of all sources, and the ports. Out: bound pods; conditions, nominations and Kubernetes events on the others.
//! The decisions are the pure scheduler's; here is only what keeps them safe and everything bounded.
//!
//! - [`driver`]: the loop that owns the world and the scheduler. `bind`: one binding, read again when it fails.
//! - `lane`: work that waits for its turn. `told`: what was said of a pod already.
//!
//! Invariants: nothing is decided before all of Kubernetes is in sync and, for a bounded time, before every vCenter has been read
//! once; a vCenter that is lost later does not matter; a pod is assumed on its node before it is bound, and counts there until the binding is known to have failed; a write names the
//! pod by its UID.

mod bind;
mod carry_out;
mod driver;
mod lane;
#[cfg(test)]
mod tests;
mod told;

use std::sync::Arc;
use std::time::Duration;

use model::event::VcenterId;
use scheduler::{AttemptResult, Figures};

use crate::ports::{Binder, NoticeBoard, PodDesk};

pub use driver::Driver;

/// What the outside does for the scheduler.
#[derive(Clone)]
pub struct SchedulingPorts {
    pub binder: Arc<dyn Binder>,
    pub pods: Arc<dyn PodDesk>,
    pub notices: Arc<dyn NoticeBoard>,
    pub recorder: Arc<dyn Recorder>,
}

#[derive(Clone, Debug)]
pub struct SchedulingSettings {
    pub lifting: model::LiftSettings,
    /// Those that physical hosts come from; empty: from the labels of nodes alone.
    pub vcenters: Vec<VcenterId>,
    /// How long the first decision waits for all of them to be read once. After that hosts come from the labels of nodes, until
    /// a vCenter says otherwise: a cluster must not stand still because a vCenter does.
    pub vcenter_patience: Duration,
    /// Bindings on their way at once.
    pub binds_in_flight_max: usize,
    /// Kubernetes events on their way at once.
    pub notices_in_flight_max: usize,
    /// Writes to the status of pods on their way at once.
    pub status_in_flight_max: usize,
    /// Decides between nodes that are equally good.
    pub seed: u64,
}

impl Default for SchedulingSettings {
    fn default() -> SchedulingSettings {
        SchedulingSettings {
            lifting: model::LiftSettings::default(),
            vcenters: Vec::new(),
            vcenter_patience: Duration::from_secs(30),
            binds_in_flight_max: 64,
            notices_in_flight_max: 32,
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

/// What was not written, because too much waited to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    Notice,
    Status,
}

/// Takes note, for metrics. Must not block.
pub trait Recorder: Send + Sync {
    fn attempted(&self, attempt: &Attempt<'_>);
    /// The computation of one decision.
    fn decided(&self, took: Duration);
    /// How things stand; told some times a second while anything happens.
    fn figures(&self, figures: &Figures);
    fn notice(&self, posted: bool);
    fn dropped(&self, what: Dropped);
}
