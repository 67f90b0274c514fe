//! Events of `events.k8s.io/v1`: the same objects as core events, with different names for some fields.

use serde_json::Value;

pub const API_VERSION: &str = "events.k8s.io/v1";

/// (field in `events.k8s.io`, field in the core group)
const RENAMED: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

#[must_use]
pub fn from_core(event: &Value) -> Value {
    renamed(event, API_VERSION, |(new, core)| (core, new))
}

#[must_use]
pub fn to_core(event: &Value) -> Value {
    renamed(event, "v1", |(new, core)| (new, core))
}

fn renamed(
    event: &Value,
    api_version: &str,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> Value {
    let mut event = event.clone();
    if let Some(map) = event.as_object_mut() {
        for (from, to) in RENAMED.iter().copied().map(direction) {
            if let Some(value) = map.remove(from) {
                map.insert(to.to_owned(), value);
            }
        }
        if map.contains_key("apiVersion") {
            map.insert("apiVersion".to_owned(), Value::String(api_version.to_owned()));
        }
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_round_trip() {
        let core = json!({ "apiVersion": "v1", "kind": "Event", "involvedObject": { "name": "p" }, "message": "m" });
        let new = from_core(&core);
        assert_eq!(new["regarding"]["name"], "p");
        assert_eq!(new["apiVersion"], API_VERSION);
        assert_eq!(to_core(&new), core);
    }
}
