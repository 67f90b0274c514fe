//! Delete requests: options in the query and in the body, one object or all selected ones.

use std::sync::Arc;

use serde_json::{Value, json};

use super::list::Selection;
use super::path::Target;
use super::query::Query;
use super::render::success;
use super::write::{existing, not_found};
use crate::clock::SimTime;
use crate::kubernetes::deletion::{self, DeleteOptions, Deleted, Propagation};
use crate::kubernetes::error::{ApiError, FieldError};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::store::{Store, resource_name};

/// The options, and whether the request is a dry run.
pub fn options(query: &Query, body: &Value) -> Result<(DeleteOptions, bool), ApiError> {
    let wrong = |field: &str| {
        ApiError::BadRequest(format!(
            "DeleteOptions in version \"v1\" cannot be handled as a DeleteOptions: json: cannot unmarshal field {field}"
        ))
    };
    if !body.is_null() && !body.is_object() {
        return Err(wrong("DeleteOptions"));
    }
    if let Some(kind) = body["kind"].as_str().filter(|kind| *kind != "DeleteOptions") {
        let version = body["apiVersion"].as_str().unwrap_or_default();
        return Err(ApiError::BadRequest(format!("no kind {kind:?} is registered for version {version:?}")));
    }
    let text = |value: &Value, field: &str| match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        _ => Err(wrong(field)),
    };
    let grace = match &body["gracePeriodSeconds"] {
        Value::Null => query.number("gracePeriodSeconds")?,
        value => Some(value.as_i64().ok_or_else(|| wrong("gracePeriodSeconds"))?),
    };
    let invalid = |error: FieldError| ApiError::invalid_options("DeleteOptions", error);
    // A negative period counts as the shortest possible one.
    let grace_seconds = grace.map(|seconds| u64::try_from(seconds).unwrap_or(1));
    let policy =
        text(&body["propagationPolicy"], "propagationPolicy")?.or(query.text("propagationPolicy").map(str::to_owned));
    let orphan = body["orphanDependents"] == true || query.flag("orphanDependents");
    let propagation = match policy.as_deref() {
        None if orphan => Propagation::Orphan,
        None | Some("Background") => Propagation::Background,
        Some("Foreground") => Propagation::Foreground,
        Some("Orphan") => Propagation::Orphan,
        Some(other) => {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            return Err(invalid(FieldError::not_supported("propagationPolicy", &json!(other), &supported)));
        }
    };
    let preconditions = &body["preconditions"];
    if !preconditions.is_null() && !preconditions.is_object() {
        return Err(wrong("preconditions"));
    }
    let dry_run = match &body["dryRun"] {
        Value::Null => query.dry_run("DeleteOptions")?,
        Value::Array(values) if values.iter().all(|value| value == "All") => {
            !values.is_empty() || query.dry_run("DeleteOptions")?
        }
        other => return Err(invalid(FieldError::not_supported("dryRun", other, &["All"]))),
    };
    let options = DeleteOptions {
        grace_seconds,
        uid: text(&preconditions["uid"], "preconditions.uid")?,
        resource_version: text(&preconditions["resourceVersion"], "preconditions.resourceVersion")?,
        propagation,
    };
    Ok((options, dry_run))
}

/// Deletes one object. Returns the response: the object, or a `Status` for kinds that return only that.
pub fn one(
    store: &mut Store,
    target: &Target,
    options: &DeleteOptions,
    dry_run: bool,
    now: SimTime,
) -> Result<Arc<Value>, ApiError> {
    let before = existing(store, target).ok_or_else(|| not_found(target))?;
    let name = target.name.as_deref().unwrap_or_default();
    let deleted = if dry_run {
        Deleted::Gone(before)
    } else {
        deletion::delete(store, target.kind, target.store_namespace(), name, options, now)?
    };
    match deleted {
        Deleted::Terminating(object) => Ok(object),
        Deleted::Gone(object) if shows_deleted(target.kind) => Ok(object),
        Deleted::Gone(object) => {
            let mut details =
                json!({ "name": name, "kind": target.kind.kind().plural, "uid": object["metadata"]["uid"] });
            if !target.kind.kind().group.is_empty() {
                details["group"] = json!(target.kind.kind().group);
            }
            Ok(Arc::new(success(None, Some(details))))
        }
    }
}

fn shows_deleted(kind: KindId) -> bool {
    matches!(
        kind,
        KindId::POD
            | KindId::NAMESPACE
            | KindId::SERVICE
            | KindId::PERSISTENT_VOLUME
            | KindId::PERSISTENT_VOLUME_CLAIM
            | KindId::STORAGE_CLASS
            | KindId::CSI_NODE
            | KindId::CSI_DRIVER
            | KindId::VOLUME_ATTACHMENT
            | KindId::RESOURCE_CLAIM
            | KindId::RESOURCE_SLICE
            | KindId::DEVICE_CLASS
    )
}

/// Deletes all selected objects. Returns their state before the deletion.
pub fn selected(
    store: &mut Store,
    selection: &Selection,
    options: &DeleteOptions,
    dry_run: bool,
    now: SimTime,
) -> Result<Vec<Arc<Value>>, ApiError> {
    let objects: Vec<Arc<Value>> = store
        .list(selection.kind, selection.namespace.as_deref())
        .filter(|object| selection.matches(object))
        .cloned()
        .collect();
    if dry_run {
        return Ok(objects);
    }
    for object in &objects {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        match deletion::delete(store, selection.kind, text("namespace"), text("name"), options, now) {
            // The deletion of an owner may have removed it already.
            Err(ApiError::NotFound { resource, .. }) if resource == resource_name(selection.kind) => (),
            Err(error) => return Err(error),
            Ok(_) => (),
        }
    }
    Ok(objects)
}
