//! The vCenter inventory: VMs, hosts, clusters.
//!
//! In: their facts, in any order; a VM may arrive before its host, a host before its cluster. Out: each by id, the VMs
//! on a host and the hosts of a cluster. Invariants: an object is identified by its vCenter and its id there; the lists
//! follow the facts of the members, whether or not the host or cluster itself is known.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::event::{ClusterFacts, HostFacts, VcenterId, VmFacts};
use crate::storage::arena::{Arena, ClusterId, DenseId, HostId, VmId};
use crate::world::sync::Generation;

/// A stored object of a vCenter.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    pub(crate) vcenter: VcenterId,
    pub(crate) facts: T,
    generation: Generation,
}

/// Facts with the id of their object, and of its container if it has one.
pub(crate) trait Described {
    fn id(&self) -> &str;
    /// The id of the container: a VM's host, a host's cluster.
    fn container(&self) -> Option<&str>;
}

impl Described for VmFacts {
    fn id(&self) -> &str {
        &self.id
    }

    fn container(&self) -> Option<&str> {
        self.host.as_deref()
    }
}

impl Described for HostFacts {
    fn id(&self) -> &str {
        &self.id
    }

    fn container(&self) -> Option<&str> {
        self.cluster.as_deref()
    }
}

impl Described for Arc<ClusterFacts> {
    fn id(&self) -> &str {
        &self.id
    }

    fn container(&self) -> Option<&str> {
        None
    }
}

/// The objects of one kind in one vCenter.
#[derive(Debug)]
struct Index<I> {
    by_id: HashMap<String, I>,
    by_container: HashMap<String, BTreeSet<I>>,
}

impl<I> Default for Index<I> {
    fn default() -> Self {
        Self { by_id: HashMap::new(), by_container: HashMap::new() }
    }
}

/// The objects of one kind in all vCenters.
#[derive(Debug)]
pub(crate) struct Kind<I, T> {
    arena: Arena<I, Kept<T>>,
    vcenters: BTreeMap<VcenterId, Index<I>>,
}

impl<I, T> Default for Kind<I, T> {
    fn default() -> Self {
        Self { arena: Arena::default(), vcenters: BTreeMap::new() }
    }
}

impl<I: DenseId + Ord, T: Described> Kind<I, T> {
    pub(crate) fn arena(&self) -> &Arena<I, Kept<T>> {
        &self.arena
    }

    pub(crate) fn find(&self, vcenter: VcenterId, id: &str) -> Option<I> {
        self.vcenters.get(&vcenter)?.by_id.get(id).copied()
    }

    /// The objects that name this container.
    pub(crate) fn members(&self, vcenter: VcenterId, container: &str) -> impl Iterator<Item = I> {
        let index = self.vcenters.get(&vcenter);
        index.and_then(|index| index.by_container.get(container)).into_iter().flatten().copied()
    }

    pub(crate) fn count(&self, vcenter: VcenterId) -> usize {
        self.vcenters.get(&vcenter).map_or(0, |index| index.by_id.len())
    }

    /// Returns the id and the previous facts.
    pub(crate) fn apply(&mut self, vcenter: VcenterId, facts: T, generation: Generation) -> (I, Option<T>) {
        let index = self.vcenters.entry(vcenter).or_default();
        let known = index.by_id.get(facts.id()).and_then(|&id| Some((id, self.arena.get_mut(id)?)));
        if let Some((id, kept)) = known {
            if kept.facts.container() != facts.container() {
                index.leave(id, kept.facts.container());
                index.join(id, facts.container());
            }
            kept.generation = generation;
            return (id, Some(std::mem::replace(&mut kept.facts, facts)));
        }
        let id_in_vcenter = facts.id().to_owned();
        let container = facts.container().map(str::to_owned);
        let id = self.arena.insert(Kept { vcenter, facts, generation });
        index.join(id, container.as_deref());
        index.by_id.insert(id_in_vcenter, id);
        (id, None)
    }

    pub(crate) fn remove(&mut self, id: I) -> Option<Kept<T>> {
        let kept = self.arena.remove(id)?;
        if let Some(index) = self.vcenters.get_mut(&kept.vcenter) {
            index.leave(id, kept.facts.container());
            index.by_id.remove(kept.facts.id());
        }
        Some(kept)
    }

    /// The objects that the relist of this generation did not contain.
    pub(crate) fn not_of(&self, vcenter: VcenterId, generation: Generation) -> Vec<I> {
        let is_gone = |kept: &Kept<T>| kept.vcenter == vcenter && kept.generation != generation;
        self.arena.iter().filter(|(_, kept)| is_gone(kept)).map(|(id, _)| id).collect()
    }
}

impl<I: DenseId + Ord> Index<I> {
    fn join(&mut self, id: I, container: Option<&str>) {
        let Some(container) = container else { return };
        match self.by_container.get_mut(container) {
            Some(members) => {
                members.insert(id);
            }
            None => {
                self.by_container.insert(container.to_owned(), BTreeSet::from([id]));
            }
        }
    }

    fn leave(&mut self, id: I, container: Option<&str>) {
        let Some(container) = container else { return };
        if let Some(members) = self.by_container.get_mut(container) {
            members.remove(&id);
            if members.is_empty() {
                self.by_container.remove(container);
            }
        }
    }
}

/// The objects of all vCenters.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) vms: Kind<VmId, VmFacts>,
    pub(crate) hosts: Kind<HostId, HostFacts>,
    /// Shared, because a plan is computed from a copy, and a cluster may have thousands of rules.
    pub(crate) clusters: Kind<ClusterId, Arc<ClusterFacts>>,
    /// Of the vCenters that were reached.
    pub(crate) instance_uuids: BTreeMap<VcenterId, Arc<str>>,
}
