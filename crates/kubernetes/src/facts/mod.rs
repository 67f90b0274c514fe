//! Reads the facts of nodes, pods and namespaces from JSON.
//!
//! In: the JSON of an object. Out: its facts as model types. Objects are decoded directly into facts: managed fields,
//! containers, volumes, all other annotations and everything else is skipped while parsing and never stored, so that
//! 150,000 pods fit in memory.
//!
//! Invariant: an unusable value (an invalid system UUID, an address that cannot be parsed) is left out. It never makes
//! the object fail, because one invalid object would then hide all other objects of the list.

use std::borrow::Cow;
use std::fmt::Debug;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use model::SourceRow;
use model::event::{Event, Labels, NamespaceFacts, NodeFacts, OwnerFacts, PodFacts};
use model::scheduling::WorkloadKind;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use uuid::Uuid;

use self::affinity::Affinity;
pub(crate) use self::disruption::DisruptionBudget;
use self::scheduling::{FieldsRead, NoScheduling, NodeSpec, NodeStatus, PodSpec, PodStatus, Scheduling};
pub(crate) use self::volumes::{
    Attachment, Claim, CsiDriver, CsiNode, PersistentVolume, StorageCapacity, StorageClass, Volume,
};
pub(crate) use self::workload::{ReplicaSet, ReplicationController, Service, StatefulSet, Workload};

/// Converts an object of a watched kind to facts. [`crate::kinds`] lists the kinds.
pub(crate) trait Facts: Clone + Debug + Send + Sync + Sized + 'static {
    /// The field selector of lists and watches; empty selects everything.
    const FIELD_SELECTOR: &'static str = "";
    /// Its fields are beside `metadata`, not in a `spec`.
    const IS_FLAT: bool = false;
    type Scope;
    /// The fields of `spec` and `status` that are read.
    type Spec: DeserializeOwned;
    type Status: DeserializeOwned;

    fn new(meta: Meta, spec: Option<Self::Spec>, status: Option<Self::Status>) -> Self;
    fn applied(self) -> Event;
    fn deleted(self) -> Event;
}

/// A watched object: its facts, and the version from which the watch continues.
#[derive(Clone, Debug)]
pub(crate) struct Watched<F> {
    pub facts: F,
    /// Has the resource version and nothing else.
    metadata: ObjectMeta,
}

/// The fields of `metadata` that are read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta {
    name: String,
    namespace: Option<String>,
    uid: Option<String>,
    labels: Option<Labels>,
    annotations: Option<Annotations>,
    owner_references: Option<Vec<OwnerReference>>,
    resource_version: Option<String>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
}

/// The annotations that are read.
#[derive(Debug, Default, Deserialize)]
struct Annotations {
    #[serde(rename = "bridger.dev/lift")]
    lift: Option<String>,
    /// On claims and volumes; it counts more than the field of this name.
    #[serde(rename = "volume.beta.kubernetes.io/storage-class")]
    storage_class: Option<String>,
    /// On claims. Its value does not matter.
    #[serde(rename = "pv.kubernetes.io/bind-completed")]
    bind_completed: Option<IgnoredAny>,
    /// On volumes. Its value does not matter.
    #[serde(rename = "pv.kubernetes.io/bound-by-controller")]
    bound_by_controller: Option<IgnoredAny>,
    /// On claims.
    #[serde(rename = "volume.kubernetes.io/selected-node")]
    selected_node: Option<String>,
    /// On the CSI drivers of nodes.
    #[serde(rename = "storage.alpha.kubernetes.io/migrated-plugins")]
    migrated_plugins: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference {
    #[serde(default)]
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: Option<bool>,
}

impl Meta {
    fn lift_off(&self) -> bool {
        let lift = self.annotations.as_ref().and_then(|annotations| annotations.lift.as_deref());
        lift.is_some_and(|value| value.trim().eq_ignore_ascii_case("off"))
    }

    fn created_s(&self) -> Option<i64> {
        seconds_since_1970(self.creation_timestamp.as_deref()?)
    }

    fn workload_controller(&self) -> Option<WorkloadKind> {
        let mut owners = self.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true))?;
        scheduling::workload_controller(&controller.api_version, &controller.kind)
    }

    /// The owner that controls the object.
    fn take_controller(&mut self) -> Option<OwnerFacts> {
        let owners = self.owner_references.take()?;
        let controller = owners.into_iter().find(|owner| owner.controller == Some(true))?;
        Some(OwnerFacts { kind: controller.kind, name: controller.name, uid: controller.uid })
    }
}

impl<'de, F: Facts> Deserialize<'de> for Watched<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Watched<F>, D::Error> {
        #[derive(Deserialize)]
        #[serde(bound = "S: DeserializeOwned, T: DeserializeOwned")]
        struct Wire<S, T> {
            metadata: Meta,
            spec: Option<S>,
            status: Option<T>,
        }
        #[derive(Deserialize)]
        #[serde(bound = "S: DeserializeOwned")]
        struct FlatWire<S> {
            metadata: Meta,
            #[serde(flatten)]
            fields: S,
        }
        let Wire { metadata, spec, status } = if F::IS_FLAT {
            let FlatWire { metadata, fields } = FlatWire::<F::Spec>::deserialize(deserializer)?;
            Wire { metadata, spec: Some(fields), status: None }
        } else {
            Wire::<F::Spec, F::Status>::deserialize(deserializer)?
        };
        let resource_version = metadata.resource_version.clone();
        let facts = F::new(metadata, spec, status);
        Ok(Watched { facts, metadata: ObjectMeta { resource_version, ..ObjectMeta::default() } })
    }
}

impl<F: Facts> kube::Resource for Watched<F> {
    type DynamicType = &'static SourceRow;
    type Scope = F::Scope;

    fn kind(row: &&'static SourceRow) -> Cow<'static, str> {
        row.kind.into()
    }

    fn group(row: &&'static SourceRow) -> Cow<'static, str> {
        row.group.into()
    }

    fn version(_: &&'static SourceRow) -> Cow<'static, str> {
        "v1".into()
    }

    fn plural(row: &&'static SourceRow) -> Cow<'static, str> {
        row.resource.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[derive(Deserialize)]
pub(crate) struct NodeInfo {
    #[serde(rename = "systemUUID")]
    system_uuid: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct NodeAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

#[derive(Deserialize)]
pub(crate) struct NodeCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// The facts of a node, with or without scheduling.
fn node_facts<R: FieldsRead>(meta: Meta, provider_id: Option<&str>, status: NodeStatus<R>) -> NodeFacts {
    let mut facts = NodeFacts {
        name: meta.name,
        uid: meta.uid.unwrap_or_default(),
        labels: meta.labels.unwrap_or_default(),
        system_uuid: status.node_info.and_then(|info| info.system_uuid).and_then(|text| uuid_of(&text)),
        provider_uuid: provider_id.and_then(uuid_of_provider_id),
        ready: status.conditions.iter().flatten().any(|is| is.kind == "Ready" && is.status == "True"),
        ..NodeFacts::default()
    };
    for NodeAddress { kind, address } in status.addresses.unwrap_or_default() {
        match kind.as_str() {
            "InternalIP" | "ExternalIP" => {
                push_new(&mut facts.ip_addresses, address.trim().parse::<IpAddr>().ok());
            }
            "Hostname" | "InternalDNS" | "ExternalDNS" => {
                // A trailing dot does not change the name.
                let name = address.trim().trim_end_matches('.').to_lowercase();
                push_new(&mut facts.dns_names, Some(name).filter(|name| !name.is_empty()));
            }
            _ => (),
        }
    }
    facts
}

impl Facts for NodeFacts {
    type Scope = ClusterResourceScope;
    type Spec = NodeSpec<NoScheduling>;
    type Status = NodeStatus<NoScheduling>;

    fn new(meta: Meta, spec: Option<Self::Spec>, status: Option<Self::Status>) -> NodeFacts {
        node_facts(meta, spec.and_then(|spec| spec.provider_id).as_deref(), status.unwrap_or_default())
    }

    fn applied(self) -> Event {
        Event::NodeApplied(self)
    }

    fn deleted(self) -> Event {
        Event::NodeDeleted { name: self.name }
    }
}

/// The same object, with the fields that a scheduler needs.
#[derive(Clone, Debug)]
pub(crate) struct Schedulable<F>(F);

impl Facts for Schedulable<NodeFacts> {
    type Scope = ClusterResourceScope;
    type Spec = NodeSpec<Scheduling>;
    type Status = NodeStatus<Scheduling>;

    fn new(meta: Meta, spec: Option<Self::Spec>, status: Option<Self::Status>) -> Self {
        let (mut spec, mut status) = (spec.unwrap_or_default(), status.unwrap_or_default());
        let provider_id = spec.provider_id.take();
        let scheduling = scheduling::node_facts(spec, &mut status);
        Self(NodeFacts { scheduling: Some(scheduling), ..node_facts(meta, provider_id.as_deref(), status) })
    }

    fn applied(self) -> Event {
        self.0.applied()
    }

    fn deleted(self) -> Event {
        self.0.deleted()
    }
}

fn seconds_since_1970(text: &str) -> Option<i64> {
    let timestamp: jiff::Timestamp = text.parse().ok()?;
    Some(timestamp.as_second())
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: Option<T>) {
    if let Some(item) = item.filter(|item| !list.contains(item)) {
        list.push(item);
    }
}

/// Accepts upper and lower case, with and without dashes. All zeros and all ones mean "not set" in firmware tables, so
/// they are rejected.
fn uuid_of(text: &str) -> Option<Uuid> {
    Uuid::parse_str(text.trim()).ok().filter(|uuid| !uuid.is_nil() && !uuid.is_max())
}

fn uuid_of_provider_id(provider_id: &str) -> Option<Uuid> {
    uuid_of(provider_id.strip_prefix("vsphere://")?.trim_matches('/'))
}

/// The facts of a pod, with or without scheduling. Takes these fields out of `spec`; the rest is for the scheduler.
fn pod_facts<R: FieldsRead>(meta: &mut Meta, spec: &mut PodSpec<R>, status: &PodStatus<R>) -> PodFacts {
    let mut facts = PodFacts {
        owner: meta.take_controller(),
        lift_off: meta.lift_off(),
        namespace: meta.namespace.take().unwrap_or_default(),
        name: std::mem::take(&mut meta.name),
        uid: meta.uid.take().unwrap_or_default(),
        labels: meta.labels.take().unwrap_or_default(),
        node: spec.node_name.take().filter(|node| !node.is_empty()),
        finished: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
        terminating: meta.deletion_timestamp.is_some(),
        ..PodFacts::default()
    };
    facts.node_affinity.node_selector = spec.node_selector.take().unwrap_or_default();
    if let Some(affinity) = spec.affinity.take() {
        affinity.add_to(&mut facts);
    }
    facts
}

/// A finished pod has no effect, and a cluster may keep thousands of them. With this selector the server leaves them
/// out of lists, and sends a pod that finishes as deleted, which is equivalent for the world.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

impl Facts for PodFacts {
    const FIELD_SELECTOR: &'static str = UNFINISHED;
    type Scope = NamespaceResourceScope;
    type Spec = PodSpec<NoScheduling>;
    type Status = PodStatus<NoScheduling>;

    fn new(mut meta: Meta, spec: Option<Self::Spec>, status: Option<Self::Status>) -> PodFacts {
        pod_facts(&mut meta, &mut spec.unwrap_or_default(), &status.unwrap_or_default())
    }

    fn applied(self) -> Event {
        Event::PodApplied(self)
    }

    fn deleted(self) -> Event {
        Event::PodDeleted { namespace: self.namespace, name: self.name }
    }
}

impl Facts for Schedulable<PodFacts> {
    const FIELD_SELECTOR: &'static str = UNFINISHED;
    type Scope = NamespaceResourceScope;
    type Spec = PodSpec<Scheduling>;
    type Status = PodStatus<Scheduling>;

    fn new(mut meta: Meta, spec: Option<Self::Spec>, status: Option<Self::Status>) -> Self {
        let (mut spec, mut status) = (spec.unwrap_or_default(), status.unwrap_or_default());
        let controller = meta.workload_controller();
        let preferred_nodes = spec.affinity.as_mut().map(Affinity::take_preferred_nodes).unwrap_or_default();
        let mut facts = pod_facts(&mut meta, &mut spec, &status);
        facts.created_s = meta.created_s();
        (facts.started_s, facts.preempted) = (status.started_s(), status.is_preempted());
        facts.nominated_node = status.nominated_node();
        facts.volumes = spec.take_volumes();
        let scheduling = scheduling::pod_facts(&facts.labels, controller, preferred_nodes, spec, &status);
        facts.scheduling = Some(scheduling);
        Self(facts)
    }

    fn applied(self) -> Event {
        self.0.applied()
    }

    fn deleted(self) -> Event {
        self.0.deleted()
    }
}

impl Facts for NamespaceFacts {
    type Scope = ClusterResourceScope;
    type Spec = IgnoredAny;
    type Status = IgnoredAny;

    fn new(meta: Meta, _: Option<IgnoredAny>, _: Option<IgnoredAny>) -> NamespaceFacts {
        NamespaceFacts {
            lift_off: meta.lift_off(),
            name: meta.name,
            uid: meta.uid.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
        }
    }

    fn applied(self) -> Event {
        Event::NamespaceApplied(self)
    }

    fn deleted(self) -> Event {
        Event::NamespaceDeleted { name: self.name }
    }
}

mod affinity;
mod disruption;
mod scheduling;
mod volumes;
mod workload;

#[cfg(test)]
mod tests;
