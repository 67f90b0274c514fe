//! Pods for which room is being made on a node: others must not take it.
//!
//! In: nominations as they are made and withdrawn. Out: by node, the pods nominated for it. Invariant: a pod is nominated for one
//! node at most.

use model::{NodeId, PodId};
use rustc_hash::FxHashMap;

#[derive(Debug, Default)]
pub(crate) struct Nominations {
    by_pod: FxHashMap<PodId, NodeId>,
    by_node: FxHashMap<NodeId, Vec<PodId>>,
}

impl Nominations {
    /// Nominates the pod for a node, or for none.
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

    /// The nodes with nominated pods, and these, in no particular order.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &[PodId])> {
        self.by_node.iter().map(|(&node, pods)| (node, pods.as_slice()))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_pod.len()
    }
}
