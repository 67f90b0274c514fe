//! Which pods lifted anti-affinity keeps off the physical host of an incoming pod, in either direction.
//!
//! In: an incoming pod. Out: for a pod that runs, whether both may run on one host; for a node, the pods on the other
//! nodes of its host that exclude it. The cost depends on the pods of that host, not on those of the cluster.

use super::Role;
use super::counted_term::CountedTerm;
use super::incoming::Incoming;
use super::lift::Reading;
use super::verdict::Theirs;
use crate::storage::arena::{NodeId, PodId};
use crate::world::World;

pub struct HostConflicts<'a> {
    world: &'a World,
    avoided: Vec<&'a CountedTerm>,
    avoiding: Vec<Theirs<'a>>,
}

impl Incoming {
    pub fn host_conflicts<'a>(&'a self, world: &'a World) -> HostConflicts<'a> {
        let theirs = self.theirs(world, Reading::LiftedOnly);
        HostConflicts {
            world,
            avoided: self.avoided(world, Reading::LiftedOnly).map(|(_, term)| term).collect(),
            avoiding: theirs.filter(|theirs| theirs.role == Role::AntiAffinity).collect(),
        }
    }
}

impl HostConflicts<'_> {
    /// Whether the two may not run on one host.
    pub fn with(&self, pod: PodId) -> bool {
        let Some(entry) = self.world.affinity.entry(pod).filter(|entry| entry.index != super::NOT_LISTED) else {
            return false;
        };
        self.avoided.iter().any(|term| term.times(self.world, entry.profile) > 0)
            || self.avoiding.iter().any(|theirs| theirs.times(self.world, entry.profile) > 0)
    }

    /// The pods on the other nodes of the node's host that may not run beside the incoming pod.
    pub fn beside(&self, node: NodeId) -> Vec<PodId> {
        if self.avoided.is_empty() && self.avoiding.is_empty() {
            return Vec::new();
        }
        let others = self.world.nodes_beside(node);
        let pods = others.iter().flat_map(|other| self.world.pods_on(other)).copied();
        pods.filter(|pod| self.with(*pod)).collect()
    }
}
