//! Evicts pods to make room for a pod that is nominated to their node.
//!
//! In: what a PostFilter plugin chose: a node, and victims there or on nodes that count against it. Out: evictions
//! through the API; pods that only this scheduler has placed so far give up their place here. Nominations of lower
//! priority on the node are cleared.
//!
//! Invariants: while evictions are on their way, the pod they are for is not tried, so that it never chooses further
//! victims. It is tried again when something that can help happened meanwhile, or if not all victims could be evicted; then
//! after its backoff, so that a server that refuses evictions is not asked again and again. A victim that is being deleted
//! already is not evicted again.

use std::iter;
use std::time::Duration;

use model::storage::uid::Uid;
use model::{NodeId, NodeSet, PodId, World};

use super::Scheduler;
use super::advice::PluginAdvice;
use super::attempt::Failure;
use super::binding::Stage;
use super::effect::{Effect, PodEvent, PodRef, Victim};
use super::observe::Changes;
use crate::framework::change::ChangeKinds;
use crate::plugins::default_preemption::has_leaving_victims;

impl Scheduler {
    /// The victims that must be evicted through the API. A pod that waits for permission, or for work before its binding,
    /// gives up its place in this process.
    pub(super) fn to_evict(&self, world: &World, victims: &[PodId]) -> Vec<PodId> {
        let victims = victims.iter().copied();
        let exists = victims.filter(|victim| world.pod(*victim).is_some_and(|pod| !pod.terminating));
        exists.filter(|victim| !self.can_give_up(*victim)).collect()
    }

    fn can_give_up(&self, pod: PodId) -> bool {
        let stage = self.bindings.pods.get(&pod).map(|binding| &binding.stage);
        matches!(stage, Some(Stage::WaitingForPermit { .. } | Stage::PreBinding(_)))
    }

    pub(super) fn preempt(
        &mut self,
        now: Duration,
        world: &mut World,
        (pod, profile): (PodId, usize),
        node: NodeId,
        victims: Vec<PodId>,
        evicted: Vec<PodId>,
    ) {
        let (Some(reference), Some(node_name)) = (Self::pod_ref(world, pod), world.node_name(node)) else { return };
        let (node_name, profile) = (node_name.to_owned(), self.profiles[profile].name().to_owned());
        let priority = world.pod(pod).map_or(0, model::Pod::priority);
        let is_lower = |other: &PodId| world.pod(*other).is_some_and(|other| other.priority() < priority);
        let lower: Vec<PodId> = self.nominations.on(node).iter().copied().filter(is_lower).collect();
        for other in lower {
            self.nominate(world, other, None);
        }
        let in_memory: Vec<PodId> = victims.into_iter().filter(|victim| self.can_give_up(*victim)).collect();
        if !in_memory.is_empty() || !evicted.is_empty() {
            self.effects.push(Effect::VictimsChosen { count: in_memory.len() + evicted.len() });
        }
        if !evicted.is_empty() {
            let victim = |id: PodId| {
                let node = world.pod_node(id).and_then(|node| world.node_name(node)).unwrap_or(&node_name);
                Some(Victim { pod: Self::pod_ref(world, id)?, node: node.to_owned() })
            };
            let victims = evicted.into_iter().filter_map(victim).collect();
            let (pod, node, profile) = (reference.clone(), node_name.clone(), profile.clone());
            self.effects.push(Effect::Preempt { pod, node, profile, victims });
        }
        for victim in in_memory {
            let Some(binding) = self.bindings.remove(victim) else { continue };
            let message = preempted_by(&reference.uid, &node_name, &binding.placed.node_name);
            let message = format!("{message} (in scheduler memory).");
            let (pod, event) = (binding.placed.pod.clone(), PodEvent::Preempted { message });
            self.effects.push(Effect::PostEvent { pod, profile: profile.clone(), event });
            self.cancel(&binding);
            // An error, because no plugin rejects the pod: it is tried again after its backoff.
            self.undo(now, world, binding, Failure::Error("preempted".to_owned()));
        }
    }

    /// A pod waits until the victims on its nominated node are gone. Then it is tried again, also if there is not enough
    /// room yet: not all victims were evicted, or others took their room. The filters that rejected it know nothing of
    /// that. With preemption across the nodes of a physical host, victims on all of these count.
    pub(super) fn victims_left(&mut self, now: Duration, world: &World, changes: &Changes) {
        for change in changes.changes.iter().filter(|change| change.kinds.intersects(ChangeKinds::POD_LEFT)) {
            let Some(node) = change.node else { continue };
            let beside = world.lifting().host_preemption.then(|| world.nodes_beside(node));
            let nodes: Vec<NodeId> = iter::once(node).chain(beside.iter().flat_map(NodeSet::iter)).collect();
            let waiting = nodes.iter().flat_map(|node| self.nominations.on(*node)).copied().collect::<Vec<PodId>>();
            for pod in waiting {
                let Some(priority) = world.pod(pod).map(model::Pod::priority) else { continue };
                if !nodes.iter().any(|node| has_leaving_victims(world, *node, priority)) {
                    let mut advice = PluginAdvice { profiles: &self.profiles, world, sampler: &mut self.sampler };
                    self.queue.helped(now, pod, change.kinds, &mut advice);
                }
            }
        }
    }

    pub(super) fn evicted(
        &mut self,
        now: Duration,
        world: &World,
        pod: &PodRef,
        node: &str,
        victims: Vec<Victim>,
        has_failed: bool,
    ) {
        let is_known = world.pod(pod.id).is_some_and(|known| known.uid == Uid::from(pod.uid.as_str()));
        let index = self.queue.profile(pod.id).filter(|_| is_known);
        let profile = index.map(|index| self.profiles[index].name().to_owned()).unwrap_or_default();
        for victim in victims {
            let event = PodEvent::Preempted { message: preempted_by(&pod.uid, node, &victim.node) };
            self.effects.push(Effect::PostEvent { pod: victim.pod, profile: profile.clone(), event });
        }
        if is_known {
            let mut advice = PluginAdvice { profiles: &self.profiles, world, sampler: &mut self.sampler };
            self.queue.release(now, pod.id, has_failed, &mut advice);
        }
    }
}

/// Upstream's text; it names the node of the pod that gets the room, so the node of a victim elsewhere is added.
fn preempted_by(uid: &str, node: &str, from: &str) -> String {
    let elsewhere = if from == node { String::new() } else { format!("; this pod runs on node {from}") };
    format!("Preempted by pod {uid} on node {node}{elsewhere}")
}
