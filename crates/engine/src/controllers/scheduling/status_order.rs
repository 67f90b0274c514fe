//! The order of writes to the status of one pod.
//!
//! In: writes, as they are decided. Out: the write to send now. Of each pod one write is under way, because requests that
//! are sent together may arrive in any order: a nomination that is set and cleared at once could stay.
//! Bounded: of the writes of a pod that wait, the last one of each kind is kept.

use std::collections::BTreeMap;

use scheduler::NominationWrite;

use super::execute::StatusJob;

#[derive(Debug, Default)]
pub(super) struct StatusOrder {
    /// By UID: the pods of which a write is under way, with the writes that wait for it.
    pods: BTreeMap<String, Vec<StatusJob>>,
}

impl StatusOrder {
    /// The write, if it can be sent now. Otherwise it waits.
    pub(super) fn admit(&mut self, mut job: StatusJob) -> Option<StatusJob> {
        let Some(waiting) = self.pods.get_mut(&job.pod().uid) else {
            self.pods.insert(job.pod().uid.clone(), Vec::new());
            return Some(job);
        };
        keep_nomination(&mut job, waiting);
        let kind = std::mem::discriminant(&job);
        waiting.retain(|other| std::mem::discriminant(other) != kind);
        waiting.push(job);
        None
    }

    /// Whether a write to the status of this pod is under way.
    pub(super) fn is_under_way(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// The write under way has ended. Returns the next one to send.
    pub(super) fn ended(&mut self, uid: &str) -> Option<StatusJob> {
        let waiting = self.pods.get_mut(uid)?;
        if waiting.is_empty() {
            self.pods.remove(uid);
            return None;
        }
        Some(waiting.remove(0))
    }
}

/// A condition that replaces one that waits also writes its nomination, unless a later write is about that.
fn keep_nomination(job: &mut StatusJob, waiting: &[StatusJob]) {
    let is_nomination = |other: &StatusJob| matches!(other, StatusJob::Nominate { .. });
    if let StatusJob::NotScheduled { nomination: nomination @ NominationWrite::Nothing, .. } = job
        && !waiting.iter().any(is_nomination)
        && let Some(before) = waiting.iter().find_map(|other| match other {
            StatusJob::NotScheduled { nomination, .. } => Some(nomination),
            StatusJob::Nominate { .. } => None,
        })
    {
        nomination.clone_from(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::PodName;

    fn nominate(uid: &str, node: Option<&str>) -> StatusJob {
        let pod = PodName { namespace: "ns".to_owned(), name: uid.to_owned(), uid: uid.to_owned() };
        StatusJob::Nominate { pod, node: node.map(str::to_owned) }
    }

    fn not_scheduled(uid: &str) -> StatusJob {
        let StatusJob::Nominate { pod, .. } = nominate(uid, None) else { unreachable!() };
        StatusJob::NotScheduled {
            pod,
            reason: "Unschedulable",
            message: String::new(),
            nomination: scheduler::NominationWrite::Nothing,
        }
    }

    #[test]
    fn of_each_pod_one_write_is_under_way_and_the_last_of_each_kind_waits() {
        let mut order = StatusOrder::default();
        assert!(order.admit(nominate("a", Some("n1"))).is_some());
        assert!(order.admit(nominate("b", Some("n1"))).is_some(), "another pod");
        assert!(order.admit(nominate("a", None)).is_none());
        assert!(order.admit(not_scheduled("a")).is_none());
        assert!(order.admit(nominate("a", Some("n2"))).is_none());
        assert!(matches!(order.ended("a"), Some(StatusJob::NotScheduled { .. })));
        assert!(matches!(order.ended("a"), Some(StatusJob::Nominate { node: Some(node), .. }) if node == "n2"));
        assert!(order.is_under_way("a"));
        assert!(order.ended("a").is_none());
        assert!(!order.is_under_way("a") && order.is_under_way("b"));
        assert!(order.admit(nominate("a", None)).is_some(), "nothing is under way");
        assert!(order.ended("b").is_none());
        assert!(order.ended("c").is_none());
    }

    #[test]
    fn a_condition_that_is_replaced_leaves_its_nomination_to_the_next() {
        let condition = |nomination: NominationWrite| match not_scheduled("a") {
            StatusJob::NotScheduled { pod, reason, message, .. } => {
                StatusJob::NotScheduled { pod, reason, message, nomination }
            }
            StatusJob::Nominate { .. } => unreachable!(),
        };
        let set = || NominationWrite::Set("n1".to_owned());
        let last = |writes: Vec<StatusJob>| {
            let mut order = StatusOrder::default();
            assert!(order.admit(nominate("a", None)).is_some());
            writes.into_iter().for_each(|write| assert!(order.admit(write).is_none()));
            std::iter::from_fn(|| order.ended("a")).last()
        };
        let sets = |job: &StatusJob| matches!(job, StatusJob::NotScheduled { nomination, .. } if *nomination == set());
        assert!(last(vec![condition(set()), condition(NominationWrite::Nothing)]).is_some_and(|job| sets(&job)));
        let cleared = last(vec![condition(set()), nominate("a", None), condition(NominationWrite::Nothing)]);
        assert!(cleared.is_some_and(|job| !sets(&job)));
    }
}
