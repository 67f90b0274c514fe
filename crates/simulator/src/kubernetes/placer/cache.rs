//! Nodes and the usage of their pods, updated from the store's changes.
//!
//! Invariants: after [`Cache::update`] the cache matches the store; finished pods are not in it; usage is also tracked
//! for nodes whose object is missing, so that it is correct when the object is created.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::node_affinity::Labels;
use super::pod_info::{HostPort, PodInfo};
use super::resources::Resources;
use crate::kubernetes::json::{items, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::quantity::units;
use crate::kubernetes::store::{Change, ChangeType, ObjectKey, Store};
use crate::kubernetes::taints::Taint;

#[derive(Clone, Debug)]
pub(crate) struct NodeInfo {
    pub object: Arc<Value>,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub unschedulable: bool,
    pub allocatable: Resources,
    pub pods_max: i64,
}

impl NodeInfo {
    fn of(object: &Arc<Value>) -> NodeInfo {
        let allocatable = &object["status"]["allocatable"];
        NodeInfo {
            labels: object["metadata"]["labels"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.clone(), text(value).to_owned()))
                .collect(),
            taints: Taint::of_node(object),
            unschedulable: object["spec"]["unschedulable"] == true,
            allocatable: Resources::parse(allocatable),
            pods_max: units(&allocatable["pods"]),
            object: object.clone(),
        }
    }
}

/// The total usage of the pods on a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    pub requested: Resources,
    pub for_score: Resources,
    pub pods: i64,
    pub host_ports: Vec<HostPort>,
}

impl Usage {
    fn add(&mut self, pod: &PodInfo) {
        self.requested.add(&pod.request.requested);
        self.for_score.add(&pod.request.for_score);
        self.pods += 1;
        self.host_ports.extend(pod.host_ports.iter().cloned());
    }

    fn remove(&mut self, pod: &PodInfo) {
        self.requested.subtract(&pod.request.requested);
        self.for_score.subtract(&pod.request.for_score);
        self.pods -= 1;
        for port in &pod.host_ports {
            if let Some(at) = self.host_ports.iter().position(|known| known == port) {
                self.host_ports.swap_remove(at);
            }
        }
    }
}

/// The result of an update that can matter to pods in the queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheUpdate {
    /// Pods that may need placement, in their current version, and pods that no longer do.
    pub unplaced: Vec<Arc<Value>>,
    pub not_pending: Vec<ObjectKey>,
    /// A node was added or offers something else, or a pod released capacity.
    pub capacity: bool,
    /// A pod was bound to a node or its labels changed, which pod affinity may wait for.
    pub affinity: bool,
    /// A claim, a volume or a class changed.
    pub claims: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    cursor: u64,
    pub nodes: BTreeMap<String, NodeInfo>,
    usage: BTreeMap<String, Usage>,
    /// Bound pods that are not finished.
    pub pods: BTreeMap<ObjectKey, Arc<PodInfo>>,
    pub with_anti_affinity: BTreeSet<ObjectKey>,
    pub with_affinity: BTreeSet<ObjectKey>,
}

impl Cache {
    pub(crate) fn update(&mut self, store: &Store) -> CacheUpdate {
        let mut update = CacheUpdate::default();
        match store.changes_since(self.cursor) {
            Ok(changes) => {
                for change in changes {
                    self.apply(change, &mut update);
                }
            }
            Err(_) => {
                *self = Cache::default();
                for kind in [KindId::NODE, KindId::POD] {
                    for object in store.list(kind, None) {
                        let change_type = ChangeType::Added;
                        let change = Change { version: 0, kind, change_type, before: None, object: object.clone() };
                        self.apply(&change, &mut update);
                    }
                }
            }
        }
        self.cursor = store.version();
        update
    }

    fn apply(&mut self, change: &Change, update: &mut CacheUpdate) {
        match change.kind {
            KindId::NODE => self.apply_node(change, update),
            KindId::POD => self.apply_pod(change, update),
            // The labels of a namespace can make a namespaceSelector match more pods.
            KindId::NAMESPACE => update.affinity = true,
            KindId::PERSISTENT_VOLUME_CLAIM | KindId::PERSISTENT_VOLUME | KindId::STORAGE_CLASS => update.claims = true,
            _ => (),
        }
    }

    fn apply_node(&mut self, change: &Change, update: &mut CacheUpdate) {
        let name = text(&change.object["metadata"]["name"]);
        if change.change_type == ChangeType::Deleted {
            self.nodes.remove(name);
            return;
        }
        let same = change.before.as_ref().is_some_and(|before| {
            before["spec"] == change.object["spec"]
                && before["metadata"]["labels"] == change.object["metadata"]["labels"]
                && before["status"]["allocatable"] == change.object["status"]["allocatable"]
        });
        match self.nodes.get_mut(name) {
            // A heartbeat does not change anything that the placer reads.
            Some(known) if same => known.object = change.object.clone(),
            _ => {
                self.nodes.insert(name.to_owned(), NodeInfo::of(&change.object));
                update.capacity = true;
            }
        }
    }

    fn apply_pod(&mut self, change: &Change, update: &mut CacheUpdate) {
        let key = ObjectKey::of(&change.object);
        let counted = change.change_type != ChangeType::Deleted && !pod::is_finished(&change.object);
        let bound = !pod::node_name(&change.object).is_empty();
        if !(counted && bound) {
            if self.forget_pod(&key) {
                update.capacity = true;
            }
            if counted {
                update.unplaced.push(change.object.clone());
            } else {
                update.not_pending.push(key);
            }
            return;
        }
        // Status changes are frequent and do not matter to the placer.
        let same = change.before.as_ref().is_some_and(|before| {
            before["spec"] == change.object["spec"]
                && before["metadata"]["labels"] == change.object["metadata"]["labels"]
        });
        if same && self.pods.contains_key(&key) {
            return;
        }
        self.forget_pod(&key);
        self.note_pod(PodInfo::of(&change.object));
        update.affinity = true;
        update.not_pending.push(key);
    }

    fn note_pod(&mut self, info: PodInfo) {
        let key = info.key.clone();
        self.usage.entry(info.node.clone()).or_default().add(&info);
        if !info.required_anti_affinity.is_empty() {
            self.with_anti_affinity.insert(key.clone());
        }
        if info.has_affinity() {
            self.with_affinity.insert(key.clone());
        }
        self.pods.insert(key, Arc::new(info));
    }

    fn forget_pod(&mut self, key: &ObjectKey) -> bool {
        let Some(info) = self.pods.remove(key) else { return false };
        if let Some(usage) = self.usage.get_mut(&info.node) {
            usage.remove(&info);
            if usage.pods == 0 {
                self.usage.remove(&info.node);
            }
        }
        self.with_anti_affinity.remove(key);
        self.with_affinity.remove(key);
        true
    }

    pub(crate) fn usage(&self, node: &str) -> Option<&Usage> {
        self.usage.get(node)
    }

    /// The value of a topology key on the pod's node.
    pub(crate) fn topology<'a>(&'a self, pod: &PodInfo, key: &str) -> Option<&'a str> {
        self.nodes.get(&pod.node)?.labels.get(key).map(String::as_str)
    }
}

/// Whether a placer with these names must place the pod now.
pub(crate) fn needs_placement(pod: &Value, scheduler_names: &[String]) -> bool {
    let scheduler = Some(text(&pod["spec"]["schedulerName"])).filter(|name| !name.is_empty());
    pod::node_name(pod).is_empty()
        && pod::is_active(pod)
        && items(&pod["spec"]["schedulingGates"]).is_empty()
        && scheduler_names.iter().any(|name| name == scheduler.unwrap_or("default-scheduler"))
}
