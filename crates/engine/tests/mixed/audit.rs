//! A read-only controller that checks the world after every change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use engine::runtime::{Action, Closed, Context, Controller, Executor, LaneSettings};
use futures::future::BoxFuture;
use model::{NodeId, PodId, Subject, World, WorldChange};
use tokio::time::Instant;

use crate::{ALLOWED, app_of, host_name};

#[derive(Clone, Debug, Default)]
pub struct Audited {
    pub assumed: usize,
    /// How often a node got its last pod.
    pub full_nodes: usize,
}

#[derive(Default)]
pub struct Audit {
    violations: Mutex<Vec<String>>,
    totals: Mutex<Audited>,
}

impl Audit {
    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn totals(&self) -> Audited {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub struct Auditor {
    audit: Arc<Audit>,
    /// App and host, and node, of each placed pod.
    pods: BTreeMap<PodId, ((String, String), NodeId)>,
    /// Pods by app and host.
    apps: BTreeMap<(String, String), usize>,
    nodes: BTreeMap<NodeId, usize>,
    turns: usize,
}

impl Auditor {
    pub fn new(audit: Arc<Audit>) -> Auditor {
        Auditor { audit, pods: BTreeMap::new(), apps: BTreeMap::new(), nodes: BTreeMap::new(), turns: 0 }
    }

    fn violation(&self, text: String) {
        self.audit.violations.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    fn removed(&mut self, id: PodId) {
        let Some((key, node)) = self.pods.remove(&id) else { return };
        if let Some(count) = self.apps.get_mut(&key) {
            *count -= 1;
        }
        if let Some(count) = self.nodes.get_mut(&node) {
            *count -= 1;
        }
    }

    fn placed(&mut self, id: PodId, uid: &str, node: NodeId, world: &World) {
        let app = app_of(uid).to_owned();
        let name = world.node_name(node).unwrap_or_default();
        let key = (app, host_name(name));
        self.pods.insert(id, (key.clone(), node));
        let replicas = self.apps.entry(key).or_default();
        *replicas += 1;
        if *replicas > 1 {
            self.violation(format!("{uid} on {name} shares a host with another replica"));
        }
        let count = self.nodes.entry(node).or_default();
        *count += 1;
        let count = *count;
        if count > ALLOWED {
            self.violation(format!("{uid} is the {count}th pod on {name}"));
        } else if count == ALLOWED {
            self.audit.totals.lock().unwrap_or_else(PoisonError::into_inner).full_nodes += 1;
        }
    }
}

#[derive(Debug)]
pub enum Never {}

impl Action for Never {
    fn is_write(&self) -> bool {
        match *self {}
    }
}

pub struct NoAction;

impl Executor<Auditor> for NoAction {
    fn execute(&self, action: Never) -> BoxFuture<'static, Never> {
        match action {}
    }
}

impl Controller for Auditor {
    type Action = Never;
    type Outcome = Never;

    fn name(&self) -> &'static str {
        "auditor"
    }

    fn lanes(&self) -> Vec<LaneSettings> {
        Vec::new()
    }

    fn observe(&mut self, change: &WorldChange, world: &World, _: Instant) {
        let Subject::Pod { before, after } = &change.subject else { return };
        let placed = |pod: &model::PodState| Some((pod.id, pod.uid.to_string(), pod.node?, pod.is_assumed));
        let (before, after) = (before.as_deref().and_then(placed), after.as_deref().and_then(placed));
        if after.as_ref().is_some_and(|(.., is_assumed)| *is_assumed) && before.is_none() {
            self.audit.totals.lock().unwrap_or_else(PoisonError::into_inner).assumed += 1;
        }
        if let Some((id, ..)) = before {
            self.removed(id);
        }
        if let Some((id, uid, node, _)) = after {
            self.placed(id, &uid, node, world);
        }
    }

    /// Recounts all pods from time to time, to detect a missed change.
    fn advance(&mut self, context: &mut Context<'_, Never, Never>) {
        self.turns += 1;
        if !self.turns.is_multiple_of(256) {
            return;
        }
        let world = context.world.read();
        for node in world.node_ids() {
            let counted = self.nodes.get(&node).copied().unwrap_or_default();
            if world.pods_on(node).len() != counted {
                self.violation(format!(
                    "{} pods on {:?}, not {counted}",
                    world.pods_on(node).len(),
                    world.node_name(node)
                ));
            }
        }
    }

    fn completed(&mut self, outcome: Never, _: &mut Context<'_, Never, Never>) {
        match outcome {}
    }

    fn refused(&mut self, action: Never, _: Closed, _: &mut Context<'_, Never, Never>) {
        match action {}
    }

    fn next_wake(&self) -> Option<Instant> {
        None
    }
}
