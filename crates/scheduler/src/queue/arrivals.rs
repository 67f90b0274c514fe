//! Counts of pods entering the queues, for metrics, with kube-scheduler's names.
//!
//! In: each arrival and the event that caused it. Out: counts by queue and event. The size is fixed, because arrivals
//! are as frequent as pods.

use crate::framework::change::ChangeKinds;

/// The event that moved a pod into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cause(usize);

/// Event names by cause. The first entries are kinds of change, by bit number. Upstream's names where it has one.
const EVENTS: [&str; 21] = [
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
    "ForceActivate",
];

impl Cause {
    pub(crate) const UPDATED: Self = Self(12);
    pub(crate) const ADDED: Self = Self(15);
    pub(crate) const ATTEMPT_FAILED: Self = Self(16);
    pub(crate) const BACKOFF_OVER: Self = Self(17);
    pub(crate) const WAITED_LONG: Self = Self(18);
    pub(crate) const RELISTED: Self = Self(19);
    pub(crate) const FORCED: Self = Self(20);

    /// A change of several kinds counts as the first kind.
    pub(crate) fn of(kinds: ChangeKinds) -> Self {
        kinds.first_bit().filter(|bit| *bit < Self::ADDED.0).map_or(Self::RELISTED, Self)
    }
}

/// The queues for which upstream counts arrivals. Gated pods count as unschedulable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueName {
    Active,
    PodBackoff,
    Unschedulable,
}

const QUEUES: [&str; 3] = ["active", "backoff", "unschedulable"];

/// The number of pods that entered each queue, by event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals([[u64; QUEUES.len()]; EVENTS.len()]);

impl Arrivals {
    pub(crate) fn note(&mut self, queue: QueueName, cause: Cause) {
        self.0[cause.0][queue as usize] += 1;
    }

    /// Queue, event and number of pods, without zeros.
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
            arrivals.note(QueueName::PodBackoff, Cause::of(kinds));
            assert_eq!(arrivals.iter().collect::<Vec<_>>(), [("backoff", event, 1)]);
        }
        assert_eq!(Cause::of(ChangeKinds::SELF_UPDATED), Cause::UPDATED);
    }
}
