//! How pods came into the queues: counted for metrics, under kube-scheduler's names.
//!
//! In: each arrival, and what brought it about. Out: counts by queue and event. Fixed in size: arrivals are as frequent as pods.

use crate::framework::change::ChangeKinds;

/// What brought a pod into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cause(usize);

/// By the number of the cause. The first ones are kinds of change, by their bit; upstream's words where it has any.
const EVENTS: [&str; 20] = [
    "NodeAdd",
    "NodeDelete",
    "NodeUpdateNodeAllocatable",
    "NodeUpdateNodeLabel",
    "NodeUpdateNodeTaint",
    "NodeUpdateNodeImages",
    "NodeUpdateNodeDeclaredFeature",
    "NodeUpdateNodePlacement",
    "AssignedPodAdd",
    "AssignedPodDelete",
    "AssignedPodUpdatePodLabel",
    "AssignedPodUpdatePodScaleDown",
    "TargetPodUpdate",
    "NamespaceUpdate",
    "WorkloadUpdate",
    "UnscheduledPodAdd",
    "ScheduleAttemptFailure",
    "BackoffComplete",
    "UnschedulableTimeout",
    "Relist",
];

impl Cause {
    pub(crate) const UPDATED: Self = Self(12);
    pub(crate) const ADDED: Self = Self(15);
    pub(crate) const ATTEMPT_FAILED: Self = Self(16);
    pub(crate) const BACKOFF_OVER: Self = Self(17);
    pub(crate) const WAITED_LONG: Self = Self(18);
    pub(crate) const RELISTED: Self = Self(19);

    /// A change of several kinds goes by the first.
    pub(crate) fn of(kinds: ChangeKinds) -> Self {
        kinds.first_bit().filter(|bit| *bit < Self::ADDED.0).map_or(Self::RELISTED, Self)
    }
}

/// The queues, as upstream counts arrivals: pods that a gate keeps out are with the unschedulable ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueName {
    Active,
    Backoff,
    Unschedulable,
}

const QUEUES: [&str; 3] = ["active", "backoff", "unschedulable"];

/// How many pods came into each queue, by event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals([[u64; QUEUES.len()]; EVENTS.len()]);

impl Arrivals {
    pub(crate) fn note(&mut self, queue: QueueName, cause: Cause) {
        self.0[cause.0][queue as usize] += 1;
    }

    /// Queue, event and how many pods came, where any did.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let rows = self.0.iter().zip(EVENTS);
        let cells =
            rows.flat_map(|(row, event)| row.iter().zip(QUEUES).map(move |(&count, queue)| (queue, event, count)));
        cells.filter(|(_, _, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_change_has_its_own_event() {
        let cases = [
            (ChangeKinds::NODE_ADDED, "NodeAdd"),
            (ChangeKinds::NODE_REMOVED, "NodeDelete"),
            (ChangeKinds::NODE_TAINTS, "NodeUpdateNodeTaint"),
            (ChangeKinds::POD_PLACED, "AssignedPodAdd"),
            (ChangeKinds::POD_LEFT, "AssignedPodDelete"),
            (ChangeKinds::POD_LABELS | ChangeKinds::POD_SCALED_DOWN, "AssignedPodUpdatePodLabel"),
            (ChangeKinds::SELF_UPDATED, "TargetPodUpdate"),
            (ChangeKinds::NAMESPACE_LABELS, "NamespaceUpdate"),
            (ChangeKinds::WORKLOAD, "WorkloadUpdate"),
            (ChangeKinds::NONE, "Relist"),
        ];
        for (kinds, event) in cases {
            let mut arrivals = Arrivals::default();
            arrivals.note(QueueName::Backoff, Cause::of(kinds));
            assert_eq!(arrivals.iter().collect::<Vec<_>>(), [("backoff", event, 1)]);
        }
        assert_eq!(Cause::of(ChangeKinds::SELF_UPDATED), Cause::UPDATED);
    }
}
