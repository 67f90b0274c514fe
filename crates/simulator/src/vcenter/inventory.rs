//! The managed objects, in the simulator's own types.
//!
//! Reads are direct. Changes go through a `*_mut` accessor, which marks the object as touched. The property collector
//! calls [`Inventory::touched_since`] and renders the touched objects again, so that no update can be missed. Ids are
//! numbers in one sequence over all types, as in a real vCenter; on the wire they look like `vm-42`.
//!
//! Invariants: a VM is on exactly one host; a host in exactly one cluster; a removed object's id is never reused.
//! `Vm::host` changes only through [`Inventory::place_vm`], which updates the index of each host's VMs.

mod objects;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use objects::*;

/// How many events and finished tasks are retained.
pub const EVENTS_MAX: usize = 10_000;
pub const TASKS_MAX: usize = 2_000;
/// How many touches are retained; a collector further behind renders all objects again.
const TOUCHES_MAX: usize = 200_000;

#[derive(Debug, Default)]
pub struct Inventory {
    folders: BTreeMap<FolderId, Folder>,
    datacenters: BTreeMap<DatacenterId, Datacenter>,
    clusters: BTreeMap<ClusterId, Cluster>,
    hosts: BTreeMap<HostId, Host>,
    pools: BTreeMap<PoolId, Pool>,
    vms: BTreeMap<VmId, Vm>,
    tasks: BTreeMap<TaskId, Task>,
    datastores: BTreeMap<DatastoreId, Datastore>,
    networks: BTreeMap<NetworkId, Network>,
    vms_by_host: BTreeMap<HostId, BTreeSet<VmId>>,
    hosts_by_cluster: BTreeMap<ClusterId, BTreeSet<HostId>>,
    events: VecDeque<Event>,
    next_event_key: i32,
    next_id: u32,
    version: u64,
    touches: VecDeque<(u64, MoRef)>,
    /// The version of the newest touch that has been dropped.
    forgotten_version: u64,
}

macro_rules! object_tables {
    ($($id:ident, $object:ident, $table:ident, $get:ident, $get_mut:ident, $add:ident, $remove:ident, $iterate:ident;)*) => {
        impl Inventory {
            $(
            #[must_use]
            pub fn $get(&self, id: $id) -> Option<&$object> { self.$table.get(&id) }

            /// Mutable access; marks the object as touched.
            pub fn $get_mut(&mut self, id: $id) -> Option<&mut $object> {
                if self.$table.contains_key(&id) { self.touch(id.into()); }
                self.$table.get_mut(&id)
            }

            pub fn $add(&mut self, object: $object) -> $id {
                self.next_id += 1;
                let id = $id(self.next_id);
                self.$table.insert(id, object);
                self.index(id.into());
                self.touch(id.into());
                id
            }

            pub fn $remove(&mut self, id: $id) -> Option<$object> {
                self.unindex(id.into());
                let object = self.$table.remove(&id)?;
                self.touch(id.into());
                Some(object)
            }

            pub fn $iterate(&self) -> impl Iterator<Item = ($id, &$object)> { self.$table.iter().map(|(id, object)| (*id, object)) }
            )*

            #[must_use]
            pub fn exists(&self, object: MoRef) -> bool {
                match object {
                    MoRef::Folder(id) => self.folders.contains_key(&id),
                    MoRef::Datacenter(id) => self.datacenters.contains_key(&id),
                    MoRef::Cluster(id) => self.clusters.contains_key(&id),
                    MoRef::Host(id) => self.hosts.contains_key(&id),
                    MoRef::Pool(id) => self.pools.contains_key(&id),
                    MoRef::Vm(id) => self.vms.contains_key(&id),
                    MoRef::Task(id) => self.tasks.contains_key(&id),
                    MoRef::Datastore(id) => self.datastores.contains_key(&id),
                    MoRef::Network(id) => self.networks.contains_key(&id),
                }
            }
        }
    };
}

object_tables! {
    FolderId, Folder, folders, folder, folder_mut, add_folder, remove_folder, folders;
    DatacenterId, Datacenter, datacenters, datacenter, datacenter_mut, add_datacenter, remove_datacenter, datacenters;
    ClusterId, Cluster, clusters, cluster, cluster_mut, add_cluster, remove_cluster, clusters;
    HostId, Host, hosts, host, host_mut, add_host, remove_host, hosts;
    PoolId, Pool, pools, pool, pool_mut, add_pool, remove_pool, pools;
    VmId, Vm, vms, vm, vm_mut, add_vm, remove_vm, vms;
    TaskId, Task, tasks, task, task_mut, add_task, remove_task, tasks;
    DatastoreId, Datastore, datastores, datastore, datastore_mut, add_datastore, remove_datastore, datastores;
    NetworkId, Network, networks, network, network_mut, add_network, remove_network, networks;
}

impl Inventory {
    fn index(&mut self, object: MoRef) {
        match object {
            MoRef::Vm(id) => {
                if let Some(vm) = self.vms.get(&id) {
                    self.vms_by_host.entry(vm.host).or_default().insert(id);
                }
            }
            MoRef::Host(id) => {
                if let Some(host) = self.hosts.get(&id) {
                    self.hosts_by_cluster.entry(host.cluster).or_default().insert(id);
                }
            }
            _ => (),
        }
    }

    fn unindex(&mut self, object: MoRef) {
        match object {
            MoRef::Vm(id) => {
                if let Some(vms) = self.vms.get(&id).and_then(|vm| self.vms_by_host.get_mut(&vm.host)) {
                    vms.remove(&id);
                }
            }
            MoRef::Host(id) => {
                if let Some(hosts) = self.hosts.get(&id).and_then(|host| self.hosts_by_cluster.get_mut(&host.cluster)) {
                    hosts.remove(&id);
                }
            }
            _ => (),
        }
    }

    /// Moves a VM to another host. Marks both hosts and the VM as touched.
    pub fn place_vm(&mut self, id: VmId, to: HostId) {
        let Some(vm) = self.vms.get_mut(&id) else { return };
        let from = std::mem::replace(&mut vm.host, to);
        if let Some(vms) = self.vms_by_host.get_mut(&from) {
            vms.remove(&id);
        }
        self.vms_by_host.entry(to).or_default().insert(id);
        for object in [id.into(), from.into(), to.into()] {
            self.touch(object);
        }
    }

    /// The VMs on a host, powered on or off, ordered by id.
    pub fn vms_on(&self, host: HostId) -> impl Iterator<Item = (VmId, &Vm)> {
        self.vms_by_host.get(&host).into_iter().flatten().filter_map(|id| Some((*id, self.vms.get(id)?)))
    }

    /// The hosts of a cluster, ordered by id.
    pub fn hosts_in(&self, cluster: ClusterId) -> impl Iterator<Item = (HostId, &Host)> {
        self.hosts_by_cluster.get(&cluster).into_iter().flatten().filter_map(|id| Some((*id, self.hosts.get(id)?)))
    }

    /// The cluster that a VM runs in.
    #[must_use]
    pub fn cluster_of(&self, vm: VmId) -> Option<ClusterId> {
        Some(self.hosts.get(&self.vms.get(&vm)?.host)?.cluster)
    }

    /// Increases with every touch.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Marks an object as changed: for changes that are visible on one object but made on another, for example
    /// `HostSystem.vm` when a VM moves.
    pub fn touch(&mut self, object: MoRef) {
        self.version += 1;
        if self.touches.len() == TOUCHES_MAX
            && let Some((version, _)) = self.touches.pop_front()
        {
            self.forgotten_version = version;
        }
        self.touches.push_back((self.version, object));
    }

    /// The objects touched after `version`, or `None` if those touches are no longer retained.
    #[must_use]
    pub fn touched_since(&self, version: u64) -> Option<BTreeSet<MoRef>> {
        if version < self.forgotten_version {
            return None;
        }
        let first = self.touches.partition_point(|(at, _)| *at <= version);
        Some(self.touches.range(first..).map(|(_, object)| *object).collect())
    }

    /// Appends to the event history. Returns the event's key.
    pub fn post_event(&mut self, mut event: Event) -> i32 {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.next_event_key += 1;
        event.key = self.next_event_key;
        self.events.push_back(event);
        // Event collectors wait on the version; no managed object shows the events.
        self.version += 1;
        self.next_event_key
    }

    #[must_use]
    pub fn events(&self) -> &VecDeque<Event> {
        &self.events
    }
}
