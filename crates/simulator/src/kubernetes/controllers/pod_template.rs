//! Creates pods from a template, and computes the hash that names a template.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Tools, namespace};
use crate::kubernetes::defaults;
use crate::kubernetes::error::ApiError;
use crate::kubernetes::json::{put, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;

/// The owner reference of a controller.
pub(crate) fn controller_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": pod::uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// A pod from the template, controlled by `owner`, without a name.
pub(crate) fn pod_from(template: &Value, owner: &Value) -> Value {
    let mut metadata = json!({
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [controller_reference(owner)],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field).filter(|value| !value.is_null()) {
            put(&mut metadata, &[field], value.clone());
        }
    }
    let spec = if template["spec"].is_object() { template["spec"].clone() } else { json!({}) };
    json!({ "metadata": metadata, "spec": spec, "status": { "phase": "Pending" } })
}

/// Creates a pod as the API would for a controller.
pub(crate) fn create_pod(tools: &mut Tools<'_>, mut pod: Value) -> Result<Arc<Value>, ApiError> {
    let in_namespace = text(&pod["metadata"]["namespace"]).to_owned();
    if namespace::is_terminating(tools.store, &in_namespace) {
        return Err(ApiError::BadRequest(format!("namespace {in_namespace} is being terminated")));
    }
    if tools.store.count(KindId::POD) >= tools.config.pods_max {
        return Err(ApiError::Internal(format!("there are {} pods already", tools.config.pods_max)));
    }
    defaults::apply(KindId::POD, &mut pod, tools.store);
    tools.store.create(KindId::POD, pod, tools.now)
}

/// A ten-character name for a template. Equal templates have equal names.
pub(crate) fn template_hash(template: &Value, collisions: u64) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hash = Sha256::new();
    hash.update(template.to_string().as_bytes());
    if collisions > 0 {
        hash.update(collisions.to_le_bytes());
    }
    hash.finalize().iter().take(10).map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect()
}
