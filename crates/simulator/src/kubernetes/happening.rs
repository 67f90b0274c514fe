//! Chronicle entries, derived from the changes of objects.
//!
//! Because they are derived from the store, the author of a change does not matter: a pod bound by the placer, by
//! Bridger's scheduler or by an administrator gives the same line. Only evictions are reported by the component that
//! evicts, because it knows the reason.

use std::fmt;

use serde_json::Value;

use super::condition;
use super::json::text;
use super::kinds::KindId;
use super::pod;
use super::store::{Change, ChangeType};

/// Namespaced objects appear as `namespace/name`.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    NodeRegistered { node: String, ready: bool },
    NodeReady { node: String },
    NodeNotReady { node: String, why: String },
    NodeCordoned { node: String, cordoned: bool },
    NodeDeleted { node: String },
    PodBound { pod: String, node: String },
    PodRunning { pod: String, node: String },
    PodFinished { pod: String, phase: String },
    PodDeleted { pod: String, node: String },
    PodEvicted { pod: String, node: String, why: String },
    DeploymentScaled { deployment: String, from: i64, to: i64 },
    DeploymentRolledOut { deployment: String, revision: String },
    StatefulSetScaled { stateful_set: String, from: i64, to: i64 },
    NamespaceDeleted { namespace: String },
    ClaimBound { claim: String, volume: String },
    ClaimLost { claim: String },
    VolumeAttached { volume: String, node: String },
    VolumeDetached { volume: String, node: String },
    VolumeDeleted { volume: String },
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::NodeRegistered { node, ready: true } => write!(f, "node {node} registered, ready"),
            Happening::NodeRegistered { node, ready: false } => write!(f, "node {node} registered"),
            Happening::NodeReady { node } => write!(f, "node {node} is ready"),
            Happening::NodeNotReady { node, why } => write!(f, "node {node} is not ready: {why}"),
            Happening::NodeCordoned { node, cordoned: true } => write!(f, "node {node} cordoned"),
            Happening::NodeCordoned { node, cordoned: false } => write!(f, "node {node} uncordoned"),
            Happening::NodeDeleted { node } => write!(f, "node {node} deleted"),
            Happening::PodBound { pod, node } => write!(f, "pod {pod} bound to {node}"),
            Happening::PodRunning { pod, node } => write!(f, "pod {pod} is running on {node}"),
            Happening::PodFinished { pod, phase } => write!(f, "pod {pod} finished: {phase}"),
            Happening::PodDeleted { pod, node } if node.is_empty() => write!(f, "pod {pod} deleted"),
            Happening::PodDeleted { pod, node } => write!(f, "pod {pod} deleted from {node}"),
            Happening::PodEvicted { pod, node, why } => write!(f, "pod {pod} evicted from {node}: {why}"),
            Happening::DeploymentScaled { deployment, from, to } => {
                write!(f, "deployment {deployment} scaled from {from} to {to}")
            }
            Happening::DeploymentRolledOut { deployment, revision } => {
                write!(f, "deployment {deployment} rolled out revision {revision}")
            }
            Happening::StatefulSetScaled { stateful_set, from, to } => {
                write!(f, "statefulset {stateful_set} scaled from {from} to {to}")
            }
            Happening::NamespaceDeleted { namespace } => write!(f, "namespace {namespace} deleted"),
            Happening::ClaimBound { claim, volume } => write!(f, "claim {claim} bound to volume {volume}"),
            Happening::ClaimLost { claim } => write!(f, "claim {claim} has lost its volume"),
            Happening::VolumeAttached { volume, node } => write!(f, "volume {volume} attached to {node}"),
            Happening::VolumeDetached { volume, node } => write!(f, "volume {volume} detached from {node}"),
            Happening::VolumeDeleted { volume } => write!(f, "volume {volume} deleted"),
        }
    }
}

pub(crate) fn full_name(object: &Value) -> String {
    let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// The events that a change of an object means. Most changes mean none.
pub(crate) fn read_off(change: &Change, happenings: &mut Vec<Happening>) {
    match change.kind {
        KindId::NODE => node(change, happenings),
        KindId::POD => pod_change(change, happenings),
        KindId::DEPLOYMENT => deployment(change, happenings),
        KindId::STATEFUL_SET => {
            if let Some((from, to)) = scaled(change) {
                happenings.push(Happening::StatefulSetScaled { stateful_set: full_name(&change.object), from, to });
            }
        }
        KindId::NAMESPACE if change.change_type == ChangeType::Deleted => {
            happenings.push(Happening::NamespaceDeleted { namespace: full_name(&change.object) });
        }
        KindId::PERSISTENT_VOLUME if change.change_type == ChangeType::Deleted => {
            happenings.push(Happening::VolumeDeleted { volume: full_name(&change.object) });
        }
        KindId::PERSISTENT_VOLUME_CLAIM if change.change_type == ChangeType::Modified => claim(change, happenings),
        KindId::VOLUME_ATTACHMENT => attachment(change, happenings),
        _ => (),
    }
}

fn node(change: &Change, happenings: &mut Vec<Happening>) {
    let name = || full_name(&change.object);
    let ready = condition::is_true(&change.object, "Ready");
    let before = match (&change.before, change.change_type) {
        (_, ChangeType::Deleted) => return happenings.push(Happening::NodeDeleted { node: name() }),
        (None, _) => return happenings.push(Happening::NodeRegistered { node: name(), ready }),
        (Some(before), _) => before,
    };
    let was_ready = condition::is_true(before, "Ready");
    if ready && !was_ready {
        happenings.push(Happening::NodeReady { node: name() });
    } else if was_ready && !ready {
        let why = condition::find(&change.object, "Ready").map_or("", |ready| text(&ready["reason"])).to_owned();
        happenings.push(Happening::NodeNotReady { node: name(), why });
    }
    let cordoned = |node: &Value| node["spec"]["unschedulable"] == true;
    if cordoned(before) != cordoned(&change.object) {
        happenings.push(Happening::NodeCordoned { node: name(), cordoned: cordoned(&change.object) });
    }
}

fn pod_change(change: &Change, happenings: &mut Vec<Happening>) {
    let pod = || full_name(&change.object);
    let node = || pod::node_name(&change.object).to_owned();
    if change.change_type == ChangeType::Deleted {
        return happenings.push(Happening::PodDeleted { pod: pod(), node: node() });
    }
    let null = Value::Null;
    let before = change.before.as_deref().unwrap_or(&null);
    if pod::node_name(before).is_empty() && !pod::node_name(&change.object).is_empty() {
        happenings.push(Happening::PodBound { pod: pod(), node: node() });
    }
    if !pod::is_running(before) && pod::is_running(&change.object) {
        happenings.push(Happening::PodRunning { pod: pod(), node: node() });
    }
    if !pod::is_finished(before) && pod::is_finished(&change.object) {
        let phase = text(&change.object["status"]["phase"]).to_owned();
        happenings.push(Happening::PodFinished { pod: pod(), phase });
    }
}

fn deployment(change: &Change, happenings: &mut Vec<Happening>) {
    if let Some((from, to)) = scaled(change) {
        happenings.push(Happening::DeploymentScaled { deployment: full_name(&change.object), from, to });
    }
    let done = |deployment: &Value| {
        condition::find(deployment, "Progressing").is_some_and(|known| known["reason"] == "NewReplicaSetAvailable")
    };
    if let Some(before) = &change.before
        && change.change_type == ChangeType::Modified
        && done(&change.object)
        && !done(before)
    {
        let revision = text(&change.object["metadata"]["annotations"]["deployment.kubernetes.io/revision"]).to_owned();
        happenings.push(Happening::DeploymentRolledOut { deployment: full_name(&change.object), revision });
    }
}

fn claim(change: &Change, happenings: &mut Vec<Happening>) {
    let phase = |claim: &Value| text(&claim["status"]["phase"]).to_owned();
    let is = phase(&change.object);
    if change.before.as_deref().is_some_and(|before| phase(before) == is) {
        return;
    }
    let claim = full_name(&change.object);
    match is.as_str() {
        "Bound" => {
            let volume = text(&change.object["spec"]["volumeName"]).to_owned();
            happenings.push(Happening::ClaimBound { claim, volume });
        }
        "Lost" => happenings.push(Happening::ClaimLost { claim }),
        _ => (),
    }
}

fn attachment(change: &Change, happenings: &mut Vec<Happening>) {
    let attached = |attachment: &Value| attachment["status"]["attached"] == true;
    let spec = &change.object["spec"];
    let volume = text(&spec["source"]["persistentVolumeName"]).to_owned();
    let node = text(&spec["nodeName"]).to_owned();
    let was = change.before.as_deref().is_some_and(attached);
    let is = change.change_type != ChangeType::Deleted && attached(&change.object);
    match (was, is) {
        (false, true) => happenings.push(Happening::VolumeAttached { volume, node }),
        (true, false) => happenings.push(Happening::VolumeDetached { volume, node }),
        _ => (),
    }
}

fn scaled(change: &Change) -> Option<(i64, i64)> {
    if change.change_type != ChangeType::Modified {
        return None;
    }
    let replicas = |object: &Value| object["spec"]["replicas"].as_i64().unwrap_or(1);
    let (from, to) = (replicas(change.before.as_deref()?), replicas(&change.object));
    (from != to).then_some((from, to))
}
