//! Reads and writes JSON objects from clients.
//!
//! Any field of a client's object may hold any value. Reading with `value["a"]["b"]` is safe in serde_json; writing
//! that way panics when `a` is a string or a number. All writes therefore go through [`put`] and [`entry`], which
//! replace a non-object with an empty object.

use serde_json::{Map, Value, json};

use crate::clock::SimTime;

/// The string, or an empty one if the value is not a string.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of an array; none if the value is not an array.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The value at `path`. Creates missing objects on the way.
pub(crate) fn entry<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Value {
    let mut place = value;
    for &key in path {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        // It is an object now, and indexing an object with a missing key adds the key.
        place = &mut place[key];
    }
    place
}

pub(crate) fn put(value: &mut Value, path: &[&str], new: Value) {
    *entry(value, path) = new;
}

/// The array at `path`. Replaces a missing or different value with an empty array.
pub(crate) fn array<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Vec<Value> {
    let place = entry(value, path);
    if !place.is_array() {
        *place = json!([]);
    }
    match place {
        Value::Array(list) => list,
        _ => unreachable!("the value is an array"),
    }
}

/// Removes a key from the object at `path`, if both exist.
pub(crate) fn take(value: &mut Value, path: &[&str], key: &str) -> Option<Value> {
    let mut place = value;
    for &step in path {
        place = place.get_mut(step)?;
    }
    place.as_object_mut()?.remove(key)
}

/// Parses a Kubernetes timestamp.
pub(crate) fn moment(value: &Value) -> Option<SimTime> {
    let timestamp: jiff::Timestamp = value.as_str()?.parse().ok()?;
    u64::try_from(timestamp.as_millisecond()).ok().map(|unix_ms| SimTime { unix_ms })
}

/// Clamps a count to the API's range: sums and differences of such counts cannot overflow.
pub(crate) fn bounded(count: i64) -> i64 {
    count.clamp(-i64::from(i32::MAX), i64::from(i32::MAX))
}

/// A count from a client; `default` if the value is not a count.
pub(crate) fn count(value: &Value, default: i64) -> i64 {
    bounded(value.as_i64().unwrap_or(default))
}

/// An int-or-percent field: a number, or a percentage of `whole`, rounded as requested; `None` if it is neither.
pub(crate) fn int_or_percent(value: &Value, whole: i64, round_up: bool) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().map(bounded),
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let product = bounded(percent) * bounded(whole);
            Some(if round_up {
                product.div_euclid(100) + i64::from(product.rem_euclid(100) > 0)
            } else {
                product / 100
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_replaces_values_that_are_not_objects() {
        let mut pod = json!({ "status": "nonsense", "spec": 5 });
        put(&mut pod, &["status", "phase"], json!("Running"));
        array(&mut pod, &["spec", "containers"]).push(json!({}));
        assert_eq!(pod, json!({ "status": { "phase": "Running" }, "spec": { "containers": [{}] } }));
        assert_eq!(take(&mut pod, &["status"], "phase"), Some(json!("Running")));
        assert_eq!(take(&mut pod, &["status", "phase"], "deeper"), None);
    }

    #[test]
    fn percentages_are_rounded_as_requested() {
        for (value, whole, round_up, expected) in [
            (json!("25%"), 10, true, Some(3)),
            (json!("25%"), 10, false, Some(2)),
            (json!("0%"), 10, true, Some(0)),
            (json!("100%"), 7, false, Some(7)),
            (json!(4), 10, true, Some(4)),
            (json!("4"), 10, true, None),
            (json!(null), 10, true, None),
        ] {
            assert_eq!(int_or_percent(&value, whole, round_up), expected, "{value} of {whole}");
        }
    }

    #[test]
    fn timestamps_round_trip() {
        let now = SimTime::VIRTUAL_START;
        assert_eq!(moment(&json!(now.rfc3339_seconds())), Some(now));
        assert_eq!(moment(&json!(now.rfc3339_micros())), Some(now));
        assert_eq!(moment(&json!("yesterday")), None);
    }
}
