//! Conditions: the list `status.conditions` that most kinds have.
//!
//! Input and output are whole objects. Invariant: `lastTransitionTime` moves only when `status` does, so that an
//! object whose conditions are written again unchanged stays byte for byte the same.

use serde_json::{Value, json};

use super::json::{array, items, text};
use crate::clock::SimTime;

pub(crate) fn find<'a>(object: &'a Value, condition_type: &str) -> Option<&'a Value> {
    items(&object["status"]["conditions"]).iter().find(|condition| condition["type"] == condition_type)
}

/// `True`, `False`, `Unknown`, or empty when the condition is not there.
pub(crate) fn status<'a>(object: &'a Value, condition_type: &str) -> &'a str {
    find(object, condition_type).map_or("", |condition| text(&condition["status"]))
}

pub(crate) fn is_true(object: &Value, condition_type: &str) -> bool {
    status(object, condition_type) == "True"
}

/// What a condition says besides its type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Says<'a> {
    pub status: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
}

impl<'a> Says<'a> {
    pub(crate) fn new(status: &'a str, reason: &'a str, message: &'a str) -> Says<'a> {
        Says { status, reason, message }
    }
}

/// Sets a condition; fields that it has besides (heartbeat, update time) stay.
pub(crate) fn set(object: &mut Value, condition_type: &str, says: Says<'_>, now: SimTime) {
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
    if condition.get("status").is_none_or(|status| status != says.status) {
        condition.insert("lastTransitionTime".to_owned(), json!(now.rfc3339_seconds()));
    }
    condition.insert("status".to_owned(), json!(says.status));
    for (field, value) in [("reason", says.reason), ("message", says.message)] {
        if value.is_empty() {
            condition.remove(field);
        } else {
            condition.insert(field.to_owned(), json!(value));
        }
    }
}

/// Stamps a field of a condition that is there: `lastHeartbeatTime`, `lastUpdateTime`.
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
