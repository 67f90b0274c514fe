//! The pods, stored compactly: there may be 150,000 of them.
//!
//! In: pods as they are added, changed and removed, and pods that are being bound. Out: a pod by name, and the pods on
//! a node.
//!
//! Invariants: a pod is listed under the node it is bound to or assumed on, whether or not the node is known; nothing
//! here walks all pods, except the end of a relist. A pod is assumed on a node until the watch reports that it is bound
//! (to any node), finished, deleted or replaced by another pod, or until it is forgotten. A pod that the watch has not
//! reported yet exists only while it is assumed.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{NodeAffinityFacts, OwnerFacts, PodFacts};
use crate::scheduling::PodSchedulingFacts;
use crate::storage::arena::{Arena, PodId};
use crate::storage::finder::Finder;
use crate::storage::intern::{Interner, Symbol};
use crate::storage::shared::Shared;
use crate::storage::uid::Uid;
use crate::volumes::PodVolumes;
use crate::world::sync::Generation;

/// A stored pod. Names that pods share are symbols of the world's interner.
#[derive(Debug)]
pub struct Pod {
    pub name: Arc<str>,
    pub uid: Uid,
    pub namespace: Symbol,
    /// The controller it belongs to.
    pub owner: Option<Arc<OwnerFacts>>,
    /// Which nodes it accepts; `None` means all.
    pub node_affinity: Option<Arc<NodeAffinityFacts>>,
    /// The number of preferred terms, affinity and anti-affinity together.
    pub preferred_terms: u32,
    /// What a scheduler reads from it, shared by equal pods; `None` if no scheduler runs.
    pub scheduling: Option<Arc<PodSchedulingFacts>>,
    binding: Option<Binding>,
    generation: Generation,
    /// `status.startTime`, in seconds since 1970; [`NOT_STARTED`] if it has none. Small, because there are so many pods.
    started_s: u32,
    /// The watch has not reported it yet.
    is_only_assumed: bool,
    pub finished: bool,
    pub terminating: bool,
    /// Its anti-affinity between nodes does not apply between hosts.
    pub lift_off: bool,
}

const NOT_STARTED: u32 = u32::MAX;

fn started(facts: &PodFacts) -> u32 {
    facts.started_s.and_then(|started| u32::try_from(started).ok()).unwrap_or(NOT_STARTED)
}

#[derive(Clone, Copy, Debug)]
struct Binding {
    node: Symbol,
    /// The pod's index in its node's list, so that removal needs no search.
    index: u32,
    is_assumed: bool,
}

impl Pod {
    /// The name of the node it is bound to.
    pub fn node(&self) -> Option<Symbol> {
        self.binding.filter(|binding| !binding.is_assumed).map(|binding| binding.node)
    }

    /// The name of the node it is bound to or assumed on.
    pub fn placed_on(&self) -> Option<Symbol> {
        self.binding.map(|binding| binding.node)
    }

    /// 0 without scheduling facts, as for a pod without a priority.
    pub fn priority(&self) -> i32 {
        self.scheduling.as_ref().map_or(0, |facts| facts.priority)
    }

    /// When its kubelet accepted it, in seconds since 1970.
    pub fn started_s(&self) -> Option<i64> {
        Some(self.started_s).filter(|started| *started != NOT_STARTED).map(i64::from)
    }

    /// It is being bound, and the watch has not confirmed it yet.
    pub fn is_assumed(&self) -> bool {
        self.binding.is_some_and(|binding| binding.is_assumed)
    }
}

/// The result of forgetting an assumed pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgotten {
    /// The pod was not assumed.
    Nothing,
    /// The pod is no longer on a node.
    TakenOff(PodId),
    /// The watch never reported the pod, so it must be removed.
    ToRemove(PodId),
}

#[derive(Debug, Default)]
pub(crate) struct Pods {
    arena: Arena<PodId, Pod>,
    /// By namespace and name.
    by_name: Finder<PodId>,
    by_node: FxHashMap<Symbol, Vec<PodId>>,
    owners: Shared<OwnerFacts>,
    node_affinities: Shared<NodeAffinityFacts>,
    schedulings: Shared<PodSchedulingFacts>,
    volumes: Shared<PodVolumes>,
    /// The volumes that matter for placement, for the pods that have any. Apart from `schedulings`, because the pods of
    /// a StatefulSet differ in them.
    volumes_of: FxHashMap<PodId, Arc<PodVolumes>>,
    /// The nominated nodes, for the few pods that have one.
    nominated: FxHashMap<PodId, Box<str>>,
    /// The pods that a scheduler preempts.
    preempted: FxHashSet<PodId>,
    /// The number of assumed pods.
    assumed: usize,
    /// The pods that are not finished and are unbound, terminating or have preferred terms.
    unsettled: FxHashSet<PodId>,
}

impl Pods {
    pub(crate) fn get(&self, id: PodId) -> Option<&Pod> {
        self.arena.get(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PodId, &Pod)> {
        self.arena.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.arena.len()
    }

    pub(crate) fn unsettled(&self) -> impl Iterator<Item = PodId> {
        self.unsettled.iter().copied()
    }

    /// The names of the nodes that pods are on.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = Symbol> {
        self.by_node.keys().copied()
    }

    /// Must be called after every change of a pod.
    fn note(&mut self, id: PodId) {
        let is_unsettled = |pod: &Pod| pod.terminating || pod.node().is_none() || pod.preferred_terms > 0;
        if self.arena.get(id).is_some_and(|pod| !pod.finished && is_unsettled(pod)) {
            self.unsettled.insert(id);
        } else {
            self.unsettled.remove(&id);
        }
    }

    pub(crate) fn find(&self, namespace: Symbol, name: &str) -> Option<PodId> {
        let has_it = |id| self.arena.get(id).is_some_and(|pod| pod.namespace == namespace && *pod.name == *name);
        self.by_name.find(&(namespace, name), has_it)
    }

    /// The pods on a node with this name, in no particular order.
    pub(crate) fn on_node(&self, node: Symbol) -> &[PodId] {
        self.by_node.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Labels and terms are stored in `affinity`.
    pub(crate) fn apply(&mut self, facts: &PodFacts, generation: Generation, interner: &mut Interner) -> PodId {
        // Acquire before releasing: strings that stay keep their symbols.
        let namespace = interner.acquire(&facts.namespace);
        let node = facts.node.as_deref().map(|node| interner.acquire(node));
        let Some(id) = self.find(namespace, &facts.name) else {
            let id = self.insert(facts, namespace, generation);
            self.bind(id, node, false);
            self.nominate(id, facts);
            self.note(id);
            return id;
        };
        self.nominate(id, facts);
        self.set_volumes(id, facts);
        // The pod already holds a use of its namespace.
        interner.release(namespace);
        let uid = Uid::from(facts.uid.as_str());
        let stays_assumed = node.is_none()
            && !facts.finished
            && self.arena.get(id).is_some_and(|pod| pod.is_assumed() && pod.uid == uid);
        if !stays_assumed {
            self.unbind(id, interner);
            self.bind(id, node, false);
        }
        let owner = facts.owner.as_ref().map(|owner| self.owners.acquire(owner));
        let node_affinity = self.acquire_node_affinity(facts);
        let scheduling = facts.scheduling.as_ref().map(|scheduling| self.schedulings.acquire(scheduling));
        if let Some(pod) = self.arena.get_mut(id) {
            (pod.uid, pod.generation, pod.is_only_assumed) = (uid, generation, false);
            (pod.finished, pod.terminating) = (facts.finished, facts.terminating);
            pod.started_s = started(facts);
            (pod.lift_off, pod.preferred_terms) = (facts.lift_off, preferred_terms(facts));
            let owner = std::mem::replace(&mut pod.owner, owner);
            let node_affinity = std::mem::replace(&mut pod.node_affinity, node_affinity);
            let scheduling = std::mem::replace(&mut pod.scheduling, scheduling);
            self.release(owner, node_affinity, scheduling);
        }
        self.note(id);
        id
    }

    fn nominate(&mut self, id: PodId, facts: &PodFacts) {
        match &facts.nominated_node {
            Some(node) => self.nominated.insert(id, node.as_str().into()),
            None => self.nominated.remove(&id),
        };
        if facts.preempted {
            self.preempted.insert(id);
        } else {
            self.preempted.remove(&id);
        }
    }

    /// Whether a scheduler preempts the pod.
    pub(crate) fn is_preempted(&self, id: PodId) -> bool {
        self.preempted.contains(&id)
    }

    /// The node on which preemption makes room for the pod.
    pub(crate) fn nominated_node(&self, id: PodId) -> Option<&str> {
        self.nominated.get(&id).map(|node| &**node)
    }

    /// Places a pod on a node before the watch reports it. Returns its id and whether the pod is new; `None` if the pod
    /// is bound or finished, or its name belongs to a pod with another UID.
    pub(crate) fn assume(
        &mut self,
        facts: &PodFacts,
        node: &str,
        generation: Generation,
        interner: &mut Interner,
    ) -> Option<(PodId, bool)> {
        let known = interner.get(&facts.namespace).and_then(|namespace| self.find(namespace, &facts.name));
        if let Some(id) = known {
            let pod = self.arena.get(id)?;
            if pod.finished || pod.node().is_some() || pod.uid != Uid::from(facts.uid.as_str()) {
                return None;
            }
            let node = interner.acquire(node);
            self.unbind(id, interner);
            self.bind(id, Some(node), true);
            self.note(id);
            return Some((id, false));
        }
        if facts.finished {
            return None;
        }
        let namespace = interner.acquire(&facts.namespace);
        let node = interner.acquire(node);
        let id = self.insert(facts, namespace, generation);
        if let Some(pod) = self.arena.get_mut(id) {
            pod.is_only_assumed = true;
        }
        self.bind(id, Some(node), true);
        self.note(id);
        Some((id, true))
    }

    pub(crate) fn forget(&mut self, id: PodId, uid: &str, interner: &mut Interner) -> Forgotten {
        match self.arena.get(id) {
            Some(pod) if pod.is_assumed() && pod.uid == Uid::from(uid) => {
                if pod.is_only_assumed {
                    return Forgotten::ToRemove(id);
                }
                self.unbind(id, interner);
                self.note(id);
                Forgotten::TakenOff(id)
            }
            _ => Forgotten::Nothing,
        }
    }

    /// A new pod, on no node. Takes ownership of one use of the namespace.
    fn insert(&mut self, facts: &PodFacts, namespace: Symbol, generation: Generation) -> PodId {
        let pod = Pod {
            name: facts.name.as_str().into(),
            uid: Uid::from(facts.uid.as_str()),
            namespace,
            owner: facts.owner.as_ref().map(|owner| self.owners.acquire(owner)),
            node_affinity: self.acquire_node_affinity(facts),
            preferred_terms: preferred_terms(facts),
            scheduling: facts.scheduling.as_ref().map(|scheduling| self.schedulings.acquire(scheduling)),
            binding: None,
            generation,
            started_s: started(facts),
            is_only_assumed: false,
            finished: facts.finished,
            terminating: facts.terminating,
            lift_off: facts.lift_off,
        };
        let id = self.arena.insert(pod);
        let name = |id| self.arena.get(id).map(|pod| (pod.namespace, &*pod.name)).unwrap_or((namespace, ""));
        self.by_name.insert(id, name);
        self.set_volumes(id, facts);
        id
    }

    fn acquire_node_affinity(&mut self, facts: &PodFacts) -> Option<Arc<NodeAffinityFacts>> {
        let node_affinity = Some(&facts.node_affinity).filter(|node_affinity| !node_affinity.is_empty());
        node_affinity.map(|node_affinity| self.node_affinities.acquire(node_affinity))
    }

    fn set_volumes(&mut self, id: PodId, facts: &PodFacts) {
        // Acquired before the old list is released: a list that stays keeps its address.
        let is_empty = facts.volumes.is_empty();
        let volumes = (!is_empty).then(|| self.volumes.acquire(&PodVolumes(facts.volumes.as_slice().into())));
        let before = match volumes {
            Some(volumes) => self.volumes_of.insert(id, volumes),
            None => self.volumes_of.remove(&id),
        };
        if let Some(before) = before {
            self.volumes.release(&before);
        }
    }

    pub(crate) fn volumes_of(&self, id: PodId) -> Option<&Arc<PodVolumes>> {
        self.volumes_of.get(&id)
    }

    fn release(
        &mut self,
        owner: Option<Arc<OwnerFacts>>,
        node_affinity: Option<Arc<NodeAffinityFacts>>,
        scheduling: Option<Arc<PodSchedulingFacts>>,
    ) {
        if let Some(owner) = owner {
            self.owners.release(&owner);
        }
        if let Some(node_affinity) = node_affinity {
            self.node_affinities.release(&node_affinity);
        }
        if let Some(scheduling) = scheduling {
            self.schedulings.release(&scheduling);
        }
    }

    pub(crate) fn remove(&mut self, id: PodId, interner: &mut Interner) {
        self.unbind(id, interner);
        let Some(pod) = self.arena.remove(id) else { return };
        self.note(id);
        self.nominated.remove(&id);
        self.preempted.remove(&id);
        self.by_name.remove(id, &(pod.namespace, &*pod.name));
        self.release(pod.owner, pod.node_affinity, pod.scheduling);
        if let Some(volumes) = self.volumes_of.remove(&id) {
            self.volumes.release(&volumes);
        }
        interner.release(pod.namespace);
    }

    /// The pods that the relist of this generation did not contain. Excludes pods that are only assumed: they may be
    /// newer than the list.
    pub(crate) fn not_of(&self, generation: Generation) -> Vec<PodId> {
        let is_gone = |pod: &Pod| pod.generation != generation && !pod.is_only_assumed;
        self.arena.iter().filter(|(_, pod)| is_gone(pod)).map(|(id, _)| id).collect()
    }

    /// The number of stored owners and node affinities, for tests.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> [usize; 3] {
        [self.owners.len(), self.node_affinities.len(), self.volumes.len()]
    }

    pub(crate) fn assumed_count(&self) -> usize {
        self.assumed
    }

    /// The binding takes ownership of one use of the symbol.
    fn bind(&mut self, id: PodId, node: Option<Symbol>, is_assumed: bool) {
        let (Some(node), Some(pod)) = (node, self.arena.get_mut(id)) else { return };
        let list = self.by_node.entry(node).or_default();
        // The cast is lossless: pod ids have 32 bits.
        pod.binding = Some(Binding { node, index: list.len() as u32, is_assumed });
        self.assumed += usize::from(is_assumed);
        list.push(id);
    }

    fn unbind(&mut self, id: PodId, interner: &mut Interner) {
        let Some(Binding { node, index, is_assumed }) = self.arena.get_mut(id).and_then(|pod| pod.binding.take())
        else {
            return;
        };
        self.assumed -= usize::from(is_assumed);
        if let Some(list) = self.by_node.get_mut(&node) {
            list.swap_remove(index as usize);
            let moved = list.get(index as usize).and_then(|&moved| self.arena.get_mut(moved));
            if let Some(binding) = moved.and_then(|pod| pod.binding.as_mut()) {
                binding.index = index;
            }
            if list.is_empty() {
                self.by_node.remove(&node);
            }
        }
        interner.release(node);
    }
}

fn preferred_terms(facts: &PodFacts) -> u32 {
    let terms = facts.preferred_affinity.len() + facts.preferred_anti_affinity.len();
    u32::try_from(terms).unwrap_or(u32::MAX)
}
