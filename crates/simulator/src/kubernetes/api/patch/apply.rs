//! Server-side apply: a client sends the fields that it manages, and the server tracks which manager owns which field.
//!
//! In: the applied object, its manager, the current object. Out: the merged object with updated
//! `metadata.managedFields`.
//!
//! As in a real server: a field that a manager no longer applies is removed unless another manager owns it too; a
//! different value for another manager's field is a conflict, or with force takes over the field.
//! Simplified: only appliers are tracked, not the writers of plain updates and patches.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::strategic::{merge, merge_key};
use crate::clock::SimTime;
use crate::kubernetes::error::ApiError;
use crate::kubernetes::kinds::KindId;

/// A path segment: `f:<name>` is a field, `k:{<key>}` a list item, `v:<value>` a set item, `.` the item itself.
type Path = Vec<String>;

pub struct Apply<'a> {
    pub kind: KindId,
    pub manager: &'a str,
    pub force: bool,
    pub now: SimTime,
}

impl Apply<'_> {
    /// The applied object as a new object.
    #[must_use]
    pub fn create(&self, mut stated: Value) -> Value {
        let fields = self.fields_of(&stated);
        stated["metadata"]["managedFields"] = json!([self.entry(&fields, &self.now.rfc3339_seconds())]);
        stated
    }

    pub fn update(&self, current: &Value, stated: &Value) -> Result<Value, ApiError> {
        let mut entries = current["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let own_position =
            entries.iter().position(|entry| entry["manager"] == self.manager && entry["operation"] == "Apply");
        let own = own_position.map(|position| entries.remove(position));
        let fields = self.fields_of(stated);
        let wanted = leaves(&fields);

        let mut conflicts = Vec::new();
        let mut others: BTreeSet<Path> = BTreeSet::new();
        for entry in &mut entries {
            let mut theirs = leaves(&entry["fieldsV1"]);
            let contested: Vec<Path> = theirs
                .intersection(&wanted)
                .filter(|path| value_at(current, path) != value_at(stated, path))
                .cloned()
                .collect();
            for path in contested {
                if self.force {
                    remove_path(&mut entry["fieldsV1"], &path);
                    theirs.remove(&path);
                } else {
                    conflicts.push((entry["manager"].as_str().unwrap_or_default().to_owned(), readable(&path)));
                }
            }
            others.extend(theirs);
        }
        if !conflicts.is_empty() {
            return Err(ApiError::FieldConflict(conflicts));
        }
        entries.retain(|entry| entry["fieldsV1"].as_object().is_some_and(|fields| !fields.is_empty()));

        let mut object = current.clone();
        let previous = own.as_ref().map(|entry| leaves(&entry["fieldsV1"])).unwrap_or_default();
        for path in previous.difference(&wanted).filter(|path| !others.contains(*path)) {
            remove_field(&mut object, path);
        }
        merge(self.kind, &mut object, stated)?;

        let unchanged = own.as_ref().is_some_and(|entry| entry["fieldsV1"] == fields) && {
            object["metadata"]["managedFields"] = current["metadata"]["managedFields"].clone();
            object == *current
        };
        let time = match &own {
            Some(entry) if unchanged => entry["time"].as_str().unwrap_or_default().to_owned(),
            _ => self.now.rfc3339_seconds(),
        };
        entries.insert(own_position.unwrap_or(entries.len()).min(entries.len()), self.entry(&fields, &time));
        object["metadata"]["managedFields"] = Value::Array(entries);
        Ok(object)
    }

    fn entry(&self, fields: &Value, time: &str) -> Value {
        json!({
            "manager": self.manager, "operation": "Apply", "apiVersion": self.kind.kind().api_version(),
            "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    }

    /// The fields of an applied object, without those that identify it.
    fn fields_of(&self, stated: &Value) -> Value {
        let mut content = stated.clone();
        if let Some(content) = content.as_object_mut() {
            content.retain(|key, _| key != "apiVersion" && key != "kind" && key != "status");
        }
        if let Some(metadata) = content.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata
                .retain(|key, _| matches!(key.as_str(), "labels" | "annotations" | "finalizers" | "ownerReferences"));
        }
        self.fields_of_map(content.as_object().unwrap_or(&Map::new()))
    }

    fn fields_of_map(&self, map: &Map<String, Value>) -> Value {
        let mut fields = Map::new();
        for (name, value) in map {
            let inner = match value {
                Value::Object(inner) if !inner.is_empty() => self.fields_of_map(inner),
                Value::Array(items) if name == "finalizers" => {
                    items.iter().map(|item| (format!("v:{item}"), json!({}))).collect()
                }
                Value::Array(items) => match merge_key(self.kind, name) {
                    Some(key) => self.fields_of_items(key, items),
                    None => json!({}),
                },
                _ => json!({}),
            };
            // A `metadata` without other fields is not owned.
            if name != "metadata" || inner.as_object().is_some_and(|inner| !inner.is_empty()) {
                fields.insert(format!("f:{name}"), inner);
            }
        }
        Value::Object(fields)
    }

    fn fields_of_items(&self, key: &str, items: &[Value]) -> Value {
        let mut fields = Map::new();
        for item in items {
            let Some(map) = item.as_object() else { continue };
            let mut inner = self.fields_of_map(map);
            inner["."] = json!({});
            fields.insert(format!("k:{}", json!({ key: item[key] })), inner);
        }
        Value::Object(fields)
    }
}

/// The paths of the leaves of a field set.
fn leaves(fields: &Value) -> BTreeSet<Path> {
    fn collect(fields: &Value, path: &mut Path, found: &mut BTreeSet<Path>) {
        match fields.as_object().filter(|map| !map.is_empty()) {
            None => {
                if !path.is_empty() {
                    found.insert(path.clone());
                }
            }
            Some(map) => {
                for (segment, inner) in map {
                    path.push(segment.clone());
                    collect(inner, path, found);
                    path.pop();
                }
            }
        }
    }
    let mut found = BTreeSet::new();
    collect(fields, &mut Vec::new(), &mut found);
    found
}

/// Removes a path from a field set, and parents that become empty.
fn remove_path(fields: &mut Value, path: &[String]) {
    let (Some(map), Some((first, rest))) = (fields.as_object_mut(), path.split_first()) else { return };
    if let Some(inner) = map.get_mut(first) {
        if !rest.is_empty() {
            remove_path(inner, rest);
        }
        if rest.is_empty() || inner.as_object().is_none_or(Map::is_empty) {
            map.remove(first);
        }
    }
}

fn value_at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter()
        .try_fold(object, |value, segment| {
            if segment == "." {
                return Some(value);
            }
            match segment.split_once(':')? {
                ("f", name) => value.get(name),
                (_, identity) => value.as_array()?.iter().find(|item| is_item(item, segment, identity)),
            }
        })
        // The existence of an item cannot conflict.
        .filter(|_| path.last().is_some_and(|last| last != "."))
}

fn is_item(item: &Value, segment: &str, identity: &str) -> bool {
    let Ok(identity) = serde_json::from_str::<Value>(identity) else { return false };
    if segment.starts_with("v:") {
        return *item == identity;
    }
    identity.as_object().is_some_and(|keys| keys.iter().all(|(key, value)| item[key] == *value))
}

fn remove_field(object: &mut Value, path: &[String]) {
    let Some((first, rest)) = path.split_first() else { return };
    let Some((form, identity)) = first.split_once(':') else { return };
    match (form, rest) {
        ("f", []) => {
            if let Some(map) = object.as_object_mut() {
                map.remove(identity);
            }
        }
        ("f", rest) => {
            if let Some(inner) = object.get_mut(identity) {
                remove_field(inner, rest);
            }
        }
        (_, rest) => {
            let Some(items) = object.as_array_mut() else { return };
            if rest.is_empty() || rest == ["."] {
                items.retain(|item| !is_item(item, first, identity));
            } else if let Some(item) = items.iter_mut().find(|item| is_item(item, first, identity)) {
                remove_field(item, rest);
            }
        }
    }
}

/// `.metadata.labels.a`, `.spec.containers[name="web"].image`
fn readable(path: &[String]) -> String {
    let mut text = String::new();
    for segment in path {
        match segment.split_once(':') {
            Some(("f", name)) => text.push_str(&format!(".{name}")),
            Some(("k", key)) => {
                let keys = serde_json::from_str::<Map<String, Value>>(key).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                text.push_str(&format!("[{}]", keys.join(",")));
            }
            Some((_, value)) => text.push_str(&format!("[={value}]")),
            None => (),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(manager: &str, force: bool) -> Apply<'_> {
        Apply { kind: KindId::NODE, manager, force, now: SimTime::VIRTUAL_START }
    }

    fn labels(labels: &Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n", "labels": labels } })
    }

    #[test]
    fn a_field_that_is_no_longer_applied_is_removed_unless_another_manager_owns_it() {
        let object = by("m1", false).create(labels(&json!({ "a": "1", "b": "1" })));
        let object = by("m2", false).update(&object, &labels(&json!({ "b": "1", "c": "1" }))).unwrap();
        let object = by("m1", false).update(&object, &labels(&json!({}))).unwrap();
        assert_eq!(object["metadata"]["labels"], json!({ "b": "1", "c": "1" }));
        let again = by("m2", false).update(&object, &labels(&json!({ "b": "1", "c": "1" }))).unwrap();
        assert_eq!(again, object, "applying the same fields again changes nothing");
    }

    #[test]
    fn a_field_of_another_manager_conflicts_or_is_forced() {
        let object = by("m1", false).create(labels(&json!({ "a": "1" })));
        let stated = labels(&json!({ "a": "2" }));
        assert_eq!(
            by("m2", false).update(&object, &stated).unwrap_err().to_string(),
            "Apply failed with 1 conflict: conflict with \"m1\": .metadata.labels.a"
        );
        let taken = by("m2", true).update(&object, &stated).unwrap();
        assert_eq!(taken["metadata"]["labels"]["a"], "2");
        assert_eq!(taken["metadata"]["managedFields"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn items_of_keyed_lists_belong_to_their_managers() {
        let conditions = |kinds: &[&str]| {
            let items: Vec<Value> = kinds.iter().map(|kind| json!({ "name": kind })).collect();
            json!({ "metadata": { "name": "n" }, "spec": { "volumes": items } })
        };
        let object = by("m1", false).create(conditions(&["a", "b"]));
        let object = by("m1", false).update(&object, &conditions(&["b"])).unwrap();
        assert_eq!(object["spec"]["volumes"], json!([{ "name": "b" }]));
        let fields = &object["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:volumes"];
        assert_eq!(*fields, json!({ "k:{\"name\":\"b\"}": { ".": {}, "f:name": {} } }));
    }
}
