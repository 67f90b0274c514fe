//! Nominated pods: resources on their node are kept free for them.
//!
//! In: nominations as they are set and cleared. Out: the nominated pods by node. Invariant: a pod is nominated to at
//! most one node.

use model::{NodeId, PodId};
use rustc_hash::FxHashMap;

#[derive(Debug, Default)]
pub(crate) struct Nominations {
    by_pod: FxHashMap<PodId, NodeId>,
    by_node: FxHashMap<NodeId, Vec<PodId>>,
}

impl Nominations {
    /// Nominates the pod to a node, or clears its nomination.
    pub(crate) fn set(&mut self, pod: PodId, node: Option<NodeId>) {
        if self.by_pod.get(&pod).copied() == node {
            return;
        }
        if let Some(before) = self.by_pod.remove(&pod)
            && let Some(pods) = self.by_node.get_mut(&before)
        {
            pods.retain(|other| *other != pod);
            if pods.is_empty() {
                self.by_node.remove(&before);
            }
        }
        if let Some(node) = node {
            self.by_pod.insert(pod, node);
            self.by_node.entry(node).or_default().push(pod);
        }
    }

    pub(crate) fn remove_node(&mut self, node: NodeId) {
        for pod in self.by_node.remove(&node).unwrap_or_default() {
            self.by_pod.remove(&pod);
        }
    }

    /// In no particular order.
    pub(crate) fn pods(&self) -> impl Iterator<Item = PodId> {
        self.by_pod.keys().copied()
    }

    pub(crate) fn node_of(&self, pod: PodId) -> Option<NodeId> {
        self.by_pod.get(&pod).copied()
    }

    /// The pods that are nominated to the node.
    pub(crate) fn on(&self, node: NodeId) -> &[PodId] {
        self.by_node.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The nodes that have nominated pods, with these pods, in no particular order.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &[PodId])> {
        self.by_node.iter().map(|(&node, pods)| (node, pods.as_slice()))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_pod.len()
    }
}
