//! The cluster as an observer outside sees it: what the two servers hold, read without Bridger's code or the simulator's.
//!
//! In: objects of the API as JSON, and the hosts of the nodes' VMs. Out: facts that the checks need. A form that these
//! tests do not use is an error, so that no term is overlooked.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub const HOSTNAME: &str = "kubernetes.io/hostname";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

pub type Labels = BTreeMap<String, String>;

/// A required term between pods: pods with these labels in the same topology domain, in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub topology_key: String,
    pub labels: Labels,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    key: String,
    value: String,
    effect: String,
    exists: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

/// A label and the values that are allowed.
pub type OneOf = (String, Vec<String>);

#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    pub uid: String,
    pub namespace: String,
    /// With its namespace.
    pub name: String,
    pub labels: Labels,
    pub priority: i64,
    pub node: Option<String>,
    pub nominated: Option<String>,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub selector: Labels,
    pub node_affinity: Vec<OneOf>,
    pub tolerations: Vec<Toleration>,
    pub affinity: Vec<Term>,
    pub anti_affinity: Vec<Term>,
    /// With their namespaces.
    pub claims: Vec<String>,
    pub is_terminating: bool,
    pub is_finished: bool,
    /// Why it is pending, as its condition says.
    pub reason: Option<String>,
    /// A scheduler evicts it for another pod.
    pub is_preempted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub pods_max: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub uid: String,
    pub volume: Option<String>,
    pub is_bound: bool,
    pub class: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Of the claim that it is reserved for or bound to.
    pub claim_uid: Option<String>,
    pub class: String,
    pub is_available: bool,
    pub node_affinity: Vec<OneOf>,
}

/// The host of a node's VM, the last one if it is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    /// In maintenance or not connected.
    pub refuses: bool,
    /// On its way there.
    pub may_refuse: bool,
    pub is_off: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// By namespace and name, as claims.
    pub pods: BTreeMap<String, Arc<Pod>>,
    pub nodes: BTreeMap<String, Arc<Node>>,
    pub claims: BTreeMap<String, Arc<Claim>>,
    pub volumes: BTreeMap<String, Arc<Volume>>,
    /// Classes whose volumes are created by hand.
    pub static_classes: Arc<Vec<String>>,
    /// By node.
    pub hosts: Arc<BTreeMap<String, Host>>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn filled(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn labels(value: &Value) -> Labels {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

/// `namespace/name`.
pub fn name_of(object: &Value) -> String {
    format!("{}/{}", text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    items(&object["status"]["conditions"]).iter().find(|condition| condition["type"] == type_)
}

/// A quantity in thousandths, in the forms that these tests and the simulator use.
fn milli(quantity: &Value) -> i64 {
    let text = quantity.as_str().unwrap_or("0");
    let (number, factor) = [("m", 1), ("Ki", 1000 << 10), ("Mi", 1000 << 20), ("Gi", 1000 << 30)]
        .iter()
        .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))
        .unwrap_or((text, 1000));
    number.parse::<i64>().unwrap_or_else(|_| panic!("the quantity {text:?}")) * factor
}

fn terms(affinity: &Value) -> Vec<Term> {
    let term = |term: &Value| {
        assert!(term["labelSelector"]["matchExpressions"].is_null() && term["namespaces"].is_null(), "{term}");
        Term { topology_key: text(&term["topologyKey"]), labels: labels(&term["labelSelector"]["matchLabels"]) }
    };
    items(&affinity[REQUIRED]).iter().map(term).collect()
}

/// The single term of a node affinity.
fn one_of(required: &Value) -> Vec<OneOf> {
    let terms = items(&required["nodeSelectorTerms"]);
    assert!(terms.len() <= 1, "{required}");
    let expressions = terms.iter().flat_map(|term| items(&term["matchExpressions"]));
    let read = |expression: &Value| {
        assert_eq!(expression["operator"], "In", "{expression}");
        (text(&expression["key"]), items(&expression["values"]).iter().map(text).collect())
    };
    expressions.map(read).collect()
}

impl Pod {
    pub fn read(object: &Value) -> Pod {
        let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
        let namespace = text(&metadata["namespace"]);
        let requests = |resource: &str| -> i64 {
            items(&spec["containers"])
                .iter()
                .map(|container| milli(&container["resources"]["requests"][resource]))
                .sum()
        };
        let affinity = &spec["affinity"];
        let claims = items(&spec["volumes"]).iter();
        let claims = claims.filter_map(|volume| filled(&volume["persistentVolumeClaim"]["claimName"]));
        let scheduled = condition(object, "PodScheduled").filter(|condition| condition["status"] == "False");
        let preempted = condition(object, "DisruptionTarget");
        Pod {
            uid: text(&metadata["uid"]),
            name: name_of(object),
            labels: labels(&metadata["labels"]),
            priority: spec["priority"].as_i64().unwrap_or(0),
            node: filled(&spec["nodeName"]),
            nominated: filled(&status["nominatedNodeName"]),
            cpu_milli: requests("cpu"),
            memory_bytes: requests("memory") / 1000,
            selector: labels(&spec["nodeSelector"]),
            node_affinity: one_of(&affinity["nodeAffinity"][REQUIRED]),
            tolerations: items(&spec["tolerations"]).iter().map(Toleration::read).collect(),
            affinity: terms(&affinity["podAffinity"]),
            anti_affinity: terms(&affinity["podAntiAffinity"]),
            claims: claims.map(|claim| format!("{namespace}/{claim}")).collect(),
            is_terminating: metadata["deletionTimestamp"].is_string(),
            is_finished: matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")),
            reason: scheduled.and_then(|condition| filled(&condition["message"])),
            is_preempted: preempted.is_some_and(|condition| condition["reason"] == "PreemptionByScheduler"),
            namespace,
        }
    }

    /// It waits for a node.
    pub fn is_pending(&self) -> bool {
        self.node.is_none() && !self.is_terminating && !self.is_finished
    }

    /// The node that it takes room on.
    pub fn bound_to(&self) -> Option<&str> {
        self.node.as_deref().filter(|_| !self.is_finished)
    }

    /// The node that is kept free for it.
    pub fn reserved(&self) -> Option<&str> {
        self.nominated.as_deref().filter(|_| self.is_pending())
    }

    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.covers(taint))
    }
}

impl Toleration {
    fn read(toleration: &Value) -> Toleration {
        let field = |name: &str| text(&toleration[name]);
        let exists = toleration["operator"] == "Exists";
        Toleration { key: field("key"), value: field("value"), effect: field("effect"), exists }
    }

    fn covers(&self, taint: &Taint) -> bool {
        let is_key = self.key == taint.key || self.key.is_empty() && self.exists;
        let is_effect = self.effect.is_empty() || self.effect == taint.effect;
        is_key && is_effect && (self.exists || self.value == taint.value)
    }
}

impl Node {
    pub fn read(object: &Value) -> Node {
        let read = |taint: &Value| Taint {
            key: text(&taint["key"]),
            value: text(&taint["value"]),
            effect: text(&taint["effect"]),
        };
        let mut taints: Vec<Taint> = items(&object["spec"]["taints"]).iter().map(read).collect();
        if object["spec"]["unschedulable"] == true {
            let key = "node.kubernetes.io/unschedulable".to_owned();
            taints.push(Taint { key, value: String::new(), effect: "NoSchedule".to_owned() });
        }
        let allocatable = &object["status"]["allocatable"];
        Node {
            labels: labels(&object["metadata"]["labels"]),
            taints,
            cpu_milli: milli(&allocatable["cpu"]),
            memory_bytes: milli(&allocatable["memory"]) / 1000,
            pods_max: usize::try_from(milli(&allocatable["pods"]) / 1000).unwrap_or(0),
        }
    }
}

impl Claim {
    pub fn read(object: &Value) -> Claim {
        Claim {
            uid: text(&object["metadata"]["uid"]),
            volume: filled(&object["spec"]["volumeName"]),
            is_bound: object["status"]["phase"] == "Bound",
            class: text(&object["spec"]["storageClassName"]),
        }
    }
}

impl Volume {
    pub fn read(object: &Value) -> Volume {
        Volume {
            claim_uid: filled(&object["spec"]["claimRef"]["uid"]),
            class: text(&object["spec"]["storageClassName"]),
            is_available: object["status"]["phase"] == "Available",
            node_affinity: one_of(&object["spec"]["nodeAffinity"]["required"]),
        }
    }
}
