//! The reverse relations of the inventory, updated as objects are touched.
//!
//! The inventory stores the host of a VM; `HostSystem.vm`, `Folder.childEntity` and similar properties need the reverse
//! direction. In: the touched objects. Out: members of each owner, and *derived touches*: owners whose properties
//! changed because a member did, so that a filter on `HostSystem.vm` or on a cluster's summary sees a vMotion.
//!
//! Invariant: after [`Relations::refresh`] the relations match the inventory; the cost depends only on the number of
//! touched objects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::vcenter::inventory::{ConnectionState, HostId, Inventory, MoRef};

/// How many derived touches are retained, the same number as in the inventory.
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
        let touched = inventory.touched_since(self.seen).unwrap_or_else(|| {
            // Too far behind: all existing objects, and all that existed before.
            all_objects(inventory).into_iter().chain(self.owners.keys().copied()).collect()
        });
        let mut derived = BTreeSet::new();
        for object in touched {
            self.update(inventory, object, &mut derived);
        }
        for object in derived {
            if self.derived.len() == DERIVED_MAX
                && let Some((version, _)) = self.derived.pop_front()
            {
                self.forgotten_version = version;
            }
            self.derived.push_back((version, object));
        }
        self.seen = version;
    }

    fn update(&mut self, inventory: &Inventory, object: MoRef, derived: &mut BTreeSet<MoRef>) {
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
            }
            for owner in &now {
                self.members.entry(*owner).or_default().insert(object);
            }
            derived.extend(before.iter().chain(&now));
            if now.is_empty() {
                self.owners.remove(&object);
            } else {
                self.owners.insert(object, now.clone());
            }
        }
        match object {
            // Affects the usage of its host, and rule compliance on the cluster.
            MoRef::Vm(_) => {
                for host in before.iter().chain(&now).filter(|owner| matches!(owner, MoRef::Host(_))) {
                    derived.insert(*host);
                    derived.extend(self.owners(*host));
                }
            }
            // Affects the cluster's summary. The VMs of an unreachable host are shown as disconnected.
            MoRef::Host(id) => {
                derived.extend(&now);
                let connection = inventory.host(id).map(|host| host.connection);
                let before = match connection {
                    Some(connection) => self.connections.insert(id, connection),
                    None => self.connections.remove(&id),
                };
                if before != connection {
                    derived.extend(self.members(object));
                }
            }
            // Affects the recent tasks of its entity.
            MoRef::Task(_) => derived.extend(&now),
            _ => (),
        }
    }

    /// The objects whose properties may have changed after `version`; `None` if that is too far back.
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

    /// Whether `object` is below `container`, at any depth.
    #[must_use]
    pub fn descends(&self, object: MoRef, container: MoRef) -> bool {
        self.owners(object).iter().any(|owner| *owner == container || self.descends(*owner, container))
    }

    /// All objects below `container` except tasks, at any depth.
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

/// The containers of an object, or the entity of a task.
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

/// The datacenter that contains the object.
#[must_use]
pub fn datacenter_of(relations: &Relations, object: MoRef) -> Option<MoRef> {
    if matches!(object, MoRef::Datacenter(_)) {
        return Some(object);
    }
    relations.owners(object).first().and_then(|owner| datacenter_of(relations, *owner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SimTime;
    use crate::seed::Seed;
    use crate::vcenter::{Config, Vcenter};

    /// Objects with derived properties are touched implicitly.
    #[test]
    fn owners_and_members_are_touched_with_their_derived_properties() {
        let mut vcenter = Vcenter::new(&Config::default(), Seed(1), SimTime::VIRTUAL_START);
        let inventory = &mut vcenter.inventory;
        let (vm, from) = inventory.vms().map(|(id, vm)| (id, vm.host)).next().unwrap();
        let (to, cluster) = inventory.hosts().find(|(id, _)| *id != from).map(|(id, it)| (id, it.cluster)).unwrap();
        let folder = inventory.vm(vm).unwrap().parent;
        let others = inventory.vms().find(|(id, it)| *id != vm && it.host == from).map(|(id, _)| MoRef::from(id));
        let mut relations = Relations::default();
        relations.refresh(inventory);
        let mut after = |inventory: &Inventory| {
            let seen = relations.seen;
            relations.refresh(inventory);
            relations.touched_since(inventory, seen).unwrap()
        };

        inventory.vm_mut(vm).unwrap().cpu_demand_mhz += 1;
        let expected = BTreeSet::from([vm.into(), from.into(), cluster.into()]);
        assert_eq!(after(inventory), expected, "usage of the host, rules of the cluster");
        inventory.host_mut(from).unwrap().connection = ConnectionState::Disconnected;
        let touched = after(inventory);
        assert!(touched.contains(&MoRef::from(vm)) && touched.contains(&MoRef::from(cluster)), "{touched:?}");
        assert!(others.is_none_or(|other| touched.contains(&other)), "all VMs of the host");
        inventory.place_vm(vm, to);
        let touched = after(inventory);
        assert!([from.into(), to.into(), cluster.into()].iter().all(|object| touched.contains(object)), "{touched:?}");
        inventory.remove_vm(vm);
        let touched = after(inventory);
        assert!([to.into(), folder.into()].iter().all(|object| touched.contains(object)), "{touched:?}");
        assert!(!relations.members(to).any(|member| member == MoRef::from(vm)));
        assert!(!relations.descends(vm.into(), folder.into()));
    }
}
