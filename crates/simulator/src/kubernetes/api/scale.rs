//! The `scale` subresource of workloads: `autoscaling/v1` Scale.

use std::sync::Arc;

use serde_json::{Value, json};

use super::patch::{self, PatchType};
use super::path::Target;
use super::write::{existing, not_found};
use crate::kubernetes::error::{ApiError, FieldError};
use crate::kubernetes::label_selector::LabelSelector;
use crate::kubernetes::store::Store;

pub fn get(store: &Store, target: &Target) -> Result<Value, ApiError> {
    existing(store, target).map(|workload| scale_of(&workload)).ok_or_else(|| not_found(target))
}

pub fn replace(store: &mut Store, target: &Target, scale: &Value, dry_run: bool) -> Result<Value, ApiError> {
    let workload = existing(store, target).ok_or_else(|| not_found(target))?;
    set(store, target, &workload, scale, dry_run)
}

pub fn patch(
    store: &mut Store,
    target: &Target,
    patch_type: PatchType,
    body: Value,
    dry_run: bool,
) -> Result<Value, ApiError> {
    let workload = existing(store, target).ok_or_else(|| not_found(target))?;
    // An applied Scale has only one number, so it is merged like any other patch.
    let patch_type = if patch_type == PatchType::Apply { PatchType::Merge } else { patch_type };
    let scale = patch::patched(patch_type, target.kind, &scale_of(&workload), body)?;
    set(store, target, &workload, &scale, dry_run)
}

fn set(
    store: &mut Store,
    target: &Target,
    workload: &Arc<Value>,
    scale: &Value,
    dry_run: bool,
) -> Result<Value, ApiError> {
    let name = target.name.as_deref().unwrap_or_default();
    let replicas = match &scale["spec"]["replicas"] {
        Value::Null => 0,
        number => number.as_i64().ok_or_else(|| {
            ApiError::BadRequest(
                "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal into Go struct field \
                 ScaleSpec.spec.replicas of type int32"
                    .to_owned(),
            )
        })?,
    };
    let given_name = scale["metadata"]["name"].as_str().unwrap_or_default();
    if !given_name.is_empty() && given_name != name {
        return Err(ApiError::BadRequest(format!(
            "the name of the object ({given_name}) does not match the name on the URL ({name})"
        )));
    }
    if !(0..=i64::from(i32::MAX)).contains(&replicas) {
        let detail = "must be greater than or equal to 0";
        let error = FieldError::invalid("spec.replicas", &json!(replicas), detail);
        return Err(ApiError::Invalid {
            kind: "Scale.autoscaling".to_owned(),
            name: name.to_owned(),
            errors: vec![error],
        });
    }
    let mut changed = Value::clone(workload);
    changed["spec"]["replicas"] = json!(replicas);
    changed["metadata"]["resourceVersion"] = scale["metadata"]["resourceVersion"].clone();
    if dry_run {
        return store.revise(target.kind, changed).map(|(_, workload)| scale_of(&workload));
    }
    store.update(target.kind, changed).map(|workload| scale_of(&workload))
}

fn scale_of(workload: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        metadata[field] = workload["metadata"][field].clone();
    }
    let selector = LabelSelector::from_object(&workload["spec"]["selector"]).unwrap_or_default();
    // A real server omits a zero here, and only here.
    let spec = match workload["spec"]["replicas"].as_i64() {
        None | Some(0) => json!({}),
        Some(replicas) => json!({ "replicas": replicas }),
    };
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec,
        "status": { "replicas": workload["status"]["replicas"].as_i64().unwrap_or(0), "selector": selector.to_string() },
    })
}
