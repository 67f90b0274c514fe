//! Kubernetes events on pods whose policy cannot be met.
//!
//! In: what each plan found. Out: notices to post, each with the arithmetic. One for each pod and finding; none while
//! the finding is as it was told; a changed one is told again, at most once an hour.
//!
//! Invariants: at most [`PODS_TOLD_MAX`] pods are told of one finding, and at most [`ENTRIES_MAX`] things are remembered.

use std::collections::BTreeMap;
use std::time::Duration;

use drs::{Finding, PodRef};
use tokio::time::Instant;

use super::planner::{finding_message, finding_pods, finding_reason};
use crate::ports::{Notice, NoticeSubject, Severity};

pub const PODS_TOLD_MAX: usize = 50;
pub const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(3600);
pub const ENTRIES_MAX: usize = 10_000;

#[derive(Debug)]
struct Entry {
    message: String,
    told_at: Option<Instant>,
    /// What was told; differs from the message while that waits.
    told: Option<String>,
    seen_at: Instant,
}

impl Entry {
    fn due(&self) -> Option<Instant> {
        if self.told.as_ref() == Some(&self.message) {
            return None;
        }
        Some(self.told_at.map_or(self.seen_at, |told_at| told_at + TOLD_AGAIN_AFTER))
    }
}

#[derive(Debug, Default)]
pub struct PodNotices {
    entries: BTreeMap<(PodRef, &'static str), Entry>,
    /// No entry is due before then.
    next_due: Option<Instant>,
}

impl PodNotices {
    /// Takes note of all that a plan found.
    pub fn observe(&mut self, findings: &[Finding], now: Instant) {
        for finding in findings {
            let Some(reason) = finding_reason(finding) else { continue };
            for pod in finding_pods(finding).into_iter().take(PODS_TOLD_MAX) {
                let key = (pod.clone(), reason);
                if self.entries.len() >= ENTRIES_MAX && !self.entries.contains_key(&key) {
                    continue;
                }
                let fresh = || Entry { message: String::new(), told_at: None, told: None, seen_at: now };
                let entry = self.entries.entry(key).or_insert_with(fresh);
                if entry.seen_at < now || entry.message.is_empty() {
                    // The first of several findings of a kind speaks for the pod.
                    entry.message = finding_message(finding);
                }
                entry.seen_at = now;
            }
        }
        // What is no longer found is not told, and forgotten once it could be told again anyway.
        self.entries.retain(|_, entry| {
            let is_found = entry.seen_at == now;
            is_found || entry.told_at.is_some_and(|told_at| now < told_at + TOLD_AGAIN_AFTER)
        });
        for entry in self.entries.values_mut().filter(|entry| entry.seen_at != now) {
            if let Some(told) = &entry.told {
                entry.message.clone_from(told);
            }
        }
        self.next_due = self.entries.values().filter_map(Entry::due).min();
    }

    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.next_due
    }

    /// At most `room` notices that are due.
    pub fn take_due(&mut self, room: usize, now: Instant) -> Vec<Notice> {
        if room == 0 || self.next_due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let due = self.entries.iter_mut().filter(|(_, entry)| entry.due().is_some_and(|due| due <= now)).take(room);
        let notices = due.map(|((pod, reason), entry)| {
            entry.told_at = Some(now);
            entry.told = Some(entry.message.clone());
            let (namespace, name) = (pod.namespace.to_string(), pod.name.to_string());
            let about = NoticeSubject::Pod { namespace, name, uid: pod.uid.to_string() };
            Notice { about, severity: Severity::Warning, reason, message: entry.message.clone() }
        });
        let notices = notices.collect();
        self.next_due = self.entries.values().filter_map(Entry::due).min();
        notices
    }
}

#[cfg(test)]
mod tests {
    use drs::PodRef;
    use model::event::VcenterId;

    use super::*;

    fn pod(number: usize) -> PodRef {
        PodRef { namespace: "shop".into(), name: format!("web-{number}").into(), uid: "u".into() }
    }

    fn unsatisfiable(vms: usize, pods: usize) -> Finding {
        let cluster = (VcenterId(0), "domain-c8".to_owned());
        let pods = (0..pods).map(pod).collect();
        Finding::Unsatisfiable { cluster, vms, hosts: 5, reserve: 1, pairs_left: 3, pods }
    }

    #[tokio::test(start_paused = true)]
    async fn a_finding_is_told_once_per_pod_and_again_when_it_changed_but_not_within_the_hour() {
        let mut notices = PodNotices::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        notices.observe(&[unsatisfiable(6, 80)], at(0));
        let told = notices.take_due(64, at(0));
        assert_eq!(told.len(), PODS_TOLD_MAX);
        assert_eq!(told[0].reason, "Unsatisfiable");
        assert!(told[0].message.contains("6 ") && told[0].message.contains("reserve 1"), "{}", told[0].message);
        for seconds in [1, 5000] {
            notices.observe(&[unsatisfiable(6, 80)], at(seconds));
            assert_eq!((notices.take_due(64, at(seconds)).len(), notices.next_due()), (0, None));
        }
        // Gone and back unchanged: nothing new. Changed: told, as the hour is long over.
        notices.observe(&[], at(5001));
        notices.observe(&[unsatisfiable(7, 2)], at(5002));
        assert_eq!(notices.take_due(1, at(5002)).len(), 1);
        assert_eq!(notices.take_due(64, at(5003)).len(), 1, "what had no room goes next");
        notices.observe(&[unsatisfiable(8, 2)], at(5100));
        assert!(notices.take_due(64, at(5100)).is_empty());
        assert_eq!(notices.next_due(), Some(at(5002 + 3600)));
        assert_eq!(notices.take_due(64, at(5003 + 3600)).len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_passed_before_it_could_be_told_again_is_not_told() {
        let mut notices = PodNotices::default();
        let start = Instant::now();
        notices.observe(&[unsatisfiable(6, 1)], start);
        assert_eq!(notices.take_due(64, start).len(), 1);
        let later = start + Duration::from_secs(60);
        notices.observe(&[unsatisfiable(7, 1)], later);
        notices.observe(&[], later + Duration::from_secs(1));
        assert_eq!(notices.next_due(), None);
    }
}
