//! The four patch types.
//!
//! In: a patch and the current object. Out: the patched object, not yet validated.
//!
//! Invariant: the result's depth and size stay within a small multiple of the request limits, so that a patch cannot
//! inflate an object.

pub mod apply;
mod strategic;

use serde_json::Value;

use strategic::merge as strategic_merge;

use super::body;

use crate::kubernetes::error::ApiError;
use crate::kubernetes::kinds::KindId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

/// A real server's limit on the operations of one JSON patch.
const OPERATIONS_MAX: usize = 10_000;
/// How many bytes `copy` and `move` may copy in one patch: a real server's limit on copying.
const CARRIED_BYTES_MAX: usize = body::BYTES_MAX;
const DEPTH_MAX: usize = 128;
/// The size of any value in addition to its text.
const VALUE_BYTES: usize = 8;

impl PatchType {
    pub fn of_content_type(content_type: &str) -> Result<PatchType, ApiError> {
        match content_type {
            "application/json-patch+json" => Ok(PatchType::Json),
            "application/merge-patch+json" => Ok(PatchType::Merge),
            "application/strategic-merge-patch+json" => Ok(PatchType::Strategic),
            "application/apply-patch+yaml" => Ok(PatchType::Apply),
            _ => Err(ApiError::UnsupportedMediaType("415: Unsupported Media Type".to_owned())),
        }
    }
}

/// Applies a JSON, merge or strategic merge patch. (Server-side apply needs more than the object: see [`apply`].)
pub fn patched(patch_type: PatchType, kind: KindId, current: &Value, patch: Value) -> Result<Value, ApiError> {
    let mut object = current.clone();
    if patch_type == PatchType::Json {
        json_patch(&mut object, patch)?;
        return Ok(object);
    }
    if !patch.is_object() {
        let found = if patch.is_array() { "array" } else { "value" };
        return Err(ApiError::BadRequest(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        )));
    }
    if patch_type == PatchType::Merge {
        json_patch::merge(&mut object, &patch);
    } else {
        strategic_merge(kind, &mut object, &patch)?;
    }
    Ok(object)
}

fn json_patch(object: &mut Value, patch: Value) -> Result<(), ApiError> {
    let undecodable = |why: String| ApiError::BadRequest(format!("error decoding patch: {why}"));
    if !patch.is_array() {
        return Err(undecodable(
            "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp".to_owned(),
        ));
    }
    if patch.as_array().is_some_and(|operations| !operations.iter().all(Value::is_object)) {
        return Err(undecodable("json: cannot unmarshal into Go value of type handlers.jsonPatchOp".to_owned()));
    }
    let patch: json_patch::Patch = serde_json::from_value(patch).map_err(|_| ApiError::PatchRejected)?;
    if patch.0.len() > OPERATIONS_MAX {
        return Err(ApiError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            patch.0.len()
        )));
    }
    let mut carried = 0;
    for operation in &patch.0 {
        let path_depth = operation.path().as_str().matches('/').count();
        let from = match operation {
            json_patch::PatchOperation::Copy(copy) => Some(copy.from.as_str()),
            json_patch::PatchOperation::Move(movement) => Some(movement.from.as_str()),
            _ => None,
        };
        let mut depth = path_depth;
        if let Some(value) = from.and_then(|from| object.pointer(from)) {
            let (bytes, value_depth) = measure(value);
            carried += bytes;
            depth += value_depth;
        }
        if depth > DEPTH_MAX || carried > CARRIED_BYTES_MAX {
            return Err(ApiError::TooLarge("the patch makes the object too deep or too large".to_owned()));
        }
        if is_test_for_nothing(operation, object) {
            continue;
        }
        json_patch::patch(object, std::slice::from_ref(operation)).map_err(|_| ApiError::PatchRejected)?;
    }
    Ok(())
}

/// A test for null of a member that does not exist. A real server lets it pass, if the object does exist in which the
/// member would be.
fn is_test_for_nothing(operation: &json_patch::PatchOperation, object: &Value) -> bool {
    let json_patch::PatchOperation::Test(test) = operation else { return false };
    let path = test.path.as_str();
    let parent = path.rsplit_once('/').and_then(|(parent, _)| object.pointer(parent));
    test.value.is_null() && object.pointer(path).is_none() && parent.is_some_and(Value::is_object)
}

/// The approximate size of a value in bytes, and its depth.
pub(super) fn measure(value: &Value) -> (usize, usize) {
    let sum = |(bytes, depth): (usize, usize), inner: &Value| {
        let (inner_bytes, inner_depth) = measure(inner);
        (bytes + inner_bytes, depth.max(inner_depth + 1))
    };
    match value {
        Value::Array(items) => items.iter().fold((VALUE_BYTES, 1), sum),
        Value::Object(map) => {
            let (bytes, depth) = map.values().fold((VALUE_BYTES, 1), sum);
            (bytes + map.keys().map(String::len).sum::<usize>(), depth)
        }
        Value::String(text) => (VALUE_BYTES + text.len(), 0),
        _ => (VALUE_BYTES, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_patch_type_applies() {
        let current = json!({ "metadata": { "labels": { "a": "1" } }, "spec": {
            "containers": [{ "name": "x", "image": "1" }, { "name": "y", "image": "1" }] } });
        for (patch_type, patch, expected) in [
            (
                PatchType::Json,
                json!([{ "op": "replace", "path": "/metadata/labels/a", "value": "2" }]),
                json!({ "metadata": { "labels": { "a": "2" } }, "spec": {
                    "containers": [{ "name": "x", "image": "1" }, { "name": "y", "image": "1" }] } }),
            ),
            (
                PatchType::Merge,
                json!({ "metadata": { "labels": { "a": null, "b": "2" } }, "spec": { "containers": [] } }),
                json!({ "metadata": { "labels": { "b": "2" } }, "spec": { "containers": [] } }),
            ),
            (
                PatchType::Strategic,
                json!({ "spec": { "containers": [{ "name": "y", "image": "2" }] } }),
                json!({ "metadata": { "labels": { "a": "1" } }, "spec": {
                    "containers": [{ "name": "x", "image": "1" }, { "name": "y", "image": "2" }] } }),
            ),
        ] {
            assert_eq!(patched(patch_type, KindId::POD, &current, patch).unwrap(), expected, "{patch_type:?}");
        }
    }

    #[test]
    fn invalid_and_hostile_json_patches_are_rejected() {
        let current = json!({ "a": { "b": [1] } });
        let copies = |count: usize, path: fn(usize) -> String| -> Value {
            (0..count).map(|number| json!({ "op": "copy", "from": "/a", "path": path(number) })).collect()
        };
        let deep_path = "/a".repeat(200);
        for (patch, code) in [
            (json!({}), 400),
            (json!([7]), 400),
            (json!([{ "op": "remove", "path": "/zz" }]), 422),
            (json!([{ "op": "test", "path": "/a", "value": 7 }]), 422),
            (copies(40, |number| format!("/a/c{number}")), 413),
            (copies(200, |_| "/a/c".to_owned()), 413),
            (json!([{ "op": "add", "path": deep_path, "value": 1 }]), 413),
        ] {
            assert_eq!(patched(PatchType::Json, KindId::POD, &current, patch).unwrap_err().code(), code);
        }
        assert_eq!(patched(PatchType::Merge, KindId::POD, &current, json!([])).unwrap_err().code(), 400);
        let large = json!({ "a": "x".repeat(100_000) });
        let patch = copies(100, |number| format!("/c{number}"));
        assert_eq!(
            patched(PatchType::Json, KindId::POD, &large, patch).unwrap_err().code(),
            413,
            "few values, much text"
        );
    }
}
