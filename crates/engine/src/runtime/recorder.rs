//! Kubernetes Events: what is recorded, and what is left unsaid because it was recorded already.
//!
//! In: occurrences, from controllers and from threads that only read the world. Out: [`EventRecord`]s in a bounded queue, which the
//! runtime posts. One recorder for all: the same occurrence is not recorded again too soon ([`Repeat`]); when it is, the record
//! carries how often it happened and since when (the series); an object that is talked about too much is silent for a while, as
//! with upstream's recorder.
//!
//! Invariants: at most [`OBJECTS_MAX`] objects are remembered and [`QUEUED_MAX`] records wait; losing one is counted and does no harm.

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

/// Objects that are remembered. Beyond, those not talked about for long are forgotten first, then all: then something is
/// recorded twice, which does no harm.
pub const OBJECTS_MAX: usize = 50_000;
/// Some seconds of what an API server can take.
pub const QUEUED_MAX: usize = 100_000;
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// Upstream's limits for one object: so many at once, then one each five minutes.
const OBJECT_BURST: u32 = 25;
const OBJECT_EVERY: Duration = Duration::from_secs(300);

/// When an occurrence is recorded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// With the same message; `None`: not while it is remembered.
    pub same_after: Option<Duration>,
    /// With another message.
    pub changed_after: Duration,
}

impl Repeat {
    /// Each occurrence is news.
    pub const ALWAYS: Repeat = Repeat { same_after: Some(Duration::ZERO), changed_after: Duration::ZERO };
}

/// What became of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Queued,
    /// It is known already.
    Same,
    /// It differs from what was recorded, which was not long enough ago.
    TooSoon {
        until: Instant,
    },
    /// Too much is said of the object, or too much waits to be posted.
    Dropped,
}

/// What became of the records of one controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    pub posted: u64,
    /// The server did not take them.
    pub failed: u64,
    /// Nobody tried to post them.
    pub dropped: u64,
}

/// What was recorded last of one object for one reason.
#[derive(Debug)]
struct Known {
    reason: &'static str,
    message: u64,
    recorded_at: Instant,
    /// Of this message.
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
    /// By [`Regarding::key`]. Tenants choose it, hence std's keyed hash. Iterated only to forget.
    objects: HashMap<String, Object>,
    queue: VecDeque<(&'static str, EventRecord)>,
    counts: BTreeMap<&'static str, EventCounts>,
}

/// Cheap to clone; all clones are one recorder.
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

    /// Whether an occurrence of this reason would be recorded, if it is not the same as the last: for those whose message is
    /// costly to work out.
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

    /// Records the last that is to be said of an object: it needs no memory any more.
    pub fn conclude(&self, origin: &'static str, occurrence: Occurrence) {
        {
            let mut state = self.lock();
            state.objects.remove(occurrence.regarding.key());
            if state.queue.len() >= QUEUED_MAX {
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

    /// Of all controllers.
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
        if self.queue.len() >= QUEUED_MAX || object.limit.take(now).is_err() {
            self.counts.entry(origin).or_default().dropped += 1;
            return Recorded::Dropped;
        }
        object.known.retain(|known| known.reason != occurrence.reason);
        object.known.push(Known { reason: occurrence.reason, message, recorded_at: now, first_at, count });
        let since = now.saturating_duration_since(first_at);
        self.queue.push_back((origin, EventRecord { occurrence, count, since }));
        Recorded::Queued
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
        let (namespace, name) = ("ns".to_owned(), "pod".to_owned());
        let regarding = Regarding::Pod { namespace, name, uid: uid.to_owned() };
        Occurrence { regarding, severity: Severity::Warning, reason, message: message.to_owned() }
    }

    const REPEAT: Repeat =
        Repeat { same_after: Some(Duration::from_secs(600)), changed_after: Duration::from_secs(30) };

    #[tokio::test(start_paused = true)]
    async fn the_same_is_recorded_later_with_its_count_and_another_message_sooner() {
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
        recorder.conclude("c", occurrence("a", "Done", "bound"));
        assert_eq!(record("a", "tainted", 631), Recorded::Queued);
        let series: Vec<(u32, u64)> =
            recorder.take(9).iter().map(|(_, record)| (record.count, record.since.as_secs())).collect();
        assert_eq!(series, [(1, 0), (1, 0), (3, 600), (1, 0), (1, 0), (1, 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_reason_does_not_silence_another_and_never_means_never() {
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
    async fn an_object_that_is_talked_about_too_much_is_silent_for_a_while() {
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
    async fn it_does_not_grow_without_end() {
        let recorder = EventRecorder::default();
        let now = Instant::now();
        for number in 0..=QUEUED_MAX {
            recorder.record("c", occurrence(&number.to_string(), "R", "full"), REPEAT, now);
        }
        assert!(recorder.lock().objects.len() <= OBJECTS_MAX);
        assert_eq!((recorder.take(usize::MAX).len(), recorder.counts("c").dropped), (QUEUED_MAX, 1));
    }
}
