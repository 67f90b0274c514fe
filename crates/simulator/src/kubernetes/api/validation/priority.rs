//! Validation of PriorityClasses.

use serde_json::{Value, json};

use super::immutable;
use crate::kubernetes::error::FieldError;

/// The values of the classes whose prefix is reserved.
pub(in crate::kubernetes) const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
const SYSTEM_PREFIX: &str = "system-";
const HIGHEST_USER_DEFINABLE: i64 = 1_000_000_000;

pub(super) fn check(class: &Value, errors: &mut Vec<FieldError>) {
    let name = class["metadata"]["name"].as_str().unwrap_or_default();
    let value = class["value"].as_i64().unwrap_or(0);
    if name.starts_with(SYSTEM_PREFIX) {
        let why = match SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) {
            None => format!("{name} is not a known system priority class"),
            Some((_, wanted)) if *wanted != value => format!("value of {name} PriorityClass must be {wanted}"),
            Some(_) if class["globalDefault"] == true => {
                format!("globalDefault of {name} PriorityClass must be false")
            }
            Some(_) => String::new(),
        };
        if !why.is_empty() {
            let detail = format!(
                "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {why}"
            );
            errors.push(FieldError::forbidden("metadata.name", &detail));
        }
    } else if value > HIGHEST_USER_DEFINABLE {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_DEFINABLE}");
        errors.push(FieldError::forbidden("value", &detail));
    }
    let policies = ["PreemptLowerPriority", "Never"];
    let policy = &class["preemptionPolicy"];
    if !policies.contains(&policy.as_str().unwrap_or("Never")) {
        errors.push(FieldError::not_supported("preemptionPolicy", policy, &policies));
    }
}

pub(super) fn check_kept(before: &Value, after: &Value, errors: &mut Vec<FieldError>) {
    if after["value"].as_i64().unwrap_or(0) != before["value"].as_i64().unwrap_or(0) {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    let policy = |class: &Value| class["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority").to_owned();
    if policy(after) != policy(before) {
        errors.push(immutable("preemptionPolicy", &json!(policy(after))));
    }
}
