//! The loop of the scheduler.
//!
//! In: events, and the ends of what was sent. Out: the world kept up to date, pods decided one after the other, and their
//! effects on the way: bindings, status, Kubernetes events, each with a bound on how many at once and how many in line.
//!
//! Invariants: a pod is decided only while a binding could begin at once, so nothing waits assumed; neither events nor
//! answers can starve the other; what was decided before Kubernetes was lost is carried through, and nothing new begun.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use model::World;
use model::event::{Event, Source, VcenterId};
use scheduler::{Changes, Configuration, Effect, Input, PodEvent, PodRef, Scheduler, observe};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::bind::Outcome;
use super::carry_out::{self, BindJob, Done, Flight, StatusJob};
use super::lane::Lane;
use super::told::Told;
use super::{Attempt, Dropped, SchedulingPorts, SchedulingSettings};
use crate::SharedWorld;
use crate::pace::sleep_until;
use crate::ports::Notice;

/// How many events, or answers, are taken before anything else gets its turn.
const BATCH: usize = 1024;
/// Some seconds of what an API server can take.
const NOTICES_WAITING_MAX: usize = 100_000;
const STATUS_WAITING_MAX: usize = 50_000;
/// How soon after something happened the figures say so.
const FIGURES_WITHIN: Duration = Duration::from_millis(100);

pub struct Driver {
    world: SharedWorld,
    scheduler: Scheduler,
    ports: SchedulingPorts,
    start: Instant,
    /// Everything has been seen once: before that, events only fill the world.
    has_begun: bool,
    vcenters: Vec<VcenterId>,
    /// Until when vCenters are waited for.
    patient_until: Option<Instant>,
    wake_at: Option<Instant>,
    /// When the figures are told next; nothing happened since they last were if there is no such moment.
    figures_at: Option<Instant>,
    binds: Lane<BindJob>,
    status: Lane<StatusJob>,
    notices: Lane<Notice>,
    told: Told,
    in_flight: FuturesUnordered<Flight>,
}

impl Driver {
    #[must_use]
    pub fn new(configuration: Configuration, settings: &SchedulingSettings, ports: SchedulingPorts) -> Driver {
        let start = Instant::now();
        Driver {
            world: Arc::new(RwLock::new(World::with_lifting(settings.lifting.clone()))),
            scheduler: Scheduler::new(configuration, settings.seed),
            ports,
            start,
            has_begun: false,
            vcenters: settings.vcenters.clone(),
            patient_until: Some(start + settings.vcenter_patience).filter(|_| !settings.vcenters.is_empty()),
            wake_at: None,
            figures_at: None,
            // What waits to be bound is bounded by deciding only while there is room; Permit and PreBind may add some.
            binds: Lane::new(settings.binds_in_flight_max, usize::MAX),
            status: Lane::new(settings.status_in_flight_max, STATUS_WAITING_MAX),
            notices: Lane::new(settings.notices_in_flight_max, NOTICES_WAITING_MAX),
            told: Told::default(),
            in_flight: FuturesUnordered::new(),
        }
    }

    #[must_use]
    pub fn world(&self) -> SharedWorld {
        self.world.clone()
    }

    /// Runs until every sender of events is gone.
    pub async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let has_more = self.decide();
            self.send();
            self.tell_figures();
            let (wake, figures, patience) = (self.wake_at, self.figures_at, self.patient_until);
            tokio::select! {
                biased;
                Some(done) = self.in_flight.next(), if !self.in_flight.is_empty() => self.finish(done),
                count = events.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        return;
                    }
                }
                () = sleep_until(wake), if wake.is_some() => {
                    self.wake_at = None;
                    self.step(Input::Time, Instant::now());
                }
                () = sleep_until(patience), if patience.is_some() => self.lose_patience(),
                () = sleep_until(figures), if figures.is_some() => (),
                () = tokio::task::yield_now(), if has_more => (),
            }
            // Whatever woke the loop, the rest of what is ready is taken too.
            for _ in 0..BATCH {
                match self.in_flight.next().now_or_never() {
                    Some(Some(done)) => self.finish(done),
                    _ => break,
                }
            }
            while batch.len() < BATCH
                && let Ok(event) = events.try_recv()
            {
                batch.push(event);
            }
            self.apply(&mut batch);
        }
    }

    /// Takes events in. The scheduler hears of each one by one: what helps a pod depends on what there was before.
    fn apply(&mut self, batch: &mut Vec<Event>) {
        if batch.is_empty() {
            return;
        }
        let (world, now) = (self.world.clone(), self.now());
        let mut world = world.write().unwrap_or_else(PoisonError::into_inner);
        let mut effects = Vec::new();
        for event in batch.drain(..) {
            if self.has_begun {
                let (_, changes) = observe::apply(&mut world, event);
                if !changes.is_empty() {
                    effects.extend(self.scheduler.step(now, &mut world, Input::Changed(changes)));
                }
                continue;
            }
            world.apply(event);
            effects.extend(self.begin_if_all_is_seen(now, &mut world));
        }
        drop(world);
        self.take(effects, Instant::now());
    }

    fn begin_if_all_is_seen(&mut self, now: Duration, world: &mut World) -> Vec<Effect> {
        let has_hosts = || self.vcenters.iter().all(|id| world.in_sync(Source::Vcenter(*id)));
        if !is_in_sync(world) || (self.patient_until.is_some() && !has_hosts()) {
            return Vec::new();
        }
        (self.has_begun, self.patient_until) = (true, None);
        tracing::info!(nodes = world.node_count(), pods = world.pod_count(), "everything has been seen");
        let everything = Changes { everything: true, ..Changes::default() };
        self.scheduler.step(now, world, Input::Changed(everything))
    }

    /// vCenters were waited for long enough.
    fn lose_patience(&mut self) {
        self.patient_until = None;
        let (world, now) = (self.world.clone(), self.now());
        let mut world = world.write().unwrap_or_else(PoisonError::into_inner);
        let unread = self.vcenters.iter().filter(|id| !world.in_sync(Source::Vcenter(**id))).count();
        tracing::warn!(unread, "vCenters have not been read yet: until they are, hosts come from the labels of nodes");
        let effects = self.begin_if_all_is_seen(now, &mut world);
        drop(world);
        self.take(effects, Instant::now());
    }

    /// Counting takes longer than many a thing that happens, so it is done for many of them at once.
    fn tell_figures(&mut self) {
        let now = Instant::now();
        if *self.figures_at.get_or_insert(now + FIGURES_WITHIN) <= now {
            self.ports.recorder.figures(&self.scheduler.figures());
            self.figures_at = None;
        }
    }

    /// Decides as many pods as there is room for bindings; `true` when there are more that could be tried right now.
    fn decide(&mut self) -> bool {
        let room = self.binds.room();
        if room == 0 || !self.has_begun || !self.scheduler.has_work() {
            return false;
        }
        let mut decided = Vec::with_capacity(room);
        {
            let (world, now) = (self.world.clone(), self.now());
            let mut world = world.write().unwrap_or_else(PoisonError::into_inner);
            if !is_in_sync(&world) {
                return false;
            }
            while decided.len() < room && self.scheduler.has_work() {
                let began = Instant::now();
                let effects = self.scheduler.step(now, &mut world, Input::Schedule { at_most: 1 });
                self.ports.recorder.decided(began.elapsed());
                decided.push((effects, began));
            }
        }
        for (effects, began) in decided {
            self.take(effects, began);
        }
        self.scheduler.has_work() && self.binds.room() > 0
    }

    fn step(&mut self, input: Input, began: Instant) {
        let (world, now) = (self.world.clone(), self.now());
        let mut world = world.write().unwrap_or_else(PoisonError::into_inner);
        let effects = self.scheduler.step(now, &mut world, input);
        drop(world);
        self.take(effects, began);
    }

    /// Takes effects over. `began` is when the attempt they belong to did.
    fn take(&mut self, effects: Vec<Effect>, began: Instant) {
        for effect in effects {
            match effect {
                Effect::Bind { pod, node, .. } => {
                    // The line has no end of its own.
                    let _ = self.binds.push(BindJob { pod, node, began });
                }
                Effect::PreBind { pod, plugin, .. } => {
                    let error = format!("nothing is known of the work of PreBind plugin {plugin}");
                    self.step(Input::Failed { pod, error }, began);
                }
                Effect::SetCondition { pod, reason, message } => {
                    let pod = carry_out::name(&pod);
                    self.write(StatusJob::NotScheduled { pod, reason: reason.as_str(), message });
                }
                Effect::Nominate { pod, node } => {
                    self.write(StatusJob::Nominate { pod: carry_out::name(&pod), node });
                }
                Effect::Preempt { pod, node, victims } => {
                    tracing::info!(
                        namespace = pod.namespace,
                        pod = pod.name,
                        node,
                        victims = victims.len(),
                        "making room"
                    );
                    for victim in &victims {
                        self.write(StatusJob::Delete { pod: carry_out::name(victim) });
                    }
                }
                Effect::PostEvent { pod, event } => self.tell(pod, event),
                Effect::Concluded { profile, result, attempts } => {
                    self.ports.recorder.attempted(&Attempt {
                        profile: &profile,
                        result,
                        count: attempts.count,
                        took: began.elapsed(),
                        waited: self.now().saturating_sub(attempts.since),
                    });
                }
                Effect::WakeAt(moment) => self.wake_at = Some(self.start + moment),
            }
        }
    }

    fn write(&mut self, job: StatusJob) {
        if !self.status.push(job) {
            self.ports.recorder.dropped(Dropped::Status);
        }
    }

    fn tell(&mut self, pod: PodRef, event: PodEvent) {
        let complaint = match &event {
            PodEvent::Scheduled { message } => {
                self.told.forget(&pod.uid);
                tracing::debug!("{message}");
                None
            }
            PodEvent::FailedScheduling { message } => Some(message.as_str()),
            PodEvent::Yielded(told) => Some(told.message),
        };
        if let Some(message) = complaint {
            if !self.told.is_news(&pod.uid, message, Instant::now()) {
                return;
            }
            tracing::debug!(namespace = pod.namespace, pod = pod.name, "{message}");
        }
        if !self.notices.push(carry_out::event(pod, event)) {
            self.ports.recorder.dropped(Dropped::Notice);
        }
    }

    /// Sends what may be under way.
    fn send(&mut self) {
        while let Some(job) = self.binds.begin() {
            self.in_flight.push(carry_out::bind(self.ports.clone(), job));
        }
        while let Some(job) = self.status.begin() {
            self.in_flight.push(carry_out::status(self.ports.clone(), job));
        }
        while let Some(notice) = self.notices.begin() {
            self.in_flight.push(carry_out::notice(self.ports.clone(), notice));
        }
    }

    fn finish(&mut self, done: Done) {
        match done {
            Done::Bind { job, outcome } => {
                self.binds.finished();
                self.finish_bind(job, outcome);
            }
            Done::Status(result) => {
                self.status.finished();
                if let Err(error) = result {
                    tracing::debug!(%error, "the status of a pod could not be written");
                }
            }
            Done::Notice(result) => {
                self.notices.finished();
                self.ports.recorder.notice(result.is_ok());
                if let Err(error) = result {
                    tracing::debug!(%error, "an event could not be posted");
                }
            }
        }
    }

    fn finish_bind(&mut self, job: BindJob, outcome: Outcome) {
        let BindJob { pod, node, began } = job;
        let (error, known) = match outcome {
            Outcome::Bound => return self.step(Input::Bound { pod }, began),
            Outcome::Failed { error } => (error, None),
            Outcome::Changed { error, pod } => (error, Some(Event::PodApplied(*pod))),
            Outcome::Gone { error } => {
                let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
                (error, Some(Event::PodDeleted { namespace, name }))
            }
        };
        tracing::warn!(namespace = pod.namespace, pod = pod.name, node, error, "a pod could not be bound");
        // What was read is newer than what the watch has told; it is put right should the watch say otherwise.
        let mut batch: Vec<Event> = known.into_iter().collect();
        self.apply(&mut batch);
        self.step(Input::Failed { pod, error }, began);
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

/// All of Kubernetes that decisions rest on; vCenters do not matter.
fn is_in_sync(world: &World) -> bool {
    world.has_all_for(model::Parts::SCHEDULING)
}
