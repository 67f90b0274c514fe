//! When to plan, what to start, and what to make of the outcome. A state machine: it does no I/O and reads no clock.
//!
//! In: that the world changed ([`Writer::observe`]), that time passed ([`Writer::advance`]), what the outside answered
//! ([`Writer::answered`]). Out: [`Effect`]s to be carried out, and when to look again ([`Writer::next_wake`]).
//!
//! Changes of the world are gathered for a moment and planned for at once. Each cluster goes its own way from there: a
//! pass, then a wait until the watch shows what it did; after a failure a wait that grows. After trouble with the record
//! a cluster rests until the record has been read anew.
//!
//! - `ends`: what to make of how a pass ended.

mod ends;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drs::UnixMillis;
use drs::record::ClusterName;
use model::event::Source;
use model::{Touched, World};
use tokio::time::Instant;

use super::RuleSettings;
use super::aside::Aside;
use super::books::Books;
use super::carry_out::{Ask, Next, Pass, Told, Work};
use super::facts::{cluster_facts, known_rules};
use super::notices::PodNotices;
use super::planner::{self, Planned, Planner, Unit};
use crate::counters::{RuleCounters, RuleProblem};
use crate::gates::Gates;
use crate::pace::{Backoff, Jitter};
use crate::ports::{ClusterRules, KeptRecord, Notice, PortError};

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(300) };
/// How often the record is looked at while somebody has to mend it: what was mended shall show soon.
const MENDING_RELOAD: Duration = Duration::from_secs(5);
/// The seed of the writer's waits is its own.
const SEED_TAG: u64 = 0x7275_6c65;

/// What the world looks like at the moment of a step.
pub struct Context<'a> {
    pub now: Instant,
    pub unix_now: UnixMillis,
    pub world: &'a World,
    pub gates: &'a Gates,
}

#[derive(Debug)]
pub enum Effect {
    Load { number: u64 },
    Pass { cluster: ClusterName, text_name: String, ask: Ask },
}

#[derive(Debug)]
pub enum Answer {
    Loaded { number: u64, texts: Result<BTreeMap<String, KeptRecord>, PortError> },
    Pass { cluster: ClusterName, told: Told },
}

#[derive(Debug, Default)]
enum Phase {
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
    /// Until the record has been read anew, and then some.
    AwaitingRecord {
        until: Instant,
    },
}

#[derive(Debug, Default)]
struct Cluster {
    phase: Phase,
    failures: u32,
    lag_since: Option<Instant>,
    lags: u32,
    /// Something is planned, and not done, since then.
    behind_since: Option<Instant>,
    aside: Aside,
    /// The last load that may have missed what this cluster's passes wrote.
    moved_at_load: u64,
    shown_in_dry_run: Vec<Unit>,
    /// Nothing is written until somebody has mended the record.
    awaits_mending: bool,
}

#[derive(Debug)]
struct Loads {
    /// How many were begun.
    number: u64,
    under_way: bool,
    was_loaded: bool,
    failures: u32,
    next: Instant,
}

#[derive(Debug)]
pub struct Writer {
    settings: RuleSettings,
    dry_run: bool,
    planner: Planner,
    books: Books,
    loads: Loads,
    clusters: BTreeMap<ClusterName, Cluster>,
    plan_at: Option<Instant>,
    notices: PodNotices,
    jitter: Jitter,
    counters: Arc<RuleCounters>,
}

impl Writer {
    #[must_use]
    pub fn new(settings: RuleSettings, dry_run: bool, seed: u64, counters: Arc<RuleCounters>, now: Instant) -> Writer {
        Writer {
            planner: Planner::new(settings.drs.clone()),
            books: Books::new(settings.vcenter_uuids.clone()),
            loads: Loads { number: 0, under_way: false, was_loaded: false, failures: 0, next: now },
            clusters: BTreeMap::new(),
            plan_at: None,
            notices: PodNotices::default(),
            jitter: Jitter::from_seed(seed ^ SEED_TAG),
            counters,
            dry_run,
            settings,
        }
    }

    #[must_use]
    pub fn wall_clock_now(&self) -> UnixMillis {
        self.settings.wall_clock.now()
    }

    /// The world changed, or what is known of its sources.
    pub fn observe(&mut self, touched: &Touched, now: Instant) {
        self.planner.observe(touched);
        self.plan_by(now + self.settings.additions_batch);
    }

    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        let load = (!self.loads.under_way).then_some(self.loads.next);
        let clusters = self.clusters.values().filter_map(|cluster| match cluster.phase {
            Phase::AwaitingEcho { until, .. } | Phase::Waiting { until } => Some(until),
            Phase::Idle | Phase::Busy(_) | Phase::AwaitingRecord { .. } => None,
        });
        clusters.chain(load).chain(self.plan_at).min()
    }

    #[must_use]
    pub fn next_notice(&self) -> Option<Instant> {
        self.notices.next_due()
    }

    pub fn take_notices(&mut self, room: usize, now: Instant) -> Vec<Notice> {
        self.notices.take_due(room, now)
    }

    /// What is to be done now.
    pub fn advance(&mut self, context: &Context<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.loads.under_way && self.loads.next <= context.now {
            self.loads.number += 1;
            self.loads.under_way = true;
            effects.push(Effect::Load { number: self.loads.number });
        }
        self.end_waits(context);
        if self.plan_at.is_some_and(|due| due <= context.now) {
            self.plan_at = None;
            if self.may_plan(context) {
                self.plan(context, &mut effects);
            }
        }
        self.count_behind(context.now);
        effects
    }

    fn end_waits(&mut self, context: &Context<'_>) {
        let mut is_any_idle = false;
        for (name, cluster) in &mut self.clusters {
            let is_over = match &cluster.phase {
                Phase::AwaitingEcho { expected, until } => {
                    *until <= context.now || known_rules(context.world, name).as_ref() == Some(expected)
                }
                Phase::Waiting { until } => *until <= context.now,
                Phase::Idle | Phase::Busy(_) | Phase::AwaitingRecord { .. } => false,
            };
            if is_over {
                cluster.phase = Phase::Idle;
                is_any_idle = true;
            }
        }
        if is_any_idle {
            self.plan_by(context.now);
        }
    }

    /// Whatever keeps a plan from being made now makes one due when it ends: a gate that opens, a load, a pass.
    fn may_plan(&self, context: &Context<'_>) -> bool {
        let sources = [Source::Nodes, Source::Pods, Source::Namespaces];
        self.loads.was_loaded
            && sources.into_iter().all(|source| context.gates.settled(source, context.now))
            && (self.clusters.is_empty() || self.clusters.values().any(|it| matches!(it.phase, Phase::Idle)))
    }

    fn plan(&mut self, context: &Context<'_>, effects: &mut Vec<Effect>) {
        let mut planned = self.planner.plan(context.world, self.books.owned(), context.unix_now);
        let prefix = planner::prefix(context.world).unwrap_or_default();
        self.counters.found(planned.findings.iter().map(drs::Finding::name));
        self.notices.observe(&planned.findings, context.now);
        self.clusters.retain(|name, cluster| {
            let is_kept = !matches!(cluster.phase, Phase::Idle) || planned.clusters.contains_key(name);
            if !is_kept {
                self.counters.trouble(name, None);
            }
            is_kept
        });
        for (name, units) in std::mem::take(&mut planned.clusters) {
            let cluster = self.clusters.entry(name.clone()).or_default();
            if !matches!(cluster.phase, Phase::Idle) || !context.gates.settled(Source::Vcenter(name.0), context.now) {
                continue;
            }
            if units.is_empty() {
                cluster.behind_since = None;
            } else {
                cluster.behind_since.get_or_insert(context.now);
            }
            let problem = stands_in_the_way(&self.books, context.world, &name, &prefix);
            cluster.awaits_mending = problem.is_some();
            if problem.is_some() {
                self.counters.trouble(&name, problem);
                self.loads.next = self.loads.next.min(context.now + MENDING_RELOAD);
                continue;
            }
            if self.dry_run {
                show(&name, &units, &mut cluster.shown_in_dry_run);
                self.counters.trouble(&name, None);
                continue;
            }
            if let Some(effect) = self.begin(name, units, &planned, context) {
                effects.push(effect);
            }
        }
        self.counters.set_owned(self.books.owned().len());
        if let Some(due) = planned.next_due {
            let wait = Duration::from_millis(due.0.saturating_sub(context.unix_now.0));
            self.plan_by(context.now + wait);
        }
    }

    /// Begins a pass, unless there is nothing to write.
    fn begin(
        &mut self,
        name: ClusterName,
        units: Vec<Unit>,
        planned: &Planned,
        context: &Context<'_>,
    ) -> Option<Effect> {
        let text_name = self.books.text_name(&name)?;
        let planned_from = known_rules(context.world, &name)?;
        let cluster = self.clusters.get_mut(&name)?;
        let sorted = cluster.aside.sort(units, context.now);
        let record = planner::part(&planned.record, &name);
        let is_settled = sorted.units.is_empty() && self.books.text_to_save(&name, &record).is_none();
        if is_settled && cluster.aside.len() == 0 {
            cluster.failures = 0;
            self.counters.trouble(&name, None);
        }
        let effect = (!is_settled).then(|| {
            let (units, fresh) = (sorted.units, sorted.fresh);
            let (pass, ask) = Pass::begin(Work { cluster: name.clone(), units, fresh, record, planned_from });
            cluster.phase = Phase::Busy(Box::new(pass));
            cluster.moved_at_load = self.loads.number;
            self.counters.passes.add(1);
            Effect::Pass { cluster: name, text_name, ask }
        });
        if let Some(next) = sorted.next {
            self.plan_by(next);
        }
        effect
    }

    pub fn answered(&mut self, answer: Answer, context: &Context<'_>) -> Option<Effect> {
        match answer {
            Answer::Loaded { number, texts } => {
                self.loaded(number, texts, context.now);
                None
            }
            Answer::Pass { cluster, told } => self.told(cluster, told, context),
        }
    }

    fn loaded(&mut self, number: u64, texts: Result<BTreeMap<String, KeptRecord>, PortError>, now: Instant) {
        self.loads.under_way = false;
        match texts {
            Ok(texts) => {
                let is_first = !std::mem::replace(&mut self.loads.was_loaded, true);
                self.loads.failures = 0;
                let awaits_mending = self.clusters.values().any(|cluster| cluster.awaits_mending);
                let wait = self.settings.reload_every;
                self.loads.next = now + if awaits_mending { wait.min(MENDING_RELOAD) } else { wait };
                self.counters.ledger_trouble(None);
                let clusters = &self.clusters;
                // A load that began before a pass wrote may show what was before it.
                let may_change = |name: &ClusterName| match clusters.get(name) {
                    None => true,
                    Some(cluster) => !matches!(cluster.phase, Phase::Busy(_)) && cluster.moved_at_load < number,
                };
                let is_changed = self.books.loaded(texts, may_change);
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
            }
            Err(error) => {
                self.loads.failures = self.loads.failures.saturating_add(1);
                let wait = match error {
                    PortError::Refused(_) => self.settings.reload_every,
                    _ => BACKOFF.wait(self.loads.failures, &mut self.jitter).min(self.settings.reload_every),
                };
                self.loads.next = now + wait;
                self.counters.failed(&error);
                self.counters.ledger_trouble(Some(format!("the record can't be read: {error}")));
            }
        }
    }

    fn told(&mut self, name: ClusterName, told: Told, context: &Context<'_>) -> Option<Effect> {
        let cluster = self.clusters.get_mut(&name)?;
        let Phase::Busy(pass) = &mut cluster.phase else { return None };
        let is_current = |planned_from: &ClusterRules| {
            let sources = [Source::Nodes, Source::Pods, Source::Namespaces, Source::Vcenter(name.0)];
            sources.into_iter().all(|source| context.gates.settled(source, context.now))
                && known_rules(context.world, &name).as_ref() == Some(planned_from)
        };
        match pass.step(told, &mut self.books, is_current) {
            Next::Ask(ask) => {
                let text_name = self.books.text_name(&name)?;
                Some(Effect::Pass { cluster: name, text_name, ask })
            }
            Next::End(end) => {
                cluster.moved_at_load = self.loads.number;
                self.ended(&name, end, context.now);
                None
            }
        }
    }

    fn plan_by(&mut self, moment: Instant) {
        self.plan_at = Some(self.plan_at.map_or(moment, |due| due.min(moment)));
    }

    fn count_behind(&self, now: Instant) {
        let behind = self.clusters.values().filter_map(|cluster| cluster.behind_since);
        let longest = behind.map(|since| now.saturating_duration_since(since)).max().unwrap_or_default();
        self.counters.set_behind(longest);
    }
}

/// What forbids to write rules of this cluster, whatever is planned. `prefix` is that of this Kubernetes cluster's rules.
#[must_use]
pub fn stands_in_the_way(books: &Books, world: &World, name: &ClusterName, prefix: &str) -> Option<RuleProblem> {
    if books.text_name(name).is_none() {
        let message = "the vCenter's instance UUID is not known, so its rules can't be recorded".to_owned();
        return Some(RuleProblem { reason: "NoInstanceUuid", message });
    }
    if let Some(why) = books.unreadable(name) {
        return Some(RuleProblem { reason: "RecordUnreadable", message: format!("{why}; rules are left as they are") });
    }
    let facts = cluster_facts(world, name)?;
    let names = facts.rules.iter().map(|rule| &rule.name).chain(facts.groups.iter().map(|group| &group.name));
    let unrecorded = names.filter(|name| name.starts_with(prefix)).count();
    if books.kept(name).is_some() || unrecorded == 0 {
        return None;
    }
    let message = format!(
        "the record of its {unrecorded} rules and groups is gone, so they are left as they are: bridger adopt mends it"
    );
    Some(RuleProblem { reason: "RecordGone", message })
}

/// Logs what would be done, once for each distinct plan.
fn show(name: &ClusterName, units: &[Unit], shown: &mut Vec<Unit>) {
    if shown == units {
        return;
    }
    for unit in units {
        tracing::info!(cluster = name.1, rule = unit.rule, verb = ?unit.verb, changes = ?unit.changes, "dry run: would write");
    }
    *shown = units.to_vec();
}
