//! Conditions: the `status.conditions` list that most kinds have.
//!
//! In and out: complete objects. Invariant: `lastTransitionTime` changes only when `status` changes, so that writing
//! the same conditions again leaves the object byte for byte unchanged.

use serde_json::{Value, json};

use super::json::{array, items, text};
use crate::clock::SimTime;

pub(crate) fn find<'a>(object: &'a Value, condition_type: &str) -> Option<&'a Value> {
    items(&object["status"]["conditions"]).iter().find(|condition| condition["type"] == condition_type)
}

/// `True`, `False`, `Unknown`, or empty if the condition is missing.
pub(crate) fn status<'a>(object: &'a Value, condition_type: &str) -> &'a str {
    find(object, condition_type).map_or("", |condition| text(&condition["status"]))
}

pub(crate) fn is_true(object: &Value, condition_type: &str) -> bool {
    status(object, condition_type) == "True"
}

/// The content of a condition without its type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State<'a> {
    pub status: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
}

impl<'a> State<'a> {
    pub(crate) fn new(status: &'a str, reason: &'a str, message: &'a str) -> State<'a> {
        State { status, reason, message }
    }
}

/// Sets a condition. Its other fields (heartbeat, update time) stay unchanged.
pub(crate) fn set(object: &mut Value, condition_type: &str, state: State<'_>, now: SimTime) {
    let conditions = array(object, &["status", "conditions"]);
    conditions.retain(Value::is_object);
    let at = match conditions.iter().position(|condition| condition["type"] == condition_type) {
        Some(at) => at,
        None => {
            conditions.push(json!({ "type": condition_type }));
            conditions.len() - 1
        }
    };
    let Some(condition) = conditions[at].as_object_mut() else { return };
    if condition.get("status").is_none_or(|status| status != state.status) {
        condition.insert("lastTransitionTime".to_owned(), json!(now.rfc3339_seconds()));
    }
    condition.insert("status".to_owned(), json!(state.status));
    for (field, value) in [("reason", state.reason), ("message", state.message)] {
        if value.is_empty() {
            condition.remove(field);
        } else {
            condition.insert(field.to_owned(), json!(value));
        }
    }
}

/// Sets a timestamp field of an existing condition: `lastHeartbeatTime`, `lastUpdateTime`.
pub(crate) fn stamp(object: &mut Value, condition_type: &str, field: &str, value: &str) {
    for condition in array(object, &["status", "conditions"]) {
        if condition["type"] == condition_type
            && let Some(condition) = condition.as_object_mut()
        {
            condition.insert(field.to_owned(), json!(value));
        }
    }
}

pub(crate) fn remove(object: &mut Value, condition_type: &str) {
    array(object, &["status", "conditions"]).retain(|condition| condition["type"] != condition_type);
}
