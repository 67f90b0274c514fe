//! What a scheduler must know about pods and nodes besides their location: requests, ports, tolerations, images,
//! taints.
//!
//! In: nothing; adapters fill these in. Out: plain data, part of [`crate::event::PodFacts`] and
//! [`crate::event::NodeFacts`].
//!
//! Invariants: the adapter computes sums when it reads the API object, exactly as kube-scheduler 1.36 does, so that
//! nothing here depends on containers. What pods of one template share is one value, compared and hashed as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::event::{Labels, NodeTermFacts, SelectorFacts};

/// What a scheduler reads from a pod. All of it comes from the pod's template, except for a resize in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodSchedulingFacts {
    pub scheduler_name: String,
    pub priority: i32,
    pub preemption: PreemptionPolicy,
    /// The names of its scheduling gates.
    pub gates: Vec<String>,
    pub requests: PodRequests,
    /// The host ports it uses, in the order of its containers.
    pub host_ports: Vec<HostPort>,
    pub tolerations: Vec<Toleration>,
    /// The images of its init containers, containers and image volumes, each with a tag. An image used twice is listed
    /// twice.
    pub images: Vec<String>,
    /// Init containers and containers together.
    pub container_count: u32,
    pub spread: Vec<SpreadFacts>,
    /// Preferred node affinity.
    pub preferred_nodes: Vec<WeightedNodeTerm>,
    /// The names of the features that its node must declare.
    pub required_features: Vec<String>,
    /// The kind of its controller, if the controller's selector identifies its siblings. The name is in
    /// `PodFacts::owner`.
    pub controller: Option<WorkloadKind>,
    /// What it requires but this scheduler does not support.
    pub unsupported: Vec<UnsupportedFeature>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PreemptionPolicy {
    #[default]
    PreemptLowerPriority,
    Never,
}

/// Amounts of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceSums {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub ephemeral_storage_bytes: i64,
    /// Extended resources, huge pages and attachable volumes by name; none of them is 0.
    pub scalar: BTreeMap<String, i64>,
}

/// A pod's requests, in the four ways kube-scheduler counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodRequests {
    /// What a node must have free: from the spec only, with pod-level requests.
    pub asked: ResourceSums,
    /// What it uses on its node once placed, and what balancing counts: at least what is allocated and actuated.
    pub taken: ResourceSums,
    /// What it uses for scores: `taken`, with defaults for containers without CPU or memory requests.
    pub taken_non_zero: NonZeroSums,
    /// What the NodeResourcesFit score counts for an incoming pod: with those defaults, without pod-level requests.
    pub scored: ResourceSums,
}

/// CPU and memory, where a container without a request counts as 100m and 200 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NonZeroSums {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
}

/// A host port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// As written; `0.0.0.0`, which means every address, if none is given.
    pub ip: String,
    pub protocol: String,
    pub port: i32,
}

impl HostPort {
    pub const EVERY_ADDRESS: &'static str = "0.0.0.0";

    /// Whether the two ports cannot be used on one node at the same time.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let same_address = self.ip == other.ip || self.ip == Self::EVERY_ADDRESS || other.ip == Self::EVERY_ADDRESS;
        self.port == other.port && self.protocol == other.protocol && same_address
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: TaintEffect,
}

impl fmt::Display for Taint {
    /// The format of kube-scheduler's reasons: `{key: value}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}: {}}}", self.key, self.value)
    }
}

/// A toleration of a pod. Tolerations that compare numbers are left out: kube-scheduler ignores them by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Toleration {
    /// Empty means all keys.
    pub key: String,
    /// `None` means all values.
    pub value: Option<String>,
    /// `None` means all effects.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WeightedNodeTerm {
    pub weight: i32,
    pub term: NodeTermFacts,
}

/// One topology spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpreadFacts {
    pub topology_key: String,
    pub max_skew: i32,
    /// Hard: a pod that would exceed the skew stays pending. Soft otherwise.
    pub hard: bool,
    /// `None` counts no pod. Includes the keys of `matchLabelKeys` that the pod has.
    pub selector: Option<SelectorFacts>,
    /// 1 if not given.
    pub min_domains: i32,
    /// Nodes that the pod's node affinity excludes are not part of any domain.
    pub honor_node_affinity: bool,
    /// Nodes whose taints the pod does not tolerate are not part of any domain.
    pub honor_taints: bool,
}

/// A feature a pod requires but this scheduler does not support; a pod with one is never placed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UnsupportedFeature {
    ResourceClaim(String),
    SchedulingGroup(String),
    /// A device of a DeviceClass, requested as an extended resource by the name of the class.
    DeviceClass(String),
}

impl fmt::Display for UnsupportedFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ResourceClaim(name) => write!(f, "resource claim {name:?}"),
            Self::SchedulingGroup(name) => write!(f, "scheduling group {name:?}"),
            Self::DeviceClass(name) => write!(f, "a device of the DeviceClass {name:?} (dynamic resource allocation)"),
        }
    }
}

/// What a scheduler reads from a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSchedulingFacts {
    pub allocatable: ResourceSums,
    /// The maximum number of pods.
    pub allowed_pods: i64,
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    pub images: Vec<NodeImage>,
    /// `status.declaredFeatures`.
    pub declared_features: Vec<String>,
}

impl NodeSchedulingFacts {
    #[must_use]
    pub(crate) fn without_images(&self) -> Self {
        Self {
            allocatable: self.allocatable.clone(),
            allowed_pods: self.allowed_pods,
            taints: self.taints.clone(),
            unschedulable: self.unschedulable,
            images: Vec::new(),
            declared_features: self.declared_features.clone(),
        }
    }
}

/// An image that a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeImage {
    pub names: Vec<String>,
    pub size_bytes: i64,
}

/// The kinds of objects whose selectors identify sibling pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadKind {
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
}

impl WorkloadKind {
    pub const ALL: [Self; 4] = [Self::Service, Self::ReplicationController, Self::ReplicaSet, Self::StatefulSet];
}

/// An object that selects pods, trimmed to its selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadFacts {
    pub kind: WorkloadKind,
    pub namespace: String,
    pub name: String,
    /// `None` selects nothing.
    pub selector: Option<SelectorFacts>,
}

impl WorkloadFacts {
    /// A selector made of labels only, as in Services and ReplicationControllers.
    pub fn by_labels(labels: Option<Labels>) -> Option<SelectorFacts> {
        labels.map(|labels| SelectorFacts { labels, ..SelectorFacts::default() })
    }
}

/// A PodDisruptionBudget, trimmed to what preemption reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisruptionBudgetFacts {
    pub namespace: String,
    pub name: String,
    /// `None` selects nothing; an empty selector selects every pod of the namespace.
    pub selector: Option<SelectorFacts>,
    /// How many of its pods may be evicted now.
    pub disruptions_allowed: i32,
    /// The names of pods whose eviction the budget already counts.
    pub disrupted_pods: BTreeSet<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: &str, effect: TaintEffect) -> Taint {
        Taint { key: key.to_owned(), value: value.to_owned(), effect }
    }

    #[test]
    fn tolerations_match_as_in_kubernetes() {
        use TaintEffect::{NoExecute, NoSchedule};
        let toleration = |key: &str, value: Option<&str>, effect| Toleration {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            effect,
        };
        // The toleration, and whether it tolerates a=1:NoSchedule, a=2:NoExecute, b=:NoSchedule.
        let cases = [
            (toleration("", None, None), [true, true, true]),
            (toleration("", None, Some(NoExecute)), [false, true, false]),
            (toleration("a", None, None), [true, true, false]),
            (toleration("a", Some("1"), None), [true, false, false]),
            (toleration("a", Some(""), None), [false, false, false]),
            (toleration("b", Some(""), Some(NoSchedule)), [false, false, true]),
        ];
        for (toleration, expected) in cases {
            let taints = [taint("a", "1", NoSchedule), taint("a", "2", NoExecute), taint("b", "", NoSchedule)];
            assert_eq!(taints.map(|taint| toleration.tolerates(&taint)), expected, "{toleration:?}");
        }
    }

    #[test]
    fn only_the_ipv4_wildcard_means_every_address() {
        let port = |ip: &str, protocol: &str, port| HostPort { ip: ip.to_owned(), protocol: protocol.to_owned(), port };
        let cases = [
            (port("0.0.0.0", "TCP", 80), port("10.0.0.1", "TCP", 80), true),
            (port("10.0.0.1", "TCP", 80), port("10.0.0.1", "TCP", 80), true),
            (port("10.0.0.1", "TCP", 80), port("10.0.0.2", "TCP", 80), false),
            (port("::", "TCP", 80), port("10.0.0.1", "TCP", 80), false),
            (port("::", "TCP", 80), port("0.0.0.0", "TCP", 80), true),
            (port("0.0.0.0", "UDP", 80), port("0.0.0.0", "TCP", 80), false),
            (port("0.0.0.0", "TCP", 81), port("0.0.0.0", "TCP", 80), false),
        ];
        for (a, b, expected) in cases {
            assert_eq!((a.conflicts_with(&b), b.conflicts_with(&a)), (expected, expected), "{a:?} {b:?}");
        }
    }
}
