//! The volumes of placed pods: which claims are in use, and which pods of a node use volumes.
//!
//! In: pods with volumes as they are placed and leave. Out: how many pods use a claim, and the pods to look at when the
//! volumes of a node are counted. Invariant: equals a count over all placed pods on known nodes.

use std::collections::{BTreeSet, HashMap};

use rustc_hash::FxHashMap;

use super::of_pod::{PodVolume, PodVolumes};
use crate::storage::arena::{NodeId, PodId};
use crate::storage::intern::Symbol;

/// The pods of one node that use volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumesOnNode {
    /// Pods with claims, or with volumes that a CSI driver handles or that may be used by one pod only.
    pub pods: BTreeSet<PodId>,
    /// How many volumes these pods have that may count towards a limit; a shared one counts for each pod.
    pub attachable: usize,
}

#[derive(Debug, Default)]
pub(crate) struct InUse {
    /// How often placed pods name a claim, by namespace and name. Tenants choose the names, hence std's keyed hash.
    claims: FxHashMap<Symbol, HashMap<Box<str>, u32>>,
    nodes: FxHashMap<NodeId, VolumesOnNode>,
}

impl InUse {
    pub(crate) fn on(&self, node: NodeId) -> Option<&VolumesOnNode> {
        self.nodes.get(&node)
    }

    /// Whether a placed pod names the claim.
    pub(crate) fn is_used(&self, namespace: Symbol, claim: &str) -> bool {
        self.claims.get(&namespace).is_some_and(|names| names.contains_key(claim))
    }

    pub(crate) fn place(&mut self, pod: PodId, namespace: Symbol, node: NodeId, volumes: &PodVolumes) {
        let on_node = self.nodes.entry(node).or_default();
        on_node.pods.insert(pod);
        on_node.attachable += attachable(volumes);
        for claim in volumes.claims() {
            let names = self.claims.entry(namespace).or_default();
            match names.get_mut(claim) {
                Some(uses) => *uses += 1,
                None => drop(names.insert(claim.into(), 1)),
            }
        }
    }

    /// The opposite of `place`, with the same arguments.
    pub(crate) fn take_off(&mut self, pod: PodId, namespace: Symbol, node: NodeId, volumes: &PodVolumes) {
        if let Some(on_node) = self.nodes.get_mut(&node) {
            on_node.pods.remove(&pod);
            on_node.attachable -= attachable(volumes);
            if on_node.pods.is_empty() {
                self.nodes.remove(&node);
            }
        }
        let Some(names) = self.claims.get_mut(&namespace) else { return };
        for claim in volumes.claims() {
            let Some(uses) = names.get_mut(claim) else { continue };
            *uses -= 1;
            if *uses == 0 {
                names.remove(claim);
            }
        }
        if names.is_empty() {
            self.claims.remove(&namespace);
        }
    }

    #[cfg(test)]
    pub(crate) fn kept(&self) -> [usize; 2] {
        [self.claims.len(), self.nodes.len()]
    }
}

fn attachable(volumes: &PodVolumes) -> usize {
    volumes.iter().filter(|volume| PodVolume::is_attachable(volume)).count()
}
