//! The points of the queue: whether a pod may be tried, and in which order.

use std::cmp::Ordering;
use std::time::Duration;

use crate::framework::cycle::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::Status;

/// The fields that determine the order of waiting pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedPod {
    pub priority: i32,
    /// When it last entered the queue, on the scheduler's clock.
    pub queued_at: Duration,
}

/// The order in which pods are tried. Exactly one plugin extends this point, the same in all profiles.
pub trait QueueSort: Plugin {
    /// `Less`: `a` is tried before `b`. Must be a total order. Equal pods are tried in the order in which they were
    /// added.
    fn order(&self, a: &QueuedPod, b: &QueuedPod) -> Ordering;
}

/// Whether a pod may be tried at all. Called each time before the pod enters the active queue.
pub trait PreEnqueue: Plugin {
    /// Success lets the pod in. A rejection keeps it gated until a change of a kind in [`Plugin::woken_by`].
    fn pre_enqueue(&self, cycle: &Cycle<'_>) -> Status;
}
