//! PrioritySort: pods of higher priority first; with equal priority, the pod that was queued, or last failed, earlier.

use std::cmp::Reverse;
use std::time::Duration;

use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{QueueSort, QueuedPod};
use crate::framework::registry::{NoArgs, Points, Register};

pub struct PrioritySort;

impl Plugin for PrioritySort {
    const NAME: &'static str = "PrioritySort";
    type State = ();

    fn reads(&self) -> Reads {
        Reads::Node
    }
}

impl QueueSort for PrioritySort {
    type Key = (Reverse<i32>, Duration);

    fn key(&self, cycle: &Cycle<'_>, queued: &QueuedPod) -> Self::Key {
        (Reverse(cycle.facts().priority), queued.queued_at)
    }
}

impl Register for PrioritySort {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.queue_sort()
    }
}
