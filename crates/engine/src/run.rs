//! The loop: events in, decisions out, writes on their way.
//!
//! One task owns everything that changes. It takes events in batches, applies them to the world, looks at the nodes they
//! touched, and keeps a bounded number of writes in flight. A write is worked out from the latest world at the moment it
//! is sent.
//!
//! Invariants:
//! - Nothing is written while a gate it depends on is closed: nodes not in sync, or the node's own vCenter not in sync
//!   or lost for too long. A vCenter that is down stops only the nodes that live on it.
//! - In a dry run nothing is written, and what would be is logged.

mod labels;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use model::event::{Event, VcenterId};
use model::labels::LabelSettings;
use model::{LiftSettings, NodeId, World};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::counters::Counters;
use crate::gates::Gates;
use crate::labeller::Labeller;
use crate::pace::{Backoff, Jitter, RateLimit, sleep_until};
use crate::ports::{
    LabelChanges, LabelStore, Ledger, Notice, NoticeBoard, NoticeSubject, PortError, RuleStore, Severity,
};
use crate::problems::Problems;
use crate::rules::{self, RulePorts, RuleSettings};

/// The world as others read it. Only the engine writes.
pub type SharedWorld = Arc<RwLock<World>>;

#[derive(Clone, Debug)]
pub struct Settings {
    /// `None` turns the labeller off.
    pub labels: Option<LabelSettings>,
    /// `None` turns the writer of DRS rules off.
    pub rules: Option<RuleSettings>,
    /// Which terms between nodes hold between physical hosts.
    pub lifting: LiftSettings,
    /// The vCenters that are configured, connected or not.
    pub vcenters: Vec<VcenterId>,
    pub dry_run: bool,
    pub writes_per_second: u32,
    pub writes_burst: u32,
    pub writes_in_flight_max: usize,
    /// How long a lost source is still good enough to write by.
    pub stale_max: Duration,
    /// For spreading waits.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            labels: Some(LabelSettings::default()),
            rules: None,
            lifting: LiftSettings::default(),
            vcenters: vec![VcenterId(0)],
            dry_run: false,
            writes_per_second: 100,
            writes_burst: 100,
            writes_in_flight_max: 16,
            stale_max: Duration::from_secs(300),
            seed: 0,
        }
    }
}

/// What the outside does for the engine.
#[derive(Clone)]
pub struct Ports {
    pub labels: Arc<dyn LabelStore>,
    pub notices: Arc<dyn NoticeBoard>,
    /// Rules are written only with both this and the ledger.
    pub rules: Option<Arc<dyn RuleStore>>,
    pub ledger: Option<Arc<dyn Ledger>>,
}

/// How many events are applied before the loop looks at what they mean.
const BATCH_EVENTS: usize = 1024;
const NOTICES_IN_FLIGHT_MAX: usize = 64;
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(60) };

/// The outcome of something that was sent.
enum Done {
    Labels { node: String, changes: LabelChanges, notice: Option<Notice>, result: Result<(), PortError> },
    Notice(Result<(), PortError>),
    Rules(rules::Answer),
}

pub struct Engine {
    world: SharedWorld,
    settings: Settings,
    ports: Ports,
    counters: Arc<Counters>,
    gates: Gates,
    labeller: Labeller,
    problems: Problems,
    rules: Option<(rules::Writer, RulePorts)>,
    rate: RateLimit,
    in_flight: FuturesUnordered<BoxFuture<'static, Done>>,
    writes_in_flight: usize,
    notices_in_flight: usize,
    /// Names of nodes by id, for those that are gone when we hear of it.
    names: BTreeMap<NodeId, String>,
    /// When the rate allows the next write, while it is used up.
    rate_opens_at: Option<Instant>,
}

impl Engine {
    #[must_use]
    pub fn new(settings: Settings, ports: Ports) -> Engine {
        let now = Instant::now();
        let counters = Arc::<Counters>::default();
        let rules = match (settings.rules.clone(), ports.rules.clone(), ports.ledger.clone()) {
            (Some(rules), Some(store), Some(ledger)) => {
                let counters = counters.rules.clone();
                let writer = rules::Writer::new(rules, settings.dry_run, settings.seed, counters, now);
                Some((writer, RulePorts { store, ledger }))
            }
            _ => None,
        };
        Engine {
            world: Arc::new(RwLock::new(World::with_lifting(settings.lifting.clone()))),
            gates: Gates::new(settings.stale_max),
            labeller: Labeller::new(BACKOFF, Jitter::from_seed(settings.seed)),
            problems: Problems::default(),
            rate: RateLimit::new(settings.writes_per_second, settings.writes_burst, now),
            rules,
            counters,
            in_flight: FuturesUnordered::new(),
            writes_in_flight: 0,
            notices_in_flight: 0,
            names: BTreeMap::new(),
            rate_opens_at: None,
            settings,
            ports,
        }
    }

    #[must_use]
    pub fn world(&self) -> SharedWorld {
        self.world.clone()
    }

    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Runs until every sender of events is gone.
    pub async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        let mut batch = Vec::with_capacity(BATCH_EVENTS);
        loop {
            self.send_due();
            self.send_rules();
            let wake = self.next_wake();
            tokio::select! {
                biased;
                // First, because these are few, while events may never pause.
                Some(done) = self.in_flight.next(), if !self.in_flight.is_empty() => self.finish(done),
                count = events.recv_many(&mut batch, BATCH_EVENTS) => {
                    if count == 0 {
                        return;
                    }
                    self.apply(&mut batch);
                }
                () = sleep_until(wake), if wake.is_some() => (),
            }
        }
    }

    fn apply(&mut self, batch: &mut Vec<Event>) {
        let now = Instant::now();
        self.counters.events_applied.add(batch.len() as u64);
        let mut look_at_all = false;
        let mut touched = model::Touched::default();
        {
            let mut world = self.world.write().unwrap_or_else(PoisonError::into_inner);
            for event in batch.drain(..) {
                self.gates.observe(&event, now);
                // A gate may have opened: what could not be decided before can be now.
                look_at_all |= matches!(event, Event::RelistEnded(_));
                touched.merge(world.apply(event));
            }
        }
        for node in touched.removed() {
            if let Some(name) = self.names.remove(&node) {
                self.labeller.forget(&name);
                self.problems.observe(&name, None, now);
            }
        }
        if let Some((writer, _)) = &mut self.rules {
            writer.observe(&touched, now);
        }
        let world = self.world.clone();
        let world = read(&world);
        let nodes: BTreeSet<NodeId> = if look_at_all { world.node_ids().collect() } else { touched.nodes().collect() };
        for node in nodes {
            self.look_at(&world, node, now);
        }
    }

    /// Sends what is due, as far as rate and flight allow.
    fn send_due(&mut self) {
        let now = Instant::now();
        self.rate_opens_at = None;
        for (name, problem) in self.problems.take_due(now) {
            tracing::warn!(node = name, reason = problem.reason, "{}", problem.message);
            let world = self.world.clone();
            let world = read(&world);
            if let Some(node) = world.node_id(&name) {
                self.post(notice(&world, node, &name, Severity::Warning, problem.reason, problem.message));
            }
        }
        while self.writes_in_flight < self.settings.writes_in_flight_max
            && self.labeller.next_due().is_some_and(|due| due <= now)
        {
            if let Err(later) = self.rate.take(now) {
                self.rate_opens_at = Some(later);
                return;
            }
            if let Some(name) = self.labeller.take_due(now) {
                self.send_labels(name, now);
            }
        }
    }

    /// Lets the writer of rules go on, and sends its notices as far as there is room.
    fn send_rules(&mut self) {
        let now = Instant::now();
        let Some((writer, ports)) = &mut self.rules else { return };
        let effects = {
            let world = read(&self.world);
            let unix_now = writer.wall_clock_now();
            writer.advance(&rules::Context { now, unix_now, world: &world, gates: &self.gates })
        };
        for effect in effects {
            let performed = rules::perform(effect, ports.clone());
            self.in_flight.push(Box::pin(async move { Done::Rules(performed.await) }));
        }
        let room = NOTICES_IN_FLIGHT_MAX.saturating_sub(self.notices_in_flight);
        for notice in writer.take_notices(room, now) {
            self.post(notice);
        }
    }

    fn finish_rules(&mut self, answer: rules::Answer) {
        let Some((writer, ports)) = &mut self.rules else { return };
        let next = {
            let (now, unix_now) = (Instant::now(), writer.wall_clock_now());
            let world = read(&self.world);
            writer.answered(answer, &rules::Context { now, unix_now, world: &world, gates: &self.gates })
        };
        if let Some(effect) = next {
            let performed = rules::perform(effect, ports.clone());
            self.in_flight.push(Box::pin(async move { Done::Rules(performed.await) }));
        }
    }

    fn finish(&mut self, done: Done) {
        match done {
            Done::Rules(answer) => self.finish_rules(answer),
            Done::Notice(result) => {
                self.notices_in_flight -= 1;
                match result {
                    Ok(()) => self.counters.notices_posted.add(1),
                    Err(error) => {
                        self.counters.notices_lost.add(1);
                        tracing::debug!(%error, "a notice could not be posted");
                    }
                }
            }
            Done::Labels { node, changes, notice, result } => {
                self.writes_in_flight -= 1;
                self.finish_labels(&node, changes, notice, result);
            }
        }
    }

    /// Sends a notice, unless too many are on their way.
    fn post(&mut self, notice: Notice) {
        if self.settings.dry_run {
            return;
        }
        if self.notices_in_flight >= NOTICES_IN_FLIGHT_MAX {
            self.counters.notices_lost.add(1);
            return;
        }
        self.notices_in_flight += 1;
        let board = self.ports.notices.clone();
        self.in_flight.push(Box::pin(async move { Done::Notice(board.post(&notice).await) }));
    }

    fn next_wake(&self) -> Option<Instant> {
        let labels = if self.writes_in_flight < self.settings.writes_in_flight_max {
            self.labeller.next_due().map(|due| self.rate_opens_at.map_or(due, |opens| opens.max(due)))
        } else {
            // A finished write wakes the loop.
            None
        };
        let has_room = self.notices_in_flight < NOTICES_IN_FLIGHT_MAX;
        let rules = self.rules.as_ref().map(|(writer, _)| writer);
        let notices = rules.and_then(|writer| writer.next_notice()).filter(|_| has_room);
        let rules = rules.and_then(rules::Writer::next_wake);
        [labels, self.problems.next_due(), rules, notices].into_iter().flatten().min()
    }
}

fn read(world: &SharedWorld) -> RwLockReadGuard<'_, World> {
    world.read().unwrap_or_else(PoisonError::into_inner)
}

fn notice(
    world: &World,
    node: NodeId,
    name: &str,
    severity: Severity,
    reason: &'static str,
    message: String,
) -> Notice {
    let about = NoticeSubject::Node { name: name.to_owned(), uid: world.node_uid(node).unwrap_or_default() };
    Notice { about, severity, reason, message }
}
