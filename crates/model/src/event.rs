//! What the adapters report: current objects, deleted objects, and the sync state of each source.
//!
//! A source first lists: `RelistBegan`, one `Applied` per object, `RelistEnded`. An object of that source that does not
//! appear in between has been deleted. After that, each change follows as it happens. When the stream breaks, the
//! source is `Lost`: the last known state stays until the next relist ends.
//!
//! Facts are complete: an `Applied` replaces everything known about the object.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use uuid::Uuid;

use crate::scheduling::{DisruptionBudgetFacts, NodeSchedulingFacts, PodSchedulingFacts, WorkloadFacts, WorkloadKind};
use crate::volumes::{PodVolume, VolumeKind, VolumeObject};

/// One of the vCenters Bridger is connected to: its index in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VcenterId(pub u16);

/// Where events come from; each source is listed, in sync or lost independently of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    Nodes,
    Pods,
    Namespaces,
    /// Watched only for a scheduler.
    Workload(WorkloadKind),
    /// Watched only for a scheduler.
    DisruptionBudgets,
    /// Watched only for a scheduler.
    Volume(VolumeKind),
    Vcenter(VcenterId),
}

#[expect(clippy::large_enum_variant, reason = "most events are of the largest kind")]
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    RelistBegan(Source),
    /// The list is complete: the source is in sync.
    RelistEnded(Source),
    /// The source sends no updates; its objects keep their last known state.
    Lost(Source),
    /// The vCenter was reached and said who it is, before its list begins. Its UUID does not depend on the address, nor on
    /// the order of vCenters in the configuration.
    VcenterIdentified {
        vcenter: VcenterId,
        instance_uuid: Arc<str>,
    },

    NodeApplied(NodeFacts),
    NodeDeleted {
        name: String,
    },
    PodApplied(PodFacts),
    PodDeleted {
        namespace: String,
        name: String,
    },
    /// The pod is being bound to a node: it counts there from now on, before the watch reports it. A known pod keeps
    /// its facts; `pod` is used only if the pod is not known yet. No effect on a pod that is bound or finished, or
    /// whose name belongs to a pod with another UID.
    PodAssumed {
        pod: Box<PodFacts>,
        node: String,
    },
    /// The binding failed, or the watch did not confirm it in time. No effect on a pod that is bound.
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
    DisruptionBudgetApplied(DisruptionBudgetFacts),
    DisruptionBudgetDeleted {
        namespace: String,
        name: String,
    },
    VolumeApplied(VolumeObject),
    VolumeDeleted {
        kind: VolumeKind,
        /// Empty for a kind that has no namespaces.
        namespace: String,
        name: String,
    },
    /// Claims and volumes are about to be changed like this for a pod that is assumed on a node: they count as changed
    /// until the watch shows another version of them, or the pod is no longer assumed. No effect on an object that has
    /// another version, nor if the pod is not assumed.
    VolumesAssumed {
        namespace: String,
        name: String,
        uid: String,
        objects: Vec<VolumeObject>,
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
    /// `None` if no scheduler runs.
    pub scheduling: Option<Arc<NodeSchedulingFacts>>,
}

/// A pod, trimmed to the fields that Bridger uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFacts {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub labels: Labels,
    /// The node it is bound to.
    pub node: Option<String>,
    /// Succeeded or Failed: it no longer counts.
    pub finished: bool,
    /// Marked for deletion, but not deleted yet.
    pub terminating: bool,
    /// The controller it belongs to.
    pub owner: Option<OwnerFacts>,
    /// Required pod affinity: all terms must hold.
    pub affinity: Vec<TermFacts>,
    /// Required pod anti-affinity: each term applies by itself.
    pub anti_affinity: Vec<TermFacts>,
    pub preferred_affinity: Vec<WeightedTermFacts>,
    pub preferred_anti_affinity: Vec<WeightedTermFacts>,
    pub node_affinity: NodeAffinityFacts,
    /// The annotation `bridger.dev/lift: "off"`: its anti-affinity between nodes does not apply between hosts.
    pub lift_off: bool,
    /// `status.nominatedNodeName`.
    pub nominated_node: Option<String>,
    /// When it was created, in seconds since 1970.
    pub created_s: Option<i64>,
    /// `status.startTime`, in seconds since 1970.
    pub started_s: Option<i64>,
    /// The condition DisruptionTarget says that a scheduler preempts it.
    pub preempted: bool,
    /// The volumes that matter for its placement; empty if no scheduler runs.
    pub volumes: Vec<PodVolume>,
    /// `None` if no scheduler runs.
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

/// A pod affinity or anti-affinity term. Keys of `matchLabelKeys` are already part of the selector: the API server
/// merges them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TermFacts {
    pub topology_key: String,
    /// `None` matches no pod; an empty selector matches all pods.
    pub selector: Option<SelectorFacts>,
    pub namespaces: Vec<String>,
    /// `None` selects no namespace, an empty selector all of them. With neither this nor `namespaces`, the term applies
    /// to the pod's own namespace.
    pub namespace_selector: Option<SelectorFacts>,
}

/// A preferred term.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightedTermFacts {
    /// From 1 to 100, as the API server enforces.
    pub weight: i32,
    pub term: TermFacts,
}

/// A label selector: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SelectorFacts {
    pub labels: Labels,
    pub expressions: Vec<RequirementFacts>,
}

impl SelectorFacts {
    /// Whether it matches an object with these labels. Indexes use [`crate::affinity::Selector`] instead.
    pub fn matches(&self, labels: &Labels) -> bool {
        let holds = |requirement: &RequirementFacts| {
            let value = labels.get(&requirement.key);
            match requirement.operator {
                Operator::In => value.is_some_and(|value| requirement.values.contains(value)),
                Operator::NotIn => value.is_none_or(|value| !requirement.values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::Gt | Operator::Lt => false,
            }
        };
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value)) && self.expressions.iter().all(holds)
    }
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
    /// Node affinity only.
    Gt,
    /// Node affinity only.
    Lt,
}

/// Which nodes a pod accepts by label and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeAffinityFacts {
    pub node_selector: Labels,
    /// Required node affinity: one term must hold. Empty if the pod has none.
    pub node_terms: Vec<NodeTermFacts>,
}

impl NodeAffinityFacts {
    pub fn is_empty(&self) -> bool {
        self.node_selector.is_empty() && self.node_terms.is_empty()
    }

    /// Whether it depends on the label.
    pub fn uses_label(&self, key: &str) -> bool {
        let of_term = |term: &NodeTermFacts| term.expressions.iter().any(|expression| expression.key == key);
        self.node_selector.contains_key(key) || self.node_terms.iter().any(of_term)
    }
}

/// One term of required node affinity: all requirements must hold; an empty term accepts no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeTermFacts {
    /// Requirements on labels.
    pub expressions: Vec<RequirementFacts>,
    /// Requirements on `metadata.name`.
    pub fields: Vec<RequirementFacts>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceFacts {
    pub name: String,
    /// The UID of `kube-system` identifies the Kubernetes cluster.
    pub uid: String,
    pub labels: Labels,
    /// The annotation `bridger.dev/lift: "off"`; applies to all pods in the namespace.
    pub lift_off: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmFacts {
    /// The id within its vCenter: `vm-42`.
    pub id: String,
    pub name: String,
    /// The id of the host it runs on or is registered on; `None` while the host is unknown.
    pub host: Option<String>,
    pub bios_uuid: Option<Uuid>,
    /// Reported by VMware Tools; empty while Tools is not running.
    pub ip_addresses: Vec<IpAddr>,
    /// Reported by VMware Tools, lower case.
    pub dns_name: Option<String>,
    /// A template cannot run, so it matches no node.
    pub template: bool,
    pub powered_on: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostConnection {
    #[default]
    Connected,
    /// An administrator disconnected it: its VMs keep running.
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
    /// In maintenance mode, or entering it.
    pub maintenance: bool,
    /// `None` while the load is unknown.
    pub load: Option<HostLoadFacts>,
    /// The datastores of its datacenter that it certainly cannot use: it does not mount them, or its mount is not
    /// accessible. About any other datastore nothing is known. Empty if nobody needs them.
    pub datastores_missing: Vec<Arc<DatastoreFacts>>,
}

/// A datastore. Its name is unique in its datacenter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatastoreFacts {
    pub name: String,
    /// `ds:///vmfs/volumes/.../`
    pub url: String,
}

impl DatastoreFacts {
    /// Whether a volume that names its datastore like this, by name or by URL, is on it.
    pub fn is_named(&self, name: &str) -> bool {
        if name.starts_with("ds:") { self.url == name } else { self.name == name }
    }
}

/// CPU and memory usage of a host, from its quick statistics, and its capacity.
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
    /// All rules of the cluster, from any client, sorted by key.
    pub rules: Vec<RuleFacts>,
    /// All groups of the cluster, from any client, sorted by name.
    pub groups: Vec<GroupFacts>,
}

/// The DRS automation level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrsBehavior {
    /// DRS only recommends.
    Manual,
    /// DRS places VMs at power-on and recommends migrations.
    PartiallyAutomated,
    #[default]
    FullyAutomated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaFacts {
    pub enabled: bool,
    /// A VM stays down rather than being restarted on a host where it would violate a VM-VM anti-affinity rule.
    pub respects_vm_anti_affinity: bool,
}

impl Default for HaFacts {
    /// Current vSphere versions respect the rules unless configured otherwise.
    fn default() -> Self {
        Self { enabled: false, respects_vm_anti_affinity: true }
    }
}

/// A DRS rule of a cluster. It does not include the compliance flag, which vCenter does not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFacts {
    /// Unique within the cluster.
    pub key: i32,
    pub uuid: Option<String>,
    pub name: String,
    pub enabled: bool,
    /// Used by VM-Host rules only.
    pub mandatory: bool,
    pub user_created: bool,
    pub kind: RuleKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// A VM-VM anti-affinity rule: the ids of its VMs.
    VmAntiAffinity(Vec<String>),
    /// A VM-VM affinity rule: the ids of its VMs.
    VmAffinity(Vec<String>),
    /// A VM-Host rule: the names of its VM group and of the host groups the VMs should, or should not, run on.
    VmHost { vm_group: String, affine_hosts: Option<String>, anti_affine_hosts: Option<String> },
    /// A VM group, and the VM group that must start before it. Does not constrain hosts.
    Dependency { vm_group: String, depends_on: String },
    /// A rule type that Bridger does not know: the name of the type.
    Other(String),
}

impl RuleKind {
    /// The names of the groups that the rule refers to.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            RuleKind::VmHost { vm_group, affine_hosts, anti_affine_hosts } => {
                [Some(vm_group), affine_hosts.as_ref(), anti_affine_hosts.as_ref()]
            }
            RuleKind::Dependency { vm_group, depends_on } => [Some(vm_group), Some(depends_on), None],
            RuleKind::VmAntiAffinity(_) | RuleKind::VmAffinity(_) | RuleKind::Other(_) => [None; 3],
        };
        names.into_iter().flatten().map(String::as_str)
    }
}

/// A VM group or host group that VM-Host rules refer to.
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
