//! Folder, Datacenter, ResourcePool, Datastore and Network.

use super::Scope;
use crate::vcenter::inventory::{FolderKind, Host, MoRef, PowerState};
use crate::vcenter::wire::value::Value;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;
const DATASTORE_BYTES: u64 = 100 * 1024 * GIB;

impl Scope<'_> {
    pub(super) fn container_property(&self, object: MoRef, property: &str) -> Value {
        match object {
            MoRef::Folder(id) => self.inventory.folder(id).map(|folder| match property {
                "childType" => Value::strings(child_types(folder.kind).iter().copied()),
                "childEntity" => {
                    Value::refs(self.relations.members(object).filter(|member| !matches!(member, MoRef::Task(_))))
                }
                _ => self.entity_property(object, &folder.name, "green", property),
            }),
            MoRef::Datacenter(id) => self.inventory.datacenter(id).map(|datacenter| match property {
                "vmFolder" => Value::Ref(datacenter.vm_folder.into()),
                "hostFolder" => Value::Ref(datacenter.host_folder.into()),
                "datastoreFolder" => Value::Ref(datacenter.datastore_folder.into()),
                "networkFolder" => Value::Ref(datacenter.network_folder.into()),
                "datastore" => Value::refs(self.datastores_near(object)),
                "network" => Value::refs(self.networks_near(object)),
                "configuration" => Value::object("DatacenterConfigInfo", Vec::new()),
                _ => self.entity_property(object, &datacenter.name, "green", property),
            }),
            MoRef::Pool(id) => self.inventory.pool(id).map(|pool| match property {
                "owner" => Value::Ref(pool.cluster.into()),
                "resourcePool" => self.members_of(object, |member| matches!(member, MoRef::Pool(_))),
                "vm" => self.members_of(object, |member| matches!(member, MoRef::Vm(_))),
                "summary" => Value::object(
                    "ResourcePoolSummary",
                    vec![
                        ("name", Value::string(&pool.name)),
                        ("config", pool_config(object)),
                        ("runtime", self.pool_runtime(object)),
                    ],
                ),
                "runtime" => self.pool_runtime(object),
                "config" => pool_config(object),
                _ => self.entity_property(object, &pool.name, "green", property),
            }),
            MoRef::Datastore(id) => self.inventory.datastore(id).map(|datastore| match property {
                "summary" => Value::object(
                    "DatastoreSummary",
                    vec![
                        ("datastore", Value::Ref(id.into())),
                        ("name", Value::string(&datastore.name)),
                        ("url", Value::string(datastore_url(object))),
                        ("capacity", Value::long(DATASTORE_BYTES)),
                        ("freeSpace", Value::long(DATASTORE_BYTES / 2)),
                        ("accessible", Value::bool(true)),
                        ("multipleHostAccess", Value::bool(datastore.local_to.is_none())),
                        ("type", Value::string("VMFS")),
                        ("maintenanceMode", Value::string("normal")),
                    ],
                ),
                "info" => Value::object(
                    "DatastoreInfo",
                    vec![
                        ("name", Value::string(&datastore.name)),
                        ("url", Value::string(datastore_url(object))),
                        ("freeSpace", Value::long(DATASTORE_BYTES / 2)),
                        ("maxFileSize", Value::long(DATASTORE_BYTES)),
                    ],
                ),
                "host" => Value::list(
                    "DatastoreHostMount",
                    self.near(object, |member| matches!(member, MoRef::Host(_)))
                        .filter(|host| datastore.local_to.is_none_or(|only| MoRef::from(only) == *host))
                        .map(|host| mount(host, object))
                        .collect(),
                ),
                "vm" => Value::refs(self.near(object, |member| matches!(member, MoRef::Vm(_)))),
                _ => self.entity_property(object, &datastore.name, "green", property),
            }),
            MoRef::Network(id) => self.inventory.network(id).map(|network| match property {
                "summary" => Value::object(
                    "NetworkSummary",
                    vec![
                        ("network", Value::Ref(id.into())),
                        ("name", Value::string(&network.name)),
                        ("accessible", Value::bool(true)),
                        ("ipPoolName", Value::string("")),
                    ],
                ),
                "host" => Value::refs(self.near(object, |member| matches!(member, MoRef::Host(_)))),
                "vm" => Value::refs(self.near(object, |member| matches!(member, MoRef::Vm(_)))),
                _ => self.entity_property(object, &network.name, "green", property),
            }),
            _ => None,
        }
        .unwrap_or(Value::Unset)
    }

    fn members_of(&self, owner: MoRef, wanted: impl Fn(&MoRef) -> bool) -> Value {
        Value::refs(self.relations.members(owner).filter(wanted))
    }

    /// The matching objects of the same datacenter.
    fn near(&self, object: MoRef, wanted: impl Fn(&MoRef) -> bool) -> impl Iterator<Item = MoRef> {
        let datacenter = super::datacenter_of(self.relations, object);
        let all = datacenter.map(|datacenter| self.relations.descendants(datacenter)).unwrap_or_default();
        all.into_iter().filter(wanted)
    }

    fn pool_runtime(&self, pool: MoRef) -> Value {
        let capacity = |of: fn(&Host) -> u64| -> u64 {
            let cluster = match pool {
                MoRef::Pool(id) => self.inventory.pool(id).map(|pool| pool.cluster),
                _ => None,
            };
            let hosts = cluster.into_iter().flat_map(|cluster| self.relations.members(cluster));
            let hosts = hosts.filter_map(|member| match member {
                MoRef::Host(id) => self.inventory.host(id).filter(|host| host.takes_vms()),
                _ => None,
            });
            hosts.map(of).sum()
        };
        let (mut cpu_mhz, mut memory_mib) = (0, 0);
        for member in self.relations.descendants(pool) {
            if let MoRef::Vm(id) = member
                && let Some(vm) = self.inventory.vm(id).filter(|vm| vm.power == PowerState::On)
            {
                cpu_mhz += u64::from(vm.cpu_demand_mhz);
                memory_mib += vm.memory_demand_mib;
            }
        }
        let usage = |used: u64, most: u64| {
            Value::object(
                "ResourcePoolResourceUsage",
                vec![
                    ("reservationUsed", Value::long(0)),
                    ("reservationUsedForVm", Value::long(0)),
                    ("unreservedForPool", Value::long(most)),
                    ("unreservedForVm", Value::long(most)),
                    ("overallUsage", Value::long(used)),
                    ("maxUsage", Value::long(most)),
                ],
            )
        };
        Value::object(
            "ResourcePoolRuntimeInfo",
            vec![
                ("memory", usage(memory_mib * MIB, capacity(|host| host.memory_mib) * MIB)),
                ("cpu", usage(cpu_mhz, capacity(Host::cpu_capacity_mhz))),
                ("overallStatus", Value::of("ManagedEntityStatus", "green")),
            ],
        )
    }
}

fn child_types(kind: FolderKind) -> &'static [&'static str] {
    match kind {
        FolderKind::Root => &["Folder", "Datacenter"],
        FolderKind::Vm => &["Folder", "VirtualMachine", "VirtualApp"],
        FolderKind::Host => &["Folder", "ComputeResource"],
        FolderKind::Datastore => &["Folder", "Datastore", "StoragePod"],
        FolderKind::Network => &["Folder", "Network", "DistributedVirtualSwitch"],
    }
}

fn pool_config(pool: MoRef) -> Value {
    Value::object(
        "ResourceConfigSpec",
        vec![
            ("entity", Value::Ref(pool.into())),
            ("cpuAllocation", super::allocation(4000)),
            ("memoryAllocation", super::allocation(163_840)),
        ],
    )
}

fn datastore_url(datastore: MoRef) -> String {
    format!("ds:///vmfs/volumes/{datastore}/")
}

fn mount(host: MoRef, datastore: MoRef) -> Value {
    let info = vec![
        ("path", Value::string(format!("/vmfs/volumes/{datastore}"))),
        ("accessMode", Value::string("readWrite")),
        ("mounted", Value::bool(true)),
        ("accessible", Value::bool(true)),
    ];
    Value::object(
        "DatastoreHostMount",
        vec![("key", Value::Ref(host.into())), ("mountInfo", Value::object("HostMountInfo", info))],
    )
}
