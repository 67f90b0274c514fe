//! The queries of schedulers.
//!
//! In: the world. Out: columns by node id, sets of nodes, and for an incoming pod the pods that its spread constraints
//! count.

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
use crate::volumes::VolumesOnNode;
use crate::world::World;

/// The pods that a spread constraint of a pod counts.
#[derive(Clone, Debug)]
pub struct SpreadGroup<'a> {
    /// The number of pods per node: terminating pods do not count, and an empty selector counts none.
    pub tally: Cow<'a, NodeTally>,
    /// Whether the selector matches the pod itself.
    pub matches_self: bool,
    /// A counter that changes whenever the tally does; `None` for a tally that is not kept up to date.
    pub changed: Option<u64>,
    namespace: Symbol,
    selector: Cow<'a, Selector>,
}

impl SpreadGroup<'_> {
    /// Whether the group counts another pod, on any node.
    pub fn counts(&self, world: &World, pod: PodId) -> bool {
        !self.selector.is_everything() && self.selects(world, pod)
    }

    /// Whether the selector matches another pod, whether or not the pod is counted.
    pub fn selects(&self, world: &World, pod: PodId) -> bool {
        let same_namespace = world.pod(pod).is_some_and(|pod| pod.namespace == self.namespace);
        same_namespace && world.pod_labels(pod).is_some_and(|labels| self.selector.matches(labels.pairs()))
    }
}

impl World {
    /// The nodes that have scheduling facts.
    pub fn schedulable_nodes(&self) -> &NodeSet {
        &self.scheduling.nodes
    }

    /// The node that a pod is bound to or assumed on, if the node is known.
    pub fn pod_node(&self, pod: PodId) -> Option<NodeId> {
        self.nodes.find(self.pod(pod)?.placed_on()?)
    }

    /// The lowest priority of the pods on a node; `None` if it has none.
    pub fn lowest_priority_on(&self, node: NodeId) -> Option<i32> {
        self.scheduling.priorities.lowest_on(node)
    }

    /// The lowest priority of all placed pods.
    pub fn lowest_priority(&self) -> Option<i32> {
        self.scheduling.priorities.lowest()
    }

    /// Allocatable and requested resources of nodes.
    pub fn resources(&self) -> &ResourceColumns {
        &self.scheduling.resources
    }

    /// The values of a label key, over all nodes; `None` if no node has it.
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

    /// The nodes with `spec.unschedulable`.
    pub fn unschedulable_nodes(&self) -> &NodeSet {
        &self.scheduling.unschedulable
    }

    /// An image by its name with a tag, if a node has it.
    pub fn image(&self, name: &str) -> Option<&Image> {
        self.scheduling.images.get(self.interner.get(name)?)
    }

    /// A counter that changes whenever the images of a node do.
    pub fn images_changed(&self) -> u64 {
        self.scheduling.images.changes()
    }

    /// A counter that changes whenever a node is added or removed, or its labels or taints change.
    pub fn scheduling_nodes_changed(&self) -> u64 {
        self.scheduling.nodes_changed
    }

    /// The nodes on which one of these ports is in use.
    pub fn port_conflicts(&self, requested: &[HostPort]) -> NodeSet {
        let mut nodes = NodeSet::default();
        requested.iter().for_each(|port| self.scheduling.ports.conflicts(port, &mut nodes));
        nodes
    }

    /// The placed pods on a node that use volumes; `None` if there are none.
    pub fn volumes_on(&self, node: NodeId) -> Option<&VolumesOnNode> {
        self.scheduling.volumes_in_use.on(node)
    }

    /// Whether a placed pod names this claim. A volume whose claim is created for the pod does not count.
    pub fn is_claim_used(&self, namespace: &str, claim: &str) -> bool {
        let namespace = self.interner.get(namespace);
        namespace.is_some_and(|namespace| self.scheduling.volumes_in_use.is_used(namespace, claim))
    }

    /// The pods that a spread constraint of this pod counts; `index` is the constraint's index in the pod's list.
    pub fn spread_group(&self, pod: PodId, index: usize, constraint: &SpreadFacts) -> Option<SpreadGroup<'_>> {
        if let Some(group) = self.scheduling.waiting.get(&pod).and_then(|waiting| waiting.constraints.get(index)) {
            return self.kept_group(pod, *group);
        }
        let selector = Selector::acquire(constraint.selector.as_ref(), &mut Lookup::new(&self.interner));
        self.fresh_group(pod, selector)
    }

    /// The siblings of a pod, by the selectors of Services and controllers; `None` if no selector applies.
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

    /// Counts for this query only, for example for a pod that is already placed.
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
