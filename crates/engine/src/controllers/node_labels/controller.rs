//! Checks the changed nodes, compares their labels with the desired labels, and handles the outcome of each write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::event::{Source, VcenterId};
use model::labels::{DesiredLabels, LabelSettings};
use model::{Match, NodeId, Placement, Subject, World, WorldChange};
use tokio::time::Instant;

use super::causes::Causes;
use super::labeller::{Labeller, Observation};
use super::problems::{Problem, Problems};
use crate::changes::{ChangeReport, ChangeResult, NODE, Side};
use crate::counters::Counters;
use crate::ports::{LabelChanges, NodeBefore, Occurrence, PortError, Regarding, Severity};
use crate::runtime::{
    Action, Backoff, Closed, Context, Controller, Gate, Jitter, LaneId, LaneSettings, Rate, Repeat, SourceRequirement,
};

const NAME: &str = "node-labels";
const LANE: LaneId = LaneId(0);
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(60) };

#[derive(Clone, Debug)]
pub struct NodeLabelsSettings {
    /// `None`: nothing is written; nodes without a certain VM are still reported.
    pub labels: Option<LabelSettings>,
    /// The configured vCenters, connected or not.
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

/// A write of one node's labels.
#[derive(Debug)]
pub struct LabelWrite {
    pub node: String,
    pub changes: LabelChanges,
    pub before: NodeBefore,
    /// The vCenter of the node's VM.
    vcenter: VcenterId,
    /// The Event about the move of the node; recorded after the label is written.
    moved: Option<Occurrence>,
    /// What was observed before.
    cause: Option<String>,
}

impl Action for LabelWrite {
    fn is_write(&self) -> bool {
        true
    }

    fn requirements(&self) -> Vec<SourceRequirement> {
        vec![SourceRequirement::Fresh(Source::Nodes), SourceRequirement::Fresh(Source::Vcenter(self.vcenter))]
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
    /// To be checked.
    changed: BTreeSet<NodeId>,
    removed: Vec<NodeId>,
    /// A source is in sync again: decisions that were not possible before may be now.
    check_all: bool,
    /// Names of nodes by id. The world no longer has the name of a deleted node.
    names: BTreeMap<NodeId, String>,
    causes: Causes,
    wake: Option<Instant>,
}

impl NodeLabels {
    #[must_use]
    pub fn new(settings: NodeLabelsSettings, counters: Arc<Counters>) -> NodeLabels {
        NodeLabels {
            labeller: Labeller::new(BACKOFF, Jitter::from_seed(settings.seed)),
            problems: Problems::default(),
            changed: BTreeSet::new(),
            removed: Vec::new(),
            check_all: false,
            names: BTreeMap::new(),
            causes: Causes::default(),
            wake: None,
            counters,
            settings,
        }
    }

    /// Checks the changed nodes, as many as the time budget allows.
    fn check_changed(&mut self, context: &mut LabelContext<'_>) {
        for node in std::mem::take(&mut self.removed) {
            self.causes.removed(node);
            if let Some(name) = self.names.remove(&node) {
                self.labeller.forget(&name);
                self.problems.observe(&name, None, context.now);
            }
        }
        if std::mem::take(&mut self.check_all) {
            self.changed = context.world.read().node_ids().collect();
        }
        while let Some(node) = self.changed.pop_first() {
            self.check(node, context);
            if context.stopwatch.is_spent() {
                return;
            }
        }
    }

    fn check(&mut self, node: NodeId, context: &mut LabelContext<'_>) {
        let world = context.world.read();
        let Some(name) = world.node_name(node) else { return };
        self.names.entry(node).and_modify(|known| name.clone_into(known)).or_insert_with(|| name.to_owned());
        self.problems.observe(name, self.problem(world, node, context.gate), context.now);
        self.causes.checked(world, node);
        if vcenter_of(world, node).is_none_or(|vcenter| !may_write(context.gate, vcenter, context.now)) {
            return;
        }
        let Some(settings) = &self.settings.labels else { return };
        let desired = DesiredLabels::of(world, node, settings);
        let changes = changes(&desired);
        let observation = self.labeller.observe(name, &desired.labels, &changes, context.now);
        if observation == Observation::Correct {
            self.causes.written(node);
            context.changes.settled(Side::Kubernetes, NODE, None, name);
        }
        if observation == Observation::ChangedByOthers {
            self.counters.labels_changed_by_others.add(1);
            self.causes.changed_by_others(node);
            tracing::warn!(node = name, "another client changed a label of Bridger; restoring it");
            let keys = changes.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("label {keys} was changed by another client; restoring it");
            let occurrence = occurrence(world, node, Severity::Warning, "LabelChangedByOthers", message);
            context.events.record(NAME, occurrence, Repeat::ALWAYS, context.now);
        }
    }

    /// Why a node cannot be labelled. Nothing is reported before the nodes and all vCenters are in sync.
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
            Match::Unconfirmed { .. } => "MachineUnconfirmed",
        };
        Some(Problem { reason, message: world.explain_match(node) })
    }

    /// The leader's task alone: another instance would report the same.
    fn report_problems(&mut self, context: &mut LabelContext<'_>) {
        if !context.is_leading {
            return;
        }
        for (name, problem) in self.problems.take_due(context.now) {
            tracing::warn!(node = name, reason = problem.reason, "{}", problem.message);
            let world = context.world.read();
            let Some(node) = world.node_id(&name) else { continue };
            let occurrence = occurrence(world, node, Severity::Warning, problem.reason, problem.message);
            context.events.record(NAME, occurrence, Repeat::ALWAYS, context.now);
        }
    }

    /// As the watch shows the node, with what was written since.
    fn before(&self, world: &World, node: NodeId, name: &str, desired: &DesiredLabels) -> NodeBefore {
        let written = self.labeller.written(name);
        let value = |key: &String, seen: &Option<String>| {
            let written = written.and_then(|written| written.get(key));
            (key.clone(), written.unwrap_or(seen).clone())
        };
        NodeBefore {
            uid: world.node_uid(node).unwrap_or_default(),
            labels: desired.differences.iter().map(|(key, change)| value(key, &change.from)).collect(),
            has_labels: written.is_some() || world.node_labels(node).is_some_and(|labels| !labels.is_empty()),
        }
    }

    fn send_due(&mut self, context: &mut LabelContext<'_>) {
        let Some(settings) = &self.settings.labels else { return };
        if !context.is_leading {
            return;
        }
        while context.actions.room(LANE) > 0 && !context.stopwatch.is_spent() {
            let Some(name) = self.labeller.take_due(context.now) else { return };
            let world = context.world.read();
            let Some(node) = world.node_id(&name) else {
                self.labeller.forget(&name);
                continue;
            };
            let desired = DesiredLabels::of(world, node, settings);
            let changes = changes(&desired);
            let Some(vcenter) = vcenter_of(world, node) else { continue };
            if changes.is_empty() || !may_write(context.gate, vcenter, context.now) {
                // The labels are correct by now, or may not be written: the next relist or change checks the node
                // again.
                continue;
            }
            let host = desired.differences.get(&settings.host_key);
            let moved = host.and_then(|host| Some(format!("moved from {} to {}", host.from.as_ref()?, host.to)));
            let moved = moved.map(|message| occurrence(world, node, Severity::Normal, "HostChanged", message));
            let cause = self.causes.of(node).map(ToString::to_string);
            let before = self.before(world, node, &name, &desired);
            // `room` was checked above.
            let _ = context.actions.send(LANE, LabelWrite { node: name, changes, before, vcenter, moved, cause });
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

    fn observe(&mut self, change: &WorldChange, world: &World, _: Instant) {
        if let Subject::Node { before: None, after: Some(node) } = &change.subject
            && world.in_sync(Source::Nodes)
        {
            self.causes.added(node.id);
        }
        for node in change.touched.removed() {
            self.changed.remove(&node);
            self.removed.push(node);
        }
        self.changed.extend(change.touched.nodes());
        self.check_all |= matches!(change.subject, Subject::RelistEnded { .. });
    }

    fn advance(&mut self, context: &mut LabelContext<'_>) {
        // Send what was due before first: checking may use up the time budget.
        self.send_due(context);
        self.check_changed(context);
        self.report_problems(context);
        self.send_due(context);
        let due = self.labeller.next_due().filter(|_| context.actions.room(LANE) > 0);
        let rate = context.actions.opens_at(LANE).filter(|_| self.labeller.next_due().is_some());
        let more = (!self.changed.is_empty()).then_some(context.now);
        // What is due stays due until this process leads: the election wakes the loop.
        let due = [due, rate, self.problems.next_due()].into_iter().flatten().filter(|_| context.is_leading);
        self.wake = due.chain(more).min();
    }

    fn completed(&mut self, outcome: LabelOutcome, context: &mut LabelContext<'_>) {
        let LabelWrite { node, changes, moved, cause, .. } = outcome.write;
        let result = match &outcome.result {
            Ok(()) => ChangeResult::Done,
            Err(error) => ChangeResult::Refused(error.to_string()),
        };
        context.changes.report(&ChangeReport::of_labels(&node, &changes, cause, result));
        match outcome.result {
            Ok(()) => {
                self.counters.label_writes.add(1);
                if let Some(node) = context.world.read().node_id(&node) {
                    self.causes.written(node);
                }
                self.labeller.succeeded(&node, changes, context.now);
                if let Some(moved) = moved {
                    context.events.record(NAME, moved, Repeat::ALWAYS, context.now);
                }
                // The watch may have shown the label before the response arrived.
                self.changed.extend(context.world.read().node_id(&node));
            }
            Err(error) => {
                match &error {
                    PortError::Transient(_) => self.counters.label_writes_failed_transient.add(1),
                    PortError::NotFound(_) => self.counters.label_writes_failed_not_found.add(1),
                    PortError::Permanent(_) | PortError::Invalid(_) => {
                        self.counters.label_writes_failed_permanent.add(1);
                    }
                }
                self.labeller.failed(&node, &error, context.now);
            }
        }
    }

    fn refused(&mut self, write: LabelWrite, closed: Closed, context: &mut LabelContext<'_>) {
        match closed {
            Closed::DryRun => {
                let LabelWrite { node, changes, cause, .. } = &write;
                context.changes.report(&ChangeReport::of_labels(node, changes, cause.clone(), ChangeResult::DryRun));
            }
            // The lease ended this moment. It stays due, in case this process leads again.
            Closed::NoLease => self.labeller.postpone(&write.node, context.now),
            // The next relist checks the node again.
            Closed::NeverInSync(_) | Closed::Relisting(_) | Closed::Stale { .. } => (),
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.wake
    }
}

/// The vCenter of the node's VM, if its host is known.
fn vcenter_of(world: &World, node: NodeId) -> Option<VcenterId> {
    match world.placement(node) {
        Placement::On { vcenter, .. } => Some(vcenter),
        _ => None,
    }
}

/// Whether the sources that a node's labels depend on are fresh: the nodes, and the vCenter of the node's VM.
fn may_write(gate: &Gate, vcenter: VcenterId, now: Instant) -> bool {
    gate.is_fresh(Source::Nodes, now) && gate.is_fresh(Source::Vcenter(vcenter), now)
}

fn changes(desired: &DesiredLabels) -> LabelChanges {
    desired.differences.iter().map(|(key, change)| (key.clone(), Some(change.to.clone()))).collect()
}

fn occurrence(world: &World, node: NodeId, severity: Severity, reason: &'static str, message: String) -> Occurrence {
    let name = world.node_name(node).unwrap_or_default().to_owned();
    let uid = world.node_uid(node).unwrap_or_default();
    Occurrence { regarding: Regarding::Node { name, uid }, severity, reason, message, reporter: None }
}
