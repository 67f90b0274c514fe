//! The controllers of the simulated cluster.
//!
//! In: the store's changes ([`Controllers::observe`]) and the passing of time ([`Controllers::execute`]). Out:
//! changes of the store, Events, happenings.
//!
//! `observe` only marks affected objects and schedules steps; it writes nothing. A step then reads the current store,
//! so a controller cannot act on stale data, and it does not matter how often an object was marked.
//!
//! Invariants:
//! - A marked target is queued once until it is reconciled.
//! - Between two steps all writes are observed, so [`index`] is current when a step runs.
//! - When the window of changes has moved past the cursor, everything is indexed and marked again.

mod budget;
mod deployment;
mod deployment_scale;
mod deployment_status;
mod events;
mod evictions;
mod garbage;
mod history;
mod index;
mod kubelet;
mod machines;
mod namespace;
mod node_object;
mod node_taints;
mod pod_status;
mod pod_template;
mod queue;
mod replica_set;
mod stateful_set;
mod storage;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod testing;

use serde_json::Value;

use super::Config;
use super::happening::{self, Happening};
use super::kinds::KindId;
use super::pod;
use super::store::{Change, ChangeType, ObjectKey, Store};
use super::taints::Taint;
use crate::clock::SimTime;
use crate::seed::Seed;
use crate::timeline::Timeline;
use events::Events;
pub use events::{EventRecord, EventType};
use evictions::Evictions;
use history::History;
use index::Index;
use kubelet::{Kubelet, PodStep};
use machines::{Machines, NodeStep};
use queue::{Queue, Target};
use stateful_set::Revisions;
pub use storage::DRIVER as STORAGE_DRIVER;
pub(crate) use storage::class_name as storage_class_name;
use storage::{Storage, StorageStep};

/// A scheduled step of the Kubernetes side.
#[derive(Debug)]
pub(crate) enum Step {
    Reconcile(Target),
    Pod {
        step: PodStep,
        key: ObjectKey,
        uid: String,
    },
    /// `boot` counts the machine's starts and stops: a step of an earlier boot is void.
    Node {
        step: NodeStep,
        node: String,
        boot: u64,
    },
    Storage(StorageStep),
    Evict {
        key: ObjectKey,
        uid: String,
        due: SimTime,
    },
    /// Removes the pods of a node that does not exist.
    CollectOrphans {
        node: String,
    },
    ExpireEvents,
    CompactHistory,
}

#[derive(Debug)]
pub(crate) struct Controllers {
    config: Config,
    /// The last version observed.
    cursor: u64,
    index: Index,
    queue: Queue,
    events: Events,
    machines: Machines,
    kubelet: Kubelet,
    evictions: Evictions,
    revisions: Revisions,
    storage: Storage,
    history: History,
}

/// What a controller can use while it runs.
pub(crate) struct Tools<'a> {
    pub now: SimTime,
    pub config: &'a Config,
    pub store: &'a mut Store,
    pub index: &'a Index,
    pub queue: &'a mut Queue,
    pub timeline: &'a mut Timeline<Step>,
    pub events: &'a mut Events,
    pub happenings: &'a mut Vec<Happening>,
}

impl Tools<'_> {
    /// Records an Event about an object.
    pub(crate) fn event(&mut self, about: &Value, component: &str, reason: &str, message: &str) {
        let event = EventRecord { about, event_type: EventType::Normal, component, reason, message };
        self.events.record(self.store, &event, self.now);
    }

    pub(crate) fn warning(&mut self, about: &Value, component: &str, reason: &str, message: &str) {
        let event = EventRecord { about, event_type: EventType::Warning, component, reason, message };
        self.events.record(self.store, &event, self.now);
    }

    /// Reconciles the target again at a later time.
    pub(crate) fn again_at(&mut self, moment: SimTime, target: Target) {
        self.queue.later(self.timeline, moment, target);
    }

    /// The objects of a kind that an owner controls, ordered by namespace and name.
    pub(crate) fn controlled(&self, owner: &Value, kind: KindId) -> Vec<std::sync::Arc<Value>> {
        let uid = pod::uid(owner);
        self.index
            .dependents(uid)
            .filter(|(dependent, _)| *dependent == kind)
            .filter_map(|(kind, key)| self.store.get(*kind, &key.namespace, &key.name).cloned())
            .filter(|object| pod::is_controlled_by(object, uid))
            .collect()
    }
}

impl Controllers {
    pub(crate) fn new(config: &Config, seed: Seed, now: SimTime) -> Controllers {
        Controllers {
            config: config.clone(),
            cursor: 0,
            index: Index::default(),
            queue: Queue::new(config.controller_delay),
            events: Events::new(config.events_max, config.event_lifetime),
            machines: Machines::new(seed, now),
            kubelet: Kubelet::new(config, seed),
            evictions: Evictions::default(),
            revisions: Revisions::default(),
            storage: Storage::new(seed),
            history: History::default(),
        }
    }

    pub(crate) fn record_event(&mut self, store: &mut Store, event: &EventRecord<'_>, now: SimTime) {
        self.events.record(store, event, now);
    }

    pub(crate) fn machines_and_tools<'a>(
        &'a mut self,
        store: &'a mut Store,
        timeline: &'a mut Timeline<Step>,
        happenings: &'a mut Vec<Happening>,
        now: SimTime,
    ) -> (&'a mut Machines, Tools<'a>) {
        let tools = Tools {
            now,
            config: &self.config,
            store,
            index: &self.index,
            queue: &mut self.queue,
            timeline,
            events: &mut self.events,
            happenings,
        };
        (&mut self.machines, tools)
    }

    pub(crate) fn execute(
        &mut self,
        step: Step,
        store: &mut Store,
        timeline: &mut Timeline<Step>,
        happenings: &mut Vec<Happening>,
        now: SimTime,
    ) {
        let Controllers {
            config, index, queue, events, machines, kubelet, evictions, revisions, storage, history, ..
        } = self;
        let mut tools = Tools { now, config, store, index, queue, timeline, events, happenings };
        match step {
            Step::Reconcile(target) => {
                tools.queue.taken(&target, now);
                match target {
                    Target::Deployment(key) => deployment::reconcile(&mut tools, &key),
                    Target::ReplicaSet(key) => replica_set::reconcile(&mut tools, &key),
                    Target::StatefulSet(key) => stateful_set::reconcile(&mut tools, revisions, &key),
                    Target::Budget(key) => budget::reconcile(&mut tools, &key),
                    Target::Namespace(name) => namespace::reconcile(&mut tools, &name),
                    Target::NodeTaints(name) => node_taints::reconcile(&mut tools, &name),
                    Target::Evictions(node) => evictions.reconcile(&mut tools, &node),
                    Target::Claim(key) => storage.reconcile_claim(&mut tools, &key),
                    Target::Volume(name) => storage.reconcile_volume(&mut tools, &name),
                    Target::Attachments(node) => Storage::reconcile_attachments(&mut tools, &node),
                    Target::EphemeralClaims(key) => storage::claims::reconcile_ephemeral(&mut tools, &key),
                    Target::Garbage(kind, key) => garbage::reconcile(&mut tools, kind, &key),
                }
            }
            Step::Pod { step, key, uid } => kubelet.execute(&mut tools, machines, step, &key, &uid),
            Step::Node { step, node, boot } => machines.execute(&mut tools, kubelet, step, &node, boot),
            Step::Storage(step) => storage.execute(&mut tools, step),
            Step::Evict { key, uid, due } => evictions.evict(&mut tools, &key, &uid, due),
            Step::CollectOrphans { node } => garbage::collect_orphans(&mut tools, &node),
            Step::CompactHistory => history.compact(tools.store),
            Step::ExpireEvents => tools.events.expire(tools.store, tools.timeline, now),
        }
    }

    pub(crate) fn observe(
        &mut self,
        store: &Store,
        timeline: &mut Timeline<Step>,
        happenings: &mut Vec<Happening>,
        now: SimTime,
    ) {
        if self.cursor == store.version() {
            return;
        }
        match store.changes_since(self.cursor) {
            Ok(changes) => {
                for change in changes {
                    self.index.apply(change);
                    happening::read_off(change, happenings);
                    self.route(change, store, timeline, now);
                }
            }
            Err(_) => self.resync(store, timeline, now),
        }
        self.cursor = store.version();
        self.events.schedule_expiry(timeline, now);
        self.history.schedule_compaction(timeline, now.after(self.config.history_kept));
    }

    /// The changes since the last observation are no longer available: treats all objects as new.
    fn resync(&mut self, store: &Store, timeline: &mut Timeline<Step>, now: SimTime) {
        self.index = Index::default();
        let all: Vec<Change> = KindId::all()
            .flat_map(|kind| {
                store.list(kind, None).map(move |object| Change {
                    version: 0,
                    kind,
                    change_type: ChangeType::Added,
                    before: None,
                    object: object.clone(),
                })
            })
            .collect();
        for change in &all {
            self.index.apply(change);
        }
        for change in &all {
            self.route(change, store, timeline, now);
        }
    }

    /// Marks the targets that a change affects.
    fn route(&mut self, change: &Change, store: &Store, timeline: &mut Timeline<Step>, now: SimTime) {
        let object = &change.object;
        let key = ObjectKey::of(object);
        let deleted = change.change_type == ChangeType::Deleted;
        garbage::observe(change, store, &self.index, |kind, key| {
            self.queue.mark(timeline, now, Target::Garbage(kind, key));
        });
        storage::affected(change, store, &self.index, |target| self.queue.mark(timeline, now, target));
        self.storage.observe(change, store, &self.config, timeline, now);
        if let Some(claim) = storage::claims_of_change(change, store) {
            self.kubelet.volumes_changed(self.index.pods_of_claim(&claim), store, timeline, now);
        }
        if deleted && change.kind.kind().namespaced && namespace::is_terminating(store, &key.namespace) {
            self.queue.mark(timeline, now, Target::Namespace(key.namespace.clone()));
        }
        if change.kind == KindId::POD {
            return self.route_pod(change, store, timeline, now);
        }
        let mut mark = |target| self.queue.mark(timeline, now, target);
        match change.kind {
            KindId::REPLICA_SET => {
                mark(Target::ReplicaSet(key.clone()));
                for version in change.before.iter().chain([object]) {
                    if let Some(owner) = pod::controller_of(version)
                        && owner.kind == KindId::DEPLOYMENT
                    {
                        mark(Target::Deployment(owner.key));
                    }
                }
                budget::affected_by_scale(change, store, |key| mark(Target::Budget(key)));
            }
            KindId::DEPLOYMENT => {
                mark(Target::Deployment(key));
                budget::affected_by_scale(change, store, |key| mark(Target::Budget(key)));
            }
            KindId::STATEFUL_SET => {
                if deleted {
                    self.revisions.forget(pod::uid(object));
                }
                mark(Target::StatefulSet(key));
                budget::affected_by_scale(change, store, |key| mark(Target::Budget(key)));
            }
            KindId::POD_DISRUPTION_BUDGET if !deleted => mark(Target::Budget(key)),
            KindId::NAMESPACE if !deleted && pod::is_terminating(object) => mark(Target::Namespace(key.name)),
            KindId::NODE => {
                let no_execute = Taint::of_node(object).iter().any(|taint| taint.effect == "NoExecute");
                if self.evictions.note_node(&key.name, no_execute && !deleted) {
                    mark(Target::Evictions(key.name.clone()));
                }
                if deleted {
                    self.queue.collect_orphans(timeline, now, &key.name, self.config.orphaned_pod_grace);
                } else if node_taints::need_change(object) {
                    mark(Target::NodeTaints(key.name));
                }
            }
            KindId::EVENT => self.events.observe(change, now),
            _ => (),
        }
    }

    fn route_pod(&mut self, change: &Change, store: &Store, timeline: &mut Timeline<Step>, now: SimTime) {
        let object = &change.object;
        let deleted = change.change_type == ChangeType::Deleted;
        for version in change.before.iter().chain([object]) {
            let Some(owner) = pod::controller_of(version) else { continue };
            let members = self.index.dependents_count(&owner.uid);
            let target = match owner.kind {
                KindId::REPLICA_SET => Target::ReplicaSet(owner.key),
                KindId::STATEFUL_SET => Target::StatefulSet(owner.key),
                _ => continue,
            };
            self.queue.mark_large(timeline, now, target, members);
        }
        let pods = store.count(KindId::POD);
        budget::affected_by_pod(change, store, |key| {
            self.queue.mark_large(timeline, now, Target::Budget(key), pods);
        });
        let node = pod::node_name(object);
        if self.evictions.concern(node) {
            self.queue.mark(timeline, now, Target::Evictions(node.to_owned()));
        }
        if deleted {
            self.evictions.forget(pod::uid(object));
        }
        self.kubelet.observe(change, &self.machines, timeline, now);
        if !deleted && !node.is_empty() && store.get(KindId::NODE, "", node).is_none() {
            self.queue.collect_orphans(timeline, now, node, self.config.orphaned_pod_grace);
        }
    }
}
