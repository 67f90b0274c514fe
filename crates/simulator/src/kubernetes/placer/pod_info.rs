//! The pod properties that the placer needs, computed once per version of the pod.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::node_affinity::NodeAffinity;
use super::resources::PodRequest;
use crate::kubernetes::json::{count, items, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::label_selector::LabelSelector;
use crate::kubernetes::pod;
use crate::kubernetes::store::{ObjectKey, Store};
use crate::kubernetes::taints::Toleration;

/// A host port of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostPort {
    pub address: String,
    pub protocol: String,
    pub port: i64,
}

impl HostPort {
    /// The same port and protocol, on the same address or if either uses all addresses.
    pub(crate) fn clashes(&self, other: &HostPort) -> bool {
        const ALL: &str = "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || self.address == ALL || other.address == ALL)
    }
}

/// A pod affinity or anti-affinity term.
#[derive(Clone, Debug)]
pub(crate) struct AffinityTerm {
    selector: Option<LabelSelector>,
    namespaces: BTreeSet<String>,
    namespace_selector: Option<LabelSelector>,
    pub topology_key: String,
}

impl AffinityTerm {
    fn parse(term: &Value, own_namespace: &str) -> AffinityTerm {
        let mut namespaces: BTreeSet<String> =
            items(&term["namespaces"]).iter().map(|name| text(name).to_owned()).collect();
        // A selector that cannot be parsed is not a missing one: it means no namespace, not the pod's own.
        if namespaces.is_empty() && term["namespaceSelector"].is_null() {
            namespaces.insert(own_namespace.to_owned());
        }
        AffinityTerm {
            selector: LabelSelector::from_object(&term["labelSelector"]),
            namespaces,
            namespace_selector: LabelSelector::from_object(&term["namespaceSelector"]),
            topology_key: text(&term["topologyKey"]).to_owned(),
        }
    }

    /// Whether the term matches this pod. A missing label selector matches no pod.
    pub(crate) fn matches(&self, store: &Store, pod: &PodInfo) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.matches(&pod.object["metadata"]["labels"]))
            && (self.namespaces.contains(&pod.key.namespace)
                || self.namespace_selector.as_ref().is_some_and(|selector| {
                    let labels = store
                        .get(KindId::NAMESPACE, "", &pod.key.namespace)
                        .map_or(&Value::Null, |namespace| &namespace["metadata"]["labels"]);
                    selector.matches(labels)
                }))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct WeightedTerm {
    pub weight: i64,
    pub term: AffinityTerm,
}

#[derive(Clone, Debug)]
pub(crate) struct PodInfo {
    pub object: Arc<Value>,
    pub key: ObjectKey,
    pub node: String,
    pub priority: i64,
    pub request: PodRequest,
    pub tolerations: Vec<Toleration>,
    pub node_affinity: NodeAffinity,
    pub required_affinity: Vec<AffinityTerm>,
    pub required_anti_affinity: Vec<AffinityTerm>,
    pub preferred_affinity: Vec<WeightedTerm>,
    pub preferred_anti_affinity: Vec<WeightedTerm>,
    pub host_ports: Vec<HostPort>,
    pub has_claims: bool,
}

impl PodInfo {
    pub(crate) fn of(object: &Arc<Value>) -> PodInfo {
        let key = ObjectKey::of(object);
        let affinity = &object["spec"]["affinity"];
        let required = |kind: &str| -> Vec<AffinityTerm> {
            items(&affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"])
                .iter()
                .map(|term| AffinityTerm::parse(term, &key.namespace))
                .collect()
        };
        let preferred = |kind: &str| -> Vec<WeightedTerm> {
            items(&affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"])
                .iter()
                .map(|preferred| WeightedTerm {
                    weight: count(&preferred["weight"], 0),
                    term: AffinityTerm::parse(&preferred["podAffinityTerm"], &key.namespace),
                })
                .collect()
        };
        PodInfo {
            node: pod::node_name(object).to_owned(),
            priority: object["spec"]["priority"].as_i64().unwrap_or(0),
            request: PodRequest::of(object),
            tolerations: Toleration::of_pod(object),
            node_affinity: NodeAffinity::of_pod(object),
            required_affinity: required("podAffinity"),
            required_anti_affinity: required("podAntiAffinity"),
            preferred_affinity: preferred("podAffinity"),
            preferred_anti_affinity: preferred("podAntiAffinity"),
            host_ports: host_ports(object),
            has_claims: !pod::claim_names(object).is_empty(),
            key,
            object: object.clone(),
        }
    }

    /// Whether its terms affect the score of other pods.
    pub(crate) fn has_affinity(&self) -> bool {
        !(self.required_affinity.is_empty()
            && self.preferred_affinity.is_empty()
            && self.preferred_anti_affinity.is_empty())
    }
}

fn host_ports(pod: &Value) -> Vec<HostPort> {
    let mut ports = Vec::new();
    let sidecars = items(&pod["spec"]["initContainers"]).iter().filter(|init| init["restartPolicy"] == "Always");
    for container in items(&pod["spec"]["containers"]).iter().chain(sidecars) {
        for port in items(&container["ports"]) {
            let number = port["hostPort"].as_i64().unwrap_or(0);
            if number > 0 {
                let or = |field: &str, default: &str| {
                    Some(text(&port[field])).filter(|value| !value.is_empty()).unwrap_or(default).to_owned()
                };
                ports.push(HostPort {
                    address: or("hostIP", "0.0.0.0"),
                    protocol: or("protocol", "TCP"),
                    port: number,
                });
            }
        }
    }
    ports
}
