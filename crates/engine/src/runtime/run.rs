//! The only event loop, and the only writer of the world.
//!
//! In: events of all sources. Out: steps of the controllers, in their order. In one turn the controllers decide and
//! send. Then the loop waits for an event, finished work, a message or a timer. It passes on finished work and applies
//! the events; every controller observes each event before the next one is applied.
//!
//! Invariants: neither events nor finished work nor a busy controller starves the others. The world is locked for
//! writing for some milliseconds at most. A change made by one controller reaches all others before anything else
//! happens.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use model::World;
use model::event::Event;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::controller::{Controller, Executor, Stopwatch};
use super::election::Lease;
use super::gate::Gate;
use super::heartbeat::Heartbeats;
use super::hosted::{Host, Hosted, OwnChanges, Shared};
use super::mailbox::Waker;
use super::pace::sleep_until;
use super::poster::{EventPoster, PostExecutor};
use super::recorder::EventRecorder;
use super::stats::{RuntimeStats, Step};
use super::world::{SharedWorld, WorldOwner};
use crate::changes::ChangeLog;
use crate::ports::EventSink;

/// How long after a source is lost its last known state may still be used, by default.
pub const STALE_MAX: Duration = Duration::from_secs(300);

#[derive(Clone, Debug)]
pub struct RuntimeSettings {
    /// Nothing is written; controllers log what they would write.
    pub dry_run: bool,
    /// How long after a source is lost its last known state may still be used for writes.
    pub stale_max: Duration,
    /// Long computations run on the loop. For virtual time, so that the same seed gives the same history.
    pub computes_inline: bool,
    /// Where controllers report what they change.
    pub changes: ChangeLog,
}

impl Default for RuntimeSettings {
    fn default() -> RuntimeSettings {
        RuntimeSettings { dry_run: false, stale_max: STALE_MAX, computes_inline: false, changes: ChangeLog::default() }
    }
}

/// How many events, or finished actions of one controller, are processed before anything else has its turn.
const BATCH: usize = 1024;

pub struct Runtime {
    shared: Shared,
    hosts: Vec<Box<dyn Host>>,
    waker: Waker,
}

impl Runtime {
    /// `sink` receives the Events that controllers record.
    #[must_use]
    pub fn new(mut world: World, settings: &RuntimeSettings, sink: Arc<dyn EventSink>) -> Runtime {
        world.record_changes();
        let waker = Waker::default();
        let shared = Shared {
            owner: WorldOwner::new(world),
            gate: Gate::new(settings.stale_max, settings.dry_run),
            events: EventRecorder::new(waker.clone()),
            stats: Arc::default(),
            computes_inline: settings.computes_inline,
            heartbeats: Heartbeats::default(),
            changes: settings.changes.clone(),
        };
        let mut runtime = Runtime { shared, hosts: Vec::new(), waker };
        runtime.add(EventPoster, Arc::new(PostExecutor(sink)), Lease::always());
        runtime
    }

    /// Shows its long computations there. The loop itself is a task of the caller.
    pub fn show_computations(&mut self, heartbeats: Heartbeats) {
        self.shared.heartbeats = heartbeats;
    }

    /// Controllers run in the order in which they were added.
    pub fn add<C: Controller>(&mut self, controller: C, executor: Arc<dyn Executor<C>>, lease: Lease) {
        self.hosts.push(Box::new(Hosted::new(controller, executor, lease, Instant::now())));
    }

    #[must_use]
    pub fn world(&self) -> SharedWorld {
        self.shared.owner.shared()
    }

    #[must_use]
    pub fn events(&self) -> EventRecorder {
        self.shared.events.clone()
    }

    #[must_use]
    pub fn stats(&self) -> Arc<RuntimeStats> {
        self.shared.stats.clone()
    }

    /// Lets other threads wake the loop.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The names of the controllers.
    pub fn controllers(&self) -> impl Iterator<Item = &'static str> {
        self.hosts.iter().map(|host| host.name())
    }

    /// Runs until every sender of events is dropped, and the actions in flight have ended.
    pub async fn run(self, events: mpsc::Receiver<Event>) {
        self.run_until(events, std::future::pending()).await;
    }

    /// Runs until `stop` ends or every sender of events is dropped. Then no action is sent any more; returns when those
    /// in flight have ended, and their controllers know what became of them.
    pub async fn run_until(mut self, mut events: mpsc::Receiver<Event>, stop: impl Future<Output = ()>) {
        {
            let running = self.turn_forever(&mut events);
            tokio::pin!(running, stop);
            futures::future::select(running, stop).await;
        }
        // What had finished when the runtime was stopped.
        self.conclude();
        while self.hosts.iter().any(|host| host.has_in_flight()) {
            finished(&mut self.hosts).await;
            self.conclude();
        }
    }

    /// Passes on finished actions while the runtime stops.
    fn conclude(&mut self) {
        let now = Instant::now();
        for host in 0..self.hosts.len() {
            let changes = self.hosts[host].conclude(&self.shared, now);
            self.deliver(host, &changes, now);
        }
    }

    async fn turn_forever(&mut self, events: &mut mpsc::Receiver<Event>) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let now = Instant::now();
            let mut has_news = false;
            for host in 0..self.hosts.len() {
                let changes = self.hosts[host].advance(&self.shared, now);
                has_news |= !changes.is_empty();
                self.deliver(host, &changes, now);
            }
            let now = Instant::now();
            let wake = self.hosts.iter().filter_map(|host| host.next_wake(now)).min();
            // Timers count whole milliseconds: a controller that is due now must not wait for the next one. Nor must a
            // controller whose turn was over when another controller changed the world.
            let is_due = has_news || wake.is_some_and(|wake| wake <= now) || !batch.is_empty();
            tokio::select! {
                biased;
                () = finished(&mut self.hosts) => (),
                count = events.recv_many(&mut batch, BATCH), if batch.is_empty() => {
                    if count == 0 {
                        return;
                    }
                }
                () = self.waker.woken() => (),
                () = tokio::task::yield_now(), if is_due => (),
                () = sleep_until(wake), if wake.is_some() && !is_due => (),
            }
            // Process everything that is ready, not only what woke the loop.
            let now = Instant::now();
            for host in 0..self.hosts.len() {
                let changes = self.hosts[host].complete(&self.shared, now, BATCH);
                self.deliver(host, &changes, now);
            }
            while batch.len() < BATCH
                && let Ok(event) = events.try_recv()
            {
                batch.push(event);
            }
            self.apply(&mut batch, now);
        }
    }

    /// Applies events until the batch or the time budget is used up, and reports each to the controllers.
    fn apply(&mut self, batch: &mut Vec<Event>, now: Instant) {
        if batch.is_empty() {
            return;
        }
        let Runtime { shared, hosts, .. } = self;
        let mut held = vec![Duration::ZERO; hosts.len()];
        let mut applied = 0;
        let mut left = std::mem::take(batch).into_iter();
        {
            let mut world = shared.owner.write();
            let stopwatch = Stopwatch::start();
            for event in left.by_ref() {
                world.apply(event);
                applied += 1;
                for change in world.take_changes() {
                    shared.gate.observe(&change, now);
                    let mut before = Instant::now();
                    for (host, held) in hosts.iter_mut().zip(&mut held) {
                        host.observe(&change, &world, now);
                        let after = Instant::now();
                        *held += after - before;
                        before = after;
                    }
                }
                if stopwatch.is_spent() {
                    break;
                }
            }
        }
        batch.extend(left);
        shared.stats.events_applied.add(applied);
        for (host, held) in hosts.iter().zip(held) {
            shared.stats.step(host.name(), Step::Observe, held);
        }
    }

    /// Reports the changes of one controller to all others.
    fn deliver(&mut self, from: usize, changes: &OwnChanges, now: Instant) {
        if changes.is_empty() {
            return;
        }
        let Runtime { shared, hosts, .. } = self;
        let world = shared.owner.shared();
        let world = world.read();
        for (_, host) in hosts.iter_mut().enumerate().filter(|(number, _)| *number != from) {
            let stopwatch = Stopwatch::start();
            changes.iter().for_each(|change| host.observe(change, &world, now));
            shared.stats.step(host.name(), Step::Observe, stopwatch.elapsed());
        }
    }
}

/// Waits until work of any controller has finished.
async fn finished(hosts: &mut [Box<dyn Host>]) {
    std::future::poll_fn(|task| {
        // Poll all of them, so that each registers this task's waker.
        let ready = hosts.iter_mut().map(|host| usize::from(host.poll_finished(task).is_ready())).sum::<usize>();
        if ready > 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
