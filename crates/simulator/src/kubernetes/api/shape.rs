//! The JSON types of the fields that this crate reads or writes.
//!
//! In: an object from a client. Out: the first field with a wrong type, in the words of a real server. After this check
//! the rest of the crate can rely on `metadata` being an object, `spec.containers` a list of objects, and so on. Fields
//! that this crate does not use are not checked.

mod tables;

use serde_json::Value;

use crate::kubernetes::error::ApiError;
use crate::kubernetes::kinds::KindId;

enum Shape {
    Any,
    Text,
    Whole,
    Flag,
    /// A count or a percentage.
    WholeOrText,
    /// A quantity: `500m`, `2`, `1Gi`.
    Quantity,
    Fields(&'static [(&'static str, &'static Shape)]),
    List(&'static Shape),
    Map(&'static Shape),
}

use Shape::{Any, Fields, Flag, List, Map, Quantity, Text, Whole, WholeOrText};

/// Rejects an object with a field of the wrong type.
pub fn check(kind: KindId, object: &Value) -> Result<(), ApiError> {
    let row = kind.kind();
    let mut path = String::new();
    mismatch(tables::shape_of(kind), object, &mut path).map_or(Ok(()), |(found, expected)| {
        Err(ApiError::BadRequest(format!(
            "{0} in version {1:?} cannot be handled as a {0}: json: cannot unmarshal {found} into Go struct field \
             {0}{path} of type {expected}",
            row.kind, row.version,
        )))
    })
}

/// Finds the first mismatch and leaves its path in `path`. Null is always valid: it means absent.
fn mismatch(shape: &Shape, value: &Value, path: &mut String) -> Option<(&'static str, &'static str)> {
    let within = |key: &str, shape: &Shape, value: &Value, path: &mut String| {
        let length = path.len();
        path.push('.');
        path.push_str(key);
        let found = mismatch(shape, value, path);
        if found.is_none() {
            path.truncate(length);
        }
        found
    };
    let expected = match (shape, value) {
        (Any, _)
        | (_, Value::Null)
        | (Text, Value::String(_))
        | (Flag, Value::Bool(_))
        | (Quantity, Value::String(_) | Value::Number(_))
        | (WholeOrText, Value::String(_)) => return None,
        (Whole | WholeOrText, Value::Number(number)) if number.is_i64() => return None,
        (Fields(fields), Value::Object(map)) => {
            return fields
                .iter()
                .filter_map(|(key, shape)| map.get(*key).map(|value| (key, shape, value)))
                .find_map(|(key, shape, value)| within(key, shape, value, path));
        }
        (Map(shape), Value::Object(map)) => {
            return map.iter().find_map(|(key, value)| within(key, shape, value, path));
        }
        (List(shape), Value::Array(items)) => {
            return items.iter().find_map(|item| match item {
                Value::Null => Some(("null", "object")),
                item => mismatch(shape, item, path),
            });
        }
        (Text, _) => "string",
        (Whole, _) => "int64",
        (Flag, _) => "bool",
        (WholeOrText, _) => "intstr.IntOrString",
        (Quantity, _) => "resource.Quantity",
        (Fields(_), _) => "object",
        (Map(Text), _) => "map[string]string",
        (Map(_), _) => "map[string]object",
        (List(_), _) => "[]object",
    };
    Some((type_name(value), expected))
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wrong_types_are_reported_with_their_path() {
        for (object, message) in [
            (json!({ "metadata": { "name": 3 } }), "cannot unmarshal number into Go struct field Pod.metadata.name"),
            (json!({ "metadata": [] }), "cannot unmarshal array into Go struct field Pod.metadata of type object"),
            (json!({ "metadata": { "labels": { "a": 1 } } }), "field Pod.metadata.labels.a of type string"),
            (json!({ "spec": { "containers": [{}, 7] } }), "field Pod.spec.containers of type object"),
            (json!({ "spec": { "containers": [null] } }), "cannot unmarshal null"),
            (json!({ "spec": { "priority": 1.5 } }), "field Pod.spec.priority of type int64"),
            (json!([]), "cannot unmarshal array"),
        ] {
            let error = check(KindId::POD, &object).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let fine = json!({ "metadata": { "name": "a", "labels": null }, "spec": { "containers": [], "unknown": 7 } });
        assert_eq!(check(KindId::POD, &fine), Ok(()));
    }
}
