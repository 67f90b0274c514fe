//! Before a pod is tried: whether it may be, and in which order.

use std::cmp::Ordering;
use std::time::Duration;

use crate::framework::cycle::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::Status;

/// What decides the order of waiting pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedPod {
    pub priority: i32,
    /// When it last entered the queue, on the scheduler's clock.
    pub queued_at: Duration,
}

/// The order in which pods are tried. One plugin alone extends this point, the same in all profiles.
pub trait QueueSort: Plugin {
    /// `Less`: `a` is tried before `b`. A total order of what it looks at; equals are tried in the order they came.
    fn order(&self, a: &QueuedPod, b: &QueuedPod) -> Ordering;
}

/// Whether a pod may be tried at all. Called before it enters the active queue, each time.
pub trait PreEnqueue: Plugin {
    /// Success lets it in; a rejection keeps it gated until a change this plugin is woken by.
    fn pre_enqueue(&self, cycle: &Cycle<'_>) -> Status;
}
