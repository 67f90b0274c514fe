//! Records Kubernetes Events and suppresses repetitions.
//!
//! In: occurrences, from controllers and from threads that only read the world. Out: [`EventRecord`]s in a bounded
//! queue, which the runtime posts. All controllers share one recorder. The same occurrence is not recorded again too
//! soon ([`Repeat`]); a later record carries the number of occurrences and the time of the first (the series). Events
//! on one object are rate limited, as by upstream's recorder, and so are the events of one namespace, so that no tenant
//! takes the places of others.
//!
//! Invariants: at most [`OBJECTS_MAX`] objects and [`NAMESPACES_MAX`] namespaces are remembered and at most
//! [`QUEUED_MAX`] records wait. A dropped record is counted and does no harm.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::mailbox::Waker;
use super::pace::RateLimit;
#[cfg(doc)]
use crate::ports::Regarding;
use crate::ports::{EventRecord, Occurrence};

/// How many objects are remembered. At the limit the recorder forgets the objects without recent events, and if that is
/// not enough, all of them. An event may then be recorded twice, which does no harm.
pub const OBJECTS_MAX: usize = 50_000;
/// An API server accepts this many events within some seconds.
pub const QUEUED_MAX: usize = 100_000;
/// How many namespaces are remembered. At the limit the recorder forgets those that have not used their limit.
pub const NAMESPACES_MAX: usize = 10_000;
/// The limit of one namespace: enough for thousands of pods that are created at once.
pub const NAMESPACE_BURST: u32 = 10_000;
const NAMESPACE_PER_SECOND: u32 = 100;
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// Upstream's limits for one object: a burst, then one every five minutes.
const OBJECT_BURST: u32 = 25;
const OBJECT_EVERY: Duration = Duration::from_secs(300);

/// When an occurrence is recorded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// With the same message; `None`: never, as long as the object is remembered.
    pub same_after: Option<Duration>,
    /// With a different message.
    pub changed_after: Duration,
}

impl Repeat {
    /// Records each occurrence.
    pub const ALWAYS: Repeat = Repeat { same_after: Some(Duration::ZERO), changed_after: Duration::ZERO };
}

/// What became of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Queued,
    /// Recorded before, with the same message.
    Same,
    /// The message has changed, but the last record is too recent.
    TooSoon {
        until: Instant,
    },
    /// The object's rate limit or the queue is exhausted.
    Dropped,
}

/// What became of one controller's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    pub posted: u64,
    /// The server did not accept them.
    pub failed: u64,
    /// Not sent to the server.
    pub dropped: u64,
}

/// The last record of one object for one reason.
#[derive(Debug)]
struct Known {
    reason: &'static str,
    message: u64,
    recorded_at: Instant,
    /// When this message was first recorded.
    first_at: Instant,
    count: u32,
}

#[derive(Debug)]
struct Object {
    known: Vec<Known>,
    limit: RateLimit,
    seen_at: Instant,
}

#[derive(Debug, Default)]
struct State {
    /// By [`Regarding::key`]. Tenants choose that key, hence std's keyed hash. Iterated only to evict entries.
    objects: HashMap<String, Object>,
    /// By name, for the same reason.
    namespaces: HashMap<String, RateLimit>,
    queue: VecDeque<(&'static str, EventRecord)>,
    counts: BTreeMap<&'static str, EventCounts>,
}

/// Cheap to clone; all clones share one state.
#[derive(Clone, Debug, Default)]
pub struct EventRecorder {
    state: Arc<Mutex<State>>,
    waker: Waker,
}

impl EventRecorder {
    #[must_use]
    pub fn new(waker: Waker) -> EventRecorder {
        EventRecorder { state: Arc::default(), waker }
    }

    /// Whether an occurrence with this reason would be recorded if its message differs from the last. For callers whose
    /// message is expensive to compute.
    #[must_use]
    pub fn is_open(&self, uid: &str, reason: &str, repeat: Repeat, now: Instant) -> bool {
        let state = self.lock();
        let known = state.objects.get(uid).and_then(|object| object.known.iter().find(|known| known.reason == reason));
        known.is_none_or(|known| now.saturating_duration_since(known.recorded_at) >= repeat.changed_after)
    }

    /// `origin` is the controller's name.
    pub fn record(&self, origin: &'static str, occurrence: Occurrence, repeat: Repeat, now: Instant) -> Recorded {
        let recorded = self.lock().record(origin, occurrence, repeat, now);
        if recorded == Recorded::Queued {
            self.waker.wake();
        }
        recorded
    }

    /// Records the last event of an object and forgets the object.
    pub fn conclude(&self, origin: &'static str, occurrence: Occurrence, now: Instant) {
        {
            let mut state = self.lock();
            state.objects.remove(occurrence.regarding.key());
            if !state.has_place(&occurrence, now) {
                state.counts.entry(origin).or_default().dropped += 1;
                return;
            }
            state.queue.push_back((origin, EventRecord { occurrence, count: 1, since: Duration::ZERO }));
        }
        self.waker.wake();
    }

    #[must_use]
    pub fn counts(&self, origin: &str) -> EventCounts {
        self.lock().counts.get(origin).copied().unwrap_or_default()
    }

    /// Counts an event that its controller could not keep until it may be recorded.
    pub(crate) fn count_dropped(&self, origin: &'static str) {
        self.count(origin, |counts| counts.dropped += 1);
    }

    /// The counts of all controllers.
    #[must_use]
    pub fn all_counts(&self) -> BTreeMap<&'static str, EventCounts> {
        self.lock().counts.clone()
    }

    pub(crate) fn take(&self, at_most: usize) -> Vec<(&'static str, EventRecord)> {
        let mut state = self.lock();
        let count = at_most.min(state.queue.len());
        state.queue.drain(..count).collect()
    }

    pub(super) fn count(&self, origin: &'static str, add: impl FnOnce(&mut EventCounts)) {
        add(self.lock().counts.entry(origin).or_default());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn record(&mut self, origin: &'static str, occurrence: Occurrence, repeat: Repeat, now: Instant) -> Recorded {
        let key = occurrence.regarding.key();
        if self.objects.len() >= OBJECTS_MAX && !self.objects.contains_key(key) {
            self.make_room(now);
        }
        let fresh = || Object {
            known: Vec::new(),
            limit: RateLimit::with_interval(OBJECT_EVERY, OBJECT_BURST, now),
            seen_at: now,
        };
        let object = self.objects.entry(key.to_owned()).or_insert_with(fresh);
        object.seen_at = now;
        let message = hash(&occurrence.message);
        let known = object.known.iter_mut().find(|known| known.reason == occurrence.reason);
        let (count, first_at) = match known {
            None => (1, now),
            Some(known) => {
                let is_same = known.message == message;
                if is_same {
                    known.count = known.count.saturating_add(1);
                }
                let wait = if is_same { repeat.same_after } else { Some(repeat.changed_after) };
                match wait {
                    None => return Recorded::Same,
                    Some(wait) if now < known.recorded_at + wait => {
                        let until = known.recorded_at + wait;
                        return if is_same { Recorded::Same } else { Recorded::TooSoon { until } };
                    }
                    Some(_) if is_same => (known.count, known.first_at),
                    Some(_) => (1, now),
                }
            }
        };
        if object.limit.take(now).is_err() || !self.has_place(&occurrence, now) {
            self.counts.entry(origin).or_default().dropped += 1;
            return Recorded::Dropped;
        }
        let Some(object) = self.objects.get_mut(occurrence.regarding.key()) else { return Recorded::Dropped };
        object.known.retain(|known| known.reason != occurrence.reason);
        object.known.push(Known { reason: occurrence.reason, message, recorded_at: now, first_at, count });
        let since = now.saturating_duration_since(first_at);
        self.queue.push_back((origin, EventRecord { occurrence, count, since }));
        Recorded::Queued
    }

    /// Whether the queue and the occurrence's namespace have room for one more.
    fn has_place(&mut self, occurrence: &Occurrence, now: Instant) -> bool {
        if self.queue.len() >= QUEUED_MAX {
            return false;
        }
        let Some(namespace) = occurrence.regarding.namespace() else { return true };
        if let Some(limit) = self.namespaces.get_mut(namespace) {
            return limit.take(now).is_ok();
        }
        if self.namespaces.len() >= NAMESPACES_MAX {
            // Those that are left have recorded much of late; a new one must wait for them.
            self.namespaces.retain(|_, limit| limit.available(now) < NAMESPACE_BURST as usize);
            if self.namespaces.len() >= NAMESPACES_MAX {
                return false;
            }
        }
        let mut limit = RateLimit::new(NAMESPACE_PER_SECOND, NAMESPACE_BURST, now);
        let is_open = limit.take(now).is_ok();
        self.namespaces.insert(namespace.to_owned(), limit);
        is_open
    }

    fn make_room(&mut self, now: Instant) {
        self.objects.retain(|_, object| now.saturating_duration_since(object.seen_at) < FORGOTTEN_AFTER);
        if self.objects.len() >= OBJECTS_MAX {
            self.objects.clear();
        }
    }
}

fn hash(message: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{Regarding, Severity};

    fn occurrence(uid: &str, reason: &'static str, message: &str) -> Occurrence {
        occurrence_in("ns", uid, reason, message)
    }

    fn occurrence_in(namespace: &str, uid: &str, reason: &'static str, message: &str) -> Occurrence {
        let (namespace, name) = (namespace.to_owned(), "pod".to_owned());
        let regarding = Regarding::Pod { namespace, name, uid: uid.to_owned() };
        Occurrence { regarding, severity: Severity::Warning, reason, message: message.to_owned(), reporter: None }
    }

    const REPEAT: Repeat =
        Repeat { same_after: Some(Duration::from_secs(600)), changed_after: Duration::from_secs(30) };

    #[tokio::test(start_paused = true)]
    async fn the_same_message_is_recorded_again_later_with_its_count_and_a_changed_message_sooner() {
        let recorder = EventRecorder::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let record = |uid, message, seconds| recorder.record("c", occurrence(uid, "R", message), REPEAT, at(seconds));
        assert_eq!(record("a", "full", 0), Recorded::Queued);
        assert_eq!(record("a", "full", 60), Recorded::Same);
        assert_eq!(record("b", "full", 60), Recorded::Queued);
        assert_eq!(record("a", "full", 600), Recorded::Queued);
        assert_eq!(record("a", "tainted", 610), Recorded::TooSoon { until: at(630) });
        assert!(!recorder.is_open("a", "R", REPEAT, at(610)) && recorder.is_open("a", "R", REPEAT, at(630)));
        assert!(recorder.is_open("a", "Other", REPEAT, at(610)) && recorder.is_open("c", "R", REPEAT, at(0)));
        assert_eq!(record("a", "tainted", 630), Recorded::Queued);
        recorder.conclude("c", occurrence("a", "Done", "bound"), at(630));
        assert_eq!(record("a", "tainted", 631), Recorded::Queued);
        let series: Vec<(u32, u64)> =
            recorder.take(9).iter().map(|(_, record)| (record.count, record.since.as_secs())).collect();
        assert_eq!(series, [(1, 0), (1, 0), (3, 600), (1, 0), (1, 0), (1, 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_reason_does_not_suppress_another_and_without_same_after_a_message_never_repeats() {
        let recorder = EventRecorder::default();
        let now = Instant::now();
        let never = Repeat { same_after: None, changed_after: Duration::ZERO };
        let record = |reason, message, now| recorder.record("c", occurrence("a", reason, message), never, now);
        assert_eq!(record("R", "m", now), Recorded::Queued);
        assert_eq!(record("S", "m", now), Recorded::Queued);
        assert_eq!(record("R", "m", now + FORGOTTEN_AFTER * 24), Recorded::Same);
        assert_eq!(record("R", "n", now), Recorded::Queued);
    }

    #[tokio::test(start_paused = true)]
    async fn events_on_one_object_are_rate_limited() {
        let recorder = EventRecorder::default();
        let start = Instant::now();
        let record =
            |number: u32, now| recorder.record("c", occurrence("a", "R", &number.to_string()), Repeat::ALWAYS, now);
        for number in 0..OBJECT_BURST {
            assert_eq!(record(number, start), Recorded::Queued);
        }
        assert_eq!(record(99, start), Recorded::Dropped);
        assert_eq!(record(99, start + OBJECT_EVERY), Recorded::Queued);
        assert_eq!(record(99, start + OBJECT_EVERY), Recorded::Dropped);
        assert_eq!(recorder.counts("c"), EventCounts { dropped: 2, ..EventCounts::default() });
    }

    #[tokio::test(start_paused = true)]
    async fn the_objects_and_the_queue_are_bounded() {
        let recorder = EventRecorder::default();
        let now = Instant::now();
        for number in 0..=QUEUED_MAX {
            let namespace = format!("ns-{}", number % 100);
            recorder.record("c", occurrence_in(&namespace, &number.to_string(), "R", "full"), REPEAT, now);
        }
        assert!(recorder.lock().objects.len() <= OBJECTS_MAX);
        assert_eq!((recorder.take(usize::MAX).len(), recorder.counts("c").dropped), (QUEUED_MAX, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn number_4_one_namespace_does_not_take_the_places_of_others() {
        let recorder = EventRecorder::default();
        let now = Instant::now();
        for number in 0..2 * NAMESPACE_BURST {
            let pod = occurrence_in("loud", &number.to_string(), "R", "full");
            if number % 2 == 0 {
                recorder.record("c", pod, REPEAT, now);
            } else {
                recorder.conclude("c", pod, now);
            }
        }
        assert_eq!(recorder.counts("c").dropped, u64::from(NAMESPACE_BURST));
        let quiet = occurrence_in("quiet", "q", "R", "full");
        assert_eq!(recorder.record("c", quiet, REPEAT, now), Recorded::Queued);
        assert_eq!(recorder.take(usize::MAX).len(), NAMESPACE_BURST as usize + 1);
        // It may go on, at its rate.
        let later = now + Duration::from_secs(1);
        let queued = (0..2 * NAMESPACE_PER_SECOND).filter(|number| {
            let pod = occurrence_in("loud", &format!("later-{number}"), "R", "full");
            recorder.record("c", pod, REPEAT, later) == Recorded::Queued
        });
        assert_eq!(queued.count(), NAMESPACE_PER_SECOND as usize);
        // Namespaces that are done are forgotten when there are too many.
        for number in 0..3 * NAMESPACES_MAX {
            let at = later + Duration::from_secs(number as u64);
            recorder.record("c", occurrence_in(&format!("ns-{number}"), &format!("p{number}"), "R", "m"), REPEAT, at);
            drop(recorder.take(usize::MAX));
        }
        assert!(recorder.lock().namespaces.len() <= NAMESPACES_MAX);
        assert_eq!(recorder.counts("c").dropped, u64::from(NAMESPACE_BURST + NAMESPACE_PER_SECOND));
    }
}
