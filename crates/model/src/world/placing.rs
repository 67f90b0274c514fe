//! Where pods are: forwards changes of pods, nodes and hosts to the term index.
//!
//! In: observed or assumed pods, nodes whose labels or host may have changed. Out: the current index, host idle shares,
//! and nodes that accept no pods. Invariant: a pod counts on a node exactly while both are known and the pod names the
//! node.

use std::sync::Arc;

use crate::affinity::Around;
use crate::event::{NodeAffinityFacts, PodFacts, Source};
use crate::storage::arena::{NodeId, PodId};
use crate::world::World;
use crate::world::pods::{Forgotten, Pod};
use crate::world::touched::{Requirements, Touched};

impl World {
    /// Updates the node's topology domains from its labels and its host.
    pub(crate) fn locate(&mut self, id: NodeId) {
        let Some(name) = self.node(id).map(|node| node.name) else { return };
        let host = self.host_label_value(id).map(|host| self.interner.acquire(&host));
        let around = Around { namespaces: &self.namespaces, nodes: &self.nodes };
        self.affinity.set_node(id, host, self.pods.on_node(name), around, &mut self.interner);
        self.reconsider_host(id);
    }

    /// Updates what depends on the node's host: whether it accepts pods, and the idle percentage.
    pub(crate) fn reconsider_host(&mut self, id: NodeId) {
        let host = self.host_of(id);
        let is_refused = host.is_some_and(|host| self.takes_no_pods(id, &host));
        let idle_percent = host.and_then(|host| host.idle_percent());
        self.refused.set(id, is_refused);
        self.host_idle.set(id, idle_percent);
    }

    pub(crate) fn apply_pod(&mut self, facts: &PodFacts, touched: &mut Touched) {
        let known = self.pod_id(&facts.namespace, &facts.name);
        self.trace(known, touched, |world| {
            let before = known.and_then(|id| world.standing(id));
            let id = world.pods.apply(facts, world.sources.generation(Source::Pods), &mut world.interner);
            world.set_policy(id, facts);
            world.pod_changed(id, before.as_ref());
            world.end_assumptions(id);
            Some(id)
        });
    }

    /// What was assumed about volumes ends with the assumed pod.
    fn end_assumptions(&mut self, id: PodId) {
        if !self.pods.get(id).is_some_and(Pod::is_assumed) {
            self.volumes.forget(id);
        }
    }

    fn set_policy(&mut self, id: PodId, facts: &PodFacts) {
        let node = self.pod_node(id);
        let around = Around { namespaces: &self.namespaces, nodes: &self.nodes };
        self.affinity.set_pod(id, facts, node, around, &mut self.interner);
    }

    pub(crate) fn assume_pod(&mut self, facts: &PodFacts, node: &str, touched: &mut Touched) {
        let known = self.pod_id(&facts.namespace, &facts.name);
        self.trace(known, touched, |world| {
            let generation = world.sources.generation(Source::Pods);
            let before = known.and_then(|id| world.standing(id));
            let (id, is_new) = world.pods.assume(facts, node, generation, &mut world.interner)?;
            if is_new {
                world.set_policy(id, facts);
            } else {
                world.affinity.place(id, world.pod_node(id));
            }
            world.pod_changed(id, before.as_ref());
            Some(id)
        });
    }

    pub(crate) fn forget_pod(&mut self, id: PodId, uid: &str, touched: &mut Touched) {
        let before = self.standing(id);
        let node = self.bound_to(id);
        match self.pods.forget(id, uid, &mut self.interner) {
            Forgotten::Nothing => {}
            Forgotten::TakenOff(id) => {
                self.revisions.note_pod(node);
                self.affinity.place(id, None);
                self.pod_changed(id, before.as_ref());
                self.end_assumptions(id);
            }
            Forgotten::ToRemove(id) => self.remove_pod(id, touched),
        }
    }

    pub(crate) fn remove_pod(&mut self, id: PodId, touched: &mut Touched) {
        let node = self.bound_to(id);
        self.revisions.note_pod(node);
        touched.require(self.requirements_of(id));
        let before = self.standing(id);
        self.affinity.remove_pod(id, &mut self.interner);
        self.pods.remove(id, &mut self.interner);
        self.pod_changed(id, before.as_ref());
        self.end_assumptions(id);
    }

    /// Records whether a change of a pod changes requirements, and on which nodes.
    fn trace(&mut self, known: Option<PodId>, touched: &mut Touched, change: impl FnOnce(&mut Self) -> Option<PodId>) {
        let before = known.map(|id| (self.mark_of(id), self.requirements_of(id), self.bound_to(id)));
        let Some(id) = change(self) else { return };
        // Most pod watch events are status updates, which change nothing here.
        if before.as_ref().is_some_and(|(mark, ..)| *mark == self.mark_of(id)) {
            return;
        }
        self.revisions.note_pod(self.bound_to(id));
        touched.require(self.requirements_of(id));
        if let Some((_, requirements, node)) = before {
            self.revisions.note_pod(node);
            touched.require(requirements);
        }
    }

    /// The state of a pod that other objects depend on. Its node affinity is compared by address: values are shared,
    /// and the new value is acquired before the old one is released, so two different values never have the same
    /// address.
    fn mark_of(&self, id: PodId) -> impl PartialEq + use<> {
        let pod = self.pods.get(id).map(|pod| {
            let flags = (pod.finished, pod.terminating, pod.lift_off, pod.preferred_terms);
            (pod.uid.clone(), pod.node(), flags, pod.node_affinity.as_ref().map(std::sync::Arc::as_ptr))
        });
        (pod, self.affinity.mark_of(id))
    }

    /// What DRS rules and their findings may depend on because of this pod. Most pods have terms that do not concern
    /// hosts: plans must not depend on those.
    fn requirements_of(&self, id: PodId) -> Requirements {
        let Some(pod) = self.pods.get(id) else { return Requirements::None };
        let uses_hosts = |affinity: &Arc<NodeAffinityFacts>| affinity.uses_label(&self.lifting().host_key);
        if self.affinity.concerns_hosts(id) || pod.node_affinity.as_ref().is_some_and(uses_hosts) {
            return self.bound_to(id).map_or(Requirements::Anywhere, Requirements::On);
        }
        if pod.preferred_terms > 0 { Requirements::Anywhere } else { Requirements::None }
    }

    /// The node it is bound to, if the node is known.
    fn bound_to(&self, id: PodId) -> Option<NodeId> {
        self.nodes.find(self.pods.get(id)?.node()?)
    }
}
