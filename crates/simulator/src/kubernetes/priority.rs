//! A pod's priority, from its PriorityClass.

use serde_json::Value;

use super::json::text;
use super::kinds::KindId;
use super::store::Store;

/// What the class of a pod determines. Without a class, and without a default class, the name is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Priority {
    pub class: String,
    pub value: i64,
    pub policy: String,
}

/// The priority of a pod with this spec; `None` if the class that it names does not exist.
pub(crate) fn priority_of(store: &Store, spec: &Value) -> Option<Priority> {
    let named = text(&spec["priorityClassName"]);
    let class = if named.is_empty() {
        // With several global defaults, a real server takes the lowest.
        let defaults = store.list(KindId::PRIORITY_CLASS, None).filter(|class| class["globalDefault"] == true);
        defaults.min_by_key(|class| class["value"].as_i64())
    } else {
        Some(store.get(KindId::PRIORITY_CLASS, "", named)?)
    };
    let field = |field: &str| class.map_or(&Value::Null, |class| &class[field]);
    Some(Priority {
        class: class.map_or("", |class| text(&class["metadata"]["name"])).to_owned(),
        value: field("value").as_i64().unwrap_or(0),
        policy: field("preemptionPolicy").as_str().unwrap_or("PreemptLowerPriority").to_owned(),
    })
}
