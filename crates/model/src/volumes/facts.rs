//! What a scheduler must know about volumes: claims, persistent volumes, their classes and drivers.
//!
//! In: nothing; adapters fill these in. Out: plain data, part of [`crate::event::Event`].
//!
//! Invariants: what Kubernetes derives from an object alone is derived here once, by the adapter: the class of an object
//! (its beta annotation counts more than its field), sizes in bytes, the CSI form of a volume of a cloud's own kind.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::event::{Labels, NodeTermFacts, SelectorFacts};

/// The kinds of objects about volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeKind {
    Claim,
    Volume,
    StorageClass,
    CsiNode,
    CsiDriver,
    StorageCapacity,
    Attachment,
}

impl VolumeKind {
    pub const ALL: [Self; 7] = [
        Self::Claim,
        Self::Volume,
        Self::StorageClass,
        Self::CsiNode,
        Self::CsiDriver,
        Self::StorageCapacity,
        Self::Attachment,
    ];
}

/// An object about volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeObject {
    Claim(Arc<ClaimFacts>),
    Volume(Arc<VolumeFacts>),
    StorageClass(Arc<StorageClassFacts>),
    CsiNode(Arc<CsiNodeFacts>),
    CsiDriver(Arc<CsiDriverFacts>),
    StorageCapacity(Arc<StorageCapacityFacts>),
    Attachment(Arc<AttachmentFacts>),
}

impl VolumeObject {
    pub fn kind(&self) -> VolumeKind {
        match self {
            Self::Claim(_) => VolumeKind::Claim,
            Self::Volume(_) => VolumeKind::Volume,
            Self::StorageClass(_) => VolumeKind::StorageClass,
            Self::CsiNode(_) => VolumeKind::CsiNode,
            Self::CsiDriver(_) => VolumeKind::CsiDriver,
            Self::StorageCapacity(_) => VolumeKind::StorageCapacity,
            Self::Attachment(_) => VolumeKind::Attachment,
        }
    }

    /// Empty for a kind that has no namespaces.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Claim(claim) => &claim.namespace,
            Self::StorageCapacity(capacity) => &capacity.namespace,
            _ => "",
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Claim(facts) => &facts.name,
            Self::Volume(facts) => &facts.name,
            Self::StorageClass(facts) => &facts.name,
            Self::CsiNode(facts) => &facts.name,
            Self::CsiDriver(facts) => &facts.name,
            Self::StorageCapacity(facts) => &facts.name,
            Self::Attachment(facts) => &facts.name,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessMode {
    ReadWriteOnce,
    ReadOnlyMany,
    ReadWriteMany,
    ReadWriteOncePod,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimFacts {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// The name of its storage class; empty if it has none.
    pub class: String,
    /// `spec.volumeName`: the volume that it is, or is to be, bound to.
    pub volume: Option<String>,
    /// The volume controller has bound it completely.
    pub bind_completed: bool,
    /// Its volume is gone.
    pub is_lost: bool,
    pub terminating: bool,
    /// The UID of the object that controls it.
    pub controller_uid: Option<String>,
    pub access_modes: BTreeSet<AccessMode>,
    pub requested_bytes: Option<i64>,
    /// The labels that its volume must have; `None` means any.
    pub selector: Option<SelectorFacts>,
    /// A block device instead of a file system.
    pub is_block: bool,
    /// The name of its VolumeAttributesClass; empty if it has none.
    pub attributes_class: String,
    /// The node that a scheduler chose, on which its volume is to be provisioned.
    pub selected_node: Option<String>,
}

impl ClaimFacts {
    /// Whether its volume can be used.
    pub fn is_bound(&self) -> bool {
        self.volume.is_some() && self.bind_completed
    }
}

/// The claim that a volume is bound to or reserved for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRefFacts {
    pub namespace: String,
    pub name: String,
    /// Empty if the volume was reserved by name.
    pub uid: String,
}

impl ClaimRefFacts {
    /// Whether the volume is bound to or reserved for this claim.
    pub fn is_of(&self, claim: &ClaimFacts) -> bool {
        self.names(claim) && (self.uid.is_empty() || self.uid == claim.uid)
    }

    /// The same, with the claim's UID.
    pub fn is_exactly(&self, claim: &ClaimFacts) -> bool {
        self.names(claim) && self.uid == claim.uid
    }

    fn names(&self, claim: &ClaimFacts) -> bool {
        self.namespace == claim.namespace && self.name == claim.name
    }
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeFacts {
    pub name: String,
    /// Its resource version.
    pub version: String,
    pub labels: Labels,
    /// The name of its storage class; empty if it has none.
    pub class: String,
    pub claim: Option<ClaimRefFacts>,
    /// A controller bound it, not a user.
    pub bound_by_controller: bool,
    pub capacity_bytes: i64,
    pub access_modes: BTreeSet<AccessMode>,
    /// A block device instead of a file system.
    pub is_block: bool,
    /// The name of its VolumeAttributesClass; empty if it has none.
    pub attributes_class: String,
    /// Its phase is Available.
    pub available: bool,
    pub terminating: bool,
    /// The nodes that can use it: one term must hold. `None` means all nodes.
    pub node_terms: Option<Vec<NodeTermFacts>>,
    pub source: VolumeSourceFacts,
    /// The vSphere datastore that it is on, by name or URL; `None` if it does not say.
    pub datastore: Option<String>,
}

/// Where a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VolumeSourceFacts {
    Csi(CsiVolume),
    InTree(InTreeVolume),
    /// A kind that no limit counts.
    #[default]
    Other,
}

/// A volume as its CSI driver names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CsiVolume {
    pub driver: String,
    pub handle: String,
}

/// The kinds of volumes that were part of Kubernetes and are now handled by a CSI driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InTreePlugin {
    AwsEbs,
    AzureDisk,
    AzureFile,
    Cinder,
    GcePd,
    Portworx,
    Vsphere,
}

impl InTreePlugin {
    pub const ALL: [Self; 7] =
        [Self::AwsEbs, Self::AzureDisk, Self::AzureFile, Self::Cinder, Self::GcePd, Self::Portworx, Self::Vsphere];

    /// The name in storage classes and annotations.
    pub fn name(self) -> &'static str {
        match self {
            Self::AwsEbs => "kubernetes.io/aws-ebs",
            Self::AzureDisk => "kubernetes.io/azure-disk",
            Self::AzureFile => "kubernetes.io/azure-file",
            Self::Cinder => "kubernetes.io/cinder",
            Self::GcePd => "kubernetes.io/gce-pd",
            Self::Portworx => "kubernetes.io/portworx-volume",
            Self::Vsphere => "kubernetes.io/vsphere-volume",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name)
    }

    /// The CSI driver that replaces it.
    pub fn driver(self) -> &'static str {
        match self {
            Self::AwsEbs => "ebs.csi.aws.com",
            Self::AzureDisk => "disk.csi.azure.com",
            Self::AzureFile => "file.csi.azure.com",
            Self::Cinder => "cinder.csi.openstack.org",
            Self::GcePd => "pd.csi.storage.gke.io",
            Self::Portworx => "pxd.portworx.com",
            Self::Vsphere => "csi.vsphere.vmware.com",
        }
    }

    /// Whether kube-scheduler treats its volumes as those of the driver. It never does for two of them.
    pub fn is_migrated(self) -> bool {
        !matches!(self, Self::AzureFile | Self::Vsphere)
    }
}

/// A volume of such a kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InTreeVolume {
    pub plugin: InTreePlugin,
    /// The same volume for the CSI driver; an `Err` says why it has no such form.
    pub migrated: Result<MigratedVolume, String>,
}

/// A volume in the form that the CSI driver reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MigratedVolume {
    pub handle: String,
    /// As in [`VolumeFacts::node_terms`], with the driver's own topology keys.
    pub node_terms: Option<Vec<NodeTermFacts>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingMode {
    Immediate,
    WaitForFirstConsumer,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageClassFacts {
    pub name: String,
    pub provisioner: String,
    /// `None` if it is not given, which only old API servers allow.
    pub binding_mode: Option<BindingMode>,
    /// The nodes on which volumes can be provisioned: one term must hold. Empty means all nodes.
    pub allowed_topologies: Vec<NodeTermFacts>,
}

/// The CSI drivers of a node. It has the node's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiNodeFacts {
    pub name: String,
    pub drivers: Vec<CsiNodeDriverFacts>,
    /// The names of the in-tree plugins whose volumes the node's CSI drivers handle.
    pub migrated_plugins: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiNodeDriverFacts {
    pub name: String,
    /// The maximum number of its volumes on the node; `None` means no limit.
    pub volumes_max: Option<i32>,
}

/// A CSIDriver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiDriverFacts {
    pub name: String,
    /// It reports how much storage is free.
    pub storage_capacity: bool,
}

/// A CSIStorageCapacity: the storage of one class that some nodes can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageCapacityFacts {
    pub namespace: String,
    pub name: String,
    pub class: String,
    /// The size of the largest volume; `None` means that there is no room.
    pub largest_bytes: Option<i64>,
    /// The labels of the nodes that can reach it; `None` means no node.
    pub topology: Option<SelectorFacts>,
}

/// A VolumeAttachment: a volume that is attached to a node, or is being attached or detached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachmentFacts {
    pub name: String,
    /// The CSI driver.
    pub attacher: String,
    pub node: String,
    /// The name of the persistent volume.
    pub volume: Option<String>,
}
