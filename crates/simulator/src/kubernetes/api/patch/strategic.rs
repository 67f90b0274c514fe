//! Strategic merge: like a merge patch, but some lists are merged item by item.
//!
//! The merge key of each list follows the `patchMergeKey` tags of the API types. Lists without one are replaced.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::kubernetes::error::ApiError;
use crate::kubernetes::kinds::KindId;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// The field that identifies a list's items; `None` for a list that is replaced as a whole.
#[must_use]
pub fn merge_key(kind: KindId, field: &str) -> Option<&'static str> {
    match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "schedulingGates"
        | "resourceClaims" => Some("name"),
        "volumeMounts" => Some("mountPath"),
        "volumeDevices" => Some("devicePath"),
        "ports" if kind == KindId::SERVICE => Some("port"),
        "ports" => Some("containerPort"),
        "hostAliases" | "podIPs" | "hostIPs" => Some("ip"),
        "conditions" | "addresses" => Some("type"),
        "topologySpreadConstraints" => Some("topologyKey"),
        "ownerReferences" => Some("uid"),
        _ => None,
    }
}

/// Lists of plain values that are merged as sets.
fn is_set(field: &str) -> bool {
    matches!(field, "finalizers" | "podCIDRs")
}

/// Objects that are replaced, not merged.
fn is_replaced(kind: KindId, field: &str) -> bool {
    kind == KindId::POD_DISRUPTION_BUDGET && field == "selector"
}

pub fn merge(kind: KindId, target: &mut Value, patch: &Value) -> Result<(), ApiError> {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => merge_map(kind, target, patch),
        (target, patch) => {
            *target = without_directives(patch);
            Ok(())
        }
    }
}

fn merge_map(kind: KindId, target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), ApiError> {
    match patch.get(PATCH).and_then(Value::as_str) {
        Some("replace") => {
            *target = plain_fields(patch);
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        _ => (),
    }
    if let Some(retained) = patch.get(RETAIN_KEYS).and_then(Value::as_array) {
        target.retain(|key, _| retained.iter().any(|name| name == key));
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(DELETE_FROM) {
            if let (Some(Value::Array(items)), Some(unwanted)) = (target.get_mut(field), value.as_array()) {
                items.retain(|item| !unwanted.contains(item));
            }
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        match (target.get_mut(key), value) {
            (_, Value::Null) => {
                target.remove(key);
            }
            (Some(Value::Object(current)), Value::Object(wanted)) if !is_replaced(kind, key) => {
                merge_map(kind, current, wanted)?;
            }
            (Some(Value::Array(current)), Value::Array(wanted)) => {
                let order = element_order(patch, key).unwrap_or(wanted);
                let known = current.clone();
                if let Some(merge_key) = merge_key(kind, key) {
                    merge_list(kind, merge_key, current, wanted)?;
                    reorder(Some(merge_key), current, order, &known);
                } else if is_set(key) {
                    for item in wanted {
                        if !current.contains(item) {
                            current.push(item.clone());
                        }
                    }
                    reorder(None, current, order, &known);
                } else {
                    current.clone_from(wanted);
                }
            }
            (_, wanted) => {
                target.insert(key.clone(), without_directives(wanted));
            }
        }
    }
    for key in patch.keys() {
        let Some(field) = key.strip_prefix(ELEMENT_ORDER).filter(|field| !patch.contains_key(*field)) else { continue };
        if let (Some(Value::Array(items)), Some(order)) = (target.get_mut(field), element_order(patch, field)) {
            let known = items.clone();
            reorder(merge_key(kind, field), items, order, &known);
        }
    }
    Ok(())
}

fn element_order<'a>(patch: &'a Map<String, Value>, field: &str) -> Option<&'a [Value]> {
    patch.get(&format!("{ELEMENT_ORDER}{field}"))?.as_array().map(Vec::as_slice)
}

fn merge_list(kind: KindId, key: &str, current: &mut Vec<Value>, patch: &[Value]) -> Result<(), ApiError> {
    if patch.iter().any(|item| item[PATCH] == "replace") {
        *current = patch.iter().filter(|item| item.get(PATCH).is_none()).map(without_directives).collect();
        return Ok(());
    }
    let mut items: Vec<Option<Value>> = std::mem::take(current).into_iter().map(Some).collect();
    let mut positions: BTreeMap<String, usize> = BTreeMap::new();
    for (position, item) in items.iter().flatten().enumerate() {
        positions.entry(item[key].to_string()).or_insert(position);
    }
    for item in patch {
        if item[key].is_null() {
            return Err(ApiError::BadRequest(format!("map: {item} does not contain declared merge key: {key}")));
        }
        let identity = item[key].to_string();
        let position = positions.get(&identity).copied();
        match (position, item[PATCH] == "delete") {
            (Some(position), true) => {
                items[position] = None;
                positions.remove(&identity);
            }
            (None, true) => (),
            (Some(position), false) => {
                if let Some(target) = &mut items[position] {
                    merge(kind, target, item)?;
                }
            }
            (None, false) => {
                positions.insert(identity, items.len());
                items.push(Some(without_directives(item)));
            }
        }
    }
    *current = items.into_iter().flatten().collect();
    Ok(())
}

/// Sorts the items that `order` names into that order. The others keep their position among the `known` ones, and go
/// after new items.
fn reorder(key: Option<&str>, items: &mut Vec<Value>, order: &[Value], known: &[Value]) {
    let identity = |item: &Value| key.map_or(item, |key| &item[key]).to_string();
    let positions = |list: &[Value]| -> BTreeMap<String, usize> {
        list.iter().enumerate().map(|(position, item)| (identity(item), position)).collect()
    };
    let (wanted_positions, known_positions) = (positions(order), positions(known));
    let wanted_position = |item: &Value| wanted_positions.get(&identity(item)).copied();
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        std::mem::take(items).into_iter().partition(|item| wanted_position(item).is_some());
    named.sort_by_key(wanted_position);
    let mut others = others.into_iter().peekable();
    for item in named {
        let position = known_positions.get(&identity(&item));
        while let Some(other) =
            others.next_if(|other| position.is_some_and(|at| known_positions.get(&identity(other)) < Some(at)))
        {
            items.push(other);
        }
        items.push(item);
    }
    items.extend(others);
}

fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(plain_fields(map)),
        Value::Array(items) => items.iter().filter(|item| item[PATCH] != "delete").map(without_directives).collect(),
        other => other.clone(),
    }
}

fn plain_fields(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter()
        .filter(|(key, _)| {
            *key != PATCH && *key != RETAIN_KEYS && !key.starts_with(DELETE_FROM) && !key.starts_with(ELEMENT_ORDER)
        })
        .map(|(key, value)| (key.clone(), without_directives(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_and_directives() {
        for (name, current, patch, expected) in [
            (
                "items are merged by key, in the order of the patch",
                json!({ "conditions": [{ "type": "A", "status": "0" }] }),
                json!({ "conditions": [{ "type": "B" }, { "type": "A", "status": "1" }] }),
                json!({ "conditions": [{ "type": "B" }, { "type": "A", "status": "1" }] }),
            ),
            (
                "an item is deleted",
                json!({ "containers": [{ "name": "a" }, { "name": "b" }] }),
                json!({ "containers": [{ "name": "a", "$patch": "delete" }] }),
                json!({ "containers": [{ "name": "b" }] }),
            ),
            (
                "a list is replaced",
                json!({ "containers": [{ "name": "a" }] }),
                json!({ "containers": [{ "name": "b" }, { "$patch": "replace" }] }),
                json!({ "containers": [{ "name": "b" }] }),
            ),
            (
                "order",
                json!({ "containers": [{ "name": "a" }, { "name": "b" }] }),
                json!({ "$setElementOrder/containers": [{ "name": "b" }, { "name": "a" }] }),
                json!({ "containers": [{ "name": "b" }, { "name": "a" }] }),
            ),
            (
                "items that the patch does not name keep their position",
                json!({ "containers": [{ "name": "a" }, { "name": "b" }, { "name": "c" }] }),
                json!({ "containers": [{ "name": "d" }, { "name": "b" }] }),
                json!({ "containers": [{ "name": "d" }, { "name": "a" }, { "name": "b" }, { "name": "c" }] }),
            ),
            (
                "sets and their deletions",
                json!({ "finalizers": ["a", "b"] }),
                json!({ "finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"] }),
                json!({ "finalizers": ["c", "b"] }),
            ),
            (
                "taints have no key",
                json!({ "taints": [{ "key": "a" }] }),
                json!({ "taints": [] }),
                json!({ "taints": [] }),
            ),
            (
                "kept keys",
                json!({ "strategy": { "type": "R", "rollingUpdate": {} } }),
                json!({ "strategy": { "$retainKeys": ["type"], "type": "Recreate" } }),
                json!({ "strategy": { "type": "Recreate" } }),
            ),
            (
                "a map is replaced",
                json!({ "nodeSelector": { "a": "1" } }),
                json!({ "nodeSelector": { "$patch": "replace", "b": "2" } }),
                json!({ "nodeSelector": { "b": "2" } }),
            ),
        ] {
            let mut target = current;
            merge(KindId::DEPLOYMENT, &mut target, &patch).unwrap();
            assert_eq!(target, expected, "{name}");
        }
        let mut target = json!({ "ports": [{ "port": 1 }] });
        assert!(merge(KindId::POD, &mut target, &json!({ "ports": [{ "port": 2 }] })).is_err());
    }
}
