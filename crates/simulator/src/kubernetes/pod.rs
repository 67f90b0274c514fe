//! Pod properties that the controllers, the kubelet and the placer all need.

use std::time::Duration;

use serde_json::Value;

use super::condition;
use super::json::{items, moment, text};
use super::kinds::KindId;
use super::store::ObjectKey;
use crate::clock::SimTime;

pub(crate) fn node_name(pod: &Value) -> &str {
    text(&pod["spec"]["nodeName"])
}

pub(crate) fn uid(object: &Value) -> &str {
    text(&object["metadata"]["uid"])
}

pub(crate) fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Succeeded or Failed: the pod will not run again.
pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed")
}

/// Whether the pod counts towards its controller's replicas.
pub(crate) fn is_active(pod: &Value) -> bool {
    !is_finished(pod) && !is_terminating(pod)
}

pub(crate) fn is_running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    condition::is_true(pod, "Ready")
}

pub(crate) fn ready_since(pod: &Value) -> Option<SimTime> {
    condition::find(pod, "Ready")
        .filter(|ready| ready["status"] == "True")
        .and_then(|ready| moment(&ready["lastTransitionTime"]))
}

/// When the pod becomes available: ready for `min_ready_seconds`. `None` if it is not ready.
pub(crate) fn available_from(pod: &Value, min_ready_seconds: u64) -> Option<SimTime> {
    let since = ready_since(pod)?;
    Some(since.after(Duration::from_secs(min_ready_seconds)))
}

/// The names of the claims that the pod's volumes use, in its namespace. An ephemeral volume's claim is named after
/// pod and volume.
pub(crate) fn claim_names(pod: &Value) -> Vec<String> {
    let name = text(&pod["metadata"]["name"]);
    items(&pod["spec"]["volumes"])
        .iter()
        .filter_map(|volume| match volume["persistentVolumeClaim"]["claimName"].as_str() {
            Some(claim) => Some(claim.to_owned()),
            None if volume["ephemeral"].is_object() => Some(format!("{name}-{}", text(&volume["name"]))),
            None => None,
        })
        .collect()
}

pub(crate) fn is_controlled_by(object: &Value, owner_uid: &str) -> bool {
    items(&object["metadata"]["ownerReferences"])
        .iter()
        .any(|owner| owner["controller"] == true && text(&owner["uid"]) == owner_uid)
}

/// The owner that controls the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Controller {
    pub kind: KindId,
    pub key: ObjectKey,
    pub uid: String,
}

/// The controlling owner, if the simulator knows its kind.
pub(crate) fn controller_of(object: &Value) -> Option<Controller> {
    let reference = items(&object["metadata"]["ownerReferences"]).iter().find(|owner| owner["controller"] == true)?;
    let kind = KindId::of_object(reference)?;
    let namespace = if kind.kind().namespaced { text(&object["metadata"]["namespace"]) } else { "" };
    Some(Controller {
        kind,
        key: ObjectKey::new(namespace, text(&reference["name"])),
        uid: text(&reference["uid"]).to_owned(),
    })
}
