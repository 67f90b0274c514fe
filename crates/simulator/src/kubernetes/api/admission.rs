//! What a real server's admission plugins refuse about priorities.

use serde_json::Value;

use crate::kubernetes::error::ApiError;
use crate::kubernetes::json::text;
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::priority::{Priority, priority_of};
use crate::kubernetes::store::{Store, resource_name};

/// A pod's priority is that of its class: a pod that states another one is refused, with the reason.
pub(super) fn admit_pod(store: &Store, pod: &Value) -> Result<(), String> {
    let spec = &pod["spec"];
    let Some(Priority { value, policy, .. }) = priority_of(store, spec) else {
        return Err(format!("no PriorityClass with name {} was found", text(&spec["priorityClassName"])));
    };
    if let Some(given) = spec["priority"].as_i64().filter(|given| *given != value) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        ));
    }
    if let Some(given) = spec["preemptionPolicy"].as_str().filter(|given| *given != policy) {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        ));
    }
    Ok(())
}

/// Only one class can be the default of pods that name none.
pub(super) fn admit_priority_class(store: &Store, class: &Value) -> Result<(), ApiError> {
    let name = text(&class["metadata"]["name"]);
    let default = store.list(KindId::PRIORITY_CLASS, None).find(|known| known["globalDefault"] == true);
    match default.map(|known| text(&known["metadata"]["name"])) {
        Some(known) if class["globalDefault"] == true && known != name => Err(ApiError::Forbidden {
            resource: resource_name(KindId::PRIORITY_CLASS),
            name: name.to_owned(),
            why: format!("PriorityClass {known} is already marked as default. Only one default can exist"),
            cause: None,
        }),
        _ => Ok(()),
    }
}
