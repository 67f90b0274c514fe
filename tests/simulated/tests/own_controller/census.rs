//! An example of a third-party controller: it counts the pods on each physical host and sends the counts to a sink.
//!
//! In: changes of the world, requests for a new count. Out: a report for each host whose count differs from the last
//! accepted one, an Event for each accepted report, and a trace of everything that happened, for the test. It uses only
//! the public API of `engine::runtime`, and the types of an Event.
//!
//! Invariant: it tracks the nodes of pods from the changes alone, and checks each change against the previous state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::ports::{Occurrence, Regarding, Severity};
use engine::runtime::{
    Action, Closed, Context, Controller, Executor, LaneId, LaneSettings, Mailbox, Rate, Repeat, SourceRequirement,
};
use futures::future::BoxFuture;
use model::event::{Source, VcenterId};
use model::{NodeId, PodId, PodState, Subject, World, WorldChange};
use tokio::time::Instant;

pub const NAME: &str = "census";
const LANE: LaneId = LaneId(0);
pub const IN_FLIGHT_MAX: usize = 2;
/// Changes come in bursts, so they are batched.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// The retry interval after a refused or failed report.
const TRY_EVERY: Duration = Duration::from_secs(5);

/// The number of pods on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Unique.
    pub number: u64,
    pub host: String,
    pub pods: usize,
    /// Any node of the host, for the Event.
    node: Regarding,
}

impl Action for Report {
    fn is_write(&self) -> bool {
        true
    }

    fn requirements(&self) -> Vec<SourceRequirement> {
        let vcenter = Source::Vcenter(VcenterId(0));
        vec![
            SourceRequirement::Settled(Source::Pods),
            SourceRequirement::Fresh(Source::Nodes),
            SourceRequirement::Fresh(vcenter),
        ]
    }
}

pub type Counts = BTreeMap<String, (usize, Regarding)>;

pub enum Outcome {
    Delivered { report: Report, is_accepted: bool },
    Counted(Counts),
}

/// Accepts reports with varying latency, and rejects some.
#[derive(Default)]
pub struct Sink {
    state: Mutex<SinkState>,
}

#[derive(Default)]
struct SinkState {
    accepted: BTreeMap<String, usize>,
    in_flight: usize,
    most_in_flight: usize,
}

impl Sink {
    fn lock(&self) -> MutexGuard<'_, SinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last count of each host.
    pub fn accepted(&self) -> BTreeMap<String, usize> {
        self.lock().accepted.clone()
    }

    pub fn most_in_flight(&self) -> usize {
        self.lock().most_in_flight
    }
}

pub struct SinkExecutor {
    pub sink: Arc<Sink>,
    pub trace: Trace,
}

impl Executor<Census> for SinkExecutor {
    fn execute(&self, report: Report) -> BoxFuture<'static, Outcome> {
        let sink = self.sink.clone();
        self.trace.record(Entry::Executed(report.number));
        Box::pin(async move {
            {
                let mut state = sink.lock();
                state.in_flight += 1;
                state.most_in_flight = state.most_in_flight.max(state.in_flight);
            }
            tokio::time::sleep(Duration::from_millis(10 + report.number % 7 * 30)).await;
            let is_accepted = report.number % 5 != 4;
            let mut state = sink.lock();
            state.in_flight -= 1;
            if is_accepted {
                state.accepted.insert(report.host.clone(), report.pods);
            }
            drop(state);
            Outcome::Delivered { report, is_accepted }
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Pod {
        uid: String,
        node: Option<NodeId>,
        is_assumed: bool,
    },
    Changed(&'static str),
    Asked,
    Counted,
    /// Whether this process led at that moment.
    Sent(u64, bool),
    Executed(u64),
    Completed(u64),
    Refused(u64, &'static str),
}

/// What happened and when, in order. Clones share the entries.
#[derive(Clone)]
pub struct Trace {
    entries: Arc<Mutex<Vec<(Duration, Entry)>>>,
    start: Instant,
}

impl Trace {
    pub fn new() -> Trace {
        Trace { entries: Arc::default(), start: Instant::now() }
    }

    fn record(&self, entry: Entry) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push((self.start.elapsed(), entry));
    }

    pub fn entries(&self) -> Vec<(Duration, Entry)> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The known state of a pod: its UID, its node, and whether it is only assumed there.
type Known = (String, Option<NodeId>, bool);

pub struct Census {
    requests: Arc<Mailbox<()>>,
    trace: Trace,
    /// Tracked from the changes alone.
    pods: BTreeMap<PodId, Known>,
    has_changed: bool,
    is_counting: bool,
    count_at: Instant,
    counts: Counts,
    /// Hosts with a report in flight.
    under_way: BTreeSet<String>,
    accepted: BTreeMap<String, usize>,
    try_at: Option<Instant>,
    sent: u64,
    wake: Option<Instant>,
}

type CensusContext<'a> = Context<'a, Report, Outcome>;

impl Census {
    pub fn new(requests: Arc<Mailbox<()>>, trace: Trace) -> Census {
        Census {
            requests,
            trace,
            pods: BTreeMap::new(),
            has_changed: false,
            is_counting: false,
            count_at: Instant::now(),
            counts: Counts::new(),
            under_way: BTreeSet::new(),
            accepted: BTreeMap::new(),
            try_at: None,
            sent: 0,
            wake: None,
        }
    }

    /// Fails if a change was missed, duplicated or out of order: then its `before` differs from the known state.
    fn pod_changed(&mut self, before: Option<&PodState>, after: Option<&PodState>) {
        if let Some(id) = before.or(after).map(|pod| pod.id) {
            assert_eq!(self.pods.get(&id), before.map(known).as_ref(), "before the change to {after:?}");
        }
        if let Some(pod) = before {
            self.pods.remove(&pod.id);
        }
        if let Some(pod) = after {
            let (uid, node, is_assumed) = known(pod);
            self.trace.record(Entry::Pod { uid: uid.clone(), node, is_assumed });
            self.pods.insert(pod.id, (uid, node, is_assumed));
        }
    }

    fn check_state(&self, world: &World) {
        let nodes: BTreeMap<&str, NodeId> =
            world.node_ids().filter_map(|id| Some((world.node_name(id)?, id))).collect();
        let pods = world.pods().map(|(id, pod)| {
            let node = pod.placed_on().and_then(|name| nodes.get(world.interner().text(name)).copied());
            (id, (pod.uid.to_string(), node, pod.is_assumed()))
        });
        assert_eq!(self.pods, pods.collect::<BTreeMap<_, _>>(), "the changes do not add up to the world");
    }

    /// Copies the data to count, and counts outside the loop.
    fn count(&mut self, context: &mut CensusContext<'_>) {
        let world = context.world.read();
        let copied: Vec<(String, Regarding, usize)> = world
            .node_ids()
            .filter_map(|node| {
                let regarding = Regarding::Node { name: world.node_name(node)?.to_owned(), uid: world.node_uid(node)? };
                Some((world.host_name_of(node)?.to_owned(), regarding, world.pods_on(node).len()))
            })
            .collect();
        (self.has_changed, self.is_counting) = (false, true);
        self.count_at = context.now + COUNT_EVERY;
        context.actions.compute(move || {
            let mut counts = Counts::new();
            for (host, node, pods) in copied {
                counts.entry(host).or_insert((0, node)).0 += pods;
            }
            Outcome::Counted(counts)
        });
    }

    fn send(&mut self, context: &mut CensusContext<'_>) {
        for (host, (pods, node)) in &self.counts {
            if self.accepted.get(host) == Some(pods) || self.under_way.contains(host) {
                continue;
            }
            let report = Report { number: self.sent, host: host.clone(), pods: *pods, node: node.clone() };
            // Reports that the lane does not accept wait for the next turn.
            if context.actions.send(LANE, report).is_err() {
                return;
            }
            self.trace.record(Entry::Sent(self.sent, context.is_leading));
            self.sent += 1;
            self.under_way.insert(host.clone());
        }
    }
}

fn known(pod: &PodState) -> Known {
    (pod.uid.to_string(), pod.node, pod.is_assumed)
}

impl Controller for Census {
    type Action = Report;
    type Outcome = Outcome;

    fn name(&self) -> &'static str {
        NAME
    }

    fn lanes(&self) -> Vec<LaneSettings> {
        vec![LaneSettings {
            in_flight_max: IN_FLIGHT_MAX,
            waiting_max: 1,
            rate: Some(Rate { per_second: 20, burst: 4 }),
        }]
    }

    fn observe(&mut self, change: &WorldChange, world: &World, _: Instant) {
        self.has_changed = true;
        let kind = match &change.subject {
            Subject::Pod { before, after } => return self.pod_changed(before.as_deref(), after.as_deref()),
            Subject::RelistEnded { removed_objects, .. } => {
                if *removed_objects {
                    // Objects removed by a relist have no separate change.
                    self.pods.retain(|id, _| world.pod(*id).is_some());
                }
                "relist ended"
            }
            Subject::RelistBegan(_) => "relist began",
            Subject::Lost(_) => "lost",
            Subject::VcenterIdentified(_) => "identified",
            Subject::Node { .. } => {
                // A pod may have been bound to a node before the node was known.
                let mut moved = BTreeMap::new();
                for (id, pod) in world.pods() {
                    moved.insert(id, pod.placed_on().and_then(|name| world.node_id(world.interner().text(name))));
                }
                for (id, known) in &mut self.pods {
                    known.1 = moved.get(id).copied().flatten();
                }
                "node"
            }
            Subject::Namespace { .. } => "namespace",
            Subject::Workload => "workload",
            Subject::DisruptionBudget => "disruption budget",
            Subject::Volume { .. } => "volume",
            Subject::VolumesAssumed => "assumed volumes",
            Subject::Inventory => "inventory",
        };
        self.trace.record(Entry::Changed(kind));
    }

    fn advance(&mut self, context: &mut CensusContext<'_>) {
        self.check_state(context.world.read());
        let is_asked = !self.requests.take().is_empty();
        if is_asked {
            self.trace.record(Entry::Asked);
            self.has_changed = true;
            self.count_at = context.now;
            self.accepted.clear();
        }
        if self.has_changed && !self.is_counting && self.count_at <= context.now {
            self.count(context);
        }
        if self.try_at.is_none_or(|at| at <= context.now) {
            self.try_at = None;
            self.send(context);
        }
        let count_at = (self.has_changed && !self.is_counting).then_some(self.count_at);
        self.wake = [count_at, self.try_at, context.actions.opens_at(LANE)].into_iter().flatten().min();
    }

    fn completed(&mut self, outcome: Outcome, context: &mut CensusContext<'_>) {
        match outcome {
            Outcome::Counted(counts) => {
                self.trace.record(Entry::Counted);
                (self.is_counting, self.counts) = (false, counts);
            }
            Outcome::Delivered { report, is_accepted } => {
                self.trace.record(Entry::Completed(report.number));
                self.under_way.remove(&report.host);
                if !is_accepted {
                    self.try_at = Some(context.now + TRY_EVERY);
                    return;
                }
                let message = format!("{} has {} pods", report.host, report.pods);
                let (regarding, severity, reason) = (report.node, Severity::Normal, "HostCounted");
                let occurrence = Occurrence { regarding, severity, reason, message, reporter: None };
                context.events.record(NAME, occurrence, Repeat::ALWAYS, context.now);
                self.accepted.insert(report.host, report.pods);
            }
        }
    }

    fn refused(&mut self, report: Report, closed: Closed, context: &mut CensusContext<'_>) {
        self.trace.record(Entry::Refused(report.number, closed.as_str()));
        self.under_way.remove(&report.host);
        self.try_at = Some(context.now + TRY_EVERY);
    }

    fn next_wake(&self) -> Option<Instant> {
        self.wake
    }
}
