//! Who is in what: the inventory's relations read backwards, kept up to date as objects are touched.
//!
//! The inventory says where a VM is; `HostSystem.vm`, `Folder.childEntity` and the like ask the other way round. Input:
//! the touched objects. Output: members of each owner, and *derived touches*: owners whose properties changed because a
//! member did, so that a filter on `HostSystem.vm` or on a cluster's summary hears of a vMotion.
//!
//! Invariant: after [`Relations::refresh`], what it says is what the inventory says; its cost grows with the number of
//! touched objects only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::vcenter::inventory::{ConnectionState, HostId, Inventory, MoRef};

/// How many derived touches are kept, as many as the inventory keeps of its own.
const DERIVED_MAX: usize = 200_000;

#[derive(Debug, Default)]
pub struct Relations {
    seen: u64,
    owners: BTreeMap<MoRef, Vec<MoRef>>,
    members: BTreeMap<MoRef, BTreeSet<MoRef>>,
    connections: BTreeMap<HostId, ConnectionState>,
    derived: VecDeque<(u64, MoRef)>,
    forgotten_version: u64,
}

impl Relations {
    pub fn refresh(&mut self, inventory: &Inventory) {
        let version = inventory.version();
        if self.seen == version {
            return;
        }
        if let Some(touched) = inventory.touched_since(self.seen) {
            for object in touched {
                self.update(inventory, object, version);
            }
        } else {
            let known: Vec<MoRef> = self.owners.keys().copied().collect();
            for object in known.into_iter().chain(all_objects(inventory)) {
                self.update(inventory, object, version);
            }
        }
        self.seen = version;
    }

    fn update(&mut self, inventory: &Inventory, object: MoRef, version: u64) {
        let now = owners_of(inventory, object);
        let before = self.owners.get(&object).cloned().unwrap_or_default();
        if now != before {
            for owner in &before {
                if let Some(members) = self.members.get_mut(owner) {
                    members.remove(&object);
                    if members.is_empty() {
                        self.members.remove(owner);
                    }
                }
                self.derive(version, *owner);
            }
            for owner in &now {
                self.members.entry(*owner).or_default().insert(object);
                self.derive(version, *owner);
            }
            if now.is_empty() {
                self.owners.remove(&object);
            } else {
                self.owners.insert(object, now.clone());
            }
            // Whether rules hold is seen on the cluster.
            if let (MoRef::Vm(_), Some(cluster)) = (object, now.iter().find_map(|owner| self.cluster_of(*owner))) {
                self.derive(version, cluster);
            }
        }
        // The VMs of a host that is out of sight are shown as disconnected.
        if let MoRef::Host(id) = object {
            let connection = inventory.host(id).map(|host| host.connection);
            let before = match connection {
                Some(connection) => self.connections.insert(id, connection),
                None => self.connections.remove(&id),
            };
            if before != connection {
                let vms: Vec<MoRef> = self.members(object).collect();
                vms.into_iter().for_each(|vm| self.derive(version, vm));
            }
        }
        // What these owners show (usage, recent tasks) depends on more than who their members are.
        for owner in now {
            if matches!(
                (object, owner),
                (MoRef::Vm(_), MoRef::Host(_)) | (MoRef::Host(_), MoRef::Cluster(_)) | (MoRef::Task(_), _)
            ) {
                self.derive(version, owner);
            }
        }
    }

    fn cluster_of(&self, host: MoRef) -> Option<MoRef> {
        matches!(host, MoRef::Host(_)).then(|| self.owners.get(&host)?.first().copied())?
    }

    fn derive(&mut self, version: u64, object: MoRef) {
        if self.derived.back() == Some(&(version, object)) {
            return;
        }
        if self.derived.len() == DERIVED_MAX
            && let Some((version, _)) = self.derived.pop_front()
        {
            self.forgotten_version = version;
        }
        self.derived.push_back((version, object));
    }

    /// The objects whose properties may have changed after `version`; `None` when that is too far back.
    #[must_use]
    pub fn touched_since(&self, inventory: &Inventory, version: u64) -> Option<BTreeSet<MoRef>> {
        if version < self.forgotten_version {
            return None;
        }
        let mut touched = inventory.touched_since(version)?;
        let first = self.derived.partition_point(|(at, _)| *at <= version);
        touched.extend(self.derived.range(first..).map(|(_, object)| *object));
        Some(touched)
    }

    pub fn members(&self, owner: impl Into<MoRef>) -> impl Iterator<Item = MoRef> {
        self.members.get(&owner.into()).into_iter().flatten().copied()
    }

    #[must_use]
    pub fn owners(&self, object: MoRef) -> &[MoRef] {
        self.owners.get(&object).map_or(&[], Vec::as_slice)
    }

    /// Whether `object` is somewhere under `container`.
    #[must_use]
    pub fn descends(&self, object: MoRef, container: MoRef) -> bool {
        self.owners(object).iter().any(|owner| *owner == container || self.descends(*owner, container))
    }

    /// Everything under `container` but tasks, at any depth.
    #[must_use]
    pub fn descendants(&self, container: MoRef) -> BTreeSet<MoRef> {
        let mut found = BTreeSet::new();
        let mut open = vec![container];
        while let Some(owner) = open.pop() {
            for member in self.members(owner) {
                if !matches!(member, MoRef::Task(_)) && found.insert(member) {
                    open.push(member);
                }
            }
        }
        found
    }
}

/// What an object is in, or what a task is about.
fn owners_of(inventory: &Inventory, object: MoRef) -> Vec<MoRef> {
    let owners: Option<Vec<MoRef>> = match object {
        MoRef::Folder(id) => inventory.folder(id).map(|folder| folder.parent.into_iter().collect()),
        MoRef::Datacenter(id) => inventory.datacenter(id).map(|datacenter| vec![datacenter.parent.into()]),
        MoRef::Cluster(id) => inventory.cluster(id).map(|cluster| vec![cluster.parent.into()]),
        MoRef::Host(id) => inventory.host(id).map(|host| vec![host.cluster.into()]),
        MoRef::Pool(id) => inventory.pool(id).map(|pool| vec![pool.parent]),
        MoRef::Vm(id) => inventory.vm(id).map(|vm| vec![vm.parent.into(), vm.host.into(), vm.pool.into()]),
        MoRef::Task(id) => inventory.task(id).map(|task| vec![task.entity]),
        MoRef::Datastore(id) => inventory.datastore(id).map(|datastore| vec![datastore.parent.into()]),
        MoRef::Network(id) => inventory.network(id).map(|network| vec![network.parent.into()]),
    };
    owners.unwrap_or_default()
}

fn all_objects(inventory: &Inventory) -> Vec<MoRef> {
    let mut all: Vec<MoRef> = Vec::new();
    all.extend(inventory.folders().map(|(id, _)| MoRef::from(id)));
    all.extend(inventory.datacenters().map(|(id, _)| MoRef::from(id)));
    all.extend(inventory.clusters().map(|(id, _)| MoRef::from(id)));
    all.extend(inventory.hosts().map(|(id, _)| MoRef::from(id)));
    all.extend(inventory.pools().map(|(id, _)| MoRef::from(id)));
    all.extend(inventory.vms().map(|(id, _)| MoRef::from(id)));
    all.extend(inventory.tasks().map(|(id, _)| MoRef::from(id)));
    all.extend(inventory.datastores().map(|(id, _)| MoRef::from(id)));
    all.extend(inventory.networks().map(|(id, _)| MoRef::from(id)));
    all
}

/// The datacenter that holds the object, found upwards.
#[must_use]
pub fn datacenter_of(relations: &Relations, object: MoRef) -> Option<MoRef> {
    if matches!(object, MoRef::Datacenter(_)) {
        return Some(object);
    }
    relations.owners(object).first().and_then(|owner| datacenter_of(relations, *owner))
}
