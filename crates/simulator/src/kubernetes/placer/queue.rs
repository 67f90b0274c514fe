//! The order of placement: by priority, then by age. A pod that could not be placed waits.
//!
//! After a failed attempt a pod waits for a change that may help it, and at least for its back-off (1 s, doubling to 10
//! s). After five minutes it is retried in any case.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::cache::CacheUpdate;
use super::pod_info::PodInfo;
use crate::clock::SimTime;
use crate::kubernetes::store::ObjectKey;

const BACK_OFF_FIRST: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_secs(10);
const UNSCHEDULABLE_MAX: Duration = Duration::from_secs(300);

#[derive(Debug)]
struct Entry {
    info: Arc<PodInfo>,
    number: u64,
    attempts: u32,
    /// The earliest time of the next attempt after a change.
    back_off_until: SimTime,
    /// The time under which it is in the waiting set; `None` if it is ready.
    waits_until: Option<SimTime>,
    /// It waits for a change, not only for the end of its back-off.
    unschedulable: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    entries: BTreeMap<ObjectKey, Entry>,
    ready: BTreeSet<(Reverse<i64>, u64, ObjectKey)>,
    waiting: BTreeSet<(SimTime, ObjectKey)>,
    next_number: u64,
}

impl Queue {
    /// Adds a new or changed pod. A change of the pod makes another attempt worthwhile.
    pub(crate) fn put(&mut self, info: PodInfo, now: SimTime) {
        let key = info.key.clone();
        let (number, attempts, back_off_until) = match self.take_out(&key) {
            // The condition that the placer itself writes is not a reason to retry.
            Some(known) if same_requirements(&known.info, &info) => {
                let entry = Entry { info: Arc::new(info), ..known };
                return self.insert(key, entry);
            }
            Some(known) => (known.number, known.attempts, known.back_off_until),
            None => {
                self.next_number += 1;
                (self.next_number, 0, now)
            }
        };
        let waits_until = (back_off_until > now).then_some(back_off_until);
        let entry = Entry { info: Arc::new(info), number, attempts, back_off_until, waits_until, unschedulable: false };
        self.insert(key, entry);
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) {
        self.take_out(key);
    }

    /// Wakes the pods that the update may help.
    pub(crate) fn wake(&mut self, update: &CacheUpdate, now: SimTime) {
        if !update.capacity && !update.affinity && !update.claims {
            return;
        }
        let helps = |info: &PodInfo| {
            update.capacity
                || (update.affinity && !info.required_affinity.is_empty())
                || (update.claims && info.has_claims)
        };
        let woken: Vec<ObjectKey> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.unschedulable && helps(&entry.info))
            .map(|(key, _)| key.clone())
            .collect();
        for key in woken {
            if let Some(mut entry) = self.take_out(&key) {
                entry.unschedulable = false;
                entry.waits_until = (entry.back_off_until > now).then_some(entry.back_off_until);
                self.insert(key, entry);
            }
        }
    }

    /// The next pod to place. It stays in the queue until it is removed or [`Queue::failed`].
    pub(crate) fn next(&mut self, now: SimTime) -> Option<Arc<PodInfo>> {
        while let Some((moment, key)) = self.waiting.first().cloned()
            && moment <= now
        {
            let Some(mut entry) = self.take_out(&key) else { break };
            entry.waits_until = None;
            entry.unschedulable = false;
            self.insert(key, entry);
        }
        let (_, _, key) = self.ready.first()?;
        self.entries.get(key).map(|entry| entry.info.clone())
    }

    /// Placement failed; `unschedulable` if only a change can help.
    pub(crate) fn failed(&mut self, key: &ObjectKey, unschedulable: bool, now: SimTime) {
        let Some(mut entry) = self.take_out(key) else { return };
        let back_off = BACK_OFF_FIRST.saturating_mul(1 << entry.attempts.min(10)).min(BACK_OFF_MAX);
        entry.attempts += 1;
        entry.back_off_until = now.after(back_off);
        entry.unschedulable = unschedulable;
        entry.waits_until = Some(if unschedulable { now.after(UNSCHEDULABLE_MAX) } else { entry.back_off_until });
        self.insert(key.clone(), entry);
    }

    /// When the next waiting pod is retried.
    pub(crate) fn next_moment(&self) -> Option<SimTime> {
        self.waiting.first().map(|(moment, _)| *moment)
    }

    fn insert(&mut self, key: ObjectKey, entry: Entry) {
        match entry.waits_until {
            None => self.ready.insert((Reverse(entry.info.priority), entry.number, key.clone())),
            Some(moment) => self.waiting.insert((moment, key.clone())),
        };
        self.entries.insert(key, entry);
    }

    fn take_out(&mut self, key: &ObjectKey) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        match entry.waits_until {
            None => self.ready.remove(&(Reverse(entry.info.priority), entry.number, key.clone())),
            Some(moment) => self.waiting.remove(&(moment, key.clone())),
        };
        Some(entry)
    }
}

fn same_requirements(known: &PodInfo, new: &PodInfo) -> bool {
    known.object["metadata"]["uid"] == new.object["metadata"]["uid"]
        && known.object["spec"] == new.object["spec"]
        && known.object["metadata"]["labels"] == new.object["metadata"]["labels"]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: SimTime = SimTime::VIRTUAL_START;

    fn info(name: &str, priority: i64) -> PodInfo {
        PodInfo::of(&Arc::new(json!({ "metadata": { "name": name, "namespace": "default", "uid": name },
            "spec": { "priority": priority } })))
    }

    fn at(seconds: u64) -> SimTime {
        NOW.after(Duration::from_secs(seconds))
    }

    fn next(queue: &mut Queue, now: SimTime) -> Option<String> {
        queue.next(now).map(|info| info.key.name.clone())
    }

    #[test]
    fn priority_then_age_then_back_off() {
        let mut queue = Queue::default();
        for (name, priority) in [("old", 0), ("young", 0), ("urgent", 10)] {
            queue.put(info(name, priority), NOW);
        }
        assert_eq!(next(&mut queue, NOW).as_deref(), Some("urgent"));
        queue.failed(&ObjectKey::new("default", "urgent"), true, NOW);
        assert_eq!(next(&mut queue, NOW).as_deref(), Some("old"));
        queue.remove(&ObjectKey::new("default", "old"));
        queue.remove(&ObjectKey::new("default", "young"));
        assert_eq!(next(&mut queue, at(20)), None, "nothing has changed");
        queue.put(info("urgent", 10), at(20));
        assert_eq!(next(&mut queue, at(20)), None, "only its status has changed");
        let update = CacheUpdate { capacity: true, ..CacheUpdate::default() };
        queue.wake(&update, at(20));
        assert_eq!(next(&mut queue, at(20)).as_deref(), Some("urgent"));
        queue.failed(&ObjectKey::new("default", "urgent"), true, at(20));
        queue.wake(&update, at(20));
        assert_eq!(queue.next_moment(), Some(at(22)), "the second back-off is two seconds");
        assert_eq!(next(&mut queue, at(21)), None);
        assert_eq!(next(&mut queue, at(22)).as_deref(), Some("urgent"));
        queue.failed(&ObjectKey::new("default", "urgent"), true, at(22));
        assert_eq!(next(&mut queue, at(322)).as_deref(), Some("urgent"), "retried in any case");
    }
}
