//! Events, as `kubectl describe` shows them below an object.
//!
//! A repeated event about the same object increments its count. Events are bounded in number and in age, including
//! those that clients create: this module sees every new Event and drops the oldest.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};

use super::Step;
use crate::clock::SimTime;
use crate::kubernetes::json::{moment, put, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::store::{Change, ChangeType, ObjectKey, Store};
use crate::timeline::Timeline;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

/// An Event to be recorded.
#[derive(Clone, Copy, Debug)]
pub struct EventRecord<'a> {
    /// The complete object.
    pub about: &'a Value,
    pub event_type: EventType,
    /// The reporting component: `kubelet`, `default-scheduler`, `deployment-controller`.
    pub component: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
}

/// Two events with the same identity are counted as one.
type Identity = (String, String, String);

#[derive(Debug)]
pub(crate) struct Events {
    max: usize,
    lifetime: Duration,
    /// Recorded events by identity, and the reverse.
    known: BTreeMap<Identity, ObjectKey>,
    identities: BTreeMap<ObjectKey, Identity>,
    /// Oldest first, with the time at which each was created or last checked.
    by_age: VecDeque<(SimTime, ObjectKey)>,
    /// When the next check of the oldest event is due.
    expiry_at: Option<SimTime>,
    recorded: u64,
}

impl Events {
    pub(crate) fn new(max: usize, lifetime: Duration) -> Events {
        Events {
            max,
            lifetime,
            known: BTreeMap::new(),
            identities: BTreeMap::new(),
            by_age: VecDeque::new(),
            expiry_at: None,
            recorded: 0,
        }
    }

    pub(crate) fn record(&mut self, store: &mut Store, event: &EventRecord<'_>, now: SimTime) {
        let identity = (pod::uid(event.about).to_owned(), event.reason.to_owned(), event.message.to_owned());
        if let Some(key) = self.known.get(&identity) {
            let counted = store.edit(KindId::EVENT, &key.namespace, &key.name, |known| {
                let count = known["count"].as_u64().unwrap_or(1).saturating_add(1);
                put(known, &["count"], json!(count));
                put(known, &["lastTimestamp"], json!(now.rfc3339_seconds()));
            });
            if counted.is_ok() {
                return;
            }
        }
        let about = ObjectKey::of(event.about);
        let namespace = if about.namespace.is_empty() { "default" } else { &about.namespace };
        self.recorded += 1;
        let name = format!("{}.{:x}{:06x}", about.name, now.unix_ms, self.recorded);
        let mut involved = json!({ "kind": event.about["kind"], "apiVersion": event.about["apiVersion"],
            "name": about.name, "uid": pod::uid(event.about),
            "resourceVersion": event.about["metadata"]["resourceVersion"] });
        if !about.namespace.is_empty() {
            put(&mut involved, &["namespace"], json!(about.namespace));
        }
        let mut source = json!({ "component": event.component });
        if event.component == "kubelet" {
            let host = if event.about["kind"] == "Node" { &about.name } else { pod::node_name(event.about) };
            put(&mut source, &["host"], json!(host));
        }
        let moment = now.rfc3339_seconds();
        let object = json!({
            "metadata": { "name": name, "namespace": namespace },
            "involvedObject": involved, "reason": event.reason, "message": event.message, "source": source,
            "firstTimestamp": moment, "lastTimestamp": moment, "count": 1, "eventTime": null,
            "type": match event.event_type { EventType::Normal => "Normal", EventType::Warning => "Warning" },
            "reportingComponent": event.component, "reportingInstance": source["host"].as_str().unwrap_or_default(),
        });
        let key = ObjectKey::new(namespace, &name);
        // Only a client's event can already have this name. Then the client's event stays and this one is dropped.
        if store.create(KindId::EVENT, object, now).is_ok() {
            self.identities.insert(key.clone(), identity.clone());
            self.known.insert(identity, key);
            self.make_room(store);
        }
    }

    fn make_room(&mut self, store: &mut Store) {
        // The new event is not in the queue yet: it is added when it is observed.
        while self.by_age.len() >= self.max {
            let Some((_, key)) = self.by_age.pop_front() else { return };
            let _ = store.remove(KindId::EVENT, &key.namespace, &key.name);
        }
    }

    pub(crate) fn observe(&mut self, change: &Change, now: SimTime) {
        let key = ObjectKey::of(&change.object);
        match change.change_type {
            ChangeType::Added => self.by_age.push_back((last_happened(&change.object, now), key)),
            ChangeType::Modified => (),
            ChangeType::Deleted => {
                if let Some(identity) = self.identities.remove(&key) {
                    self.known.remove(&identity);
                }
            }
        }
    }

    pub(crate) fn schedule_expiry(&mut self, timeline: &mut Timeline<Step>, now: SimTime) {
        let Some((oldest, _)) = self.by_age.front() else { return };
        // A little later than necessary, so that one step removes many; immediately if clients have created too many.
        let too_many = self.by_age.len() > self.max;
        let due = if too_many { now } else { oldest.after(self.lifetime + Duration::from_secs(60)).max(now) };
        if self.expiry_at.is_none_or(|at| due < at) {
            self.expiry_at = Some(due);
            timeline.schedule(due, Step::ExpireEvents);
        }
    }

    pub(crate) fn expire(&mut self, store: &mut Store, timeline: &mut Timeline<Step>, now: SimTime) {
        // An earlier step has made this one unnecessary.
        if self.expiry_at.is_some_and(|at| now < at) {
            return;
        }
        self.expiry_at = None;
        for _ in 0..self.by_age.len() {
            let Some((moment, key)) = self.by_age.front().cloned() else { break };
            if moment.after(self.lifetime) > now && self.by_age.len() <= self.max {
                break;
            }
            self.by_age.pop_front();
            let Some(event) = store.get(KindId::EVENT, &key.namespace, &key.name) else { continue };
            let happened = last_happened(event, now);
            if happened.after(self.lifetime) > now && self.by_age.len() < self.max {
                self.by_age.push_back((happened, key));
            } else {
                let _ = store.remove(KindId::EVENT, &key.namespace, &key.name);
            }
        }
        self.schedule_expiry(timeline, now);
    }
}

/// Clients choose the timestamp. A future one counts as now, otherwise the event would never expire.
fn last_happened(event: &Value, now: SimTime) -> SimTime {
    [&event["lastTimestamp"], &event["eventTime"], &event["metadata"]["creationTimestamp"]]
        .into_iter()
        .filter(|value| !text(value).is_empty())
        .find_map(moment)
        .unwrap_or_default()
        .min(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    const NOW: SimTime = SimTime::VIRTUAL_START;

    struct Bench {
        store: Store,
        events: Events,
        timeline: Timeline<Step>,
        cursor: u64,
    }

    impl Bench {
        fn record(&mut self, reason: &str, now: SimTime) {
            let about = json!({ "kind": "Pod", "apiVersion": "v1",
                "metadata": { "name": "p", "namespace": "default", "uid": "1" } });
            let event =
                EventRecord { about: &about, event_type: EventType::Normal, component: "test", reason, message: "m" };
            self.events.record(&mut self.store, &event, now);
            self.look(now);
        }

        fn look(&mut self, now: SimTime) {
            for change in self.store.changes_since(self.cursor).unwrap() {
                self.events.observe(change, now);
            }
            self.cursor = self.store.version();
        }

        fn reasons(&self) -> Vec<(String, u64)> {
            let mut reasons: Vec<_> = self
                .store
                .list(KindId::EVENT, None)
                .map(|event| (text(&event["reason"]).to_owned(), event["count"].as_u64().unwrap()))
                .collect();
            reasons.sort();
            reasons
        }
    }

    fn bench(max: usize) -> Bench {
        Bench {
            store: Store::new(Seed(1)),
            events: Events::new(max, Duration::from_secs(3600)),
            timeline: Timeline::default(),
            cursor: 0,
        }
    }

    #[test]
    fn a_repeated_event_is_counted_and_the_oldest_events_are_dropped() {
        let mut bench = bench(2);
        for reason in ["a", "a", "b", "a", "c"] {
            bench.record(reason, NOW);
        }
        assert_eq!(bench.reasons(), [("b".to_owned(), 1), ("c".to_owned(), 1)]);
        bench.record("a", NOW);
        assert_eq!(bench.reasons(), [("a".to_owned(), 1), ("c".to_owned(), 1)]);
    }

    #[test]
    fn events_expire_an_hour_after_their_last_occurrence() {
        let mut bench = bench(100);
        let at = |minutes: u64| NOW.after(Duration::from_secs(minutes * 60));
        bench.record("early", NOW);
        bench.record("repeated", NOW);
        bench.record("repeated", at(30));
        bench.events.expire(&mut bench.store, &mut bench.timeline, at(61));
        bench.look(at(61));
        assert_eq!(bench.reasons(), [("repeated".to_owned(), 2)]);
        assert!(bench.timeline.next_due().is_some());
        bench.events.expire(&mut bench.store, &mut bench.timeline, at(91));
        bench.look(at(91));
        assert!(bench.reasons().is_empty());
    }

    #[test]
    fn events_of_clients_are_bounded_regardless_of_their_timestamps() {
        let mut bench = bench(3);
        let create = |bench: &mut Bench, number: u32, moment: &str| {
            let event = json!({ "metadata": { "name": format!("e{number}"), "namespace": "default" },
                "reason": "r", "count": 1, "lastTimestamp": moment });
            bench.store.create(KindId::EVENT, event, NOW).unwrap();
            bench.look(NOW);
            bench.events.schedule_expiry(&mut bench.timeline, NOW);
        };
        create(&mut bench, 0, "9999-12-31T23:59:59Z");
        let due = bench.timeline.next_due().unwrap();
        assert!(due <= NOW.after(Duration::from_secs(3700)), "{due}");
        create(&mut bench, 1, "1970-01-01T00:00:00Z");
        for number in 2..6 {
            create(&mut bench, number, "9999-12-31T23:59:59Z");
        }
        assert_eq!(bench.timeline.next_due(), Some(NOW), "there are too many");
        bench.events.expire(&mut bench.store, &mut bench.timeline, NOW);
        bench.look(NOW);
        assert!(bench.reasons().len() <= 3, "{:?}", bench.reasons());
        bench.events.expire(&mut bench.store, &mut bench.timeline, due);
        bench.look(due);
        assert!(bench.reasons().is_empty());
    }
}
