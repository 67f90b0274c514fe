//! Creates, replaces and patches objects and their `status`.
//!
//! Every write follows the same order: check the body's identity and types, set defaults, restore the fields that a
//! client may not change, validate the result, and only then store it. A dry run stops before storing.

use std::sync::Arc;

use serde_json::{Value, json};

use super::patch::apply::Apply;
use super::patch::{self, PatchType};
use super::path::Target;
use super::{admission, new_event, protobuf, shape, validation};
use crate::clock::SimTime;
use crate::kubernetes::defaults;
use crate::kubernetes::error::{ApiError, Cause};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::store::{Store, resource_name};

/// How many unknown fields one answer lists.
const UNKNOWN_FIELDS_MAX: usize = 20;

/// The options of a write.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions<'a> {
    pub dry_run: bool,
    pub field_manager: Option<&'a str>,
    pub force: bool,
    /// Reject fields that the kind does not have.
    pub strict: bool,
}

/// A stored object, or in a dry run the object that would be stored, and whether it is new.
#[derive(Clone, Debug)]
pub struct Written {
    pub object: Arc<Value>,
    pub created: bool,
}

pub fn create(
    store: &mut Store,
    target: &Target,
    body: Value,
    options: WriteOptions<'_>,
    now: SimTime,
) -> Result<Written, ApiError> {
    let kind = target.kind;
    let mut object = incoming(target, body, options.strict)?;
    shape::check(kind, &object)?;
    settle_namespace(target, &mut object)?;
    if object["metadata"]["resourceVersion"].as_str().is_some_and(|version| !version.is_empty()) {
        return Err(ApiError::BadRequest("resourceVersion should not be set on objects to be created".to_owned()));
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "selfLink",
        ] {
            metadata.remove(field);
        }
    }
    admit(store, target, &mut object)?;
    defaults::apply(kind, &mut object, store);
    validation::check_new(kind, &object)?;
    let object =
        if options.dry_run { Arc::new(store.prepare(kind, object, now)?) } else { store.create(kind, object, now)? };
    Ok(Written { object, created: true })
}

pub fn replace(
    store: &mut Store,
    target: &Target,
    body: Value,
    options: WriteOptions<'_>,
    now: SimTime,
) -> Result<Written, ApiError> {
    let mut object = incoming(target, body, options.strict)?;
    let Some(before) = existing(store, target) else {
        // A PUT can create leases and events.
        if matches!(target.kind, KindId::LEASE | KindId::EVENT) && target.subresource.is_none() {
            shape::check(target.kind, &object)?;
            settle_name(target, &mut object)?;
            return create(store, target, object, options, now);
        }
        return Err(not_found(target));
    };
    shape::check(target.kind, &object)?;
    settle_name(target, &mut object)?;
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if version.is_empty() && matches!(target.kind, KindId::LEASE | KindId::POD_DISRUPTION_BUDGET) {
        let detail = "must be specified for an update";
        let error = super::FieldError::invalid("metadata.resourceVersion", &json!(0), detail);
        return Err(ApiError::Invalid {
            kind: resource_name(target.kind),
            name: target.name.clone().unwrap_or_default(),
            errors: vec![error],
        });
    }
    object["metadata"]["managedFields"] = before["metadata"]["managedFields"].clone();
    commit(store, target, &before, object, options.dry_run)
}

pub fn patch(
    store: &mut Store,
    target: &Target,
    patch_type: PatchType,
    body: Value,
    options: WriteOptions<'_>,
    now: SimTime,
) -> Result<Written, ApiError> {
    if patch_type == PatchType::Apply {
        return apply(store, target, body, options, now);
    }
    let before = existing(store, target).ok_or_else(|| not_found(target))?;
    let shown = if target.as_new_event { Arc::new(new_event::from_core(&before)) } else { before.clone() };
    let patched = patch::patched(patch_type, target.kind, &shown, body)?;
    let mut object = incoming(target, patched, options.strict)?;
    shape::check(target.kind, &object)?;
    settle_name(target, &mut object)?;
    if object["metadata"]["uid"] != before["metadata"]["uid"] {
        let error = super::FieldError::invalid("metadata.uid", &object["metadata"]["uid"], "field is immutable");
        return Err(ApiError::invalid(target.kind, target.name.as_deref().unwrap_or_default(), vec![error]));
    }
    commit(store, target, &before, object, options.dry_run)
}

fn apply(
    store: &mut Store,
    target: &Target,
    body: Value,
    options: WriteOptions<'_>,
    now: SimTime,
) -> Result<Written, ApiError> {
    let Some(manager) = options.field_manager else {
        let error = super::FieldError::required("fieldManager", "is required for apply patch");
        return Err(ApiError::invalid_options("PatchOptions", error));
    };
    let mut stated = incoming(target, body, options.strict)?;
    if stated["kind"].is_null() || stated["apiVersion"].is_null() {
        return Err(ApiError::BadRequest("invalid object type: /, Kind=".to_owned()));
    }
    shape::check(target.kind, &stated)?;
    settle_name(target, &mut stated)?;
    if stated["metadata"]["managedFields"].as_array().is_some_and(|fields| !fields.is_empty()) {
        return Err(ApiError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let applier = Apply { kind: target.kind, manager, force: options.force, now };
    match existing(store, target) {
        Some(before) => {
            let object = applier.update(&before, &stated)?;
            shape::check(target.kind, &object)?;
            commit(store, target, &before, object, options.dry_run)
        }
        None if target.subresource.is_none() => create(store, target, applier.create(stated), options, now),
        None => Err(not_found(target)),
    }
}

/// Stores a changed object after its type checks.
fn commit(
    store: &mut Store,
    target: &Target,
    before: &Arc<Value>,
    mut object: Value,
    dry_run: bool,
) -> Result<Written, ApiError> {
    let kind = target.kind;
    if target.subresource.as_deref() == Some("status") {
        object = with_status_of(kind, before, object);
    } else if kind.kind().has_status() {
        put_back(&mut object, before, "status");
    }
    defaults::fill_in(kind, &mut object);
    validation::check_size(&object)?;
    if kind == KindId::PRIORITY_CLASS {
        admission::admit_priority_class(store, &object)?;
    }
    match target.subresource.as_deref() {
        None => validation::check_changed(kind, before, &object)?,
        Some("status") => validation::check_status_changed(kind, before, &object)?,
        Some(_) => (),
    }
    if dry_run {
        let (_, object) = store.revise(kind, object)?;
        return Ok(Written { object: Arc::new(object), created: false });
    }
    let object = store.update(kind, object)?;
    let object = finish_deletion(store, kind, &object)?.unwrap_or(object);
    Ok(Written { object, created: false })
}

/// A write to `status` changes nothing else, except for the labels and annotations of pods and nodes.
fn with_status_of(kind: KindId, before: &Value, mut object: Value) -> Value {
    let mut result = before.clone();
    result["status"] = object["status"].take();
    if result["status"].is_null() {
        result["status"] = json!({});
    }
    let metadata = &mut object["metadata"];
    for field in ["uid", "resourceVersion", "managedFields"] {
        result["metadata"][field] = metadata[field].take();
    }
    if kind == KindId::POD && result["status"]["qosClass"].as_str().unwrap_or_default().is_empty() {
        // Old kubelets drop it.
        result["status"]["qosClass"] = before["status"]["qosClass"].clone();
    }
    if matches!(kind, KindId::POD | KindId::NODE) {
        for field in ["labels", "annotations"] {
            result["metadata"][field] = metadata[field].take();
        }
    }
    result
}

fn put_back(object: &mut Value, before: &Value, field: &str) {
    if let Some(map) = object.as_object_mut() {
        match before.get(field) {
            Some(value) => map.insert(field.to_owned(), value.clone()),
            None => map.remove(field),
        };
    }
}

/// Removes a terminating object when no finalizer or grace period holds it.
fn finish_deletion(store: &mut Store, kind: KindId, object: &Value) -> Result<Option<Arc<Value>>, ApiError> {
    let metadata = &object["metadata"];
    let held = metadata["finalizers"].is_array()
        || metadata["deletionGracePeriodSeconds"].as_u64().is_some_and(|seconds| seconds > 0)
        || (kind == KindId::NAMESPACE && object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()));
    if metadata["deletionTimestamp"].is_null() || held {
        return Ok(None);
    }
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    store.remove(kind, text("namespace"), text("name")).map(Some)
}

/// The body as a core object without nulls, if its kind is that of the path or missing.
fn incoming(target: &Target, body: Value, strict: bool) -> Result<Value, ApiError> {
    let row = target.kind.kind();
    if !body.is_object() {
        return Err(ApiError::BadRequest(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind",
            row.kind
        )));
    }
    let expected = if target.as_new_event { new_event::API_VERSION.to_owned() } else { row.api_version() };
    let said = |field: &str, default: &str| body[field].as_str().unwrap_or(default).to_owned();
    let (kind, api_version) = (said("kind", row.kind), said("apiVersion", &expected));
    if kind != row.kind || api_version != expected {
        return Err(ApiError::BadRequest(format!(
            "{kind} in version {api_version:?} cannot be handled as a {}: no kind {kind:?} is registered for version \
             {api_version:?}",
            row.kind
        )));
    }
    if strict {
        let unknown = protobuf::unknown_fields(&protobuf::message_name(&expected, row.kind), &body, UNKNOWN_FIELDS_MAX);
        if !unknown.is_empty() {
            let list: Vec<String> = unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
            return Err(ApiError::BadRequest(format!(
                "{kind} in version {:?} cannot be handled as a {kind}: strict decoding error: {}",
                row.version,
                list.join(", ")
            )));
        }
    }
    let mut object = if target.as_new_event { new_event::to_core(&body) } else { body };
    prune_nulls(&mut object);
    Ok(object)
}

/// Null and an empty list mean absent.
fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty()));
            map.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => (),
    }
}

fn settle_name(target: &Target, object: &mut Value) -> Result<(), ApiError> {
    settle_namespace(target, object)?;
    let wanted = target.name.as_deref().unwrap_or_default();
    let given = object["metadata"]["name"].as_str().unwrap_or_default();
    if !given.is_empty() && given != wanted {
        return Err(ApiError::BadRequest(format!(
            "the name of the object ({given}) does not match the name on the URL ({wanted})"
        )));
    }
    object["metadata"]["name"] = json!(wanted);
    Ok(())
}

fn settle_namespace(target: &Target, object: &mut Value) -> Result<(), ApiError> {
    let given = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let wanted = target.store_namespace();
    if !given.is_empty() && given != wanted {
        return Err(ApiError::BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request".to_owned(),
        ));
    }
    match &target.namespace {
        Some(namespace) => object["metadata"]["namespace"] = json!(namespace),
        None => {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("namespace");
            }
        }
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    Ok(())
}

/// What a real server's admission plugins do with a new object.
fn admit(store: &Store, target: &Target, object: &mut Value) -> Result<(), ApiError> {
    let name = || {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().or(metadata["generateName"].as_str());
        name.unwrap_or_default().to_owned()
    };
    if let Some(namespace) = &target.namespace {
        let Some(home) = store.get(KindId::NAMESPACE, "", namespace) else {
            return Err(ApiError::NotFound { resource: "namespaces".to_owned(), name: namespace.clone() });
        };
        if !home["metadata"]["deletionTimestamp"].is_null() || home["status"]["phase"] == "Terminating" {
            return Err(ApiError::Forbidden {
                resource: resource_name(target.kind),
                name: name(),
                why: format!("unable to create new content in namespace {namespace} because it is being terminated"),
                cause: Some(Box::new(Cause {
                    reason: "NamespaceTerminating",
                    message: format!("namespace {namespace} is being terminated"),
                    field: Some("metadata.namespace"),
                })),
            });
        }
    }
    match target.kind {
        KindId::POD => admission::admit_pod(store, object).map_err(|why| ApiError::Forbidden {
            resource: "pods".to_owned(),
            name: name(),
            why,
            cause: None,
        })?,
        KindId::PRIORITY_CLASS => admission::admit_priority_class(store, object)?,
        _ => (),
    }
    if target.kind == KindId::NODE {
        // A new node accepts no pods until the node lifecycle controller sees it Ready.
        let key = "node.kubernetes.io/not-ready";
        let spec = &mut object["spec"];
        if !spec["taints"].is_array() {
            spec["taints"] = json!([]);
        }
        if let Some(taints) = spec["taints"].as_array_mut()
            && !taints.iter().any(|taint| taint["key"] == key && taint["effect"] == "NoSchedule")
        {
            taints.push(json!({ "key": key, "effect": "NoSchedule" }));
        }
    }
    Ok(())
}

pub fn existing(store: &Store, target: &Target) -> Option<Arc<Value>> {
    store.get(target.kind, target.store_namespace(), target.name.as_deref()?).cloned()
}

#[must_use]
pub fn not_found(target: &Target) -> ApiError {
    ApiError::NotFound { resource: resource_name(target.kind), name: target.name.clone().unwrap_or_default() }
}
