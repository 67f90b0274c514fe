//! The placer's task: takes one pod at a time, decides, calls the extenders, binds.
//!
//! In: the world. Out: bindings and conditions in its store. The world is locked only for reading and writing, never
//! during a call to an extender. The result of a call is checked against the store again.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::PlacerConfig;
use super::cache::{Cache, needs_placement};
use super::decide::{Candidate, Decision, SCORE_MAX, decide};
use super::pod_info::PodInfo;
use super::queue::Queue;
use super::volumes::SELECTED_NODE;
use crate::clock::SimTime;
use crate::kubernetes::Kubernetes;
use crate::kubernetes::condition::{self, State};
use crate::kubernetes::controllers::{EventRecord, EventType};
use crate::kubernetes::happening::full_name;
use crate::kubernetes::json::{put, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::store::ObjectKey;
use crate::seed::Stream;
use crate::world::World;

/// The highest score that an extender can give.
const EXTENDER_SCORE_MAX: i64 = 10;

/// Places pods until the world ends. Never returns; spawn it, and drop it to stop.
pub async fn run(world: Arc<World>, config: PlacerConfig) {
    let mut changes = world.kubernetes_changes();
    let mut placer = Placer::new(config);
    loop {
        changes.borrow_and_update();
        match world.with(|core, now| placer.look(&mut core.kubernetes, now)) {
            Turn::Done => tokio::task::yield_now().await,
            Turn::Ask(question) => {
                let answer = placer.ask(&question).await;
                world.with(|core, now| placer.conclude(&mut core.kubernetes, &question, answer, now));
            }
            Turn::Idle { until } => {
                let alarm = async {
                    match until {
                        Some(moment) => world.clock().sleep_until(moment).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    changed = changes.changed() => {
                        if changed.is_err() {
                            return;
                        }
                    }
                    () = alarm => (),
                }
            }
        }
    }
}

#[derive(Debug)]
struct Placer {
    config: PlacerConfig,
    cache: Cache,
    queue: Queue,
    random: Stream,
    /// The node at which the next search starts.
    search_from: String,
}

enum Turn {
    /// A pod was handled.
    Done,
    /// The extenders must be called for a pod.
    Ask(Question),
    Idle {
        until: Option<SimTime>,
    },
}

struct Question {
    pod: Arc<PodInfo>,
    decision: Decision,
    objects: BTreeMap<String, Arc<Value>>,
    nodes: usize,
}

enum Answer {
    /// The nodes that the extenders accepted, with their scores added.
    Nodes(Decision),
    /// An extender has bound the pod, or failed to.
    Bound(Result<(), String>),
    Failed(String),
}

impl Placer {
    fn new(config: PlacerConfig) -> Placer {
        let random = config.seed.stream("kubernetes placer");
        Placer { config, cache: Cache::default(), queue: Queue::default(), random, search_from: String::new() }
    }

    /// Reads the changes and handles the next pod, up to the point where an extender is needed.
    fn look(&mut self, kubernetes: &mut Kubernetes, now: SimTime) -> Turn {
        self.take_in(kubernetes, now);
        let Some(info) = self.queue.next(now) else { return Turn::Idle { until: self.queue.next_moment() } };
        // The deletion of the pod may be among the changes that are no longer retained.
        let current = kubernetes.store().get(KindId::POD, &info.key.namespace, &info.key.name);
        if current.is_none_or(|object| pod::uid(object) != pod::uid(&info.object)) {
            self.queue.remove(&info.key);
            return Turn::Done;
        }
        let decision = decide(kubernetes.store(), &self.cache, &info, &self.search_from);
        self.search_from.clone_from(&decision.next);
        if decision.feasible.is_empty() || self.config.extenders.is_empty() {
            self.settle(kubernetes, &info, &decision, self.cache.nodes.len(), now);
            return Turn::Done;
        }
        let objects = decision
            .feasible
            .iter()
            .filter_map(|candidate| {
                Some((candidate.node.clone(), self.cache.nodes.get(&candidate.node)?.object.clone()))
            })
            .collect();
        Turn::Ask(Question { pod: info, decision, objects, nodes: self.cache.nodes.len() })
    }

    fn take_in(&mut self, kubernetes: &Kubernetes, now: SimTime) {
        let update = self.cache.update(kubernetes.store());
        for key in &update.not_pending {
            self.queue.remove(key);
        }
        for object in &update.unplaced {
            if needs_placement(object, &self.config.scheduler_names) {
                self.queue.put(PodInfo::of(object), now);
            } else {
                self.queue.remove(&ObjectKey::of(object));
            }
        }
        self.queue.wake(&update, now);
    }

    /// Calls the extenders: filter first, then prioritize, then bind.
    async fn ask(&mut self, question: &Question) -> Answer {
        let mut decision = question.decision.clone();
        let objects_of = |decision: &Decision| -> Vec<(String, Arc<Value>)> {
            decision
                .feasible
                .iter()
                .filter_map(|candidate| Some((candidate.node.clone(), question.objects.get(&candidate.node)?.clone())))
                .collect()
        };
        for extender in &self.config.extenders {
            let Some(verb) = &extender.filter_verb else { continue };
            match extender.filter(verb, &question.pod, &objects_of(&decision)).await {
                Ok(filtered) => decision.keep(&filtered.nodes, &filtered.failed),
                Err(_) if extender.ignorable => (),
                Err(error) => return Answer::Failed(error.to_string()),
            }
            if decision.feasible.is_empty() {
                return Answer::Nodes(decision);
            }
        }
        if decision.feasible.len() > 1 {
            for extender in &self.config.extenders {
                let Some(verb) = &extender.prioritize_verb else { continue };
                // As in a real scheduler, a failing prioritize call is ignored.
                if let Ok(scores) = extender.prioritize(verb, &question.pod, &objects_of(&decision)).await {
                    decision.add_scores(&scores, extender.weight);
                }
            }
        }
        let binder = self.config.extenders.iter().find_map(|extender| Some((extender, extender.bind_verb.as_ref()?)));
        // A pod whose claims have no volume yet is not bound in this attempt.
        let Some((extender, verb)) = binder.filter(|_| decision.unbound.is_empty()) else {
            return Answer::Nodes(decision);
        };
        let random = &mut self.random;
        let Some(best) = decision.best(|count| random.below(count)) else { return Answer::Nodes(decision) };
        Answer::Bound(extender.bind(verb, &question.pod, &best.node).await.map_err(|error| error.to_string()))
    }

    fn conclude(&mut self, kubernetes: &mut Kubernetes, question: &Question, answer: Answer, now: SimTime) {
        match answer {
            Answer::Nodes(decision) => self.settle(kubernetes, &question.pod, &decision, question.nodes, now),
            Answer::Bound(Ok(())) => {
                // The binding itself is read from the store. If it does not appear, the pod is retried.
                self.queue.failed(&question.pod.key, false, now);
            }
            Answer::Bound(Err(message)) | Answer::Failed(message) => {
                self.queue.failed(&question.pod.key, false, now);
                report_failure(kubernetes, &question.pod, "SchedulerError", &message, now);
            }
        }
    }

    /// Binds the pod to the best node, or reports why it cannot be placed.
    fn settle(&mut self, kubernetes: &mut Kubernetes, info: &PodInfo, decision: &Decision, nodes: usize, now: SimTime) {
        let random = &mut self.random;
        let Some(best) = decision.best(|count| random.below(count)) else {
            self.queue.failed(&info.key, true, now);
            return report_failure(kubernetes, info, "Unschedulable", &decision.message(nodes), now);
        };
        if !decision.unbound.is_empty() {
            // The claims wake the pod when they have their volumes.
            self.queue.failed(&info.key, true, now);
            return select_node(kubernetes, &decision.unbound, &best.node);
        }
        if bind(kubernetes, info, &best.node, now) {
            self.queue.remove(&info.key);
        } else {
            self.queue.failed(&info.key, false, now);
        }
    }
}

impl Decision {
    /// Keeps the nodes that an extender accepted.
    fn keep(&mut self, left: &[String], failed: &BTreeMap<String, String>) {
        let (kept, dropped): (Vec<Candidate>, Vec<Candidate>) =
            std::mem::take(&mut self.feasible).into_iter().partition(|candidate| left.contains(&candidate.node));
        self.feasible = kept;
        for candidate in dropped {
            let reason = failed.get(&candidate.node).map_or("node(s) rejected by an extender", String::as_str);
            self.reasons.add(reason);
        }
    }

    fn add_scores(&mut self, scores: &BTreeMap<String, i64>, weight: i64) {
        for candidate in &mut self.feasible {
            let score = scores.get(&candidate.node).copied().unwrap_or(0).clamp(0, EXTENDER_SCORE_MAX);
            let weighted = score.saturating_mul(weight).saturating_mul(SCORE_MAX / EXTENDER_SCORE_MAX);
            candidate.score = candidate.score.saturating_add(weighted);
        }
    }
}

/// Binds as the API does; false if the pod is gone, replaced or already bound.
fn bind(kubernetes: &mut Kubernetes, info: &PodInfo, node: &str, now: SimTime) -> bool {
    let key = &info.key;
    let current = kubernetes.store().get(KindId::POD, &key.namespace, &key.name);
    let free = current.is_some_and(|object| {
        pod::uid(object) == pod::uid(&info.object) && pod::node_name(object).is_empty() && pod::is_active(object)
    });
    if !free {
        return false;
    }
    let bound = kubernetes.store_mut().edit(KindId::POD, &key.namespace, &key.name, |object| {
        put(object, &["spec", "nodeName"], json!(node));
        condition::set(object, "PodScheduled", State::new("True", "", ""), now);
    });
    let Ok(object) = bound else { return false };
    let message = format!("Successfully assigned {} to {node}", full_name(&object));
    event(kubernetes, &object, EventType::Normal, "Scheduled", &message, now);
    true
}

/// Has the volumes of these claims created where the node can use them.
fn select_node(kubernetes: &mut Kubernetes, claims: &[ObjectKey], node: &str) {
    for key in claims {
        let _ = kubernetes.store_mut().edit(KindId::PERSISTENT_VOLUME_CLAIM, &key.namespace, &key.name, |claim| {
            put(claim, &["metadata", "annotations", SELECTED_NODE], json!(node));
        });
    }
}

fn report_failure(kubernetes: &mut Kubernetes, info: &PodInfo, reason: &str, message: &str, now: SimTime) {
    let key = &info.key;
    let edited = kubernetes.store_mut().edit(KindId::POD, &key.namespace, &key.name, |object| {
        if pod::uid(object) == pod::uid(&info.object) && pod::node_name(object).is_empty() {
            condition::set(object, "PodScheduled", State::new("False", reason, message), now);
        }
    });
    if let Ok(object) = edited {
        event(kubernetes, &object, EventType::Warning, "FailedScheduling", message, now);
    }
}

fn event(kubernetes: &mut Kubernetes, about: &Value, event_type: EventType, reason: &str, message: &str, now: SimTime) {
    let component = Some(text(&about["spec"]["schedulerName"])).filter(|name| !name.is_empty());
    let component = component.unwrap_or("default-scheduler");
    kubernetes.record_event(&EventRecord { about, event_type, component, reason, message }, now);
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
