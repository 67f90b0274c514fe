//! `pods/binding`: assigns a node to a pod, once.

use serde_json::{Value, json};

use crate::clock::SimTime;
use crate::kubernetes::condition::{self, State};
use crate::kubernetes::error::{ApiError, FieldError};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::store::Store;

/// Applies a `Binding`. As in a real server, the node need not exist.
pub fn bind(
    store: &mut Store,
    namespace: &str,
    pod_name: &str,
    binding: &Value,
    dry_run: bool,
    now: SimTime,
) -> Result<(), ApiError> {
    check(namespace, pod_name, binding)?;
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    let conflict =
        |why: String| ApiError::Conflict { resource: "pods/binding".to_owned(), name: pod_name.to_owned(), why };
    let Some(pod) = store.get(KindId::POD, namespace, pod_name).cloned() else {
        return Err(ApiError::NotFound { resource: "pods".to_owned(), name: pod_name.to_owned() });
    };
    for (field, called) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let wanted = binding["metadata"][field].as_str().unwrap_or_default();
        let actual = pod["metadata"][field].as_str().unwrap_or_default();
        if !wanted.is_empty() && wanted != actual {
            return Err(ApiError::Conflict {
                resource: "pods".to_owned(),
                name: pod_name.to_owned(),
                why: format!(
                    "Precondition failed: {called} in precondition: {wanted}, {called} in object meta: {actual}"
                ),
            });
        }
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return Err(conflict(format!("pod {pod_name} is being deleted, cannot be assigned to a host")));
    }
    let bound_to = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if !bound_to.is_empty() {
        return Err(conflict(format!("pod {pod_name} is already assigned to node {bound_to:?}")));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return Err(conflict(format!("pod {pod_name} has non-empty .spec.schedulingGates")));
    }
    if dry_run {
        return Ok(());
    }
    store.edit(KindId::POD, namespace, pod_name, |pod| {
        pod["spec"]["nodeName"] = json!(node);
        if let Some(status) = pod["status"].as_object_mut() {
            status.remove("nominatedNodeName");
        }
        for field in ["annotations", "labels"] {
            for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
                pod["metadata"][field][key] = value.clone();
            }
        }
        condition::set(pod, "PodScheduled", State::new("True", "", ""), now);
    })?;
    Ok(())
}

fn check(namespace: &str, pod_name: &str, binding: &Value) -> Result<(), ApiError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &binding["metadata"];
    if text(&metadata["name"]) != pod_name {
        return Err(ApiError::BadRequest("name in URL does not match name in Binding object".to_owned()));
    }
    let given_namespace = text(&metadata["namespace"]);
    if !given_namespace.is_empty() && given_namespace != namespace {
        return Err(ApiError::BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request".to_owned(),
        ));
    }
    let texts_only = |map: &Value| match map {
        Value::Null => true,
        Value::Object(map) => map.values().all(Value::is_string),
        _ => false,
    };
    if !texts_only(&metadata["labels"]) || !texts_only(&metadata["annotations"]) {
        return Err(ApiError::BadRequest(
            "Binding in version \"v1\" cannot be handled as a Binding: labels and annotations are maps of strings"
                .to_owned(),
        ));
    }
    let mut errors = Vec::new();
    let kind = text(&binding["target"]["kind"]);
    if !kind.is_empty() && kind != "Node" {
        errors.push(FieldError::invalid(
            "target.kind",
            &binding["target"]["kind"],
            "supported values: \"Node\", \"<empty>\"",
        ));
    }
    if text(&binding["target"]["name"]).is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::Invalid { kind: "Binding".to_owned(), name: pod_name.to_owned(), errors })
}
