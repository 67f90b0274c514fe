//! Leader election, with client-go's semantics: of all processes that share a Lease object, at most one writes.
//!
//! In: the Lease object ([`LeaseStore`]), this process' identity, three durations. Out: a [`Lease`] that the gate checks
//! before each write, and that other threads read (readiness, metrics).
//!
//! - A lease held by another process is valid for its duration from the moment this process *observed* its last change.
//!   Times that other processes wrote are never compared with this clock.
//! - The holder renews once per retry period. It may write until the renew deadline has passed since it began the last
//!   renewal that succeeded. The deadline is shorter than the duration, so it stops before another process may take over.
//! - A clean stop releases the lease: the next holder does not have to wait for it to expire.
//!
//! - A new holder writes only when it has seen everything that an earlier one wrote ([`CatchUp`]), however late its
//!   watches are.
//! - A lease may depend on another one ([`Candidate::only_with`]): it is stood for, and counts as held, only while this
//!   process holds that one. So one process leads both.
//!
//! Invariants: the end of a lease needs no action, only time on the monotonic clock, so a process that was suspended does
//! not write when it continues. A Lease object is written only if it is still the one that was read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use drs::UnixMillis;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::mailbox::Waker;
use super::pace::{Backoff, Jitter, sleep_until};
use crate::ports::PortError;

/// What a Lease object says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Empty: no one holds it.
    pub holder: String,
    pub duration_s: u32,
    pub acquired_at: UnixMillis,
    pub renewed_at: UnixMillis,
    /// How often it changed hands.
    pub transitions: u32,
}

/// The same, with the version that the next write must name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLease {
    pub record: LeaseRecord,
    pub version: String,
}

/// Reads and writes one Lease object.
pub trait LeaseStore: Send + Sync {
    /// `None`: it does not exist.
    fn get(&self) -> BoxFuture<'_, Result<Option<StoredLease>, PortError>>;

    /// Creates the object, or replaces the record in the `expected` version of it. Fails if it is another version by now.
    fn put<'a>(
        &'a self,
        record: &'a LeaseRecord,
        expected: Option<&'a str>,
    ) -> BoxFuture<'a, Result<StoredLease, PortError>>;
}

/// Makes sure that this process has seen everything that was written before.
pub trait CatchUp: Send + Sync {
    /// Completes when it has.
    fn caught_up(&self) -> BoxFuture<'static, ()>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionSettings {
    /// Differs between processes, also between two on one machine.
    pub identity: String,
    /// How long others wait for a holder that no longer renews.
    pub lease_duration: Duration,
    /// How long a holder writes without a renewal.
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

impl ElectionSettings {
    pub const LEASE_DURATION: Duration = Duration::from_secs(15);
    pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
    pub const RETRY_PERIOD: Duration = Duration::from_secs(2);
}

/// Why settings make no sense; client-go refuses the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElectionSettingsError {
    #[error("the lease duration must be longer than the renew deadline")]
    LeaseDurationTooShort,
    #[error("the renew deadline must be longer than 1.2 times the retry period")]
    RenewDeadlineTooShort,
    #[error("the lease duration must be at least one second, the retry period at least a millisecond")]
    NotPositive,
}

/// client-go spreads the retries of waiting processes by this factor, and the deadline must leave room for one. Here they are
/// spread to shorter waits instead, so that a released lease has a new holder within a retry period.
const JITTER: f64 = 1.2;

impl ElectionSettings {
    pub fn check(&self) -> Result<(), ElectionSettingsError> {
        if self.lease_duration < Duration::from_secs(1) || self.retry_period < Duration::from_millis(1) {
            Err(ElectionSettingsError::NotPositive)
        } else if self.lease_duration <= self.renew_deadline {
            Err(ElectionSettingsError::LeaseDurationTooShort)
        } else if self.renew_deadline <= self.retry_period.mul_f64(JITTER) {
            Err(ElectionSettingsError::RenewDeadlineTooShort)
        } else {
            Ok(())
        }
    }
}

/// Whether this process leads a controller: only then does that controller write. Shared with the election.
#[derive(Clone, Debug)]
pub struct Lease(Arc<State>);

#[derive(Debug)]
struct State {
    /// What `held_until_ms` counts from.
    epoch: Instant,
    held_until_ms: watch::Sender<u64>,
    /// Nothing new is begun: the process stops. What it has begun may end while the lease is valid.
    is_resigned: AtomicBool,
    holder: Mutex<String>,
    /// It counts as held only while this one is held, too.
    only_with: Option<Lease>,
}

/// A process that does not hold the lease on which another one depends asks itself this often per retry period whether
/// it does. That costs no request.
const STANDING_BACK: u32 = 10;
const ALWAYS: u64 = u64::MAX;
const NOT_HELD: u64 = 0;

impl Lease {
    fn new(held_until_ms: u64, only_with: Option<Lease>) -> Lease {
        let (epoch, holder, is_resigned) = (Instant::now(), Mutex::default(), AtomicBool::new(false));
        let held_until_ms = watch::Sender::new(held_until_ms);
        Lease(Arc::new(State { epoch, held_until_ms, is_resigned, holder, only_with }))
    }

    /// For a controller that has no other instance.
    #[must_use]
    pub fn always() -> Lease {
        Lease::new(ALWAYS, None)
    }

    /// Held once an election was won.
    #[must_use]
    pub fn not_held() -> Lease {
        Lease::new(NOT_HELD, None)
    }

    /// Whether a write may begin.
    #[must_use]
    pub fn is_held(&self, now: Instant) -> bool {
        !self.0.is_resigned.load(Ordering::Acquire) && self.is_valid(now) && self.may_be_held(now)
    }

    /// Whether a write that has begun may go on: no other process can hold the lease.
    fn is_valid(&self, now: Instant) -> bool {
        let is_own = match *self.0.held_until_ms.borrow() {
            ALWAYS => true,
            until_ms => now < self.0.epoch + Duration::from_millis(until_ms),
        };
        is_own && self.0.only_with.as_ref().is_none_or(|lease| lease.is_valid(now))
    }

    /// Completes when the lease is no longer valid.
    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let own = async {
                let mut held_until_ms = self.0.held_until_ms.subscribe();
                while self.is_valid(Instant::now()) {
                    let until = match *held_until_ms.borrow_and_update() {
                        ALWAYS => None,
                        until_ms => Some(self.0.epoch + Duration::from_millis(until_ms)),
                    };
                    tokio::select! {
                        // The sender lives as long as this lease.
                        _ = held_until_ms.changed() => (),
                        () = sleep_until(until) => (),
                    }
                }
            };
            match &self.0.only_with {
                None => own.await,
                Some(other) => drop(futures::future::select(Box::pin(own), other.ended()).await),
            }
        })
    }

    /// Runs a write, and drops it at the end of the lease, which cancels its request: `None`. Nothing of it runs unless
    /// the lease is valid at this moment, so a process that was suspended sends nothing when it continues.
    pub async fn within<T>(&self, write: impl Future<Output = T>) -> Option<T> {
        let mut ended = self.ended();
        let mut write = std::pin::pin!(write);
        std::future::poll_fn(move |task| {
            // The clock, not the timer, which may fire later than the answer arrives.
            if !self.is_valid(Instant::now()) {
                return Poll::Ready(None);
            }
            if let Poll::Ready(done) = write.as_mut().poll(task) {
                return Poll::Ready(Some(done));
            }
            ended.as_mut().poll(task).map(|()| None)
        })
        .await
    }

    /// The lease on which it depends is held, if there is one.
    fn may_be_held(&self, now: Instant) -> bool {
        self.0.only_with.as_ref().is_none_or(|lease| lease.is_held(now))
    }

    /// Who held it when it was last read; empty while no one does, or it was never read. While this process does not
    /// hold the lease on which it depends, the holder of that one.
    #[must_use]
    pub fn holder(&self) -> String {
        match &self.0.only_with {
            Some(lease) if !lease.is_held(Instant::now()) => lease.holder(),
            _ => self.0.holder.lock().clone(),
        }
    }

    /// For a process that has its own way to know whether it leads.
    pub fn set_held(&self, is_held: bool) {
        self.0.held_until_ms.send_replace(if is_held { ALWAYS } else { NOT_HELD });
    }

    fn hold_until(&self, moment: Instant) {
        let millis = u64::try_from(moment.saturating_duration_since(self.0.epoch).as_millis()).unwrap_or(ALWAYS - 1);
        self.0.held_until_ms.send_replace(millis);
    }

    /// From now on nothing is written, whatever the Lease object says.
    pub fn give_up(&self) {
        self.0.held_until_ms.send_replace(NOT_HELD);
    }

    /// From now on no write begins. What has begun may end while the lease is valid.
    fn resign(&self) {
        self.0.is_resigned.store(true, Ordering::Release);
    }

    fn note_holder(&self, holder: &str) {
        let mut noted = self.0.holder.lock();
        if *noted != holder {
            holder.clone_into(&mut noted);
        }
    }
}

/// Why a lease was not acquired for a single task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcquireError {
    #[error("{0} holds it")]
    HeldBy(String),
    #[error("it could not be read or written in time")]
    NotInTime,
}

/// A process that stands for election.
pub struct Candidate {
    store: Arc<dyn LeaseStore>,
    settings: ElectionSettings,
    lease: Lease,
    waker: Waker,
    time_of_day: Arc<dyn Fn() -> UnixMillis + Send + Sync>,
    jitter: Jitter,
    /// The Lease object as last read or written, and when it was first seen so.
    observed: Option<(StoredLease, Instant)>,
    catch_up: Option<Arc<dyn CatchUp>>,
    /// Continues over several attempts.
    catching_up: Option<BoxFuture<'static, ()>>,
    /// Another process may have written since this one last knew everything.
    is_behind: bool,
}

impl Candidate {
    #[must_use]
    pub fn new(
        store: Arc<dyn LeaseStore>,
        settings: ElectionSettings,
        waker: Waker,
        time_of_day: Arc<dyn Fn() -> UnixMillis + Send + Sync>,
        seed: u64,
    ) -> Candidate {
        let jitter = Jitter::from_seed(seed);
        Candidate {
            store,
            settings,
            lease: Lease::not_held(),
            waker,
            time_of_day,
            jitter,
            observed: None,
            catch_up: None,
            catching_up: None,
            is_behind: false,
        }
    }

    /// What must be done between the acquisition of the lease and the first write.
    #[must_use]
    pub fn with_catch_up(self, catch_up: Arc<dyn CatchUp>) -> Candidate {
        Candidate { catch_up: Some(catch_up), ..self }
    }

    /// Stands for election, and leads, only while this process holds the other lease. To be called before
    /// [`Candidate::lease`].
    #[must_use]
    pub fn only_with(self, other: Lease) -> Candidate {
        Candidate { lease: Lease::new(NOT_HELD, Some(other)), ..self }
    }

    #[must_use]
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Acquires and renews until `stop` ends. Then nothing is written any more; [`Candidate::release`] hands the lease over.
    pub async fn run(&mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        loop {
            let wait = tokio::select! {
                biased;
                () = &mut stop => break,
                wait = self.attempt() => wait,
            };
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = tokio::time::sleep(wait) => (),
            }
        }
        self.lease.resign();
    }

    /// Acquires the lease for a single task. Fails as soon as its holder is seen to renew it; a holder that does not is
    /// waited for until its lease expires.
    pub async fn acquire(&mut self) -> Result<(), AcquireError> {
        let until = Instant::now() + self.settings.lease_duration * 2;
        let mut first: Option<String> = None;
        while Instant::now() < until {
            let wait = self.attempt().await;
            if self.lease.is_held(Instant::now()) {
                return Ok(());
            }
            if let Some((current, _)) = &self.observed {
                let first = first.get_or_insert_with(|| current.version.clone());
                if *first != current.version && current.record.holder != self.settings.identity {
                    return Err(AcquireError::HeldBy(current.record.holder.clone()));
                }
            }
            tokio::time::sleep(wait).await;
        }
        Err(AcquireError::NotInTime)
    }

    /// Lets the next holder begin at once. To be called when the last write of this process has ended.
    pub async fn release(self) {
        let limit = self.call_limit();
        let released = async {
            let Some(current) = self.store.get().await? else { return Ok(()) };
            if current.record.holder != self.settings.identity {
                return Ok(());
            }
            let now = (self.time_of_day)();
            let transitions = current.record.transitions;
            let record =
                LeaseRecord { holder: String::new(), duration_s: 1, acquired_at: now, renewed_at: now, transitions };
            self.store.put(&record, Some(&current.version)).await.map(drop)
        };
        match timeout(limit, released).await {
            Ok(Ok(())) => tracing::info!(identity = self.settings.identity, "lease released"),
            Ok(Err(error)) => tracing::warn!(%error, "the lease could not be released: it expires by itself"),
            Err(_) => tracing::warn!("the lease could not be released in time: it expires by itself"),
        }
    }

    /// A call that hangs must leave time for another one before the deadline.
    fn call_limit(&self) -> Duration {
        self.settings.renew_deadline / 2
    }

    /// One attempt to acquire or renew; returns how long to wait for the next.
    async fn attempt(&mut self) -> Duration {
        let began = Instant::now();
        if !self.lease.may_be_held(began) {
            // The process that holds the other lease is to hold this one, too. So it is no longer renewed, and expires.
            // It is not released, because what this process has sent may still arrive.
            self.lease.give_up();
            self.catching_up = None;
            return self.settings.retry_period / STANDING_BACK;
        }
        let was_held = self.lease.is_held(began);
        let outcome = match timeout(self.call_limit(), self.acquire_or_renew(began)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(PortError::Transient(format!("no answer within {} ms", self.call_limit().as_millis()))),
        };
        match outcome {
            // Held, but not used yet. The next attempt renews it, and waits again.
            Ok(true) if self.is_behind && !self.catches_up().await => {
                tracing::info!(identity = self.settings.identity, "lease acquired; not yet caught up");
            }
            Ok(true) => {
                self.is_behind = false;
                self.lease.hold_until(began + self.settings.renew_deadline);
                if !was_held {
                    tracing::info!(identity = self.settings.identity, "lease acquired: this process leads");
                    self.waker.wake();
                }
            }
            // Another process holds it. If this one did, it was suspended or cut off for too long.
            Ok(false) => {
                self.lease.give_up();
                // What the new holder writes comes later.
                self.catching_up = None;
            }
            // A lease that was held stays held until its deadline.
            Err(error) => tracing::warn!(%error, "the lease could not be acquired or renewed"),
        }
        let is_held = self.lease.is_held(Instant::now());
        if was_held && !is_held {
            tracing::warn!(identity = self.settings.identity, holder = self.lease.holder(), "lease lost");
            self.waker.wake();
        }
        let retry = self.settings.retry_period;
        let spread = Backoff { first: retry, longest: retry };
        if is_held { retry } else { spread.wait(1, &mut self.jitter) }
    }

    /// Waits for the catch-up, but not so long that the lease is not renewed in time.
    async fn catches_up(&mut self) -> bool {
        let limit = self.call_limit();
        let Some(catch_up) = &self.catch_up else { return true };
        let catching_up = self.catching_up.get_or_insert_with(|| catch_up.caught_up());
        let has_caught_up = timeout(limit, catching_up).await.is_ok();
        if has_caught_up {
            self.catching_up = None;
        }
        has_caught_up
    }

    async fn acquire_or_renew(&mut self, now: Instant) -> Result<bool, PortError> {
        // The holder renews what it wrote last, without reading it first.
        if let Some((current, at)) = &self.observed
            && current.record.holder == self.settings.identity
            && is_valid(&current.record, *at, now)
        {
            let (record, version) = (self.renewed(&current.record), current.version.clone());
            match self.store.put(&record, Some(&version)).await {
                Ok(stored) => return Ok(self.wrote(stored, now)),
                Err(error) => tracing::debug!(%error, "the lease changed, or could not be written: reading it"),
            }
        }
        let Some(current) = self.store.get().await? else {
            let record = self.acquired(0);
            let stored = self.store.put(&record, None).await?;
            return Ok(self.wrote(stored, now));
        };
        let observed_at = match &self.observed {
            Some((known, at)) if *known == current => *at,
            _ => Instant::now(),
        };
        // If another process holds or held it, what that process wrote may not have arrived here yet.
        self.is_behind |= current.record.holder != self.settings.identity;
        self.lease.note_holder(&current.record.holder);
        self.observed = Some((current.clone(), observed_at));
        let is_own = current.record.holder == self.settings.identity;
        if !is_own && !current.record.holder.is_empty() && is_valid(&current.record, observed_at, Instant::now()) {
            return Ok(false);
        }
        let record = match is_own {
            true => self.renewed(&current.record),
            false => self.acquired(current.record.transitions.saturating_add(1)),
        };
        let stored = self.store.put(&record, Some(&current.version)).await?;
        Ok(self.wrote(stored, now))
    }

    fn wrote(&mut self, stored: StoredLease, at: Instant) -> bool {
        self.lease.note_holder(&stored.record.holder);
        self.observed = Some((stored, at));
        true
    }

    fn acquired(&self, transitions: u32) -> LeaseRecord {
        let now = (self.time_of_day)();
        LeaseRecord {
            holder: self.settings.identity.clone(),
            duration_s: u32::try_from(self.settings.lease_duration.as_secs()).unwrap_or(u32::MAX),
            acquired_at: now,
            renewed_at: now,
            transitions,
        }
    }

    fn renewed(&self, current: &LeaseRecord) -> LeaseRecord {
        LeaseRecord { acquired_at: current.acquired_at, ..self.acquired(current.transitions) }
    }
}

fn is_valid(record: &LeaseRecord, observed_at: Instant, now: Instant) -> bool {
    now < observed_at + Duration::from_secs(record.duration_s.into())
}

#[cfg(test)]
#[path = "election_tests.rs"]
mod tests;
