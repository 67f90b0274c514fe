//! What schedulers ask.
//!
//! In: the world. Out: columns by node id, sets of nodes, and for a pod that is to be placed the pods it is spread from.

use std::borrow::Cow;

use super::distinct::Distinct;
use super::facts::{HostPort, SpreadFacts, Taint};
use super::groups::{GroupId, NodeTally};
use super::images::Image;
use super::node_labels::LabelColumn;
use super::resources::ResourceColumns;
use crate::affinity::Selector;
use crate::storage::arena::{NodeId, PodId};
use crate::storage::intern::{Lookup, Symbol};
use crate::storage::node_set::NodeSet;
use crate::world::World;

/// Pods that a pod is to be spread from.
#[derive(Clone, Debug)]
pub struct SpreadGroup<'a> {
    /// How many there are on each node: not those that are being deleted, and none at all for an empty selector.
    pub tally: Cow<'a, NodeTally>,
    /// The pod itself would be one of them.
    pub matches_self: bool,
    /// A count that changes whenever the tally does; `None` for a tally that nobody keeps.
    pub changed: Option<u64>,
    namespace: Symbol,
    selector: Cow<'a, Selector>,
}

impl SpreadGroup<'_> {
    /// Whether another pod is one of them, wherever it is.
    pub fn counts(&self, world: &World, pod: PodId) -> bool {
        !self.selector.is_everything() && self.selects(world, pod)
    }

    /// Whether its selector matches another pod, whether or not that would be counted.
    pub fn selects(&self, world: &World, pod: PodId) -> bool {
        let is_near = world.pod(pod).is_some_and(|pod| pod.namespace == self.namespace);
        is_near && world.pod_labels(pod).is_some_and(|labels| self.selector.matches(labels.pairs()))
    }
}

impl World {
    /// The nodes that a scheduler knows enough of.
    pub fn schedulable_nodes(&self) -> &NodeSet {
        &self.scheduling.nodes
    }

    /// The node that a pod is bound to or assumed on, if that is known.
    pub fn pod_node(&self, pod: PodId) -> Option<NodeId> {
        self.nodes.find(self.pod(pod)?.placed_on()?)
    }

    /// What nodes have and what is taken of it.
    pub fn resources(&self) -> &ResourceColumns {
        &self.scheduling.resources
    }

    /// The values of a label key, over all nodes; `None` when no node has it.
    pub fn node_label(&self, key: &str) -> Option<&LabelColumn> {
        self.scheduling.labels.column(self.interner.get(key)?)
    }

    /// The distinct lists of taints, with their nodes.
    pub fn taints(&self) -> &Distinct<Box<[Taint]>> {
        &self.scheduling.taints
    }

    /// The distinct lists of declared features, with their nodes.
    pub fn declared_features(&self) -> &Distinct<Box<[String]>> {
        &self.scheduling.features
    }

    /// The nodes that are marked to take no new pods.
    pub fn unschedulable_nodes(&self) -> &NodeSet {
        &self.scheduling.unschedulable
    }

    /// An image by its name with a tag, if a node has it.
    pub fn image(&self, name: &str) -> Option<&Image> {
        self.scheduling.images.get(self.interner.get(name)?)
    }

    /// A count that changes whenever the images of a node do.
    pub fn images_changed(&self) -> u64 {
        self.scheduling.images.changes()
    }

    /// A count that changes whenever a node comes, goes, or has other labels or taints.
    pub fn scheduling_nodes_changed(&self) -> u64 {
        self.scheduling.nodes_changed
    }

    /// The nodes on which one of these ports is taken.
    pub fn port_conflicts(&self, wanted: &[HostPort]) -> NodeSet {
        let mut nodes = NodeSet::default();
        wanted.iter().for_each(|port| self.scheduling.ports.conflicts(port, &mut nodes));
        nodes
    }

    /// The pods that a constraint of this pod counts; `place` is where the constraint stands among its own.
    pub fn spread_group(&self, pod: PodId, place: usize, constraint: &SpreadFacts) -> Option<SpreadGroup<'_>> {
        if let Some(group) = self.scheduling.waiting.get(&pod).and_then(|waiting| waiting.constraints.get(place)) {
            return self.kept_group(pod, *group);
        }
        let selector = Selector::acquire(constraint.selector.as_ref(), &mut Lookup::new(&self.interner));
        self.fresh_group(pod, selector)
    }

    /// The siblings of a pod, as services and controllers tell them; `None` when nothing tells.
    pub fn siblings(&self, pod: PodId) -> Option<SpreadGroup<'_>> {
        if let Some(waiting) = self.scheduling.waiting.get(&pod) {
            return self.kept_group(pod, waiting.siblings?);
        }
        let kept = self.pod(pod)?;
        let kind = kept.scheduling.as_ref().and_then(|facts| facts.controller);
        let controller = kind.zip(kept.owner.as_ref()).map(|(kind, owner)| (kind, owner.name.as_str()));
        let labels = self.pod_labels(pod)?.pairs();
        self.fresh_group(pod, self.scheduling.workloads.siblings(kept.namespace, labels, controller)?)
    }

    fn kept_group(&self, pod: PodId, group: GroupId) -> Option<SpreadGroup<'_>> {
        let group = self.scheduling.groups.get(group)?;
        Some(SpreadGroup {
            tally: Cow::Borrowed(&group.tally),
            matches_self: group.selector.matches(self.pod_labels(pod)?.pairs()),
            changed: Some(group.changed),
            namespace: group.namespace,
            selector: Cow::Borrowed(&group.selector),
        })
    }

    /// Counted for this question alone, as for a pod that is already placed.
    fn fresh_group(&self, pod: PodId, selector: Selector) -> Option<SpreadGroup<'_>> {
        let namespace = self.pod(pod)?.namespace;
        if let Some(id) = self.scheduling.groups.find(namespace, &selector) {
            return self.kept_group(pod, id);
        }
        let mut tally = NodeTally::default();
        if !selector.is_everything() {
            self.nodes_of_spread(namespace, &selector).into_iter().for_each(|node| tally.change(node, 1));
        }
        Some(SpreadGroup {
            tally: Cow::Owned(tally),
            matches_self: selector.matches(self.pod_labels(pod)?.pairs()),
            changed: None,
            namespace,
            selector: Cow::Owned(selector),
        })
    }
}
