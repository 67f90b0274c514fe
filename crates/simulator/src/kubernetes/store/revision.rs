//! The effects of a change on an object's metadata.

use serde_json::Value;

use crate::kubernetes::kinds::KindId;

/// Whether the desired state is unchanged. A pod's node is not part of it: the scheduler adds it. A Deployment's
/// annotations are: they are copied to its ReplicaSets.
pub(super) fn same_desired_state(kind: KindId, object: &Value, before: &Value) -> bool {
    let same_annotations =
        kind != KindId::DEPLOYMENT || object["metadata"]["annotations"] == before["metadata"]["annotations"];
    let same_spec = match (object["spec"].as_object(), before["spec"].as_object()) {
        (Some(spec), Some(spec_before)) if kind == KindId::POD => {
            let desired = |(key, _): &(&String, &Value)| *key != "nodeName";
            spec.iter().filter(desired).eq(spec_before.iter().filter(desired))
        }
        _ => object["spec"] == before["spec"],
    };
    same_spec && same_annotations
}

/// Removes what a real server would not write: nulls and empty collections.
pub(super) fn tidy_metadata(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.retain(|field, value| match field.as_str() {
        "labels" | "annotations" => value.as_object().is_some_and(|map| !map.is_empty()),
        "finalizers" | "ownerReferences" | "managedFields" => value.as_array().is_some_and(|list| !list.is_empty()),
        _ => !value.is_null(),
    });
}
