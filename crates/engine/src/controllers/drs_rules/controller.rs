//! Decides when to plan, starts the passes, and handles their outcomes.
//!
//! In: changes of the world, time, responses of vCenter and the record store. Out: plans to compute, passes to execute,
//! reports.
//!
//! Changes of the world are batched for a moment and then planned together, off the loop. Changes during a plan make
//! another plan due. After the plan each cluster is independent: a pass, then a wait until the watch shows its changes,
//! or after a failure a wait that grows. After a failed record write the cluster waits until the record has been read
//! again. While pods keep arriving, the interval between plans, and between a cluster's passes, grows with their
//! duration, because the machine, vCenter and the API server have other work too.
//!
//! - `ends`: handles the end of a pass. `change_reports`: what the changes are reported as.
//!
//! Invariant: a plan that is due is eventually made, also when something prevents it at first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drs::{ClusterKey, Record, UnixMillis};
use model::event::{Source, VcenterId};
use model::{Part, Subject, World, WorldChange};
use tokio::time::Instant;

use super::RuleSettings;
use super::causes::Causes;
use super::change_reports::report;
use super::counters::RuleCounters;
use super::deferred::DeferredChanges;
use super::facts::{known_rules, rules_of, unknown_clusters};
use super::pass::{End, Next, Pass, PassWork, Request, Response};
use super::planner::{self, Planned, PlannedCluster, Planner};
use super::records::{RuleRecords, stands_in_the_way};
use super::reports::PodReports;
use crate::changes::ChangeReport;
use crate::ports::{ClusterRules, PortError, StoredRecord};
use crate::runtime::{
    Action, Backoff, Closed, Context, Controller, Gate, Jitter, LaneId, LaneSettings, SharedWorld, SourceRequirement,
};

pub const NAME: &str = "drs-rules";
const LANE: LaneId = LaneId(0);
/// One pass for each cluster at a time.
const IN_FLIGHT_MAX: usize = 64;
const WAITING_MAX: usize = 10_000;
pub(super) const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(300) };
/// How often the record is read while an administrator has to repair it, so that a repair takes effect soon.
const MENDING_RELOAD: Duration = Duration::from_secs(5);
/// After a pass a cluster rests for this multiple of the pass's duration, so that passes take at most a tenth of the
/// time.
const REST_FACTOR: u32 = 9;
const REST_MAX: Duration = Duration::from_secs(10);
/// After a plan the next one waits for this multiple of its duration: plans of thousands of nodes while pods keep
/// arriving take at most a thirtieth of a core's time, which others need.
const PLAN_REST_FACTOR: u32 = 29;
/// Separates the random waits of this controller from other users of the same seed.
const SEED_TAG: u64 = 0x7275_6c65;

/// How often a process that does not lead checks whether it does.
const LEASE_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub enum RuleAction {
    Load { number: u64 },
    Pass { cluster: ClusterKey, record_name: String, request: Request },
}

impl Action for RuleAction {
    fn is_write(&self) -> bool {
        match self {
            RuleAction::Load { .. } => false,
            RuleAction::Pass { request, .. } => !matches!(request, Request::Read),
        }
    }

    fn requirements(&self) -> Vec<SourceRequirement> {
        match self {
            RuleAction::Pass { cluster, request: Request::Change(_), .. } => {
                needed_by(cluster).map(SourceRequirement::Settled).collect()
            }
            // The record is written even if a source was lost during the pass, because it lists the rules that exist.
            RuleAction::Pass { .. } | RuleAction::Load { .. } => Vec::new(),
        }
    }
}

/// The sources that the rules of a cluster depend on.
fn needed_by(cluster: &ClusterKey) -> impl Iterator<Item = Source> {
    of_kubernetes().chain([Source::Vcenter(cluster.vcenter)])
}

fn of_kubernetes() -> impl Iterator<Item = Source> {
    model::sources_for(Part::DrsRules.into()).map(|row| row.source)
}

#[derive(Debug)]
pub enum RuleOutcome {
    Loaded { number: u64, stored: Result<BTreeMap<String, StoredRecord>, PortError> },
    Pass { cluster: ClusterKey, response: Response },
    Planned(Box<Computed>),
}

/// A plan, and its inputs.
#[derive(Debug)]
pub struct Computed {
    planner: Planner,
    planned: Planned,
    prefix: String,
    /// [`DrsRules::record_changes`] when the computation started.
    record_changes: u64,
}

type RuleContext<'a> = Context<'a, RuleAction, RuleOutcome>;

#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    Idle,
    Busy(Box<Pass>),
    /// Until the watch shows these rules.
    AwaitingEcho {
        expected: ClusterRules,
        until: Instant,
    },
    Waiting {
        until: Instant,
    },
    /// Until the record has been read again, and at least until this moment.
    AwaitingRecord {
        until: Instant,
    },
}

#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) phase: Phase,
    /// When its pass started.
    pub(super) pass_began: Option<Instant>,
    /// No pass starts before this moment.
    pub(super) rests_until: Option<Instant>,
    pub(super) failures: u32,
    pub(super) lag_since: Option<Instant>,
    pub(super) lags: u32,
    /// Since when there are planned changes that are not applied.
    pub(super) behind_since: Option<Instant>,
    pub(super) deferred: DeferredChanges,
    /// The last load that may not include what this cluster's passes wrote.
    pub(super) moved_at_load: u64,
    /// What the changes of the pass under way are reported as, by rule.
    pub(super) reports: BTreeMap<String, Vec<ChangeReport>>,
    /// Nothing is written until an administrator has repaired the record.
    pub(super) awaits_mending: bool,
}

#[derive(Debug)]
pub(super) struct Loads {
    /// How many were started.
    pub(super) number: u64,
    pub(super) under_way: bool,
    /// One with at least the number `not_before` has ended.
    pub(super) was_loaded: bool,
    not_before: u64,
    pub(super) failures: u32,
    pub(super) next: Instant,
}

pub struct DrsRules {
    pub(super) settings: RuleSettings,
    world: SharedWorld,
    /// `None` while a plan is computed.
    planner: Option<Planner>,
    pub(super) records: RuleRecords,
    pub(super) loads: Loads,
    pub(super) clusters: BTreeMap<ClusterKey, Cluster>,
    plan_at: Option<Instant>,
    /// When the computation of the last plan started.
    plan_began: Instant,
    /// No plan starts before this moment.
    plan_rests_until: Instant,
    /// A plan was due and could not be made, or not for all clusters.
    is_plan_owed: bool,
    /// A cluster has changed since the last check whether the watch shows the expected rules.
    pub(super) is_cluster_touched: bool,
    /// How often a load found a changed record.
    record_changes: u64,
    reports: PodReports,
    pub(super) causes: Causes,
    report_at: Option<Instant>,
    pub(super) jitter: Jitter,
    pub(super) counters: Arc<RuleCounters>,
    was_leading: bool,
    lease_at: Option<Instant>,
}

impl DrsRules {
    /// Plans are computed from `world`, off the loop.
    #[must_use]
    pub fn new(
        settings: RuleSettings,
        world: SharedWorld,
        seed: u64,
        counters: Arc<RuleCounters>,
        now: Instant,
    ) -> DrsRules {
        DrsRules {
            planner: Some(Planner::new(settings.drs.clone())),
            world,
            records: RuleRecords::default(),
            loads: Loads { number: 0, under_way: false, was_loaded: false, not_before: 0, failures: 0, next: now },
            clusters: BTreeMap::new(),
            plan_at: None,
            plan_began: now,
            plan_rests_until: now,
            is_plan_owed: false,
            is_cluster_touched: false,
            record_changes: 0,
            reports: PodReports::default(),
            causes: Causes::default(),
            report_at: None,
            jitter: Jitter::from_seed(seed ^ SEED_TAG),
            counters,
            was_leading: true,
            lease_at: None,
            settings,
        }
    }

    fn end_waits(&mut self, context: &mut RuleContext<'_>) {
        let is_touched = std::mem::take(&mut self.is_cluster_touched);
        let mut is_any_idle = false;
        for (name, cluster) in &mut self.clusters {
            let is_over = match &cluster.phase {
                Phase::AwaitingEcho { expected, until } => {
                    let mut shows = || known_rules(context.world.read(), name).as_ref() == Some(expected);
                    *until <= context.now || (is_touched && shows())
                }
                Phase::Waiting { until } => *until <= context.now,
                Phase::Idle | Phase::Busy(_) | Phase::AwaitingRecord { .. } => false,
            };
            if is_over {
                let rest = cluster.rests_until.take().filter(|until| context.now < *until);
                is_any_idle |= rest.is_none();
                cluster.phase = rest.map_or(Phase::Idle, |until| Phase::Waiting { until });
            }
        }
        if is_any_idle {
            self.plan_by(context.now);
        }
    }

    fn load(&mut self, context: &mut RuleContext<'_>) {
        if self.loads.under_way || self.loads.next > context.now {
            return;
        }
        let number = self.loads.number + 1;
        if context.actions.send(LANE, RuleAction::Load { number }).is_ok() {
            self.loads.number = number;
            self.loads.under_way = true;
        }
    }

    fn may_plan(&self, gate: &Gate, now: Instant) -> bool {
        self.loads.was_loaded
            && of_kubernetes().all(|source| gate.is_settled(source, now))
            && (self.clusters.is_empty() || self.clusters.values().any(|it| matches!(it.phase, Phase::Idle)))
    }

    /// Starts to compute a plan, if one is due. Each condition that prevents it makes a plan due when it ends: a closed
    /// gate, a load, a pass, a plan under way.
    fn plan(&mut self, context: &mut RuleContext<'_>) {
        let rests_until = self.plan_rests_until;
        self.plan_at = self.plan_at.map(|due| due.max(rests_until));
        if self.plan_at.is_none_or(|due| context.now < due) {
            return;
        }
        self.plan_at = None;
        if !self.may_plan(context.gate, context.now) {
            self.is_plan_owed = true;
            return;
        }
        let Some(mut planner) = self.planner.take() else {
            self.is_plan_owed = true;
            return;
        };
        self.is_plan_owed = false;
        self.plan_began = context.now;
        if let Some(prefix) = planner::prefix(context.world.read()) {
            self.records.recognise(&prefix);
        }
        let (world, record, unix_now) = (self.world.clone(), self.records.owned().clone(), self.wall_clock_now());
        let record_changes = self.record_changes;
        context.actions.compute(move || {
            let planned = planner.plan(&world, &record, unix_now);
            let prefix = planner::prefix(&world.read()).unwrap_or_default();
            RuleOutcome::Planned(Box::new(Computed { planner, planned, prefix, record_changes }))
        });
    }

    fn planned(&mut self, computed: Computed, context: &mut RuleContext<'_>) {
        let Computed { planner, planned, prefix, record_changes } = computed;
        self.planner = Some(planner);
        let took = context.now.saturating_duration_since(self.plan_began);
        self.plan_rests_until = context.now + (took * PLAN_REST_FACTOR).min(REST_MAX);
        // Another plan may have become due in the meantime.
        self.plan_if_owed(context.now);
        if record_changes != self.record_changes {
            // Another client has changed the record since: its changes must not be lost.
            return self.plan_by(context.now);
        }
        if !self.may_plan(context.gate, context.now) {
            self.is_plan_owed = true;
            return;
        }
        self.counters.found(&planned.findings);
        let is_read = |vcenter: &VcenterId| context.gate.in_sync(Source::Vcenter(*vcenter));
        // A vCenter that was not read may have them.
        let names = self.settings.drs.clusters.iter().flatten().filter(|_| self.settings.vcenters.keys().all(is_read));
        self.counters.note("unknownCluster", unknown_clusters(context.world.read(), names));
        let foreign = self.records.foreign();
        let foreign =
            foreign.map(|(cluster, name)| format!("{}: the record lists {name:?}, which is not Bridger's", cluster.id));
        self.counters.note("foreignRecordEntry", foreign.collect());
        self.reports.observe(&planned.findings);
        self.clusters.retain(|name, cluster| {
            let is_kept = !matches!(cluster.phase, Phase::Idle) || planned.clusters.contains_key(name);
            if !is_kept {
                self.counters.trouble(name, None);
            }
            is_kept
        });
        let mut is_outdated = false;
        for (name, of_cluster) in planned.clusters {
            let cluster = self.clusters.entry(name.clone()).or_default();
            if !matches!(cluster.phase, Phase::Idle) {
                self.is_plan_owed = true;
                continue;
            }
            if self.records.owned().rules(&name) != of_cluster.recorded {
                // A pass that ended while the plan was computed has changed the record: its changes must not be lost.
                is_outdated = true;
                continue;
            }
            if !context.gate.is_settled(Source::Vcenter(name.vcenter), context.now) {
                // The vCenter's next list makes a plan due.
                continue;
            }
            self.causes.planned(&name, &of_cluster.changes);
            if of_cluster.changes.is_empty() {
                cluster.behind_since = None;
            } else {
                cluster.behind_since.get_or_insert(context.now);
            }
            let problem = stands_in_the_way(&self.records, context.world.read(), &name, &prefix);
            cluster.awaits_mending = problem.is_some();
            if problem.is_some() {
                self.counters.trouble(&name, problem);
                self.loads.next = self.loads.next.min(context.now + MENDING_RELOAD);
                continue;
            }
            if context.gate.is_dry_run() {
                self.counters.trouble(&name, None);
                let reports = self.change_reports(&name, &of_cluster, context.world.read());
                self.report_planned(&name, reports, context.changes);
                continue;
            }
            if !context.is_leading {
                continue;
            }
            self.begin(name, of_cluster, context);
        }
        if is_outdated {
            self.plan_by(context.now);
        }
        self.counters.set_owned(self.records.owned().len());
        if let Some(due) = planned.next_due {
            let wait = Duration::from_millis(due.0.saturating_sub(self.wall_clock_now().0));
            self.plan_by(context.now + wait);
        }
    }

    /// Starts a pass, unless there is nothing to write.
    fn begin(&mut self, name: ClusterKey, planned: PlannedCluster, context: &mut RuleContext<'_>) {
        let reports = self.change_reports(&name, &planned, context.world.read());
        let (Some(record_name), Some(cluster)) = (self.records.record_name(&name), self.clusters.get_mut(&name)) else {
            return;
        };
        let PlannedCluster { changes, rules, planned_from, .. } = planned;
        let sorted = cluster.deferred.sort(changes, context.now);
        let mut record = Record::default();
        record.set(&name, rules);
        let is_settled = sorted.changes.is_empty() && self.records.record_to_save(&name, &record).is_none();
        if is_settled && cluster.deferred.len() == 0 {
            cluster.failures = 0;
            self.counters.trouble(&name, None);
        }
        if !is_settled {
            cluster.reports = reports;
            let (changes, fresh, planned_from) = (sorted.changes, sorted.fresh, rules_of(&planned_from));
            let (pass, request) = Pass::begin(PassWork { cluster: name.clone(), changes, fresh, record, planned_from });
            cluster.phase = Phase::Busy(Box::new(pass));
            cluster.pass_began = Some(context.now);
            cluster.moved_at_load = self.loads.number;
            self.counters.passes.add(1);
            self.request(name, record_name, request, context);
        }
        if let Some(next) = sorted.next {
            self.plan_by(next);
        }
    }

    fn request(&mut self, cluster: ClusterKey, record_name: String, request: Request, context: &mut RuleContext<'_>) {
        if let Err(action) = context.actions.send(LANE, RuleAction::Pass { cluster, record_name, request }) {
            self.not_sent(action, "too many requests are waiting", context);
        }
    }

    /// Ends the request with a transient error.
    fn not_sent(&mut self, action: RuleAction, why: &str, context: &mut RuleContext<'_>) {
        let error = PortError::Transient(format!("not sent: {why}"));
        match action {
            RuleAction::Load { number } => self.loaded(number, Err(error), context.now),
            RuleAction::Pass { cluster, request, .. } => {
                let response = match request {
                    Request::Read => Response::Read(Err(error)),
                    Request::Save { .. } => Response::Saved(Err(error)),
                    Request::Change(_) => Response::Changed(Err(error)),
                };
                self.responded(cluster, response, context);
            }
        }
    }

    fn loaded(&mut self, number: u64, stored: Result<BTreeMap<String, StoredRecord>, PortError>, now: Instant) {
        self.loads.under_way = false;
        match stored {
            Ok(stored) => {
                let is_recent = number >= self.loads.not_before;
                let is_first = is_recent && !std::mem::replace(&mut self.loads.was_loaded, is_recent);
                self.loads.failures = 0;
                let awaits_mending = self.clusters.values().any(|cluster| cluster.awaits_mending);
                let wait = match (is_recent, awaits_mending) {
                    (false, _) => Duration::ZERO,
                    (true, true) => self.settings.reload_every.min(MENDING_RELOAD),
                    (true, false) => self.settings.reload_every,
                };
                self.loads.next = now + wait;
                self.counters.record_trouble(None);
                let clusters = &self.clusters;
                // A load that started before a pass wrote may return the record from before that write.
                let may_change = |name: &ClusterKey| match clusters.get(name) {
                    None => true,
                    Some(cluster) => !matches!(cluster.phase, Phase::Busy(_)) && cluster.moved_at_load < number,
                };
                let is_changed = self.records.loaded(stored, may_change);
                self.record_changes += u64::from(is_changed);
                for cluster in self.clusters.values_mut() {
                    match cluster.phase {
                        Phase::AwaitingRecord { until } if cluster.moved_at_load < number => {
                            cluster.phase = Phase::Waiting { until };
                        }
                        Phase::AwaitingRecord { .. } => self.loads.next = now,
                        _ => (),
                    }
                }
                if is_first || is_changed {
                    self.plan_by(now);
                }
                self.plan_if_owed(now);
            }
            Err(error) => {
                self.loads.failures = self.loads.failures.saturating_add(1);
                let wait = match error {
                    PortError::Permanent(_) => self.settings.reload_every,
                    _ => BACKOFF.wait(self.loads.failures, &mut self.jitter).min(self.settings.reload_every),
                };
                self.loads.next = now + wait;
                self.counters.failed(&error);
                self.counters.record_trouble(Some(format!("the record can't be read: {error}")));
            }
        }
    }

    fn responded(&mut self, name: ClusterKey, response: Response, context: &mut RuleContext<'_>) {
        let Some(cluster) = self.clusters.get_mut(&name) else { return };
        let Phase::Busy(pass) = &mut cluster.phase else { return };
        let (gate, now, world) = (context.gate, context.now, context.world.read());
        let is_current = |planned_from: &ClusterRules| {
            needed_by(&name).all(|source| gate.is_settled(source, now))
                && known_rules(world, &name).as_ref() == Some(planned_from)
        };
        let next = pass.step(response, &mut self.records, is_current);
        // Not only at the end: if the process stops before that, the next one has nothing to change, nor to report.
        let news = pass.news();
        news.iter().filter(|(_, result)| result.is_ok()).for_each(|(change, _)| self.causes.made(&name, &change.rule));
        report(&cluster.reports, &news, context.changes);
        match next {
            Next::Request(request) => {
                if let Some(record_name) = self.records.record_name(&name) {
                    self.request(name, record_name, request, context);
                }
            }
            Next::End(end) => {
                cluster.moved_at_load = self.loads.number;
                report(&cluster.reports, &pass.left_over(&end), context.changes);
                self.ended(&name, end, context.now);
                self.plan_if_owed(context.now);
            }
        }
    }

    fn plan_if_owed(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_plan_owed) {
            self.plan_by(now);
        }
    }

    pub(super) fn wall_clock_now(&self) -> UnixMillis {
        self.settings.wall_clock.now()
    }

    pub(super) fn plan_by(&mut self, moment: Instant) {
        self.plan_at = Some(self.plan_at.map_or(moment, |due| due.min(moment)));
    }

    fn count_behind(&self, now: Instant) {
        let behind = self.clusters.values().filter_map(|cluster| cluster.behind_since);
        let longest = behind.map(|since| now.saturating_duration_since(since)).max().unwrap_or_default();
        self.counters.set_behind(longest);
    }
}

impl Cluster {
    /// Sets the rest period after a pass that changed something.
    pub(super) fn rest(&mut self, now: Instant) {
        let took = self.pass_began.take().map(|began| now.saturating_duration_since(began)).unwrap_or_default();
        self.rests_until = Some(now + (took * REST_FACTOR).min(REST_MAX));
    }
}

impl Controller for DrsRules {
    type Action = RuleAction;
    type Outcome = RuleOutcome;

    fn name(&self) -> &'static str {
        NAME
    }

    fn lanes(&self) -> Vec<LaneSettings> {
        vec![LaneSettings::with_queue(IN_FLIGHT_MAX, WAITING_MAX)]
    }

    fn observe(&mut self, change: &WorldChange, world: &World, now: Instant) {
        self.causes.observe(change, world, now);
        if let Subject::VcenterIdentified(vcenter) = change.subject
            && let Some(uuid) = world.instance_uuid(vcenter)
            && self.records.identify(vcenter, uuid)
        {
            // Without its records, its rules would look like rules of others.
            self.loads.was_loaded = false;
            self.loads.next = now;
            self.record_changes += 1;
        }
        let is_of_source =
            matches!(change.subject, Subject::RelistBegan(_) | Subject::RelistEnded { .. } | Subject::Lost(_));
        if change.touched.is_empty() && !is_of_source {
            return;
        }
        self.is_cluster_touched |= change.touched.clusters().next().is_some();
        self.plan_by(now + self.settings.additions_batch);
    }

    fn advance(&mut self, context: &mut RuleContext<'_>) {
        if context.is_leading && !self.was_leading {
            // What the last leader recorded may be later than the last load.
            self.loads.was_loaded = false;
            self.loads.not_before = self.loads.number + 1;
            self.loads.next = context.now;
            self.plan_by(context.now);
        }
        self.load(context);
        self.end_waits(context);
        self.was_leading = context.is_leading;
        self.lease_at = (!context.is_leading).then(|| context.now + LEASE_EVERY);
        self.plan(context);
        self.report_at = None;
        if context.is_leading {
            self.reports.record(context.events, context.now, context.stopwatch);
            // Else the findings that are pending would wake the loop all the time.
            self.report_at = self.reports.next_due(context.now);
        }
        self.count_behind(context.now);
    }

    fn completed(&mut self, outcome: RuleOutcome, context: &mut RuleContext<'_>) {
        match outcome {
            RuleOutcome::Loaded { number, stored } => self.loaded(number, stored, context.now),
            RuleOutcome::Pass { cluster, response } => self.responded(cluster, response, context),
            RuleOutcome::Planned(computed) => self.planned(*computed, context),
        }
    }

    fn refused(&mut self, action: RuleAction, closed: Closed, context: &mut RuleContext<'_>) {
        if let RuleAction::Pass { cluster: name, request: Request::Change(_), .. } = &action
            && let Some(cluster) = self.clusters.get_mut(name)
            && let Phase::Busy(pass) = &cluster.phase
            && pass.has_changed_nothing()
        {
            // A source was lost or is being relisted: this is not a failure, and the next plan waits for the gate.
            cluster.moved_at_load = self.loads.number;
            let name = name.clone();
            return self.ended(&name, End::Outdated, context.now);
        }
        self.not_sent(action, closed.as_str(), context);
    }

    fn next_wake(&self) -> Option<Instant> {
        let load = (!self.loads.under_way).then_some(self.loads.next);
        let clusters = self.clusters.values().filter_map(|cluster| match cluster.phase {
            Phase::AwaitingEcho { until, .. } | Phase::Waiting { until } => Some(until),
            Phase::Idle | Phase::Busy(_) | Phase::AwaitingRecord { .. } => None,
        });
        clusters.chain(load).chain(self.plan_at).chain(self.lease_at).chain(self.report_at).min()
    }
}
