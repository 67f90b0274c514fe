//! The two sides under one lock and one clock.
//!
//! In: requests, through [`World::with`]; the passing of time, through [`World::run`]. Out: answers, and counters that
//! streams wait on ([`World::kubernetes_changes`], [`World::vcenter_changes`], [`World::happenings`]).
//!
//! Invariants:
//! - Every step that is due has run, in order of time, before a request sees the world. At equal times the vCenter goes
//!   first.
//! - `now` never goes back. If the machine cannot keep up with the clock's speed, `now` is the time that the world has
//!   reached: simulated time then passes more slowly, and requests are still answered.
//! - The lock is never held across an await. A task that waits subscribes to a counter instead.
//! - The timeline is independent of connections: it advances with no client connected.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::chronicle::{Chronicle, Happening};
use crate::clock::{Clock, SimTime};
use crate::fault::Faults;
use crate::kubernetes::{self, Kubernetes};
use crate::link;
use crate::seed::Seed;
use crate::vcenter::{self, Vcenter};

#[derive(Clone, Debug)]
pub struct Config {
    pub seed: Seed,
    pub kubernetes: kubernetes::Config,
    pub vcenter: vcenter::Config,
    /// How many chronicle entries are retained.
    pub chronicle_entries_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            seed: Seed(1),
            kubernetes: kubernetes::Config::default(),
            vcenter: vcenter::Config::default(),
            chronicle_entries_max: 100_000,
        }
    }
}

/// How many steps run before a request gets its turn.
const STEPS_AT_ONCE_MAX: usize = 500;
/// At any speed, a client that reads or reconnects this late can still catch up on what it missed.
const CLIENT_DELAY_MAX: Duration = Duration::from_secs(10);
/// How long the world pauses between batches of overdue steps.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(1);

/// The complete state. Accessible only through [`World::with`].
#[derive(Debug)]
pub struct Core {
    /// The simulated time that the world has reached.
    now: SimTime,
    pub kubernetes: Kubernetes,
    pub vcenter: Vcenter,
    pub faults: Faults,
    pub chronicle: Chronicle,
}

impl Core {
    /// Runs the steps due by `now`, up to the batch limit. Returns the time reached.
    fn advance(&mut self, now: SimTime) -> SimTime {
        let now = now.max(self.now);
        for _ in 0..STEPS_AT_ONCE_MAX {
            // A step due in the past runs now: clients choose arbitrary times, and time does not go back.
            let due_by_now = |due: SimTime| (due <= now).then_some(due.max(self.now));
            let vcenter_due = self.vcenter.next_due().and_then(due_by_now);
            let kubernetes_due = self.kubernetes.next_due().and_then(due_by_now);
            self.now = match (vcenter_due, kubernetes_due) {
                (Some(v), Some(k)) if v <= k => self.vcenter.step(v),
                (_, Some(k)) => self.kubernetes.step(k),
                (Some(v), None) => self.vcenter.step(v),
                (None, None) => {
                    self.now = now;
                    break;
                }
            };
            self.settle(self.now);
        }
        self.now
    }

    /// Forwards vCenter events to Kubernetes, and records the events of both sides.
    fn settle(&mut self, moment: SimTime) {
        for happening in self.vcenter.take_happenings() {
            link::carry(&happening, &self.vcenter, &mut self.kubernetes, moment);
            self.chronicle.record(moment, Happening::Vcenter(happening));
        }
        self.kubernetes.observe(moment);
        for happening in self.kubernetes.take_happenings() {
            self.chronicle.record(moment, Happening::Kubernetes(happening));
        }
    }
}

#[derive(Debug)]
pub struct World {
    core: Mutex<Core>,
    clock: Clock,
    kubernetes_changes: watch::Sender<u64>,
    vcenter_changes: watch::Sender<u64>,
    happenings: watch::Sender<u64>,
    sooner: Notify,
}

impl World {
    #[must_use]
    pub fn new(config: &Config, clock: Clock) -> Arc<World> {
        let now = clock.now();
        let mut kubernetes = config.kubernetes.clone();
        kubernetes.history_kept = kubernetes.history_kept.max(clock.simulated(CLIENT_DELAY_MAX));
        let mut vcenter = Vcenter::new(&config.vcenter, config.seed, now);
        vcenter.let_sessions_idle(clock.simulated(config.vcenter.session_idle_max));
        let mut core = Core {
            now,
            kubernetes: Kubernetes::new(&kubernetes, config.seed, now),
            vcenter,
            faults: Faults::new(config.seed),
            chronicle: Chronicle::new(config.chronicle_entries_max),
        };
        core.settle(now);
        Arc::new(World {
            core: Mutex::new(core),
            clock,
            kubernetes_changes: watch::Sender::new(0),
            vcenter_changes: watch::Sender::new(0),
            happenings: watch::Sender::new(0),
            sooner: Notify::new(),
        })
    }

    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Advances the world to now, lets `act` read or change it, and notifies the subscribers of changes.
    pub fn with<R>(&self, act: impl FnOnce(&mut Core, SimTime) -> R) -> R {
        let mut core = self.lock();
        let due_before = next_due(&core);
        let now = core.advance(self.clock.now());
        let result = act(&mut core, now);
        core.settle(now);
        let due_after = next_due(&core);
        publish(&self.kubernetes_changes, core.kubernetes.version());
        publish(&self.vcenter_changes, core.vcenter.version());
        publish(&self.happenings, core.chronicle.next_number());
        drop(core);
        if due_after != due_before {
            self.sooner.notify_one();
        }
        result
    }

    /// Changes whenever an object on the Kubernetes side does.
    #[must_use]
    pub fn kubernetes_changes(&self) -> watch::Receiver<u64> {
        self.kubernetes_changes.subscribe()
    }

    /// Changes whenever a managed object of the vCenter does.
    #[must_use]
    pub fn vcenter_changes(&self) -> watch::Receiver<u64> {
        self.vcenter_changes.subscribe()
    }

    /// Changes whenever the chronicle grows.
    #[must_use]
    pub fn happenings(&self) -> watch::Receiver<u64> {
        self.happenings.subscribe()
    }

    /// Lets time pass: runs each step when it is due. Never returns; spawn it, and drop it to stop.
    pub async fn run(self: Arc<Self>) {
        loop {
            let due = next_due(&self.lock());
            match due {
                None => self.sooner.notified().await,
                Some(moment) => {
                    tokio::select! {
                        biased;
                        () = self.clock.sleep_until(moment) => {
                            self.with(|_, _| ());
                            let overdue = next_due(&self.lock()).is_some_and(|due| due <= self.clock.now());
                            if overdue {
                                // Behind the clock: a request that waits for the lock gets it before the next steps.
                                tokio::time::sleep(CATCH_UP_PAUSE).await;
                            }
                        }
                        () = self.sooner.notified() => (),
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // A panic inside a request leaves at worst a partial change; the servers continue, as real ones do.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn next_due(core: &Core) -> Option<SimTime> {
    match (core.vcenter.next_due(), core.kubernetes.next_due()) {
        (Some(v), Some(k)) => Some(v.min(k)),
        (v, k) => v.or(k),
    }
}

fn publish(sender: &watch::Sender<u64>, value: u64) {
    sender.send_if_modified(|current| {
        let changed = *current != value;
        *current = value;
        changed
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clients_of_a_fast_world_keep_their_own_pace() {
        let world = World::new(&Config::default(), Clock::starting_at(SimTime::VIRTUAL_START, 1000.0));
        tokio::spawn(world.clone().run());
        let session = world.with(|core, now| core.vcenter.wire.login("a", "127.0.0.1", "test", now)).unwrap();
        let version = world.with(|core, _| core.kubernetes.version());
        tokio::time::sleep(Duration::from_secs(9)).await;
        world.with(|core, now| {
            assert!(core.kubernetes.version() > version, "heartbeats");
            assert!(core.kubernetes.store().changes_since(version).is_ok());
            core.vcenter.wire.expire(now);
            assert!(core.vcenter.wire.sessions.contains_key(&session), "idle for seconds, not for hours");
        });
        tokio::time::sleep(Duration::from_secs(31 * 60)).await;
        world.with(|core, now| {
            assert!(core.kubernetes.store().changes_since(version).is_err());
            core.vcenter.wire.expire(now);
            assert!(core.vcenter.wire.sessions.is_empty());
        });
    }

    /// More steps are due than one batch can run.
    #[tokio::test(start_paused = true)]
    async fn a_world_that_cannot_keep_up_still_answers_and_catches_up() {
        let mut config = Config::default();
        config.vcenter.nodes = 20;
        config.kubernetes.lease_renew_period = Some(Duration::from_secs(1));
        let world = World::new(&config, Clock::virtual_time());
        tokio::time::advance(Duration::from_secs(100)).await;
        let clock = world.clock().now();
        let first = world.with(|_, now| now);
        assert!(first < clock, "2,000 renewals are more than one batch");
        let second = world.with(|_, now| now);
        assert!(first < second && second < clock);
        let run = tokio::spawn(world.clone().run());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(world.with(|_, now| now), world.clock().now());
        run.abort();
    }
}
