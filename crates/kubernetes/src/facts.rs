//! What is kept of nodes, pods and namespaces, and how it is read from the wire.
//!
//! In: the JSON of an object. Out: its facts in the model's words. Objects are decoded straight into them: managed fields,
//! containers, volumes, all other annotations and everything else is skipped while parsing and never held, so that 150,000 pods fit.
//!
//! Invariant: a value of no use (a system UUID that is none, an address that can't be parsed) is left out; it never makes
//! the object fail, because one odd object would then hide all others of the list.

use std::borrow::Cow;
use std::fmt::Debug;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use model::event::{Event, Labels, NamespaceFacts, NodeFacts, OwnerFacts, PodFacts, Source};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use uuid::Uuid;

use self::affinity::Affinity;

/// A kind of object that is watched.
pub(crate) trait Facts: Clone + Debug + Send + Sync + Sized + 'static {
    const SOURCE: Source;
    const KIND: &'static str;
    const PLURAL: &'static str;
    /// What the server is asked for; everything when empty.
    const FIELD_SELECTOR: &'static str = "";
    type Scope;
    /// What is read of `spec` and of `status`.
    type Spec: DeserializeOwned;
    type Status: DeserializeOwned;

    fn new(meta: Meta, spec: Option<Self::Spec>, status: Option<Self::Status>) -> Self;
    fn applied(self) -> Event;
    fn deleted(self) -> Event;
}

/// A watched object: its facts, and the version that the watch goes on from.
#[derive(Clone, Debug)]
pub(crate) struct Watched<F> {
    pub facts: F,
    /// Holds the resource version and nothing else.
    metadata: ObjectMeta,
}

/// What is read of `metadata`.
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
    deletion_timestamp: Option<IgnoredAny>,
}

/// The one annotation that is read.
#[derive(Debug, Deserialize)]
struct Annotations {
    #[serde(rename = "bridger.dev/lift")]
    lift: Option<String>,
}

#[derive(Debug, Deserialize)]
struct OwnerReference {
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
        let Wire { mut metadata, spec, status } = Wire::<F::Spec, F::Status>::deserialize(deserializer)?;
        let resource_version = metadata.resource_version.take();
        let facts = F::new(metadata, spec, status);
        Ok(Watched { facts, metadata: ObjectMeta { resource_version, ..ObjectMeta::default() } })
    }
}

impl<F: Facts> kube::Resource for Watched<F> {
    type DynamicType = ();
    type Scope = F::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        F::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        F::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeStatus {
    node_info: Option<NodeInfo>,
    addresses: Option<Vec<NodeAddress>>,
    conditions: Option<Vec<NodeCondition>>,
}

#[derive(Deserialize)]
struct NodeInfo {
    #[serde(rename = "systemUUID")]
    system_uuid: Option<String>,
}

#[derive(Deserialize)]
struct NodeAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

#[derive(Deserialize)]
struct NodeCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Facts for NodeFacts {
    const SOURCE: Source = Source::Nodes;
    const KIND: &'static str = "Node";
    const PLURAL: &'static str = "nodes";
    type Scope = ClusterResourceScope;
    type Spec = NodeSpec;
    type Status = NodeStatus;

    fn new(meta: Meta, spec: Option<NodeSpec>, status: Option<NodeStatus>) -> NodeFacts {
        let (node_info, addresses, conditions) = match status {
            Some(status) => (status.node_info, status.addresses, status.conditions),
            None => (None, None, None),
        };
        let mut facts = NodeFacts {
            name: meta.name,
            uid: meta.uid.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
            system_uuid: node_info.and_then(|info| info.system_uuid).and_then(|text| uuid_of(&text)),
            provider_uuid: spec.and_then(|spec| spec.provider_id).and_then(|id| uuid_of_provider_id(&id)),
            ready: conditions.unwrap_or_default().iter().any(|is| is.kind == "Ready" && is.status == "True"),
            ..NodeFacts::default()
        };
        for NodeAddress { kind, address } in addresses.unwrap_or_default() {
            match kind.as_str() {
                "InternalIP" | "ExternalIP" => {
                    push_new(&mut facts.ip_addresses, address.trim().parse::<IpAddr>().ok());
                }
                "Hostname" | "InternalDNS" | "ExternalDNS" => {
                    // A name written with its final dot is the same name.
                    let name = address.trim().trim_end_matches('.').to_lowercase();
                    push_new(&mut facts.dns_names, Some(name).filter(|name| !name.is_empty()));
                }
                _ => (),
            }
        }
        facts
    }

    fn applied(self) -> Event {
        Event::NodeApplied(self)
    }

    fn deleted(self) -> Event {
        Event::NodeDeleted { name: self.name }
    }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: Option<T>) {
    if let Some(item) = item.filter(|item| !list.contains(item)) {
        list.push(item);
    }
}

/// Upper or lower case, with dashes or without. All zeros and all ones stand for "not set" in firmware tables, so they
/// identify nothing.
fn uuid_of(text: &str) -> Option<Uuid> {
    Uuid::parse_str(text.trim()).ok().filter(|uuid| !uuid.is_nil() && !uuid.is_max())
}

fn uuid_of_provider_id(provider_id: &str) -> Option<Uuid> {
    uuid_of(provider_id.strip_prefix("vsphere://")?.trim_matches('/'))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodSpec {
    node_name: Option<String>,
    node_selector: Option<Labels>,
    affinity: Option<Affinity>,
}

#[derive(Deserialize)]
pub(crate) struct PodStatus {
    phase: Option<String>,
}

impl Facts for PodFacts {
    const SOURCE: Source = Source::Pods;
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
    /// A finished pod counts for nothing, and a cluster may keep thousands of them. The server leaves them out of the list,
    /// and tells a pod that finishes as deleted, which to the world is the same.
    const FIELD_SELECTOR: &'static str = "status.phase!=Succeeded,status.phase!=Failed";
    type Scope = NamespaceResourceScope;
    type Spec = PodSpec;
    type Status = PodStatus;

    fn new(mut meta: Meta, spec: Option<PodSpec>, status: Option<PodStatus>) -> PodFacts {
        let phase = status.and_then(|status| status.phase);
        let (node_name, node_selector, affinity) = match spec {
            Some(spec) => (spec.node_name, spec.node_selector, spec.affinity),
            None => (None, None, None),
        };
        let mut facts = PodFacts {
            owner: meta.take_controller(),
            lift_off: meta.lift_off(),
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name,
            uid: meta.uid.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
            node: node_name.filter(|node| !node.is_empty()),
            finished: matches!(phase.as_deref(), Some("Succeeded" | "Failed")),
            terminating: meta.deletion_timestamp.is_some(),
            ..PodFacts::default()
        };
        facts.pinning.node_selector = node_selector.unwrap_or_default();
        if let Some(affinity) = affinity {
            affinity.tell(&mut facts);
        }
        facts
    }

    fn applied(self) -> Event {
        Event::PodApplied(self)
    }

    fn deleted(self) -> Event {
        Event::PodDeleted { namespace: self.namespace, name: self.name }
    }
}

impl Facts for NamespaceFacts {
    const SOURCE: Source = Source::Namespaces;
    const KIND: &'static str = "Namespace";
    const PLURAL: &'static str = "namespaces";
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

#[path = "facts_affinity.rs"]
mod affinity;

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
