//! What the adapters tell: objects as they are now, objects that are gone, and how far each source can be trusted.
//!
//! A source first lists: `RelistBegan`, one `Applied` per object, `RelistEnded`. What was known of that source and did not
//! appear in between is gone. Then each change follows as it happens. When the stream breaks the source is `Lost`: what
//! is known stays, as last known, until the next relist has ended.
//!
//! Facts are complete: an `Applied` replaces all that was known of the object.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use uuid::Uuid;

use crate::scheduling::{NodeSchedulingFacts, PodSchedulingFacts, WorkloadFacts, WorkloadKind};

/// One of the vCenters Bridger is connected to: its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VcenterId(pub u16);

/// Where events come from; each is listed, in sync and lost on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    Nodes,
    Pods,
    Namespaces,
    /// Watched only for a scheduler.
    Workload(WorkloadKind),
    Vcenter(VcenterId),
}

#[expect(clippy::large_enum_variant, reason = "most events are of the largest kind")]
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    RelistBegan(Source),
    /// The picture is whole: the source is in sync.
    RelistEnded(Source),
    /// Nothing new is heard from the source; what is known is the last that was known.
    Lost(Source),

    NodeApplied(NodeFacts),
    NodeDeleted {
        name: String,
    },
    PodApplied(PodFacts),
    PodDeleted {
        namespace: String,
        name: String,
    },
    /// The pod is being bound to a node: it counts there from now on, before any watch tells so. What is known of the pod
    /// stays; `pod` serves where it is not known yet. Says nothing of a pod that is bound or finished, or whose name
    /// another one (by UID) has.
    PodAssumed {
        pod: Box<PodFacts>,
        node: String,
    },
    /// It was not bound after all, or nothing was heard of it for too long. Says nothing of a pod that is bound.
    PodForgotten {
        namespace: String,
        name: String,
        uid: String,
    },
    NamespaceApplied(NamespaceFacts),
    NamespaceDeleted {
        name: String,
    },
    WorkloadApplied(WorkloadFacts),
    WorkloadDeleted {
        kind: WorkloadKind,
        namespace: String,
        name: String,
    },

    VmApplied {
        vcenter: VcenterId,
        vm: VmFacts,
    },
    VmRemoved {
        vcenter: VcenterId,
        id: String,
    },
    HostApplied {
        vcenter: VcenterId,
        host: HostFacts,
    },
    HostRemoved {
        vcenter: VcenterId,
        id: String,
    },
    ClusterApplied {
        vcenter: VcenterId,
        cluster: ClusterFacts,
    },
    ClusterRemoved {
        vcenter: VcenterId,
        id: String,
    },
}

pub type Labels = BTreeMap<String, String>;

/// A Kubernetes node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    pub name: String,
    pub uid: String,
    pub labels: Labels,
    /// `status.nodeInfo.systemUUID`, when it is a UUID.
    pub system_uuid: Option<Uuid>,
    /// The UUID in `spec.providerID`, when that is `vsphere://<uuid>`.
    pub provider_uuid: Option<Uuid>,
    /// InternalIP and ExternalIP addresses.
    pub ip_addresses: Vec<IpAddr>,
    /// Hostname, InternalDNS and ExternalDNS addresses, lower case.
    pub dns_names: Vec<String>,
    /// The Ready condition is True.
    pub ready: bool,
    /// `None` where nothing schedules.
    pub scheduling: Option<Arc<NodeSchedulingFacts>>,
}

/// A pod, trimmed to what is used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFacts {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub labels: Labels,
    /// The node it is bound to.
    pub node: Option<String>,
    /// Succeeded or Failed: it no longer counts for anything.
    pub finished: bool,
    /// Marked for deletion, and still there.
    pub terminating: bool,
    /// The controller it belongs to.
    pub owner: Option<OwnerFacts>,
    /// Required pod affinity: all terms must hold.
    pub affinity: Vec<TermFacts>,
    /// Required pod anti-affinity: each term holds by itself.
    pub anti_affinity: Vec<TermFacts>,
    pub preferred_affinity: Vec<WeightedTermFacts>,
    pub preferred_anti_affinity: Vec<WeightedTermFacts>,
    pub node_affinity: NodeAffinityFacts,
    /// The annotation `bridger.dev/lift: "off"`: its anti-affinity between nodes is not to hold between hosts.
    pub lift_off: bool,
    /// `status.nominatedNodeName`.
    pub nominated_node: Option<String>,
    /// When it was created, in seconds since 1970.
    pub created_s: Option<i64>,
    /// `None` where nothing schedules.
    pub scheduling: Option<Arc<PodSchedulingFacts>>,
}

/// The controller of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnerFacts {
    /// `ReplicaSet`, `StatefulSet`.
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// One term of pod affinity or anti-affinity. Keys of `matchLabelKeys` are already part of the selector: the API server
/// merges them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TermFacts {
    pub topology_key: String,
    /// `None` matches no pod, an empty one all.
    pub selector: Option<SelectorFacts>,
    pub namespaces: Vec<String>,
    /// `None` selects no namespace, an empty one all; with neither this nor `namespaces` the pod's own is meant.
    pub namespace_selector: Option<SelectorFacts>,
}

/// A term that is only preferred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightedTermFacts {
    /// From 1 to 100, as the API server has it.
    pub weight: i32,
    pub term: TermFacts,
}

/// A label selector: all of it must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SelectorFacts {
    pub labels: Labels,
    pub expressions: Vec<RequirementFacts>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequirementFacts {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    /// Of node affinity only.
    Gt,
    /// Of node affinity only.
    Lt,
}

/// Which nodes a pod accepts, as far as labels and names say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeAffinityFacts {
    pub node_selector: Labels,
    /// Required node affinity: one term must hold. Empty when there is none.
    pub node_terms: Vec<NodeTermFacts>,
}

impl NodeAffinityFacts {
    pub fn is_empty(&self) -> bool {
        self.node_selector.is_empty() && self.node_terms.is_empty()
    }
}

/// One term of required node affinity: all of it must hold; an empty one accepts no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeTermFacts {
    /// On labels.
    pub expressions: Vec<RequirementFacts>,
    /// On `metadata.name`.
    pub fields: Vec<RequirementFacts>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceFacts {
    pub name: String,
    /// The UID of `kube-system` identifies the Kubernetes cluster.
    pub uid: String,
    pub labels: Labels,
    /// The annotation `bridger.dev/lift: "off"`, for all its pods.
    pub lift_off: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmFacts {
    /// The id within its vCenter: `vm-42`.
    pub id: String,
    pub name: String,
    /// The id of the host it runs on, or is registered on; `None` while that is unknown.
    pub host: Option<String>,
    pub bios_uuid: Option<Uuid>,
    /// Reported by VMware Tools; empty when it is not running.
    pub ip_addresses: Vec<IpAddr>,
    /// Reported by VMware Tools, lower case.
    pub dns_name: Option<String>,
    /// A template is no machine, and matches no node.
    pub template: bool,
    pub powered_on: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostConnection {
    #[default]
    Connected,
    /// An administrator disconnected it: its VMs run on.
    Disconnected,
    NotResponding,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFacts {
    /// The id within its vCenter: `host-12`.
    pub id: String,
    pub name: String,
    /// The cluster it is in; `None` for a standalone host.
    pub cluster: Option<String>,
    pub datacenter: Option<String>,
    pub connection: HostConnection,
    /// In maintenance mode, or on its way into it.
    pub maintenance: bool,
    /// `None` while nothing is known of it.
    pub load: Option<HostLoadFacts>,
}

/// How busy a host is, by its own quick statistics, and how much it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLoadFacts {
    pub cpu_used_mhz: u64,
    pub cpu_capacity_mhz: u64,
    pub memory_used_mib: u64,
    pub memory_capacity_mib: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFacts {
    /// The id within its vCenter: `domain-c8`.
    pub id: String,
    pub name: String,
    /// The name of its datacenter.
    pub datacenter: Option<String>,
    pub drs_enabled: bool,
    pub drs_behavior: DrsBehavior,
    pub ha: HaFacts,
    /// All its rules, whoever made them, by key.
    pub rules: Vec<RuleFacts>,
    /// All its groups, whoever made them, by name.
    pub groups: Vec<GroupFacts>,
}

/// How far DRS goes by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrsBehavior {
    /// It only recommends.
    Manual,
    /// It places VMs that are powered on, and recommends moves.
    PartiallyAutomated,
    #[default]
    FullyAutomated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaFacts {
    pub enabled: bool,
    /// A VM stays down rather than being restarted where that would break an anti-affinity rule.
    pub respects_vm_anti_affinity: bool,
}

impl Default for HaFacts {
    /// Current versions respect the rules unless told otherwise.
    fn default() -> Self {
        Self { enabled: false, respects_vm_anti_affinity: true }
    }
}

/// A DRS rule of a cluster. Whether it is complied with is not told here: vCenter's flag for it is unused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFacts {
    /// Its number within the cluster.
    pub key: i32,
    pub uuid: Option<String>,
    pub name: String,
    pub enabled: bool,
    /// Means something for VM-Host rules only.
    pub mandatory: bool,
    pub user_created: bool,
    pub kind: RuleKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// The ids of VMs that never share a host.
    VmsApart(Vec<String>),
    /// The ids of VMs that always share one.
    VmsTogether(Vec<String>),
    /// The names of a group of VMs and of the groups of hosts they shall, or shall not, run on.
    VmsOnHosts { vm_group: String, affine_hosts: Option<String>, anti_affine_hosts: Option<String> },
    /// The names of a group of VMs, and of the group that must have started before it. Says nothing of hosts.
    Dependency { vm_group: String, depends_on: String },
    /// One this program does not know: the type's name.
    Other(String),
}

impl RuleKind {
    /// The names of the groups it rests on.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            RuleKind::VmsOnHosts { vm_group, affine_hosts, anti_affine_hosts } => {
                [Some(vm_group), affine_hosts.as_ref(), anti_affine_hosts.as_ref()]
            }
            RuleKind::Dependency { vm_group, depends_on } => [Some(vm_group), Some(depends_on), None],
            RuleKind::VmsApart(_) | RuleKind::VmsTogether(_) | RuleKind::Other(_) => [None; 3],
        };
        names.into_iter().flatten().map(String::as_str)
    }
}

/// A group of VMs or hosts that VM-Host rules name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFacts {
    pub name: String,
    pub user_created: bool,
    pub kind: GroupKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// The ids of VMs.
    Vms(Vec<String>),
    /// The ids of hosts.
    Hosts(Vec<String>),
}
