//! Reads the fields of pods and nodes that a scheduler needs.
//!
//! In: the JSON of containers, volumes, constraints, taints, images and statuses, which is skipped unless scheduling is
//! enabled ([`When`]). Out: [`PodSchedulingFacts`] and [`NodeSchedulingFacts`], with kube-scheduler's defaults.
//!
//! Invariants: what kube-scheduler ignores (a toleration that compares numbers, a taint of unknown effect) is left out.
//! The facts of a pod name each unsupported feature that it needs.

use std::sync::Arc;

use model::event::{Labels, Operator, RequirementFacts, SelectorFacts};
use model::scheduling::{
    HostPort, NodeImage, NodeSchedulingFacts, PodSchedulingFacts, PreemptionPolicy, SpreadFacts, Taint, TaintEffect,
    Toleration, UnsupportedFeature, WeightedNodeTerm, WorkloadKind,
};
use model::volumes::PodVolume;
use serde::Deserialize;

pub(crate) use self::quantity::Quantity;
pub(crate) use self::requests::{Amounts, Resources};
use self::requests::{ContainerRequests, ContainerStatus, PodResources};
use self::when::When;
pub(crate) use self::when::{FieldsRead, NoScheduling, Scheduling};
use super::affinity::{Affinity, Selector};
use super::volumes::PodVolumeWire;
use super::{NodeAddress, NodeCondition, NodeInfo, seconds_since_1970};

mod defaults;
mod quantity;
mod requests;
mod when;

/// The fields of a pod's `spec` that are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound = "R: FieldsRead")]
pub(crate) struct PodSpec<R: FieldsRead> {
    pub(super) node_name: Option<String>,
    pub(super) node_selector: Option<Labels>,
    pub(super) affinity: Option<Affinity>,
    scheduler_name: When<R, String>,
    priority: When<R, i32>,
    preemption_policy: When<R, String>,
    scheduling_gates: When<R, Vec<Named>>,
    containers: When<R, Vec<Container>>,
    init_containers: When<R, Vec<Container>>,
    overhead: When<R, Amounts>,
    resources: When<R, Resources>,
    tolerations: When<R, Vec<WireToleration>>,
    topology_spread_constraints: When<R, Vec<SpreadConstraint>>,
    volumes: When<R, Vec<PodVolumeWire>>,
    resource_claims: When<R, Vec<Named>>,
    scheduling_group: When<R, SchedulingGroup>,
    host_network: When<R, bool>,
    host_users: When<R, bool>,
}

/// The fields of a pod's `status` that are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound = "R: FieldsRead")]
pub(crate) struct PodStatus<R: FieldsRead> {
    pub(super) phase: Option<String>,
    nominated_node_name: When<R, String>,
    start_time: When<R, String>,
    container_statuses: When<R, Vec<ContainerStatus>>,
    init_container_statuses: When<R, Vec<ContainerStatus>>,
    resources: When<R, Resources>,
    allocated_resources: When<R, Amounts>,
    conditions: When<R, Vec<Condition>>,
}

impl PodSpec<Scheduling> {
    /// Its volumes, without the images among them, which are read as images.
    pub(super) fn take_volumes(&mut self) -> Vec<PodVolume> {
        let volumes = self.volumes.0.iter_mut().flatten();
        volumes.flat_map(PodVolumeWire::take_facts).collect()
    }
}

impl PodStatus<Scheduling> {
    pub(super) fn nominated_node(&mut self) -> Option<String> {
        self.nominated_node_name.0.take().filter(|node| !node.is_empty())
    }

    pub(super) fn started_s(&self) -> Option<i64> {
        seconds_since_1970(self.start_time.0.as_deref()?)
    }

    /// A scheduler preempts the pod.
    pub(super) fn is_preempted(&self) -> bool {
        let mut conditions = self.conditions.0.iter().flatten();
        let disrupted = conditions.find(|condition| condition.kind == "DisruptionTarget");
        disrupted.is_some_and(|condition| {
            condition.status.as_deref() == Some("True") && condition.reason.as_deref() == Some("PreemptionByScheduler")
        })
    }
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    #[serde(default)]
    name: String,
    image: Option<String>,
    resources: Option<Resources>,
    ports: Option<Vec<ContainerPort>>,
    restart_policy: Option<String>,
    restart_policy_rules: Option<Vec<RestartRule>>,
}

#[derive(Deserialize)]
struct RestartRule {
    action: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    container_port: Option<i32>,
    host_port: Option<i32>,
    #[serde(rename = "hostIP")]
    host_ip: Option<String>,
    protocol: Option<String>,
}

#[derive(Deserialize)]
struct WireToleration {
    key: Option<String>,
    operator: Option<String>,
    value: Option<String>,
    effect: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpreadConstraint {
    #[serde(default)]
    topology_key: String,
    #[serde(default)]
    max_skew: i32,
    when_unsatisfiable: Option<String>,
    label_selector: Option<Selector>,
    min_domains: Option<i32>,
    node_affinity_policy: Option<String>,
    node_taints_policy: Option<String>,
    match_label_keys: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SchedulingGroup {
    pod_group_name: Option<String>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: Option<String>,
    reason: Option<String>,
}

impl Container {
    fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }

    fn container_requests(&self) -> ContainerRequests<'_> {
        let requests = self.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        ContainerRequests { name: &self.name, requests, is_sidecar: self.is_sidecar() }
    }

    /// Like [`Container::container_requests`], with the limits.
    fn limited(&self) -> ContainerRequests<'_> {
        let limits = self.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        ContainerRequests { requests: limits, ..self.container_requests() }
    }

    fn host_ports(&self) -> impl Iterator<Item = HostPort> {
        let or = |text: &Option<String>, default: &str| match text.as_deref() {
            None | Some("") => default.to_owned(),
            Some(text) => text.to_owned(),
        };
        self.ports.iter().flatten().filter_map(move |port| {
            let host_port = port.host_port.filter(|&number| number > 0)?;
            Some(HostPort {
                ip: or(&port.host_ip, HostPort::EVERY_ADDRESS),
                protocol: or(&port.protocol, "TCP"),
                port: host_port,
            })
        })
    }

    fn restarts_all(&self) -> bool {
        self.restart_policy_rules.iter().flatten().any(|rule| rule.action.as_deref() == Some("RestartAllContainers"))
    }
}

impl WireToleration {
    fn facts(self) -> Option<Toleration> {
        let value = match self.operator.as_deref() {
            None | Some("" | "Equal") => Some(self.value.unwrap_or_default()),
            Some("Exists") => None,
            _ => return None,
        };
        let effect = match self.effect.as_deref() {
            None | Some("") => None,
            Some(effect) => Some(effect_of(effect)?),
        };
        Some(Toleration { key: self.key.unwrap_or_default(), value, effect })
    }
}

fn effect_of(text: &str) -> Option<TaintEffect> {
    match text {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

impl SpreadConstraint {
    /// kube-scheduler adds the values of `matchLabelKeys` itself, although API servers since 1.34 do it too; adding a
    /// value twice does not change the selector. A missing selector stays missing: it matches nothing.
    fn facts(self, labels: &Labels) -> SpreadFacts {
        let mut selector = self.label_selector.and_then(Selector::facts);
        if let Some(selector) = &mut selector {
            for (key, value) in self.match_label_keys.iter().flatten().filter_map(|key| labels.get_key_value(key)) {
                add_pair(selector, key, value);
            }
        }
        SpreadFacts {
            topology_key: self.topology_key,
            max_skew: self.max_skew,
            hard: self.when_unsatisfiable.as_deref() == Some("DoNotSchedule"),
            selector,
            min_domains: self.min_domains.unwrap_or(1),
            honor_node_affinity: self.node_affinity_policy.is_none_or(|policy| policy == "Honor"),
            honor_taints: self.node_taints_policy.is_some_and(|policy| policy == "Honor"),
        }
    }
}

fn add_pair(selector: &mut SelectorFacts, key: &str, value: &str) {
    let pair = RequirementFacts { key: key.to_owned(), operator: Operator::In, values: vec![value.to_owned()] };
    if selector.labels.get(key).is_none_or(|is| is != value) && !selector.expressions.contains(&pair) {
        selector.expressions.push(pair);
    }
}

/// The labels that name a pod's group for the coscheduling plugin, the older one last. All pods of a group start
/// together or not at all.
const GROUP_LABELS: [&str; 2] = ["scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io"];
/// Of a resource name: the rest is the name of a DeviceClass.
const DEVICE_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// An image name without a tag means `latest`. The colon before a registry's port does not start a tag.
fn with_tag(image: &str) -> String {
    if image.rfind(':') <= image.rfind('/') { format!("{image}:latest") } else { image.to_owned() }
}

/// The kind of workload, by the API version and kind of a controller.
pub(super) fn workload_controller(api_version: &str, kind: &str) -> Option<WorkloadKind> {
    match (api_version, kind) {
        ("v1", "ReplicationController") => Some(WorkloadKind::ReplicationController),
        ("apps/v1", "ReplicaSet") => Some(WorkloadKind::ReplicaSet),
        ("apps/v1", "StatefulSet") => Some(WorkloadKind::StatefulSet),
        _ => None,
    }
}

/// The scheduling facts of a pod, which are equal for all pods of a template.
pub(super) fn pod_facts(
    labels: &Labels,
    controller: Option<WorkloadKind>,
    preferred_nodes: Vec<WeightedNodeTerm>,
    mut spec: PodSpec<Scheduling>,
    status: &PodStatus<Scheduling>,
) -> Arc<PodSchedulingFacts> {
    defaults::fill_in(&mut spec);
    let containers = spec.containers.0.unwrap_or_default();
    let init_containers = spec.init_containers.0.unwrap_or_default();
    let volumes = spec.volumes.0.unwrap_or_default();
    let statuses = [&status.container_statuses, &status.init_container_statuses];
    let requests = PodResources {
        containers: containers.iter().map(Container::container_requests).collect(),
        init_containers: init_containers.iter().map(Container::container_requests).collect(),
        pod_level: spec.resources.0.as_ref().and_then(|resources| resources.requests.as_ref()),
        overhead: spec.overhead.0.as_ref(),
        statuses: statuses.into_iter().flat_map(|statuses| statuses.0.iter().flatten()).collect(),
        pod_level_actuated: status.resources.0.as_ref(),
        pod_level_allocated: status.allocated_resources.0.as_ref(),
        resize_infeasible: resize_infeasible(status),
    };
    let all_containers = || init_containers.iter().chain(&containers);
    let images = all_containers().map(|container| container.image.as_deref().unwrap_or_default());
    let image_volumes = volumes.iter().filter_map(PodVolumeWire::image);
    let needs_own_users = spec.host_network.0 == Some(true) && spec.host_users.0 == Some(false);
    let features = [
        ("RestartAllContainersOnContainerExits", all_containers().any(Container::restarts_all)),
        ("UserNamespacesHostNetworkSupport", needs_own_users),
    ];
    let claims = spec.resource_claims.0.unwrap_or_default().into_iter().map(|claim| claim.name);
    let group = spec.scheduling_group.0.map(|group| group.pod_group_name.unwrap_or_default());
    let group = group.or_else(|| GROUP_LABELS.iter().find_map(|key| labels.get(*key).cloned()));
    let unsupported = claims.map(UnsupportedFeature::ResourceClaim);
    let requests = requests.requests();
    // Nodes do not list these: only the allocation of a device can satisfy them.
    let classes = requests.asked.scalar.keys().filter_map(|name| name.strip_prefix(DEVICE_CLASS_PREFIX));
    let classes: Vec<_> = classes.map(|class| UnsupportedFeature::DeviceClass(class.to_owned())).collect();
    Arc::new(PodSchedulingFacts {
        scheduler_name: spec.scheduler_name.0.unwrap_or_else(|| "default-scheduler".to_owned()),
        priority: spec.priority.0.unwrap_or_default(),
        preemption: match spec.preemption_policy.0.as_deref() {
            Some("Never") => PreemptionPolicy::Never,
            _ => PreemptionPolicy::PreemptLowerPriority,
        },
        gates: spec.scheduling_gates.0.unwrap_or_default().into_iter().map(|gate| gate.name).collect(),
        requests,
        host_ports: init_containers
            .iter()
            .filter(|container| container.is_sidecar())
            .chain(&containers)
            .flat_map(Container::host_ports)
            .collect(),
        tolerations: spec.tolerations.0.into_iter().flatten().filter_map(WireToleration::facts).collect(),
        images: images.chain(image_volumes).map(with_tag).collect(),
        container_count: u32::try_from(all_containers().count()).unwrap_or(u32::MAX),
        spread: spec.topology_spread_constraints.0.into_iter().flatten().map(|wire| wire.facts(labels)).collect(),
        preferred_nodes,
        required_features: features.iter().filter(|(_, needed)| *needed).map(|(name, _)| (*name).to_owned()).collect(),
        controller,
        unsupported: unsupported.chain(classes).chain(group.map(UnsupportedFeature::SchedulingGroup)).collect(),
    })
}

fn resize_infeasible(status: &PodStatus<Scheduling>) -> bool {
    let pending = status.conditions.0.iter().flatten().find(|condition| condition.kind == "PodResizePending");
    pending.is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

/// The fields of a node's `spec` that are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound = "R: FieldsRead")]
pub(crate) struct NodeSpec<R: FieldsRead> {
    #[serde(rename = "providerID")]
    pub(super) provider_id: Option<String>,
    taints: When<R, Vec<WireTaint>>,
    unschedulable: When<R, bool>,
}

#[derive(Deserialize)]
struct WireTaint {
    #[serde(default)]
    key: String,
    value: Option<String>,
    #[serde(default)]
    effect: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireImage {
    names: Option<Vec<String>>,
    size_bytes: Option<i64>,
}

/// The fields of a node's `status` that are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound = "R: FieldsRead")]
pub(crate) struct NodeStatus<R: FieldsRead> {
    pub(super) node_info: Option<NodeInfo>,
    pub(super) addresses: Option<Vec<NodeAddress>>,
    pub(super) conditions: Option<Vec<NodeCondition>>,
    allocatable: When<R, Amounts>,
    images: When<R, Vec<WireImage>>,
    declared_features: When<R, Vec<String>>,
}

pub(super) fn node_facts(spec: NodeSpec<Scheduling>, status: &mut NodeStatus<Scheduling>) -> Arc<NodeSchedulingFacts> {
    let allocatable = status.allocatable.0.take().unwrap_or_default();
    let taints = spec.taints.0.into_iter().flatten().filter_map(|taint| {
        Some(Taint { effect: effect_of(&taint.effect)?, key: taint.key, value: taint.value.unwrap_or_default() })
    });
    let images = status.images.0.take().into_iter().flatten().map(|image| NodeImage {
        names: image.names.unwrap_or_default(),
        size_bytes: image.size_bytes.unwrap_or_default(),
    });
    Arc::new(NodeSchedulingFacts {
        allocatable: requests::sums(&allocatable),
        allowed_pods: requests::pods(&allocatable),
        taints: taints.collect(),
        unschedulable: spec.unschedulable.0.unwrap_or_default(),
        images: images.collect(),
        declared_features: status.declared_features.0.take().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
