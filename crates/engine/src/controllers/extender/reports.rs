//! Events on pods that kube-scheduler asks about.
//!
//! A request may name any pod of any namespace, so an event is recorded only for a pod that the watch shows. In: events,
//! and the world. Out: the events on known pods, at once; those on others as soon as the watch shows the pod, because
//! kube-scheduler's watch is often some milliseconds ahead.
//!
//! Invariant: at most [`WAITING_MAX`] events wait, each for [`SHOWN_WITHIN`], and each has a bounded size; one that
//! finds no place, or names what cannot be a pod, is counted as dropped.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use model::World;
use model::event::PodFacts;
use tokio::time::Instant;

use super::{NAME, NO_HOST_FITS, REPEAT, is_pod_name, judge, lock};
use crate::ports::{Occurrence, Regarding, Severity};
use crate::runtime::EventRecorder;

const WAITING_MAX: usize = 256;
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Report {
    pod: PodFacts,
    message: String,
    until: Instant,
}

#[derive(Debug)]
pub(super) struct Reports {
    events: EventRecorder,
    waiting: Mutex<VecDeque<Report>>,
}

impl Reports {
    pub(super) fn new(events: EventRecorder) -> Reports {
        Reports { events, waiting: Mutex::default() }
    }

    /// Whether a report on this pod may be recorded now.
    pub(super) fn is_open(&self, pod: &PodFacts, now: Instant) -> bool {
        self.events.is_open(&pod.uid, NO_HOST_FITS, REPEAT, now)
    }

    /// `is_known`: the watch shows the pod.
    pub(super) fn report(&self, pod: &PodFacts, is_known: bool, message: String, now: Instant) {
        if !is_pod_name(&pod.namespace, &pod.name, &pod.uid) {
            return self.events.count_dropped(NAME);
        }
        let (namespace, name, uid) = (pod.namespace.clone(), pod.name.clone(), pod.uid.clone());
        let report = Report {
            pod: PodFacts { namespace, name, uid, ..PodFacts::default() },
            message,
            until: now + SHOWN_WITHIN,
        };
        if is_known {
            return self.record(report, now);
        }
        let mut waiting = lock(&self.waiting);
        while waiting.front().is_some_and(|report| report.until < now) {
            waiting.pop_front();
        }
        if waiting.len() >= WAITING_MAX {
            return self.events.count_dropped(NAME);
        }
        waiting.push_back(report);
    }

    /// Records the reports on pods that the watch shows by now. Called in each turn of the loop.
    pub(super) fn shown(&self, world: &World, now: Instant) {
        let mut waiting = lock(&self.waiting);
        for _ in 0..waiting.len() {
            let Some(report) = waiting.pop_front() else { break };
            if judge::known(world, &report.pod).is_some() {
                self.record(report, now);
            } else if report.until >= now {
                waiting.push_back(report);
            }
        }
    }

    pub(super) fn has_waiting(&self) -> bool {
        !lock(&self.waiting).is_empty()
    }

    fn record(&self, Report { pod, message, .. }: Report, now: Instant) {
        let regarding = Regarding::Pod { namespace: pod.namespace, name: pod.name, uid: pod.uid };
        let severity = Severity::Warning;
        let occurrence = Occurrence { regarding, severity, reason: NO_HOST_FITS, message, reporter: None };
        self.events.record(NAME, occurrence, REPEAT, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(namespace: usize, name: usize, uid: usize) -> PodFacts {
        let text = |length: usize| "x".repeat(length);
        PodFacts { namespace: text(namespace), name: text(name), uid: text(uid), ..PodFacts::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_on_what_cannot_be_a_pod_is_dropped_and_counted() {
        let (events, now) = (EventRecorder::default(), Instant::now());
        let reports = Reports::new(events.clone());
        for impossible in [pod(64, 1, 1), pod(1, 254, 1), pod(1, 1, 129)] {
            for is_known in [false, true] {
                reports.report(&impossible, is_known, "no node fits".to_owned(), now);
            }
        }
        assert!(!reports.has_waiting());
        assert_eq!((events.counts(NAME).dropped, events.take(9).len()), (6, 0));
        reports.report(&pod(63, 253, 128), false, "no node fits".to_owned(), now);
        assert!(reports.has_waiting());
        assert_eq!(events.counts(NAME).dropped, 6);
    }
}
