//! Layouts of nodes, pods and namespaces, without the facts that only a scheduler needs.

use std::net::IpAddr;
use std::sync::Arc;

use model::event::{
    Labels, NamespaceFacts, NodeAffinityFacts, NodeFacts, NodeTermFacts, Operator, OwnerFacts, PodFacts,
    RequirementFacts, SelectorFacts, TermFacts, WeightedTermFacts,
};
use model::scheduling::{NodeSchedulingFacts, PodSchedulingFacts};
use model::volumes::PodVolume;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::layout::{List, Maybe, MaybeShared, layouts};
use super::scheduling::{NodeScheduling, PodScheduling};
use super::volumes::UsedVolume;

layouts! {
    Namespace of NamespaceFacts,
    Node of NodeFacts,
    NodeTerm of NodeTermFacts,
    Owner of OwnerFacts,
    Pod of PodFacts,
    Requirement of RequirementFacts,
    Selector of SelectorFacts,
    Term of TermFacts,
    WeightedTerm of WeightedTermFacts,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "NodeFacts", rename_all = "camelCase", default = "NodeFacts::default")]
pub(super) struct Node {
    name: String,
    uid: String,
    labels: Labels,
    system_uuid: Option<Uuid>,
    provider_uuid: Option<Uuid>,
    ip_addresses: Vec<IpAddr>,
    dns_names: Vec<String>,
    ready: bool,
    #[serde(with = "MaybeShared::<NodeScheduling>")]
    scheduling: Option<Arc<NodeSchedulingFacts>>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "PodFacts", rename_all = "camelCase", default = "PodFacts::default")]
pub(super) struct Pod {
    namespace: String,
    name: String,
    uid: String,
    labels: Labels,
    node: Option<String>,
    finished: bool,
    terminating: bool,
    #[serde(with = "Maybe::<Owner>")]
    owner: Option<OwnerFacts>,
    #[serde(with = "List::<Term>")]
    affinity: Vec<TermFacts>,
    #[serde(with = "List::<Term>")]
    anti_affinity: Vec<TermFacts>,
    #[serde(with = "List::<WeightedTerm>")]
    preferred_affinity: Vec<WeightedTermFacts>,
    #[serde(with = "List::<WeightedTerm>")]
    preferred_anti_affinity: Vec<WeightedTermFacts>,
    #[serde(rename = "pinning", with = "NodeAffinity")]
    node_affinity: NodeAffinityFacts,
    lift_off: bool,
    nominated_node: Option<String>,
    created_s: Option<i64>,
    started_s: Option<i64>,
    preempted: bool,
    #[serde(with = "List::<UsedVolume>", skip_serializing_if = "Vec::is_empty")]
    volumes: Vec<PodVolume>,
    #[serde(with = "MaybeShared::<PodScheduling>")]
    scheduling: Option<Arc<PodSchedulingFacts>>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "OwnerFacts", rename_all = "camelCase", default = "OwnerFacts::default")]
struct Owner {
    kind: String,
    name: String,
    uid: String,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TermFacts", rename_all = "camelCase", default = "TermFacts::default")]
struct Term {
    topology_key: String,
    #[serde(with = "Maybe::<Selector>")]
    selector: Option<SelectorFacts>,
    namespaces: Vec<String>,
    #[serde(with = "Maybe::<Selector>")]
    namespace_selector: Option<SelectorFacts>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "WeightedTermFacts")]
struct WeightedTerm {
    weight: i32,
    #[serde(with = "Term")]
    term: TermFacts,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "SelectorFacts", rename_all = "camelCase", default = "SelectorFacts::default")]
pub(super) struct Selector {
    labels: Labels,
    #[serde(with = "List::<Requirement>")]
    expressions: Vec<RequirementFacts>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "RequirementFacts", rename_all = "camelCase")]
struct Requirement {
    key: String,
    #[serde(with = "OperatorName")]
    operator: Operator,
    values: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Operator")]
enum OperatorName {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "NodeAffinityFacts", rename_all = "camelCase", default = "NodeAffinityFacts::default")]
struct NodeAffinity {
    node_selector: Labels,
    #[serde(with = "List::<NodeTerm>")]
    node_terms: Vec<NodeTermFacts>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "NodeTermFacts", rename_all = "camelCase", default = "NodeTermFacts::default")]
pub(super) struct NodeTerm {
    #[serde(with = "List::<Requirement>")]
    expressions: Vec<RequirementFacts>,
    #[serde(with = "List::<Requirement>")]
    fields: Vec<RequirementFacts>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "NamespaceFacts", rename_all = "camelCase", default = "NamespaceFacts::default")]
pub(super) struct Namespace {
    name: String,
    uid: String,
    labels: Labels,
    lift_off: bool,
}
