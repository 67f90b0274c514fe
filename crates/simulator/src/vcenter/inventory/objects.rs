//! The types of the managed objects: ids, references and properties.

use std::collections::BTreeMap;
use std::fmt;

use uuid::Uuid;

use crate::clock::SimTime;
use crate::vcenter::MoveReason;
use crate::vcenter::vim_fault::VimFault;

macro_rules! object_ids {
    ($($name:ident, $variant:ident, $wire_type:literal, $prefix:literal;)*) => {
        $(#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "-{}"), self.0)
            }
        }
        impl From<$name> for MoRef {
            fn from(id: $name) -> MoRef { MoRef::$variant(id) }
        })*

        /// A reference to any managed object of the inventory.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum MoRef { $($variant($name),)* }

        impl MoRef {
            /// `VirtualMachine`.
            #[must_use]
            pub fn type_name(&self) -> &'static str {
                match self { $(MoRef::$variant(_) => $wire_type,)* }
            }
            /// Parses the type and value from the wire; the object need not exist.
            #[must_use]
            pub fn parse(type_name: &str, value: &str) -> Option<MoRef> {
                match type_name {
                    $($wire_type => value.strip_prefix(concat!($prefix, "-"))?.parse().ok().map($name).map(MoRef::$variant),)*
                    _ => None,
                }
            }
        }
        impl fmt::Display for MoRef {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(MoRef::$variant(id) => id.fmt(f),)* }
            }
        }
    };
}

object_ids! {
    FolderId, Folder, "Folder", "group";
    DatacenterId, Datacenter, "Datacenter", "datacenter";
    ClusterId, Cluster, "ClusterComputeResource", "domain-c";
    HostId, Host, "HostSystem", "host";
    PoolId, Pool, "ResourcePool", "resgroup";
    VmId, Vm, "VirtualMachine", "vm";
    TaskId, Task, "Task", "task";
    DatastoreId, Datastore, "Datastore", "datastore";
    NetworkId, Network, "Network", "network";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderKind {
    Root,
    Vm,
    Host,
    Datastore,
    Network,
}

#[derive(Clone, Debug)]
pub struct Folder {
    pub name: String,
    pub kind: FolderKind,
    pub parent: Option<MoRef>,
}

#[derive(Clone, Debug)]
pub struct Datacenter {
    pub name: String,
    pub parent: FolderId,
    pub vm_folder: FolderId,
    pub host_folder: FolderId,
    pub datastore_folder: FolderId,
    pub network_folder: FolderId,
}

#[derive(Clone, Debug)]
pub struct Datastore {
    pub name: String,
    pub parent: FolderId,
    /// The host with the only mount; `None` if all hosts of the datacenter mount it.
    pub local_to: Option<HostId>,
}

#[derive(Clone, Debug)]
pub struct Network {
    pub name: String,
    pub parent: FolderId,
}

#[derive(Clone, Debug)]
pub struct Pool {
    pub name: String,
    pub parent: MoRef,
    pub cluster: ClusterId,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DrsSettings {
    pub enabled: bool,
    pub behavior: DrsBehavior,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrsBehavior {
    Manual,
    PartiallyAutomated,
    FullyAutomated,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HaSettings {
    pub enabled: bool,
    /// `dasConfig.option`, for example `das.respectVmVmAntiAffinityRules`.
    pub options: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub struct Cluster {
    pub name: String,
    pub parent: FolderId,
    pub root_pool: PoolId,
    pub drs: DrsSettings,
    pub ha: HaSettings,
    /// In creation order: if two rules conflict, the older one wins.
    pub rules: Vec<Rule>,
    pub groups: Vec<Group>,
    pub next_rule_key: i32,
    /// The moves of the last DRS pass that DRS was not allowed to make itself.
    pub recommendations: Vec<Recommendation>,
}

impl Cluster {
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }
}

/// A move that DRS recommends to an administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recommendation {
    pub key: u32,
    pub made_at: SimTime,
    pub vm: VmId,
    pub from: HostId,
    pub to: HostId,
    pub reason: MoveReason,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub key: i32,
    pub uuid: Uuid,
    pub name: String,
    pub enabled: bool,
    pub mandatory: bool,
    pub user_created: bool,
    pub kind: RuleKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RuleKind {
    Affinity {
        vms: Vec<VmId>,
    },
    AntiAffinity {
        vms: Vec<VmId>,
    },
    /// VMs of a VM group must run, or must not run, on the hosts of a host group.
    VmHost {
        vm_group: String,
        affine_host_group: Option<String>,
        anti_affine_host_group: Option<String>,
    },
    /// VMs of one group wait for those of another to start. DRS does not act on it.
    Dependency {
        vm_group: String,
        depends_on_vm_group: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub name: String,
    pub members: GroupMembers,
}

#[derive(Clone, Debug, PartialEq)]
pub enum GroupMembers {
    Vms(Vec<VmId>),
    Hosts(Vec<HostId>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    Connected,
    /// The vCenter lost the connection, or an administrator disconnected the host: its VMs keep running.
    Disconnected,
    /// The host itself is down: its VMs have no power.
    NotResponding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    No,
    Entering,
    In,
}

#[derive(Clone, Debug)]
pub struct Host {
    pub name: String,
    pub cluster: ClusterId,
    pub uuid: Uuid,
    pub connection: ConnectionState,
    pub maintenance: Maintenance,
    pub cpu_count: u32,
    pub cpu_mhz: u32,
    pub memory_mib: u64,
    pub boot_time: SimTime,
}

impl Host {
    #[must_use]
    pub fn cpu_capacity_mhz(&self) -> u64 {
        u64::from(self.cpu_count) * u64::from(self.cpu_mhz)
    }

    /// The host can run VMs and accept new ones.
    #[must_use]
    pub fn takes_vms(&self) -> bool {
        self.connection == ConnectionState::Connected && self.maintenance == Maintenance::No
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmRole {
    /// A Kubernetes node with a kubelet.
    KubernetesNode,
    Plain,
}

/// The extra configuration key for the purpose of a VM: `node`.
pub const ROLE_KEY: &str = "guestinfo.bridger.role";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    On,
    Off,
    Suspended,
}

#[derive(Clone, Debug)]
pub struct Vm {
    pub name: String,
    pub parent: FolderId,
    pub pool: PoolId,
    pub host: HostId,
    pub power: PowerState,
    pub bios_uuid: Uuid,
    pub instance_uuid: Uuid,
    pub guest_host_name: String,
    pub ip_address: String,
    pub cpu_count: u32,
    pub memory_mib: u64,
    /// The current usage: `summary.quickStats.overallCpuUsage`.
    pub cpu_demand_mhz: u32,
    pub memory_demand_mib: u64,
    pub annotation: String,
    pub extra_config: BTreeMap<String, String>,
    pub boot_time: Option<SimTime>,
    /// The target host of a running migration.
    pub moving_to: Option<HostId>,
}

impl Vm {
    #[must_use]
    pub fn role(&self) -> VmRole {
        match self.extra_config.get(ROLE_KEY).map(String::as_str) {
            Some("node") => VmRole::KubernetesNode,
            _ => VmRole::Plain,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum TaskState {
    Queued,
    Running,
    Success,
    Error(VimFault),
}

impl TaskState {
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, TaskState::Success | TaskState::Error(_))
    }
}

#[derive(Clone, Debug)]
pub struct Task {
    /// `RelocateVM_Task`.
    pub method: String,
    /// `VirtualMachine.migrate`.
    pub description_id: String,
    pub entity: MoRef,
    pub entity_name: String,
    pub state: TaskState,
    pub progress_percent: Option<i32>,
    pub user: String,
    pub queued_at: SimTime,
    pub started_at: Option<SimTime>,
    pub completed_at: Option<SimTime>,
    /// The object that the task created.
    pub result: Option<MoRef>,
    pub cancel_requested: bool,
}

/// An entry of the vCenter's event history.
#[derive(Clone, Debug)]
pub struct Event {
    pub key: i32,
    /// `DrsVmMigratedEvent`.
    pub type_name: &'static str,
    pub created_at: SimTime,
    pub user: String,
    pub message: String,
    pub datacenter: Option<DatacenterId>,
    pub cluster: Option<ClusterId>,
    pub host: Option<HostId>,
    /// The previous host of a VM.
    pub source_host: Option<HostId>,
    pub vm: Option<VmId>,
}
