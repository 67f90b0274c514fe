//! The labels of nodes in the loop: what is to be done about a node, whether it may be, and what came of it.

use model::event::Source;
use model::labels::{self, LabelSettings};
use model::{Match, NodeId, Placement, World};
use tokio::time::Instant;

use super::{Done, Engine, notice, read};
use crate::labeller::Observation;
use crate::ports::{LabelChanges, Notice, PortError, Severity};
use crate::problems::Problem;

impl Engine {
    /// Decides anew what is to be done about a node.
    pub(super) fn look_at(&mut self, world: &World, node: NodeId, now: Instant) {
        let Some(name) = world.node_name(node) else { return };
        self.names.insert(node, name.to_owned());
        self.problems.observe(name, self.problem(world, node), now);
        let Some(settings) = &self.settings.labels else { return };
        if !self.may_write(world, node, now) {
            return;
        }
        let wanted = labels::wanted(world, node, settings);
        let changes = changes(world, node, settings);
        if self.labeller.observe(name, &wanted, &changes, now) == Observation::ChangedByOthers {
            self.counters.labels_changed_by_others.add(1);
            tracing::warn!(node = name, "somebody else changed a label of Bridger's; it is put right");
            let message = format!("label {} was changed by somebody else; it is put right", keys(&changes));
            self.post(notice(world, node, name, Severity::Warning, "LabelChangedByOthers", message));
        }
    }

    /// The gates that a node's labels depend on: the nodes, and the vCenter the node lives on.
    pub(super) fn may_write(&self, world: &World, node: NodeId, now: Instant) -> bool {
        let vcenter = match world.placement(node) {
            Placement::On { vcenter, .. } => vcenter,
            _ => return false,
        };
        self.gates.check(Source::Nodes, now).is_ok() && self.gates.check(Source::Vcenter(vcenter), now).is_ok()
    }

    /// What keeps a node from being labelled. Nothing is said before everything has been seen.
    pub(super) fn problem(&self, world: &World, node: NodeId) -> Option<Problem> {
        let all_in_sync = self.settings.vcenters.iter().all(|id| self.gates.in_sync(Source::Vcenter(*id)));
        if !all_in_sync || self.settings.vcenters.is_empty() || !self.gates.in_sync(Source::Nodes) {
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

    pub(super) fn send_labels(&mut self, name: String, now: Instant) {
        let world = self.world.clone();
        let world = read(&world);
        let Some(settings) = &self.settings.labels else { return };
        let Some(node) = world.node_id(&name) else { return self.labeller.forget(&name) };
        let changes = changes(&world, node, settings);
        if changes.is_empty() || !self.may_write(&world, node, now) {
            // Right by now, or not ours to say: the next relist or change looks at it again.
            return;
        }
        let differences = labels::differences(&world, node, settings);
        let moved = differences.get(&settings.host_key).and_then(|host| Some((host.from.clone()?, host.to.clone())));
        if self.settings.dry_run {
            tracing::info!(node = name, changes = ?changes, "dry run: would label");
            return;
        }
        let notice = moved.map(|(from, to)| {
            let message = format!("moved from {from} to {to}");
            notice(&world, node, &name, Severity::Normal, "HostChanged", message)
        });
        let store = self.ports.labels.clone();
        self.writes_in_flight += 1;
        self.in_flight.push(Box::pin(async move {
            let result = store.change_labels(&name, &changes).await;
            Done::Labels { node: name, changes, notice, result }
        }));
    }

    pub(super) fn finish_labels(
        &mut self,
        node: &str,
        changes: LabelChanges,
        notice: Option<Notice>,
        result: Result<(), PortError>,
    ) {
        let now = Instant::now();
        match result {
            Ok(()) => {
                self.counters.label_writes.add(1);
                tracing::info!(node, labels = %shown(&changes), "labelled");
                self.labeller.succeeded(node, changes, now);
                if let Some(notice) = notice {
                    self.post(notice);
                }
                // The echo may have come before the answer did.
                let world = self.world.clone();
                let world = read(&world);
                if let Some(id) = world.node_id(node) {
                    self.look_at(&world, id, now);
                }
            }
            Err(error) => {
                match &error {
                    PortError::Passing(_) => self.counters.label_writes_failed_passing.add(1),
                    PortError::Gone(_) => self.counters.label_writes_failed_gone.add(1),
                    PortError::Refused(_) | PortError::Faulty(_) => self.counters.label_writes_failed_refused.add(1),
                }
                tracing::warn!(node, %error, "cannot label");
                self.labeller.failed(node, &error, now);
            }
        }
    }
}

fn changes(world: &World, node: NodeId, settings: &LabelSettings) -> LabelChanges {
    labels::differences(world, node, settings).into_iter().map(|(key, change)| (key, Some(change.to))).collect()
}

fn keys(changes: &LabelChanges) -> String {
    changes.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn shown(changes: &LabelChanges) -> String {
    let pairs = changes.iter().map(|(key, value)| format!("{key}={}", value.as_deref().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",")
}
