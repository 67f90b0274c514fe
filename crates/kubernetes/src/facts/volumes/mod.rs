//! Reads claims, persistent volumes and what belongs to them.
//!
//! In: the JSON of the seven kinds, and of a pod's volumes. Out: [`VolumeObject`] and `PodVolume`. An in-tree volume
//! is also read in the form that its CSI driver would see (`migration`).

mod migration;
mod pod;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::Arc;

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use model::event::{Event, NodeTermFacts, Operator, RequirementFacts};
use model::volumes::{
    AccessMode, AttachmentFacts, BindingMode, ClaimFacts, ClaimRefFacts, CsiDriverFacts, CsiNodeDriverFacts,
    CsiNodeFacts, CsiVolume, InTreePlugin, StorageCapacityFacts, StorageClassFacts, VolumeFacts, VolumeKind,
    VolumeObject, VolumeSourceFacts,
};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use self::migration::{InTreeSources, VsphereDisk, datastore_of_path};
pub(crate) use self::pod::Volume as PodVolumeWire;
use super::affinity::{NodeSelector, Selector};
use super::scheduling::{Amounts, Quantity, Resources};
use super::{Facts, Meta};

const STORAGE: &str = "storage";
const BLOCK: &str = "Block";

/// A kind of object about volumes.
pub(crate) trait VolumeWire: Clone + std::fmt::Debug + Send + Sync + 'static {
    const KIND: VolumeKind;
    const IS_FLAT: bool = false;
    type Scope;
    type Spec: Default + DeserializeOwned;
    type Status: Default + DeserializeOwned;

    fn object(meta: Meta, spec: Self::Spec, status: Self::Status) -> VolumeObject;
}

#[derive(Clone, Debug)]
pub(crate) struct Volume<K>(VolumeObject, PhantomData<K>);

impl<K: VolumeWire> Facts for Volume<K> {
    const IS_FLAT: bool = K::IS_FLAT;
    type Scope = K::Scope;
    type Spec = K::Spec;
    type Status = K::Status;

    fn new(meta: Meta, spec: Option<K::Spec>, status: Option<K::Status>) -> Self {
        Self(K::object(meta, spec.unwrap_or_default(), status.unwrap_or_default()), PhantomData)
    }

    fn applied(self) -> Event {
        Event::VolumeApplied(self.0)
    }

    fn deleted(self) -> Event {
        let (namespace, name) = (self.0.namespace().to_owned(), self.0.name().to_owned());
        Event::VolumeDeleted { kind: K::KIND, namespace, name }
    }
}

macro_rules! kinds {
    ($($name:ident),+ $(,)?) => {$(
        #[derive(Clone, Debug)]
        pub(crate) struct $name;
    )+};
}

kinds!(Claim, PersistentVolume, StorageClass, CsiNode, CsiDriver, StorageCapacity, Attachment);

fn access_modes(modes: Option<&Vec<String>>) -> BTreeSet<AccessMode> {
    let mode = |mode: &String| match mode.as_str() {
        "ReadWriteOnce" => Some(AccessMode::ReadWriteOnce),
        "ReadOnlyMany" => Some(AccessMode::ReadOnlyMany),
        "ReadWriteMany" => Some(AccessMode::ReadWriteMany),
        "ReadWriteOncePod" => Some(AccessMode::ReadWriteOncePod),
        _ => None,
    };
    modes.into_iter().flatten().filter_map(mode).collect()
}

fn bytes(amounts: Option<&Amounts>) -> Option<i64> {
    amounts?.get(STORAGE).map(|quantity| quantity.as_units())
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimSpec {
    access_modes: Option<Vec<String>>,
    resources: Option<Resources>,
    selector: Option<Selector>,
    storage_class_name: Option<String>,
    volume_attributes_class_name: Option<String>,
    volume_mode: Option<String>,
    volume_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct PhaseStatus {
    phase: Option<String>,
}

impl VolumeWire for Claim {
    const KIND: VolumeKind = VolumeKind::Claim;
    type Scope = NamespaceResourceScope;
    type Spec = ClaimSpec;
    type Status = PhaseStatus;

    fn object(mut meta: Meta, spec: ClaimSpec, status: PhaseStatus) -> VolumeObject {
        let controller_uid = meta.take_controller().map(|controller| controller.uid);
        let annotations = meta.annotations.unwrap_or_default();
        VolumeObject::Claim(Arc::new(ClaimFacts {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name,
            uid: meta.uid.unwrap_or_default(),
            version: meta.resource_version.unwrap_or_default(),
            class: annotations.storage_class.or(spec.storage_class_name).unwrap_or_default(),
            volume: spec.volume_name.filter(|name| !name.is_empty()),
            bind_completed: annotations.bind_completed.is_some(),
            is_lost: status.phase.as_deref() == Some("Lost"),
            terminating: meta.deletion_timestamp.is_some(),
            controller_uid,
            access_modes: access_modes(spec.access_modes.as_ref()),
            requested_bytes: bytes(spec.resources.and_then(|resources| resources.requests).as_ref()),
            selector: spec.selector.map(Selector::facts_or_nothing),
            is_block: spec.volume_mode.as_deref() == Some(BLOCK),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
            selected_node: annotations.selected_node,
        }))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PersistentVolumeSpec {
    access_modes: Option<Vec<String>>,
    capacity: Option<Amounts>,
    claim_ref: Option<ClaimRef>,
    node_affinity: Option<VolumeNodeAffinity>,
    storage_class_name: Option<String>,
    volume_attributes_class_name: Option<String>,
    volume_mode: Option<String>,
    csi: Option<CsiSource>,
    #[serde(flatten)]
    in_tree: InTreeSources,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClaimRef {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

#[derive(Deserialize)]
struct VolumeNodeAffinity {
    required: Option<NodeSelector>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CsiSource {
    driver: String,
    volume_handle: String,
    volume_attributes: Option<BTreeMap<String, String>>,
}

/// Attributes of a volume that name its datastore, in any case. The driver writes none of them today; an administrator
/// or another provisioner may.
const DATASTORE_ATTRIBUTES: [&str; 2] = ["datastoreurl", "datastore"];

impl CsiSource {
    /// The datastore that a volume of vSphere's CSI driver names. A migrated volume has its path as handle. A handle of
    /// the driver's own is an id, which says nothing.
    fn datastore(&self) -> Option<String> {
        if self.driver != InTreePlugin::Vsphere.driver() {
            return None;
        }
        let attributes = || self.volume_attributes.iter().flatten();
        let attribute = |name: &&str| attributes().find(|(key, _)| key.eq_ignore_ascii_case(name));
        let named = DATASTORE_ATTRIBUTES.iter().find_map(attribute).map(|(_, value)| value.trim().to_owned());
        named.filter(|name| !name.is_empty()).or_else(|| datastore_of_path(&self.volume_handle))
    }
}

impl VolumeWire for PersistentVolume {
    const KIND: VolumeKind = VolumeKind::Volume;
    type Scope = ClusterResourceScope;
    type Spec = PersistentVolumeSpec;
    type Status = PhaseStatus;

    fn object(meta: Meta, spec: PersistentVolumeSpec, status: PhaseStatus) -> VolumeObject {
        let annotations = meta.annotations.unwrap_or_default();
        let labels = meta.labels.unwrap_or_default();
        let node_terms = spec.node_affinity.and_then(|affinity| affinity.required).map(NodeSelector::terms);
        let in_path = || spec.in_tree.vsphere_volume.as_ref().and_then(VsphereDisk::datastore);
        let datastore = spec.csi.as_ref().map_or_else(in_path, CsiSource::datastore);
        let source = match spec.csi {
            Some(CsiSource { driver, volume_handle: handle, .. }) => {
                VolumeSourceFacts::Csi(CsiVolume { driver, handle })
            }
            None => match spec.in_tree.volume(&labels, node_terms.as_deref()) {
                Some(volume) => VolumeSourceFacts::InTree(volume),
                None => VolumeSourceFacts::Other,
            },
        };
        let claim = spec.claim_ref.map(|claim| ClaimRefFacts {
            namespace: claim.namespace.unwrap_or_default(),
            name: claim.name.unwrap_or_default(),
            uid: claim.uid.unwrap_or_default(),
        });
        VolumeObject::Volume(Arc::new(VolumeFacts {
            name: meta.name,
            version: meta.resource_version.unwrap_or_default(),
            labels,
            class: annotations.storage_class.or(spec.storage_class_name).unwrap_or_default(),
            claim,
            bound_by_controller: annotations.bound_by_controller.is_some(),
            capacity_bytes: bytes(spec.capacity.as_ref()).unwrap_or_default(),
            access_modes: access_modes(spec.access_modes.as_ref()),
            is_block: spec.volume_mode.as_deref() == Some(BLOCK),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
            available: status.phase.as_deref() == Some("Available"),
            terminating: meta.deletion_timestamp.is_some(),
            node_terms,
            source,
            datastore,
        }))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StorageClassFields {
    provisioner: String,
    volume_binding_mode: Option<String>,
    allowed_topologies: Option<Vec<TopologyTerm>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TopologyTerm {
    match_label_expressions: Option<Vec<TopologyExpression>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TopologyExpression {
    key: String,
    values: Option<Vec<String>>,
}

impl VolumeWire for StorageClass {
    const KIND: VolumeKind = VolumeKind::StorageClass;
    const IS_FLAT: bool = true;
    type Scope = ClusterResourceScope;
    type Spec = StorageClassFields;
    type Status = Unread;

    fn object(meta: Meta, fields: StorageClassFields, _: Unread) -> VolumeObject {
        let one_of = |expression: TopologyExpression| RequirementFacts {
            key: expression.key,
            operator: Operator::In,
            values: expression.values.unwrap_or_default(),
        };
        let term = |term: TopologyTerm| NodeTermFacts {
            expressions: term.match_label_expressions.into_iter().flatten().map(one_of).collect(),
            fields: Vec::new(),
        };
        VolumeObject::StorageClass(Arc::new(StorageClassFacts {
            name: meta.name,
            provisioner: fields.provisioner,
            // The API's default.
            binding_mode: Some(match fields.volume_binding_mode.as_deref() {
                Some("WaitForFirstConsumer") => BindingMode::WaitForFirstConsumer,
                _ => BindingMode::Immediate,
            }),
            allowed_topologies: fields.allowed_topologies.into_iter().flatten().map(term).collect(),
        }))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct CsiNodeSpec {
    drivers: Option<Vec<CsiNodeDriver>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CsiNodeDriver {
    name: String,
    allocatable: Option<Allocatable>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Allocatable {
    count: Option<i32>,
}

impl VolumeWire for CsiNode {
    const KIND: VolumeKind = VolumeKind::CsiNode;
    type Scope = ClusterResourceScope;
    type Spec = CsiNodeSpec;
    type Status = Unread;

    fn object(meta: Meta, spec: CsiNodeSpec, _: Unread) -> VolumeObject {
        let migrated = meta.annotations.and_then(|annotations| annotations.migrated_plugins).unwrap_or_default();
        let driver = |driver: CsiNodeDriver| CsiNodeDriverFacts {
            name: driver.name,
            volumes_max: driver.allocatable.and_then(|allocatable| allocatable.count),
        };
        VolumeObject::CsiNode(Arc::new(CsiNodeFacts {
            name: meta.name,
            drivers: spec.drivers.into_iter().flatten().map(driver).collect(),
            migrated_plugins: migrated.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        }))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CsiDriverSpec {
    storage_capacity: Option<bool>,
}

impl VolumeWire for CsiDriver {
    const KIND: VolumeKind = VolumeKind::CsiDriver;
    type Scope = ClusterResourceScope;
    type Spec = CsiDriverSpec;
    type Status = Unread;

    fn object(meta: Meta, spec: CsiDriverSpec, _: Unread) -> VolumeObject {
        let storage_capacity = spec.storage_capacity.unwrap_or_default();
        VolumeObject::CsiDriver(Arc::new(CsiDriverFacts { name: meta.name, storage_capacity }))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StorageCapacityFields {
    storage_class_name: String,
    capacity: Option<Quantity>,
    maximum_volume_size: Option<Quantity>,
    node_topology: Option<Selector>,
}

impl VolumeWire for StorageCapacity {
    const KIND: VolumeKind = VolumeKind::StorageCapacity;
    const IS_FLAT: bool = true;
    type Scope = NamespaceResourceScope;
    type Spec = StorageCapacityFields;
    type Status = Unread;

    fn object(meta: Meta, fields: StorageCapacityFields, _: Unread) -> VolumeObject {
        // The size of the largest volume says more than the free space in all.
        let largest = fields.maximum_volume_size.or(fields.capacity);
        VolumeObject::StorageCapacity(Arc::new(StorageCapacityFacts {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name,
            class: fields.storage_class_name,
            largest_bytes: largest.map(Quantity::as_units),
            topology: fields.node_topology.and_then(Selector::facts),
        }))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AttachmentSpec {
    attacher: String,
    node_name: String,
    source: AttachmentSource,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentSource {
    persistent_volume_name: Option<String>,
}

impl VolumeWire for Attachment {
    const KIND: VolumeKind = VolumeKind::Attachment;
    type Scope = ClusterResourceScope;
    type Spec = AttachmentSpec;
    type Status = Unread;

    fn object(meta: Meta, spec: AttachmentSpec, _: Unread) -> VolumeObject {
        VolumeObject::Attachment(Arc::new(AttachmentFacts {
            name: meta.name,
            attacher: spec.attacher,
            node: spec.node_name,
            volume: spec.source.persistent_volume_name,
        }))
    }
}

/// A `status` that is not read.
#[derive(Default)]
pub(crate) struct Unread;

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}
