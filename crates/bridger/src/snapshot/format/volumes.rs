//! Layouts of claims, persistent volumes and what belongs to them.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::event::{Labels, NodeTermFacts, SelectorFacts};
use model::volumes::{
    AccessMode, AttachmentFacts, BindingMode, ClaimFacts, ClaimRefFacts, CsiDriverFacts, CsiNodeDriverFacts,
    CsiNodeFacts, CsiVolume, Disk, InTreePlugin, InTreeVolume, MigratedVolume, PodVolume, StorageCapacityFacts,
    StorageClassFacts, VolumeFacts, VolumeObject, VolumeSourceFacts,
};
use serde::{Deserialize, Serialize};

use super::kubernetes::{NodeTerm, Selector};
use super::layout::{List, Maybe, MaybeList, Outcome, Set, Shared, layouts};

layouts! {
    Access of AccessMode,
    Attachment of AttachmentFacts,
    Binding of BindingMode,
    Capacity of StorageCapacityFacts,
    Claim of ClaimFacts,
    ClaimRef of ClaimRefFacts,
    Class of StorageClassFacts,
    Driver of CsiDriverFacts,
    DriverOnNode of CsiNodeDriverFacts,
    Migrated of MigratedVolume,
    Object of VolumeObject,
    OnNode of CsiNodeFacts,
    UsedVolume of PodVolume,
    Volume of VolumeFacts,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "VolumeObject", rename_all = "camelCase")]
pub(super) enum Object {
    Claim(#[serde(with = "Shared::<Claim>")] Arc<ClaimFacts>),
    Volume(#[serde(with = "Shared::<Volume>")] Arc<VolumeFacts>),
    StorageClass(#[serde(with = "Shared::<Class>")] Arc<StorageClassFacts>),
    CsiNode(#[serde(with = "Shared::<OnNode>")] Arc<CsiNodeFacts>),
    CsiDriver(#[serde(with = "Shared::<Driver>")] Arc<CsiDriverFacts>),
    StorageCapacity(#[serde(with = "Shared::<Capacity>")] Arc<StorageCapacityFacts>),
    Attachment(#[serde(with = "Shared::<Attachment>")] Arc<AttachmentFacts>),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "AccessMode")]
#[expect(clippy::enum_variant_names, reason = "the names of Kubernetes")]
enum Access {
    ReadWriteOnce,
    ReadOnlyMany,
    ReadWriteMany,
    ReadWriteOncePod,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ClaimFacts", rename_all = "camelCase", default = "ClaimFacts::default")]
struct Claim {
    namespace: String,
    name: String,
    uid: String,
    version: String,
    class: String,
    volume: Option<String>,
    bind_completed: bool,
    is_lost: bool,
    terminating: bool,
    controller_uid: Option<String>,
    #[serde(with = "Set::<Access>")]
    access_modes: BTreeSet<AccessMode>,
    requested_bytes: Option<i64>,
    #[serde(with = "Maybe::<Selector>")]
    selector: Option<SelectorFacts>,
    is_block: bool,
    attributes_class: String,
    selected_node: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ClaimRefFacts", default = "ClaimRefFacts::default")]
struct ClaimRef {
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "VolumeFacts", rename_all = "camelCase", default = "VolumeFacts::default")]
struct Volume {
    name: String,
    version: String,
    labels: Labels,
    class: String,
    #[serde(with = "Maybe::<ClaimRef>")]
    claim: Option<ClaimRefFacts>,
    bound_by_controller: bool,
    capacity_bytes: i64,
    #[serde(with = "Set::<Access>")]
    access_modes: BTreeSet<AccessMode>,
    is_block: bool,
    attributes_class: String,
    available: bool,
    terminating: bool,
    #[serde(with = "MaybeList::<NodeTerm>")]
    node_terms: Option<Vec<NodeTermFacts>>,
    #[serde(with = "Source")]
    source: VolumeSourceFacts,
    #[serde(skip_serializing_if = "Option::is_none")]
    datastore: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "VolumeSourceFacts", rename_all = "camelCase")]
enum Source {
    Csi(#[serde(with = "Csi")] CsiVolume),
    InTree(#[serde(with = "InTree")] InTreeVolume),
    Other,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "CsiVolume")]
struct Csi {
    driver: String,
    handle: String,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "InTreePlugin")]
enum Plugin {
    AwsEbs,
    AzureDisk,
    AzureFile,
    Cinder,
    GcePd,
    Portworx,
    Vsphere,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "InTreeVolume")]
struct InTree {
    #[serde(with = "Plugin")]
    plugin: InTreePlugin,
    #[serde(with = "Outcome::<Migrated>")]
    migrated: Result<MigratedVolume, String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "MigratedVolume", rename_all = "camelCase", default = "MigratedVolume::default")]
struct Migrated {
    handle: String,
    #[serde(with = "MaybeList::<NodeTerm>")]
    node_terms: Option<Vec<NodeTermFacts>>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "BindingMode")]
enum Binding {
    Immediate,
    WaitForFirstConsumer,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "StorageClassFacts", rename_all = "camelCase", default = "StorageClassFacts::default")]
struct Class {
    name: String,
    provisioner: String,
    #[serde(with = "Maybe::<Binding>")]
    binding_mode: Option<BindingMode>,
    #[serde(with = "List::<NodeTerm>")]
    allowed_topologies: Vec<NodeTermFacts>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "CsiNodeFacts", rename_all = "camelCase", default = "CsiNodeFacts::default")]
struct OnNode {
    name: String,
    #[serde(with = "List::<DriverOnNode>")]
    drivers: Vec<CsiNodeDriverFacts>,
    migrated_plugins: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "CsiNodeDriverFacts", rename_all = "camelCase", default = "CsiNodeDriverFacts::default")]
struct DriverOnNode {
    name: String,
    volumes_max: Option<i32>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "CsiDriverFacts", rename_all = "camelCase", default = "CsiDriverFacts::default")]
struct Driver {
    name: String,
    storage_capacity: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "StorageCapacityFacts", rename_all = "camelCase", default = "StorageCapacityFacts::default")]
struct Capacity {
    namespace: String,
    name: String,
    class: String,
    largest_bytes: Option<i64>,
    #[serde(with = "Maybe::<Selector>")]
    topology: Option<SelectorFacts>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "AttachmentFacts", default = "AttachmentFacts::default")]
struct Attachment {
    name: String,
    attacher: String,
    node: String,
    volume: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "PodVolume", rename_all = "camelCase")]
pub(super) enum UsedVolume {
    Claim(String),
    Ephemeral(String),
    Disk(#[serde(with = "UsedDisk")] Disk),
    InTree(#[serde(with = "InTree")] InTreeVolume),
    Csi(String),
    Datastore(String),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Disk", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum UsedDisk {
    GcePd { name: String, read_only: bool },
    AwsEbs { volume: String },
    Iscsi { iqn: String, read_only: bool },
    Rbd { monitors: Vec<String>, pool: String, image: String, read_only: bool },
}
