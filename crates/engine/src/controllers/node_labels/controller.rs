//! Which nodes are to be looked at, what is wrong with their labels, and what came of each write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::event::{Source, VcenterId};
use model::labels::{DesiredLabels, LabelSettings};
use model::{Match, NodeId, Placement, Subject, World, WorldChange};
use tokio::time::Instant;

use super::labeller::{Labeller, Observation};
use super::problems::{Problem, Problems};
use crate::counters::Counters;
use crate::ports::{LabelChanges, Occurrence, PortError, Regarding, Severity};
use crate::runtime::{
    Action, Backoff, Closed, Context, Controller, Gate, Jitter, LaneId, LaneSettings, Rate, Repeat, Requirement,
};

const NAME: &str = "node-labels";
const LANE: LaneId = LaneId(0);
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(60) };

#[derive(Clone, Debug)]
pub struct NodeLabelsSettings {
    /// `None`: nothing is written, and nodes whose machine is not certain are reported all the same.
    pub labels: Option<LabelSettings>,
    /// The vCenters that are configured, connected or not.
    pub vcenters: Vec<VcenterId>,
    pub writes: Rate,
    pub writes_in_flight_max: usize,
    /// For spreading waits.
    pub seed: u64,
}

impl Default for NodeLabelsSettings {
    fn default() -> NodeLabelsSettings {
        NodeLabelsSettings {
            labels: Some(LabelSettings::default()),
            vcenters: vec![VcenterId(0)],
            writes: Rate { per_second: 100, burst: 100 },
            writes_in_flight_max: 16,
            seed: 0,
        }
    }
}

/// Labels of one node, to be written.
#[derive(Debug)]
pub struct LabelWrite {
    pub node: String,
    pub changes: LabelChanges,
    /// Where the node lives.
    vcenter: VcenterId,
    /// The node moved: this is recorded once the label says so.
    moved: Option<Occurrence>,
}

impl Action for LabelWrite {
    fn is_write(&self) -> bool {
        true
    }

    fn requirements(&self) -> Vec<Requirement> {
        vec![Requirement::Fresh(Source::Nodes), Requirement::Fresh(Source::Vcenter(self.vcenter))]
    }
}

#[derive(Debug)]
pub struct LabelOutcome {
    pub write: LabelWrite,
    pub result: Result<(), PortError>,
}

type LabelContext<'a> = Context<'a, LabelWrite, LabelOutcome>;

pub struct NodeLabels {
    settings: NodeLabelsSettings,
    counters: Arc<Counters>,
    labeller: Labeller,
    problems: Problems,
    /// To be looked at.
    changed: BTreeSet<NodeId>,
    gone: Vec<NodeId>,
    /// A source is whole again: what could not be decided before can be now.
    look_at_all: bool,
    /// Names of nodes by id, for those that are gone when we hear of it.
    names: BTreeMap<NodeId, String>,
    wake: Option<Instant>,
}

impl NodeLabels {
    #[must_use]
    pub fn new(settings: NodeLabelsSettings, counters: Arc<Counters>) -> NodeLabels {
        NodeLabels {
            labeller: Labeller::new(BACKOFF, Jitter::from_seed(settings.seed)),
            problems: Problems::default(),
            changed: BTreeSet::new(),
            gone: Vec::new(),
            look_at_all: false,
            names: BTreeMap::new(),
            wake: None,
            counters,
            settings,
        }
    }

    /// Decides what is to be done about the nodes that changed, as many as the time allows.
    fn look_at_changed(&mut self, context: &mut LabelContext<'_>) {
        for node in std::mem::take(&mut self.gone) {
            if let Some(name) = self.names.remove(&node) {
                self.labeller.forget(&name);
                self.problems.observe(&name, None, context.now);
            }
        }
        if std::mem::take(&mut self.look_at_all) {
            self.changed = context.world.read().node_ids().collect();
        }
        while let Some(node) = self.changed.pop_first() {
            self.look_at(node, context);
            if context.stopwatch.is_spent() {
                return;
            }
        }
    }

    fn look_at(&mut self, node: NodeId, context: &mut LabelContext<'_>) {
        let world = context.world.read();
        let Some(name) = world.node_name(node) else { return };
        self.names.entry(node).and_modify(|known| name.clone_into(known)).or_insert_with(|| name.to_owned());
        self.problems.observe(name, self.problem(world, node, context.gate), context.now);
        if lives_on(world, node).is_none_or(|vcenter| !may_write(context.gate, vcenter, context.now)) {
            return;
        }
        let Some(settings) = &self.settings.labels else { return };
        let desired = DesiredLabels::of(world, node, settings);
        let changes = changes(&desired);
        if self.labeller.observe(name, &desired.labels, &changes, context.now) == Observation::ChangedByOthers {
            self.counters.labels_changed_by_others.add(1);
            tracing::warn!(node = name, "somebody else changed a label of Bridger's; it is put right");
            let keys = changes.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("label {keys} was changed by somebody else; it is put right");
            let occurrence = occurrence(world, node, Severity::Warning, "LabelChangedByOthers", message);
            context.events.record(NAME, occurrence, Repeat::ALWAYS, context.now);
        }
    }

    /// What keeps a node from being labelled. Nothing is reported before everything has been seen.
    fn problem(&self, world: &World, node: NodeId, gate: &Gate) -> Option<Problem> {
        let vcenters = &self.settings.vcenters;
        let all_in_sync = vcenters.iter().all(|id| gate.in_sync(Source::Vcenter(*id)));
        if !all_in_sync || vcenters.is_empty() || !gate.in_sync(Source::Nodes) {
            return None;
        }
        let reason = match world.match_of(node) {
            Match::Matched { .. } => return None,
            Match::Unmatched => "MachineNotFound",
            Match::Ambiguous { .. } => "MachineAmbiguous",
            Match::Contested { .. } => "MachineContested",
        };
        Some(Problem { reason, message: world.explain_match(node) })
    }

    fn report_problems(&mut self, context: &mut LabelContext<'_>) {
        for (name, problem) in self.problems.take_due(context.now) {
            tracing::warn!(node = name, reason = problem.reason, "{}", problem.message);
            let world = context.world.read();
            let Some(node) = world.node_id(&name) else { continue };
            let occurrence = occurrence(world, node, Severity::Warning, problem.reason, problem.message);
            context.events.record(NAME, occurrence, Repeat::ALWAYS, context.now);
        }
    }

    fn send_due(&mut self, context: &mut LabelContext<'_>) {
        let Some(settings) = &self.settings.labels else { return };
        while context.actions.room(LANE) > 0 && !context.stopwatch.is_spent() {
            let Some(name) = self.labeller.take_due(context.now) else { return };
            let world = context.world.read();
            let Some(node) = world.node_id(&name) else {
                self.labeller.forget(&name);
                continue;
            };
            let desired = DesiredLabels::of(world, node, settings);
            let changes = changes(&desired);
            let Some(vcenter) = lives_on(world, node) else { continue };
            if changes.is_empty() || !may_write(context.gate, vcenter, context.now) {
                // Right by now, or not ours to say: the next relist or change looks at it again.
                continue;
            }
            let host = desired.differences.get(&settings.host_key);
            let moved = host.and_then(|host| Some(format!("moved from {} to {}", host.from.as_ref()?, host.to)));
            let moved = moved.map(|message| occurrence(world, node, Severity::Normal, "HostChanged", message));
            // There is room.
            let _ = context.actions.send(LANE, LabelWrite { node: name, changes, vcenter, moved });
        }
    }
}

impl Controller for NodeLabels {
    type Action = LabelWrite;
    type Outcome = LabelOutcome;

    fn name(&self) -> &'static str {
        NAME
    }

    fn lanes(&self) -> Vec<LaneSettings> {
        let (in_flight_max, rate) = (self.settings.writes_in_flight_max, Some(self.settings.writes));
        vec![LaneSettings { in_flight_max, waiting_max: 0, rate }]
    }

    fn observe(&mut self, change: &WorldChange, _: &World, _: Instant) {
        for node in change.touched.removed() {
            self.changed.remove(&node);
            self.gone.push(node);
        }
        self.changed.extend(change.touched.nodes());
        self.look_at_all |= matches!(change.subject, Subject::RelistEnded { .. });
    }

    fn advance(&mut self, context: &mut LabelContext<'_>) {
        // First what was due before: looking may use the time up.
        self.send_due(context);
        self.look_at_changed(context);
        self.report_problems(context);
        self.send_due(context);
        let due = self.labeller.next_due().filter(|_| context.actions.room(LANE) > 0);
        let rate = context.actions.opens_at(LANE).filter(|_| self.labeller.next_due().is_some());
        let more = (!self.changed.is_empty()).then_some(context.now);
        self.wake = [due, rate, more, self.problems.next_due()].into_iter().flatten().min();
    }

    fn completed(&mut self, outcome: LabelOutcome, context: &mut LabelContext<'_>) {
        let LabelWrite { node, changes, moved, .. } = outcome.write;
        match outcome.result {
            Ok(()) => {
                self.counters.label_writes.add(1);
                tracing::info!(node, labels = %shown(&changes), "labelled");
                self.labeller.succeeded(&node, changes, context.now);
                if let Some(moved) = moved {
                    context.events.record(NAME, moved, Repeat::ALWAYS, context.now);
                }
                // The echo may have come before the answer did.
                self.changed.extend(context.world.read().node_id(&node));
            }
            Err(error) => {
                match &error {
                    PortError::Transient(_) => self.counters.label_writes_failed_transient.add(1),
                    PortError::NotFound(_) => self.counters.label_writes_failed_not_found.add(1),
                    PortError::Permanent(_) | PortError::Invalid(_) => {
                        self.counters.label_writes_failed_permanent.add(1)
                    }
                }
                tracing::warn!(node, %error, "cannot label");
                self.labeller.failed(&node, &error, context.now);
            }
        }
    }

    fn refused(&mut self, write: LabelWrite, closed: Closed, context: &mut LabelContext<'_>) {
        match closed {
            Closed::DryRun => tracing::info!(node = write.node, changes = ?write.changes, "dry run: would label"),
            // Whoever leads writes it; should that be this process later, nothing else may happen to wake it.
            Closed::NoLease => self.labeller.postpone(&write.node, context.now + BACKOFF.longest),
            // The next relist looks at it again.
            Closed::NeverInSync(_) | Closed::Relisting(_) | Closed::Stale { .. } => (),
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.wake
    }
}

/// The vCenter the node lives on, where its host is known.
fn lives_on(world: &World, node: NodeId) -> Option<VcenterId> {
    match world.placement(node) {
        Placement::On { vcenter, .. } => Some(vcenter),
        _ => None,
    }
}

/// What a node's labels depend on: the nodes, and the vCenter the node lives on.
fn may_write(gate: &Gate, vcenter: VcenterId, now: Instant) -> bool {
    gate.is_fresh(Source::Nodes, now) && gate.is_fresh(Source::Vcenter(vcenter), now)
}

fn changes(desired: &DesiredLabels) -> LabelChanges {
    desired.differences.iter().map(|(key, change)| (key.clone(), Some(change.to.clone()))).collect()
}

fn occurrence(world: &World, node: NodeId, severity: Severity, reason: &'static str, message: String) -> Occurrence {
    let name = world.node_name(node).unwrap_or_default().to_owned();
    let uid = world.node_uid(node).unwrap_or_default();
    Occurrence { regarding: Regarding::Node { name, uid }, severity, reason, message }
}

fn shown(changes: &LabelChanges) -> String {
    let pairs = changes.iter().map(|(key, value)| format!("{key}={}", value.as_deref().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",")
}
