//! PrioritySort: pods of higher priority first; with equal priority, the pod that was queued, or last failed, earlier.

use std::cmp::Ordering;

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
    fn order(&self, a: &QueuedPod, b: &QueuedPod) -> Ordering {
        b.priority.cmp(&a.priority).then(a.queued_at.cmp(&b.queued_at))
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
