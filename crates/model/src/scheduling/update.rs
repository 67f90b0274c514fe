//! Keeps the columns and groups in sync with the world.
//!
//! In: the state of a pod before and after an event; nodes as they are added, changed and removed. Out: columns and
//! groups that equal a count over all pods. An event that changes none of this state, as most pod status updates, does
//! no work.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::disruption::DisruptionBudgets;
use super::distinct::Distinct;
use super::facts::{NodeSchedulingFacts, PodSchedulingFacts, Taint, WorkloadKind};
use super::groups::{GroupId, Groups};
use super::images::Images;
use super::node_labels::NodeLabels;
use super::ports::Ports;
use super::priorities::Priorities;
use super::resources::ResourceColumns;
use super::workloads::Workloads;
use crate::affinity::Selector;
use crate::event::NodeFacts;
use crate::storage::arena::{DenseId, NodeId, PodId};
use crate::storage::intern::Symbol;
use crate::storage::label_set::LabelSet;
use crate::storage::node_set::NodeSet;
use crate::volumes::{InUse, PodVolumes};
use crate::world::World;

/// The data that schedulers query, kept up to date.
#[derive(Debug, Default)]
pub(crate) struct Scheduling {
    pub(crate) nodes: NodeSet,
    pub(crate) resources: ResourceColumns,
    pub(crate) labels: NodeLabels,
    pub(crate) taints: Distinct<Box<[Taint]>>,
    pub(crate) features: Distinct<Box<[String]>>,
    pub(crate) unschedulable: NodeSet,
    pub(crate) images: Images,
    pub(crate) ports: Ports,
    pub(crate) priorities: Priorities,
    pub(crate) volumes_in_use: InUse,
    pub(crate) workloads: Workloads,
    pub(crate) budgets: DisruptionBudgets,
    pub(crate) groups: Groups,
    pub(crate) waiting: FxHashMap<PodId, Waiting>,
    /// Counts additions and removals of nodes, and changes of their labels or taints.
    pub(crate) nodes_changed: u64,
}

/// The groups that a pending pod uses.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// One per spread constraint of the pod.
    pub(crate) constraints: Box<[GroupId]>,
    /// Its siblings, if the pod has no spread constraints and a selector identifies siblings.
    pub(crate) siblings: Option<GroupId>,
}

impl Waiting {
    fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.constraints.iter().copied().chain(self.siblings)
    }
}

/// The state of a pod that the columns and groups depend on.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    facts: Arc<PodSchedulingFacts>,
    volumes: Option<Arc<PodVolumes>>,
    namespace: Symbol,
    labels: Arc<LabelSet>,
    owner: Option<Arc<crate::event::OwnerFacts>>,
    /// The node it is placed on, if the node is known.
    node: Option<NodeId>,
    is_placed: bool,
    is_terminating: bool,
}

impl PartialEq for Standing {
    fn eq(&self, other: &Self) -> bool {
        (self.node, self.is_placed, self.is_terminating) == (other.node, other.is_placed, other.is_terminating)
            && self.namespace == other.namespace
            && self.labels == other.labels
            && self.owner == other.owner
            && self.volumes == other.volumes
            && (Arc::ptr_eq(&self.facts, &other.facts) || self.facts == other.facts)
    }
}

/// Pod updates.
impl World {
    /// `None` for a pod that does not count here: unknown, finished, or reported without scheduling facts.
    pub(crate) fn standing(&self, id: PodId) -> Option<Standing> {
        let pod = self.pods.get(id).filter(|pod| !pod.finished)?;
        let placed_on = pod.placed_on();
        Some(Standing {
            facts: Arc::clone(pod.scheduling.as_ref()?),
            volumes: self.pods.volumes_of(id).cloned(),
            namespace: pod.namespace,
            labels: Arc::clone(self.affinity.labels_of(id)?),
            owner: pod.owner.clone(),
            node: placed_on.and_then(|name| self.nodes.find(name)).filter(|node| self.scheduling.nodes.contains(*node)),
            is_placed: placed_on.is_some(),
            is_terminating: pod.terminating,
        })
    }

    /// Updates everything for a pod whose previous state was `before`.
    pub(crate) fn pod_changed(&mut self, id: PodId, before: Option<&Standing>) {
        let after = self.standing(id);
        if before == after.as_ref() {
            return;
        }
        if let Some(before) = before {
            self.count(id, before, -1);
        }
        if let Some(after) = &after {
            self.count(id, after, 1);
        }
        let waiting = after.filter(|after| !after.is_placed).map(|after| self.acquire_groups(&after));
        let before = match waiting {
            Some(waiting) => self.scheduling.waiting.insert(id, waiting),
            None => self.scheduling.waiting.remove(&id),
        };
        for group in before.iter().flat_map(Waiting::groups) {
            self.scheduling.groups.release(group, &mut self.interner);
        }
    }

    fn count(&mut self, id: PodId, standing: &Standing, by: i32) {
        let Some(node) = standing.node else { return };
        let (facts, scheduling) = (&standing.facts, &mut self.scheduling);
        scheduling.resources.take(node, &facts.requests, by);
        scheduling.priorities.count(node, facts.priority, by);
        if by > 0 {
            scheduling.ports.take(node, &facts.host_ports);
        } else {
            scheduling.ports.give_back(node, &facts.host_ports);
        }
        if let Some(volumes) = &standing.volumes {
            let in_use = &mut scheduling.volumes_in_use;
            if by > 0 {
                in_use.place(id, standing.namespace, node, volumes);
            } else {
                in_use.take_off(id, standing.namespace, node, volumes);
            }
        }
        if !standing.is_terminating {
            scheduling.groups.count(standing.namespace, standing.labels.pairs(), node, by);
        }
    }

    fn acquire_groups(&mut self, standing: &Standing) -> Waiting {
        if standing.facts.spread.is_empty() {
            let siblings = self.siblings_of(standing);
            return Waiting { constraints: Box::default(), siblings: siblings.map(|of| self.acquire(standing, &of)) };
        }
        let constraints = standing.facts.spread.iter().map(|constraint| {
            let selector = Selector::acquire(constraint.selector.as_ref(), &mut self.interner);
            self.acquire_group(standing.namespace, selector)
        });
        Waiting { constraints: constraints.collect(), siblings: None }
    }

    /// The selector of a pod's siblings; it borrows symbols and holds no uses of its own.
    fn siblings_of(&self, standing: &Standing) -> Option<Selector> {
        let controller = standing.facts.controller.zip(standing.owner.as_ref());
        let controller = controller.map(|(kind, owner)| (kind, owner.name.as_str()));
        self.scheduling.workloads.siblings(standing.namespace, standing.labels.pairs(), controller)
    }

    fn acquire(&mut self, standing: &Standing, selector: &Selector) -> GroupId {
        let selector = selector.retained(&mut self.interner);
        self.acquire_group(standing.namespace, selector)
    }

    /// Takes ownership of the selector's symbols.
    fn acquire_group(&mut self, namespace: Symbol, selector: Selector) -> GroupId {
        self.interner.retain(namespace);
        let counted = selector.clone();
        let (id, is_new) = self.scheduling.groups.acquire(namespace, selector, &mut self.interner);
        if is_new && !counted.is_everything() {
            let nodes = self.nodes_of_spread(namespace, &counted);
            self.scheduling.groups.fill(id, nodes.into_iter());
        }
        id
    }

    /// The node of each placed pod that a selector counts.
    pub(crate) fn nodes_of_spread(&self, namespace: Symbol, selector: &Selector) -> Vec<NodeId> {
        let pods = self.affinity.pods_with(namespace, selector, &self.namespaces);
        let standings = pods.into_iter().filter_map(|pod| self.standing(pod));
        standings.filter(|standing| !standing.is_terminating).filter_map(|standing| standing.node).collect()
    }

    /// A Service or controller changed: pending pods in its namespace may have other siblings.
    pub(crate) fn workload_changed(&mut self, namespace: Symbol) {
        let in_namespace = |id: &PodId| self.pods.get(*id).is_some_and(|pod| pod.namespace == namespace);
        let mut affected: Vec<PodId> = self.scheduling.waiting.keys().copied().filter(in_namespace).collect();
        affected.sort_unstable();
        for id in affected {
            let Some(standing) = self.standing(id) else { continue };
            let waiting = self.acquire_groups(&standing);
            let before = self.scheduling.waiting.insert(id, waiting);
            for group in before.iter().flat_map(Waiting::groups) {
                self.scheduling.groups.release(group, &mut self.interner);
            }
        }
    }

    pub(crate) fn remove_workload(&mut self, kind: WorkloadKind, namespace: Symbol, name: &str) {
        // The namespace's symbol may be dropped with the object.
        self.interner.retain(namespace);
        self.scheduling.workloads.remove((kind, namespace), name, &mut self.interner);
        self.workload_changed(namespace);
        self.interner.release(namespace);
    }
}

/// The state of a node before an event.
#[derive(Debug, Default)]
pub(crate) struct NodeBefore {
    labels: Vec<(Symbol, Symbol)>,
    facts: Option<Arc<NodeSchedulingFacts>>,
}

/// Node updates.
impl World {
    pub(crate) fn node_before(&self, id: Option<NodeId>) -> NodeBefore {
        let node = id.filter(|id| self.scheduling.nodes.contains(*id)).and_then(|id| self.node(id));
        node.map_or_else(NodeBefore::default, |node| NodeBefore {
            labels: node.labels.pairs().to_vec(),
            facts: node.scheduling.clone(),
        })
    }

    /// Updates everything for a node that was added or changed.
    pub(crate) fn node_changed(&mut self, id: NodeId, facts: &NodeFacts, before: &NodeBefore) {
        let Some(now) = &facts.scheduling else {
            self.node_left(id, before);
            return;
        };
        let (scheduling, interner) = (&mut self.scheduling, &mut self.interner);
        scheduling.resources.widen(id.index() + 1);
        scheduling.resources.offer(id, before.facts.as_deref(), Some(now));
        let Some(node) = self.nodes.arena().get(id) else { return };
        let same_taints = before.facts.as_ref().is_some_and(|before| before.taints == now.taints);
        if !same_taints || before.labels != node.labels.pairs() {
            scheduling.nodes_changed += 1;
        }
        scheduling.labels.change(id, &before.labels, &node.labels, interner);
        scheduling.taints.set(id, Some(&now.taints.clone().into()));
        scheduling.features.set(id, Some(&now.declared_features.clone().into()));
        scheduling.unschedulable.set(id, now.unschedulable);
        scheduling.images.set(id, &now.images, interner);
        if !scheduling.nodes.contains(id) {
            let pods = self.pods_on(id).to_vec();
            let standings: Vec<_> = pods.into_iter().map(|pod| (pod, self.standing(pod))).collect();
            self.scheduling.nodes.insert(id);
            standings.iter().for_each(|(pod, before)| self.pod_changed(*pod, before.as_ref()));
        }
    }

    /// The node is about to be removed, or no longer has scheduling facts.
    pub(crate) fn node_left(&mut self, id: NodeId, before: &NodeBefore) {
        if !self.scheduling.nodes.contains(id) {
            return;
        }
        let pods = self.pods_on(id).to_vec();
        let standings: Vec<_> = pods.into_iter().map(|pod| (pod, self.standing(pod))).collect();
        self.scheduling.nodes.remove(id);
        standings.iter().for_each(|(pod, before)| self.pod_changed(*pod, before.as_ref()));
        let (scheduling, interner) = (&mut self.scheduling, &mut self.interner);
        scheduling.resources.offer(id, before.facts.as_deref(), None);
        scheduling.labels.remove(id, &before.labels, interner);
        scheduling.taints.set(id, None);
        scheduling.features.set(id, None);
        scheduling.unschedulable.remove(id);
        scheduling.images.set(id, &[], interner);
        scheduling.nodes_changed += 1;
    }
}
