//! The revision of each node and cluster: when the inputs of DRS rules last changed.
//!
//! In: what each event touched. Out: a number for a node (its VM, its host, the requirements of its pods), for a
//! cluster (its rules, its hosts) and for all namespaces; and a number for all pods of a node. Invariant: an object with an unchanged number gives the same
//! input to a plan. A number is never used twice, so a node that reuses the id of a removed node has a different
//! revision.

use rustc_hash::FxHashMap;

use crate::storage::arena::{ClusterId, NodeId};
use crate::world::touched::Touched;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

#[derive(Debug, Default)]
pub(crate) struct Revisions {
    latest: Revision,
    nodes: FxHashMap<NodeId, Revision>,
    clusters: FxHashMap<ClusterId, Revision>,
    namespaces: Revision,
    /// The last change of a pod on a node, whether or not terms refer to the pod.
    pods: FxHashMap<NodeId, Revision>,
    pods_latest: Revision,
}

impl Revisions {
    pub(crate) fn note(&mut self, touched: &Touched) {
        if touched.is_empty() {
            return;
        }
        self.latest.0 += 1;
        for node in &touched.removed {
            self.nodes.remove(node);
            self.pods.remove(node);
        }
        let nodes = touched.nodes.iter().chain(&touched.requirements_on);
        self.nodes.extend(nodes.map(|node| (*node, self.latest)));
        self.clusters.extend(touched.clusters.iter().map(|cluster| (*cluster, self.latest)));
    }

    /// One revision for all namespaces, because they affect pods on any node.
    pub(crate) fn note_namespaces(&mut self) {
        self.latest.0 += 1;
        self.namespaces = self.latest;
    }

    /// A pod on this node was added, changed or removed.
    pub(crate) fn note_pod(&mut self, node: Option<NodeId>) {
        if let Some(node) = node {
            self.pods_latest.0 += 1;
            self.pods.insert(node, self.pods_latest);
        }
    }

    pub(crate) fn pods(&self, id: NodeId) -> Revision {
        self.pods.get(&id).copied().unwrap_or_default()
    }

    pub(crate) fn latest(&self) -> Revision {
        self.latest
    }

    pub(crate) fn node(&self, id: NodeId) -> Revision {
        self.nodes.get(&id).copied().unwrap_or_default()
    }

    pub(crate) fn cluster(&self, id: ClusterId) -> Revision {
        self.clusters.get(&id).copied().unwrap_or_default()
    }

    pub(crate) fn namespaces(&self) -> Revision {
        self.namespaces
    }
}
