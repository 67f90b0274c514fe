//! Which of several nodes to preempt on: where it does least harm.

use std::cmp::Reverse;

use model::World;

use super::victims::Candidate;

/// Compared field by field, as kube-scheduler does. The least is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    pdb_violations: usize,
    highest_priority: i32,
    /// Shifted so that no priority is negative: fewer victims of one negative priority cost less.
    sum_of_priorities: i64,
    victims: usize,
    /// The earliest start of the victims with the highest priority, in seconds since 1970. Pods that run longest are
    /// spared.
    earliest_start: Reverse<i64>,
}

impl Cost {
    pub(super) fn of(world: &World, candidate: &Candidate) -> Self {
        let victims = candidate.victims.iter().filter_map(|victim| world.pod(*victim));
        let highest_priority = victims.clone().map(model::Pod::priority).max().unwrap_or(i32::MIN);
        let above_least = |priority: i32| i64::from(priority) - i64::from(i32::MIN);
        let most_important = victims.clone().filter(|pod| pod.priority() == highest_priority);
        // A pod that has not started counts as started now.
        let starts = most_important.map(|pod| pod.started_s().unwrap_or(i64::MAX));
        Self {
            pdb_violations: candidate.pdb_violations,
            highest_priority,
            sum_of_priorities: victims.map(|pod| above_least(pod.priority())).sum(),
            victims: candidate.victims.len(),
            earliest_start: Reverse(starts.min().unwrap_or(i64::MAX)),
        }
    }
}
