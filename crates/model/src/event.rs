//! What the adapters tell: objects as they are now, objects that are gone, and how far each source can be trusted.
//!
//! A source first lists: `RelistBegan`, one `Applied` per object, `RelistEnded`. What was known of that source and did not
//! appear in between is gone. Then each change follows as it happens. When the stream breaks the source is `Lost`: what
//! is known stays, as last known, until the next relist has ended.
//!
//! Facts are complete: an `Applied` replaces all that was known of the object.

use std::collections::BTreeMap;
use std::net::IpAddr;

use uuid::Uuid;

/// One of the vCenters Bridger is connected to: its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VcenterId(pub u16);

/// Where events come from; each is listed, in sync and lost on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    Nodes,
    Pods,
    Namespaces,
    Vcenter(VcenterId),
}

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
    NamespaceApplied(NamespaceFacts),
    NamespaceDeleted {
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
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceFacts {
    pub name: String,
    /// The UID of `kube-system` identifies the Kubernetes cluster.
    pub uid: String,
    pub labels: Labels,
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
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFacts {
    /// The id within its vCenter: `domain-c8`.
    pub id: String,
    pub name: String,
    /// The name of its datacenter.
    pub datacenter: Option<String>,
    pub drs_enabled: bool,
}
