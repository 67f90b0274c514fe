//! Layouts of a vCenter's inventory: clusters with their rules and groups, hosts, VMs.

use std::net::IpAddr;
use std::sync::Arc;

use model::event::{
    ClusterFacts, DatastoreFacts, DrsBehavior, GroupFacts, GroupKind, HaFacts, HostConnection, HostFacts,
    HostLoadFacts, RuleFacts, RuleKind, VmFacts,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::layout::{List, Maybe, SharedList, layouts};
use crate::snapshot::VcenterPart;

layouts! {
    Cluster of ClusterFacts,
    Datastore of DatastoreFacts,
    Group of GroupFacts,
    Host of HostFacts,
    Load of HostLoadFacts,
    Rule of RuleFacts,
    Vcenter of VcenterPart,
    Vm of VmFacts,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "VcenterPart", rename_all = "camelCase")]
pub(super) struct Vcenter {
    instance_uuid: String,
    #[serde(with = "List::<Cluster>")]
    clusters: Vec<ClusterFacts>,
    #[serde(with = "List::<Host>")]
    hosts: Vec<HostFacts>,
    #[serde(with = "List::<Vm>")]
    vms: Vec<VmFacts>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "VmFacts", rename_all = "camelCase", default = "VmFacts::default")]
struct Vm {
    id: String,
    name: String,
    host: Option<String>,
    bios_uuid: Option<Uuid>,
    ip_addresses: Vec<IpAddr>,
    dns_name: Option<String>,
    template: bool,
    powered_on: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "HostFacts", rename_all = "camelCase", default = "HostFacts::default")]
struct Host {
    id: String,
    name: String,
    cluster: Option<String>,
    datacenter: Option<String>,
    #[serde(with = "Connection")]
    connection: HostConnection,
    maintenance: bool,
    #[serde(with = "Maybe::<Load>")]
    load: Option<HostLoadFacts>,
    #[serde(with = "SharedList::<Datastore>", skip_serializing_if = "Vec::is_empty")]
    datastores_missing: Vec<Arc<DatastoreFacts>>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "DatastoreFacts", default = "DatastoreFacts::default")]
struct Datastore {
    name: String,
    url: String,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "HostConnection", rename_all = "camelCase")]
enum Connection {
    Connected,
    Disconnected,
    NotResponding,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "HostLoadFacts")]
struct Load {
    cpu_used_mhz: u64,
    cpu_capacity_mhz: u64,
    memory_used_mib: u64,
    memory_capacity_mib: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ClusterFacts", rename_all = "camelCase", default = "ClusterFacts::default")]
struct Cluster {
    id: String,
    name: String,
    datacenter: Option<String>,
    drs_enabled: bool,
    #[serde(with = "Behavior")]
    drs_behavior: DrsBehavior,
    #[serde(with = "Ha")]
    ha: HaFacts,
    #[serde(with = "List::<Rule>")]
    rules: Vec<RuleFacts>,
    #[serde(with = "List::<Group>")]
    groups: Vec<GroupFacts>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "DrsBehavior", rename_all = "camelCase")]
enum Behavior {
    Manual,
    PartiallyAutomated,
    FullyAutomated,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "HaFacts", rename_all = "camelCase", default = "HaFacts::default")]
struct Ha {
    enabled: bool,
    respects_vm_anti_affinity: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "RuleFacts", rename_all = "camelCase")]
struct Rule {
    key: i32,
    uuid: Option<String>,
    name: String,
    enabled: bool,
    mandatory: bool,
    user_created: bool,
    #[serde(with = "RuleMeaning")]
    kind: RuleKind,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "RuleKind", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum RuleMeaning {
    #[serde(rename = "vmsApart")]
    VmAntiAffinity(Vec<String>),
    #[serde(rename = "vmsTogether")]
    VmAffinity(Vec<String>),
    #[serde(rename = "vmsOnHosts")]
    VmHost {
        vm_group: String,
        affine_hosts: Option<String>,
        anti_affine_hosts: Option<String>,
    },
    Dependency {
        vm_group: String,
        depends_on: String,
    },
    Other(String),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "GroupFacts", rename_all = "camelCase")]
struct Group {
    name: String,
    user_created: bool,
    #[serde(with = "Members")]
    kind: GroupKind,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "GroupKind", rename_all = "camelCase")]
enum Members {
    Vms(Vec<String>),
    Hosts(Vec<String>),
}
