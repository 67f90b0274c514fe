//! Decides when the scheduler runs, and executes its effects.
//!
//! In: changes of the world, and the outcomes of actions. Out: pods scheduled one after the other, and their effects:
//! bindings and status writes, each with a bound on how many are in flight and how many wait; Events.
//!
//! Invariants: a pod is scheduled only while a binding could start immediately, so no assumed pod waits. As
//! kube-scheduler does, it decides from the last known state while a source of Kubernetes is lost or listed again; after
//! the gate's limit, earlier decisions are still executed, and no new ones are made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::event::{Event, Source, VcenterId};
use model::{Parts, World, WorldChange};
use scheduler::plugins::ApiBinding;
use scheduler::{Changes, Configuration, Effect, Input, PodEvent, PodRef, Scheduler, Work};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::evict::{self, EvictJob, Evicted};
use super::execute::{self, BindJob, SchedulingAction, SchedulingOutcome, SharedExecutor, StatusJob, WorkJob};
use super::messages::Message;
use super::status_order::StatusOrder;
use super::work::{self, BindWorkEnd, WorkEnd, WorkError, WorkPoint};
use super::{Attempt, PluginTools, SchedulingMetrics, SchedulingSettings};
use crate::binding::{BindEnd, is_known};
use crate::ports::{Occurrence, PodName, Regarding, Severity};
use crate::runtime::{Closed, Context, Controller, LaneId, LaneSettings, Repeat};

pub const NAME: &str = "scheduling";
const BINDS: LaneId = LaneId(0);
const STATUS: LaneId = LaneId(1);
const WORK: LaneId = LaneId(2);
const EVICTIONS: LaneId = LaneId(3);
/// Pods are scheduled only while the lane has room, which bounds the waiting bindings; Permit and PreBind may add some.
const BINDS_WAITING_MAX: usize = 100_000;
const STATUS_WAITING_MAX: usize = 50_000;
const WORK_WAITING_MAX: usize = 100_000;
const EVICTIONS_WAITING_MAX: usize = 100_000;
/// How soon after a change the figures show it.
const FIGURES_WITHIN: Duration = Duration::from_millis(100);
/// How often a process that does not lead checks whether it does.
const LEASE_EVERY: Duration = Duration::from_secs(1);
/// The same failure is recorded again before Kubernetes deletes the first Event (after an hour).
const REPEAT: Repeat = Repeat { same_after: Some(Duration::from_secs(600)), changed_after: Duration::ZERO };

type SchedulingContext<'a> = Context<'a, SchedulingAction, SchedulingOutcome>;

pub struct Scheduling {
    scheduler: Scheduler,
    settings: SchedulingSettings,
    metrics: Arc<dyn SchedulingMetrics>,
    /// The origin of the scheduler's own time.
    start: Instant,
    /// All sources were in sync once. Before that, changes are not passed to the scheduler.
    has_begun: bool,
    /// Until when the first decision waits for vCenters.
    vcenter_wait_until: Option<Instant>,
    wake_at: Option<Instant>,
    /// When the figures are published next; `None` if nothing has happened since the last time.
    figures_at: Option<Instant>,
    /// The effects of observed changes.
    effects: Vec<Effect>,
    /// More pods can be tried now.
    has_more: bool,
    lease_at: Option<Instant>,
    was_leading: bool,
    tools: PluginTools,
    /// The work in progress or about to be repeated, by the UID of its pod, to cancel it.
    in_work: BTreeMap<String, Arc<Notify>>,
    status_order: StatusOrder,
    /// Evictions that wait until the nomination of the pod that they are for is written, by its UID.
    evictions: BTreeMap<String, (EvictJob, Instant)>,
    /// Work to be repeated, and when.
    repeats: BTreeMap<Instant, Vec<WorkJob>>,
}

impl Scheduling {
    #[must_use]
    pub fn new(
        configuration: Configuration,
        settings: SchedulingSettings,
        metrics: Arc<dyn SchedulingMetrics>,
        now: Instant,
    ) -> Scheduling {
        let scheduler = Scheduler::new(configuration, settings.seed);
        Scheduling {
            scheduler: match metrics.probe() {
                Some(probe) => scheduler.measured_by(probe),
                None => scheduler,
            },
            metrics,
            start: now,
            has_begun: false,
            vcenter_wait_until: Some(now + settings.vcenter_wait_max).filter(|_| !settings.vcenters.is_empty()),
            wake_at: None,
            figures_at: None,
            effects: Vec::new(),
            has_more: false,
            lease_at: None,
            was_leading: false,
            tools: PluginTools::default(),
            in_work: BTreeMap::new(),
            status_order: StatusOrder::default(),
            evictions: BTreeMap::new(),
            repeats: BTreeMap::new(),
            settings,
        }
    }

    /// With plugins that have executors or receive messages.
    #[must_use]
    pub fn with_tools(self, tools: PluginTools) -> Scheduling {
        Scheduling { tools, ..self }
    }

    /// Converts to the scheduler's own time.
    fn at(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }

    fn begin_if_in_sync(&mut self, world: &World, now: Instant) {
        let has_hosts = || self.settings.vcenters.iter().all(|id| world.has_answered(Source::Vcenter(*id)));
        if !world.has_all_for(Parts::SCHEDULING) || (self.vcenter_wait_until.is_some() && !has_hosts()) {
            return;
        }
        (self.has_begun, self.vcenter_wait_until) = (true, None);
        tracing::info!(nodes = world.node_count(), pods = world.pod_count(), "scheduling starts");
        let effects = self.scheduler.observe(self.at(now), world, &Changes::all());
        self.effects.extend(effects);
    }

    /// Ends the wait for vCenters when its time is over.
    fn stop_waiting_for_vcenters(&mut self, context: &mut SchedulingContext<'_>) {
        if self.vcenter_wait_until.is_none_or(|until| context.now < until) {
            return;
        }
        self.vcenter_wait_until = None;
        let world = context.world.read();
        let is_unread = |id: &&VcenterId| !world.in_sync(Source::Vcenter(**id));
        let unread = self.settings.vcenters.iter().filter(is_unread).count();
        tracing::warn!(unread, "vCenters are not in sync yet: until they are, hosts come from node labels");
        self.begin_if_in_sync(world, context.now);
    }

    /// Publishes the figures for many changes at once, because counting takes longer than most changes.
    fn show_figures(&mut self, now: Instant) {
        if *self.figures_at.get_or_insert(now + FIGURES_WITHIN) <= now {
            self.metrics.figures(&self.scheduler.figures());
            self.figures_at = None;
        }
    }

    /// Schedules pods while there is room for bindings and time.
    fn decide(&mut self, context: &mut SchedulingContext<'_>) {
        self.has_more = false;
        let room = context.actions.room(BINDS);
        if room == 0 || !self.has_begun || !self.scheduler.has_work() || context.gate.is_dry_run() {
            return;
        }
        if !context.is_leading {
            self.lease_at = Some(context.now + LEASE_EVERY);
            return;
        }
        // `has_begun`: all were listed once. A source that was lost for too long wakes the loop with its next list.
        if !model::sources_for(Parts::SCHEDULING).all(|row| context.gate.is_fresh(row.source, context.now)) {
            return;
        }
        let at = self.at(context.now);
        let world = context.world.write();
        let mut decided = Vec::with_capacity(room);
        // At least one: waiting for the lock may have used up the time.
        while decided.len() < room && self.scheduler.has_work() && (decided.is_empty() || !context.stopwatch.is_spent())
        {
            let began = context.stopwatch.elapsed();
            let effects = self.scheduler.step(at, world, Input::Schedule { at_most: 1 });
            self.metrics.decided(context.stopwatch.elapsed().saturating_sub(began));
            decided.push((effects, context.now + began));
        }
        for (effects, began) in decided {
            self.take(effects, began, context);
        }
        self.has_more = self.scheduler.has_work() && context.actions.room(BINDS) > 0;
    }

    fn step(&mut self, input: Input, began: Instant, context: &mut SchedulingContext<'_>) {
        let effects = self.scheduler.step(self.at(context.now), context.world.write(), input);
        self.take(effects, began, context);
    }

    /// Executes effects. `began` is the start of the attempt that they belong to.
    fn take(&mut self, effects: Vec<Effect>, began: Instant, context: &mut SchedulingContext<'_>) {
        for effect in effects {
            match effect {
                Effect::Bind { pod, node, plugin, work } => self.bind(pod, node, plugin, work, began, context),
                Effect::PreBind { pod, node, plugin, work } => self.work(pod, node, plugin, work, began, context),
                Effect::Cancel { pod } => {
                    if let Some(cancelled) = self.in_work.get(&pod.uid) {
                        cancelled.notify_one();
                    }
                }
                Effect::SetCondition { pod, reason, message, nomination } => {
                    let (pod, reason) = (execute::name(&pod), reason.as_str());
                    self.write(StatusJob::NotScheduled { pod, reason, message, nomination }, context);
                }
                Effect::Nominate { pod, node } => {
                    self.write(StatusJob::Nominate { pod: execute::name(&pod), node }, context);
                }
                Effect::Preempt { pod, node, profile, victims } => {
                    self.evict(EvictJob { pod, node, profile, victims }, began, context);
                }
                Effect::VictimsChosen { count } => self.metrics.preempted(count),
                Effect::PostEvent { pod, profile, event } => {
                    if let PodEvent::Doubtful(doubt) = &event {
                        self.metrics.doubted(doubt.reason);
                    }
                    record(pod, profile, event, context);
                }
                Effect::Concluded { profile, result, attempts } => {
                    let now = context.now + context.stopwatch.elapsed();
                    self.metrics.attempted(&Attempt {
                        profile: &profile,
                        result,
                        count: attempts.count,
                        took: now.saturating_duration_since(began),
                        waited: self.at(now).saturating_sub(attempts.since),
                    });
                }
                Effect::WakeAt(moment) => self.wake_at = Some(self.start + moment),
            }
        }
    }

    /// Binds the pod through the API, or with the executor of the plugin that took it.
    fn bind(
        &mut self,
        pod: PodRef,
        node: String,
        plugin: &'static str,
        work: Work,
        began: Instant,
        context: &mut SchedulingContext<'_>,
    ) {
        let executor = self.tools.executors.of(WorkPoint::Bind, plugin).cloned().map(SharedExecutor);
        if executor.is_none() && work.get::<ApiBinding>().is_none() {
            let error = format!("Bind plugin {plugin} has no executor");
            return self.step(Input::Failed { pod, error }, began, context);
        }
        let job = SchedulingAction::Bind(BindJob { pod, node, plugin, work, executor, began });
        if let Err(SchedulingAction::Bind(job)) = context.actions.send(BINDS, job) {
            let error = "too many bindings are waiting".to_owned();
            self.step(Input::Failed { pod: job.pod, error }, began, context);
        }
    }

    /// Starts the work of a PreBind plugin.
    fn work(
        &mut self,
        pod: PodRef,
        node: String,
        plugin: &'static str,
        work: Work,
        began: Instant,
        context: &mut SchedulingContext<'_>,
    ) {
        let Some(executor) = self.tools.executors.of(WorkPoint::PreBind, plugin).cloned().map(SharedExecutor) else {
            let error = format!("PreBind plugin {plugin} has no executor");
            return self.step(Input::Failed { pod, error }, began, context);
        };
        let until = context.now + executor.0.within();
        let cancelled = Arc::<Notify>::default();
        self.in_work.insert(pod.uid.clone(), cancelled.clone());
        self.send_work(WorkJob { pod, node, plugin, work, executor, cancelled, began, until, failures: 0 }, context);
    }

    fn send_work(&mut self, job: WorkJob, context: &mut SchedulingContext<'_>) {
        if let Err(SchedulingAction::Work(job)) = context.actions.send(WORK, SchedulingAction::Work(job)) {
            self.work_failed(job, "too much work of PreBind plugins is waiting".to_owned(), context);
        }
    }

    /// Evicts when the nomination is written: by it another instance knows for which pod the victims go, should this one end meanwhile, and
    /// evicts no others.
    fn evict(&mut self, job: EvictJob, began: Instant, context: &mut SchedulingContext<'_>) {
        if self.status_order.is_under_way(&job.pod.uid) {
            // One for each pod: a pod is not tried while it waits for evictions.
            self.evictions.insert(job.pod.uid.clone(), (job, began));
        } else {
            self.send_eviction(job, began, context);
        }
    }

    fn send_eviction(&mut self, job: EvictJob, began: Instant, context: &mut SchedulingContext<'_>) {
        let EvictJob { pod, node, victims, .. } = &job;
        let victims = evict::names(victims, node);
        tracing::info!(namespace = pod.namespace, pod = pod.name, node, victims, "evicting pods to make room");
        if let Err(SchedulingAction::Evict(job)) = context.actions.send(EVICTIONS, SchedulingAction::Evict(job)) {
            self.evict_failed(job, "too many evictions are waiting".to_owned(), began, context);
        }
    }

    /// The pod that was to get the room is decided again.
    fn evict_failed(&mut self, job: EvictJob, error: String, began: Instant, context: &mut SchedulingContext<'_>) {
        self.evicted(job, Evicted { error: Some(error), ..Evicted::default() }, began, context);
    }

    fn evicted(&mut self, job: EvictJob, end: Evicted, began: Instant, context: &mut SchedulingContext<'_>) {
        let (EvictJob { pod, node, .. }, Evicted { victims, error }) = (job, end);
        if let Some(error) = &error {
            tracing::warn!(namespace = pod.namespace, pod = pod.name, node, error, "could not evict all pods");
        }
        self.step(Input::Evicted { pod, node, victims, error }, began, context);
    }

    fn work_failed(&mut self, job: WorkJob, error: String, context: &mut SchedulingContext<'_>) {
        self.in_work.remove(&job.pod.uid);
        self.step(Input::Failed { pod: job.pod, error }, job.began, context);
    }

    /// Repeats the work whose time has come. Each time it passes the gate again.
    fn repeat_work(&mut self, context: &mut SchedulingContext<'_>) {
        while let Some(due) = self.repeats.first_entry().filter(|due| *due.key() <= context.now) {
            for job in due.remove() {
                self.send_work(job, context);
            }
        }
    }

    fn work_ended(&mut self, mut job: WorkJob, end: Result<WorkEnd, WorkError>, context: &mut SchedulingContext<'_>) {
        let (pod, plugin, began) = (job.pod.clone(), job.plugin, job.began);
        let input = match end {
            Ok(WorkEnd::Done) => Input::PreBound { pod, plugin },
            Ok(WorkEnd::Declined) => {
                let error = format!("PreBind plugin {plugin} declined its own work");
                Input::Failed { pod, error }
            }
            Err(WorkError::Rejected(reason)) => Input::Rejected { pod, plugin, reason },
            Err(WorkError::Transient(error)) => {
                job.failures += 1;
                let again = context.now + work::BACKOFF.without_jitter(job.failures);
                if again < job.until {
                    tracing::debug!(namespace = pod.namespace, pod = pod.name, plugin, error, "repeating work");
                    self.repeats.entry(again).or_default().push(job);
                    return;
                }
                Input::Failed { pod, error: format!("running PreBind plugin {plugin:?}: {error}") }
            }
            Err(WorkError::Failed(error)) => {
                Input::Failed { pod, error: format!("running PreBind plugin {plugin:?}: {error}") }
            }
        };
        self.in_work.remove(&job.pod.uid);
        self.step(input, began, context);
    }

    /// Gives up what waits when the lease is lost: another process decides about these pods now.
    fn follow_lease(&mut self, context: &mut SchedulingContext<'_>) {
        let is_lost = self.was_leading && !context.is_leading;
        self.was_leading = context.is_leading;
        if is_lost {
            for job in std::mem::take(&mut self.repeats).into_values().flatten() {
                self.in_work.remove(&job.pod.uid);
            }
            self.step(Input::LeaseLost, context.now, context);
        }
    }

    fn read_messages(&mut self, context: &mut SchedulingContext<'_>) {
        for Message { plugin, message } in self.tools.messages.take() {
            self.step(Input::Message { plugin, message }, context.now, context);
        }
    }

    fn write(&mut self, job: StatusJob, context: &mut SchedulingContext<'_>) {
        let uid = job.pod().uid.clone();
        let next = self.status_order.admit(job);
        self.send_status(&uid, next, context);
    }

    fn status_ended(&mut self, uid: &str, context: &mut SchedulingContext<'_>) {
        let next = self.status_order.ended(uid);
        self.send_status(uid, next, context);
        // Also if the write failed, as kube-scheduler does: the room is needed nevertheless.
        if !self.status_order.is_under_way(uid)
            && let Some((job, began)) = self.evictions.remove(uid)
        {
            self.send_eviction(job, began, context);
        }
    }

    fn send_status(&mut self, uid: &str, mut next: Option<StatusJob>, context: &mut SchedulingContext<'_>) {
        while let Some(job) = next.take() {
            if context.actions.send(STATUS, SchedulingAction::Status(job)).is_err() {
                self.metrics.status_dropped();
                next = self.status_order.ended(uid);
            }
        }
    }

    fn bind_ended(&mut self, job: BindJob, end: BindWorkEnd, context: &mut SchedulingContext<'_>) {
        let BindJob { pod, node, plugin, executor, began, .. } = job;
        let is_own = executor.is_some();
        let end = match end {
            BindWorkEnd::Ended(end) => end,
            BindWorkEnd::Declined => return self.step(Input::Declined { pod, plugin }, began, context),
            BindWorkEnd::Rejected { reason } => {
                return self.step(Input::Rejected { pod, plugin, reason }, began, context);
            }
        };
        let (error, known) = match end {
            BindEnd::Bound => return self.step(Input::Bound { pod }, began, context),
            BindEnd::Failed { error } => (error, None),
            BindEnd::Changed { error, pod } => (error, Some(Event::PodApplied(*pod))),
            BindEnd::NotFound { error } => {
                let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
                (error, Some(Event::PodDeleted { namespace, name }))
            }
        };
        let error = if is_own { format!("running Bind plugin {plugin:?}: {error}") } else { error.to_string() };
        tracing::warn!(namespace = pod.namespace, pod = pod.name, node, error, "could not bind a pod");
        if let Some(event) = known
            && is_known(context.world.read(), &pod.namespace, &pod.name, &pod.uid)
        {
            // The read pod is newer than the watched state. If it is not, the watch corrects it.
            let world = context.world.write();
            let change = world.apply(event);
            let effects = self.scheduler.observe(self.at(context.now), world, &Changes::of(&change));
            self.take(effects, began, context);
        }
        self.step(Input::Failed { pod, error }, began, context);
    }
}

impl Controller for Scheduling {
    type Action = SchedulingAction;
    type Outcome = SchedulingOutcome;

    fn name(&self) -> &'static str {
        NAME
    }

    fn lanes(&self) -> Vec<LaneSettings> {
        vec![
            LaneSettings {
                rate: self.settings.writes,
                ..LaneSettings::with_queue(self.settings.binds_in_flight_max, BINDS_WAITING_MAX)
            },
            LaneSettings {
                rate: self.settings.writes,
                ..LaneSettings::with_queue(self.settings.status_in_flight_max, STATUS_WAITING_MAX)
            },
            LaneSettings::with_queue(self.settings.work_in_flight_max, WORK_WAITING_MAX),
            LaneSettings {
                rate: self.settings.writes,
                ..LaneSettings::with_queue(self.settings.evictions_in_flight_max, EVICTIONS_WAITING_MAX)
            },
        ]
    }

    /// Passes each change to the scheduler separately: whether it helps a pod depends on the state before.
    fn observe(&mut self, change: &WorldChange, world: &World, now: Instant) {
        self.tools.volume_changes.observe(change);
        if !self.has_begun {
            return self.begin_if_in_sync(world, now);
        }
        let changes = Changes::of(change);
        if !changes.is_empty() {
            let effects = self.scheduler.observe(self.at(now), world, &changes);
            self.effects.extend(effects);
        }
    }

    fn advance(&mut self, context: &mut SchedulingContext<'_>) {
        self.stop_waiting_for_vcenters(context);
        self.follow_lease(context);
        let effects = std::mem::take(&mut self.effects);
        self.take(effects, context.now, context);
        self.repeat_work(context);
        self.read_messages(context);
        if self.wake_at.is_some_and(|wake| wake <= context.now) {
            self.wake_at = None;
            self.step(Input::Time, context.now, context);
        }
        self.lease_at = None;
        self.decide(context);
        self.show_figures(context.now);
    }

    fn completed(&mut self, outcome: SchedulingOutcome, context: &mut SchedulingContext<'_>) {
        match outcome {
            SchedulingOutcome::Bind { job, end } => self.bind_ended(job, end, context),
            SchedulingOutcome::Work { job, end } => self.work_ended(job, end, context),
            SchedulingOutcome::Evicted { job, end } => self.evicted(job, end, context.now, context),
            SchedulingOutcome::Status { pod: PodName { namespace, name, uid }, end } => {
                if let Err(error) = end {
                    tracing::debug!(%error, "could not write the status of a pod");
                    self.scheduler.report_again(context.world.read(), &namespace, &name, &uid);
                }
                self.status_ended(&uid, context);
            }
        }
    }

    fn refused(&mut self, action: SchedulingAction, closed: Closed, context: &mut SchedulingContext<'_>) {
        let error = format!("the pod cannot be bound now: {}", closed.as_str());
        match action {
            SchedulingAction::Bind(BindJob { pod, began, .. }) => {
                self.step(Input::Failed { pod, error }, began, context);
            }
            SchedulingAction::Work(job) => self.work_failed(job, error, context),
            SchedulingAction::Evict(job) => self.evict_failed(job, error, context.now, context),
            SchedulingAction::Status(job) => self.status_ended(&job.pod().uid, context),
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        // A moment in the past if pods can be tried now.
        let more = (self.has_more || !self.tools.messages.is_empty()).then_some(self.start);
        let repeat = self.repeats.first_key_value().map(|(at, _)| *at);
        let wakes = [self.wake_at, self.figures_at, self.vcenter_wait_until, self.lease_at, repeat, more];
        wakes.into_iter().flatten().min()
    }
}

/// In the name of the scheduler, as kube-scheduler does.
fn record(pod: PodRef, profile: String, event: PodEvent, context: &SchedulingContext<'_>) {
    let PodRef { namespace, name, uid, .. } = pod;
    let (regarding, reporter) = (Regarding::Pod { namespace, name, uid }, Some(profile));
    let (severity, reason, message) = match event {
        PodEvent::Scheduled { message } => {
            tracing::debug!("{message}");
            let severity = Severity::Normal;
            let occurrence = Occurrence { regarding, severity, reason: "Scheduled", message, reporter };
            return context.events.conclude(NAME, occurrence, context.now);
        }
        PodEvent::FailedScheduling { message } => (Severity::Warning, "FailedScheduling", message),
        PodEvent::Preempted { message } => (Severity::Normal, "Preempted", message),
        PodEvent::Doubtful(doubt) => (Severity::Warning, doubt.reason, doubt.message),
        PodEvent::Yielded(concession) => (Severity::Warning, concession.reason, concession.message.to_owned()),
    };
    let occurrence = Occurrence { regarding, severity, reason, message, reporter };
    context.events.record(NAME, occurrence, REPEAT, context.now);
}
