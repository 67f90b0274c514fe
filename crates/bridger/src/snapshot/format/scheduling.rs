//! Layouts of the facts about nodes and pods that only a scheduler needs, and of workloads.

use std::collections::{BTreeMap, BTreeSet};

use model::event::{NodeTermFacts, SelectorFacts};
use model::scheduling::{
    DisruptionBudgetFacts, HostPort, NodeImage, NodeSchedulingFacts, NonZeroSums, PodRequests, PodSchedulingFacts,
    PreemptionPolicy, ResourceSums, SpreadFacts, Taint, TaintEffect, Toleration, UnsupportedFeature, WeightedNodeTerm,
    WorkloadFacts, WorkloadKind,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::kubernetes::{NodeTerm, Selector};
use super::layout::{List, Maybe, layouts};

layouts! {
    Budget of DisruptionBudgetFacts,
    Effect of TaintEffect,
    Image of NodeImage,
    Kind of WorkloadKind,
    NodeScheduling of NodeSchedulingFacts,
    NodeTaint of Taint,
    PodScheduling of PodSchedulingFacts,
    Port of HostPort,
    PreferredNode of WeightedNodeTerm,
    Workload of WorkloadFacts,
    Spread of SpreadFacts,
    Tolerated of Toleration,
    Unmet of UnsupportedFeature,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "PodSchedulingFacts", rename_all = "camelCase", default = "PodSchedulingFacts::default")]
pub(super) struct PodScheduling {
    scheduler_name: String,
    priority: i32,
    #[serde(with = "Preemption")]
    preemption: PreemptionPolicy,
    gates: Vec<String>,
    #[serde(with = "Requests")]
    requests: PodRequests,
    #[serde(with = "List::<Port>")]
    host_ports: Vec<HostPort>,
    #[serde(with = "List::<Tolerated>")]
    tolerations: Vec<Toleration>,
    images: Vec<String>,
    container_count: u32,
    #[serde(with = "List::<Spread>")]
    spread: Vec<SpreadFacts>,
    #[serde(with = "List::<PreferredNode>")]
    preferred_nodes: Vec<WeightedNodeTerm>,
    required_features: Vec<String>,
    #[serde(with = "Maybe::<Kind>")]
    controller: Option<WorkloadKind>,
    #[serde(serialize_with = "List::<Unmet>::serialize", deserialize_with = "unmet")]
    unsupported: Vec<UnsupportedFeature>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "PreemptionPolicy")]
enum Preemption {
    PreemptLowerPriority,
    Never,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ResourceSums", rename_all = "camelCase", default = "ResourceSums::default")]
struct Sums {
    cpu_milli: i64,
    memory_bytes: i64,
    ephemeral_storage_bytes: i64,
    scalar: BTreeMap<String, i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "PodRequests", rename_all = "camelCase", default = "PodRequests::default")]
struct Requests {
    #[serde(with = "Sums")]
    asked: ResourceSums,
    #[serde(with = "Sums")]
    taken: ResourceSums,
    #[serde(with = "NonZero")]
    taken_non_zero: NonZeroSums,
    #[serde(with = "Sums")]
    scored: ResourceSums,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "NonZeroSums", rename_all = "camelCase", default = "NonZeroSums::default")]
struct NonZero {
    cpu_milli: i64,
    memory_bytes: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "HostPort")]
struct Port {
    ip: String,
    protocol: String,
    port: i32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TaintEffect")]
enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Taint")]
struct NodeTaint {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(with = "Effect")]
    effect: TaintEffect,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Toleration", rename_all = "camelCase", default = "Toleration::default")]
struct Tolerated {
    key: String,
    value: Option<String>,
    #[serde(with = "Maybe::<Effect>")]
    effect: Option<TaintEffect>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "WeightedNodeTerm", rename_all = "camelCase")]
struct PreferredNode {
    weight: i32,
    #[serde(with = "NodeTerm")]
    term: NodeTermFacts,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "SpreadFacts", rename_all = "camelCase")]
struct Spread {
    topology_key: String,
    max_skew: i32,
    hard: bool,
    #[serde(default, with = "Maybe::<Selector>")]
    selector: Option<SelectorFacts>,
    min_domains: i32,
    honor_node_affinity: bool,
    honor_taints: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "UnsupportedFeature", rename_all = "camelCase")]
enum Unmet {
    ResourceClaim(String),
    DeviceClass(String),
    SchedulingGroup(String),
}

/// Older files list the volumes of pods here, because no plugin supported them. Without the claims they say nothing.
#[derive(Deserialize)]
#[serde(untagged)]
enum MaybeUnmet {
    Unmet(#[serde(with = "Unmet")] UnsupportedFeature),
    Volume(IgnoredAny),
}

fn unmet<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<UnsupportedFeature>, D::Error> {
    let all = Vec::<MaybeUnmet>::deserialize(deserializer)?;
    let features = all.into_iter().filter_map(|one| match one {
        MaybeUnmet::Unmet(feature) => Some(feature),
        MaybeUnmet::Volume(_) => None,
    });
    Ok(features.collect())
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "NodeSchedulingFacts", rename_all = "camelCase", default = "NodeSchedulingFacts::default")]
pub(super) struct NodeScheduling {
    #[serde(with = "Sums")]
    allocatable: ResourceSums,
    allowed_pods: i64,
    #[serde(with = "List::<NodeTaint>")]
    taints: Vec<Taint>,
    unschedulable: bool,
    #[serde(with = "List::<Image>")]
    images: Vec<NodeImage>,
    declared_features: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "NodeImage", rename_all = "camelCase", default = "NodeImage::default")]
struct Image {
    names: Vec<String>,
    size_bytes: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "WorkloadKind")]
enum Kind {
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "WorkloadFacts", rename_all = "camelCase")]
pub(super) struct Workload {
    #[serde(with = "Kind")]
    kind: WorkloadKind,
    namespace: String,
    name: String,
    #[serde(default, with = "Maybe::<Selector>")]
    selector: Option<SelectorFacts>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "DisruptionBudgetFacts", rename_all = "camelCase")]
pub(super) struct Budget {
    namespace: String,
    name: String,
    #[serde(default, with = "Maybe::<Selector>")]
    selector: Option<SelectorFacts>,
    disruptions_allowed: i32,
    #[serde(default)]
    disrupted_pods: BTreeSet<String>,
}
