//! The points of the queue: whether a pod may be tried, and in which order.

use std::time::Duration;

use crate::framework::cycle::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::Status;

/// What the queue knows of a pod. Times are on the scheduler's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedPod {
    /// When it was first added to the queue.
    pub added_at: Duration,
    /// When it was added, or last failed.
    pub queued_at: Duration,
    /// How often it was tried.
    pub attempts: u32,
}

/// The order in which pods are tried. Exactly one plugin extends this point, the same in all profiles.
pub trait QueueSort: Plugin {
    /// Pods with lesser keys are tried first. Pods with equal keys are tried in the order in which they were added.
    type Key: Ord + Send + Sync + 'static;

    /// Called each time the pod enters the active queue, and when it changes there.
    fn key(&self, cycle: &Cycle<'_>, queued: &QueuedPod) -> Self::Key;
}

/// Whether a pod may be tried at all. Called each time before the pod enters the active queue.
pub trait PreEnqueue: Plugin {
    /// Success lets the pod in. A rejection keeps it gated until a change of a kind in [`Plugin::woken_by`].
    fn pre_enqueue(&self, cycle: &Cycle<'_>) -> Status;
}
