//! The fields of the API's messages: their numbers, names and types, parsed from `fields.txt`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: FieldShape,
    /// In JSON, the fields of the message replace the message.
    pub(super) inline: bool,
    /// Zero differs from absent.
    pub(super) keeps_zero: bool,
    pub(super) content: Content,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldShape {
    One,
    List,
    Map,
}

#[derive(Clone, Copy)]
pub(super) enum Content {
    Text,
    Whole,
    Flag,
    Number,
    Bytes,
    Time { micros: bool },
    Quantity,
    WholeOrText,
    Json,
    Message(&'static str),
}

pub(super) type Message = BTreeMap<u64, Field>;

pub(super) static MESSAGES: LazyLock<BTreeMap<&'static str, Message>> = LazyLock::new(|| {
    let lines = include_str!("fields.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            Some((name, words.filter_map(field).collect()))
        })
        .collect()
});

/// Parses `3=spec:*core.v1.Thing`.
fn field(word: &'static str) -> Option<(u64, Field)> {
    let (number, rest) = word.split_once('=')?;
    let (name, mut kind) = rest.split_once(':')?;
    let mut take = |mark: char| match kind.strip_prefix(mark) {
        Some(rest) => {
            kind = rest;
            true
        }
        None => false,
    };
    let shape = if take('*') {
        FieldShape::List
    } else if take('{') {
        FieldShape::Map
    } else {
        FieldShape::One
    };
    let inline = take('~');
    let keeps_zero = take('!');
    let content = match kind {
        "s" => Content::Text,
        "i" => Content::Whole,
        "b" => Content::Flag,
        "d" => Content::Number,
        "y" => Content::Bytes,
        "t" => Content::Time { micros: false },
        "u" => Content::Time { micros: true },
        "q" => Content::Quantity,
        "x" => Content::WholeOrText,
        "j" => Content::Json,
        message => Content::Message(message),
    };
    Some((number.parse().ok()?, Field { name, shape, inline, keeps_zero, content }))
}

/// The fields of an object that its message does not have, for example `spec.template.nonsense`; at most `limit`.
#[must_use]
pub fn unknown_fields(message: &str, object: &Value, limit: usize) -> Vec<String> {
    let mut found = Vec::new();
    collect_unknown(message, object, &mut String::new(), limit, &mut found);
    found.retain(|field| field != "apiVersion" && field != "kind");
    found
}

/// The message of a kind, for example `core.v1.Pod`.
#[must_use]
pub fn message_name(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    format!("{}.{version}.{kind}", group.split('.').next().unwrap_or_default())
}

fn collect_unknown(message: &str, object: &Value, path: &mut String, limit: usize, found: &mut Vec<String>) {
    let (Some(fields), Some(map)) = (MESSAGES.get(message), object.as_object()) else { return };
    for (key, value) in map {
        if found.len() >= limit {
            return;
        }
        let length = path.len();
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
        match named_field(fields, key) {
            None => found.push(path.clone()),
            Some(Field { content: Content::Message(inner), shape, .. }) => match (shape, value) {
                (FieldShape::One, value) => collect_unknown(inner, value, path, limit, found),
                (FieldShape::List, Value::Array(items)) => {
                    for (index, item) in items.iter().enumerate() {
                        let item_length = path.len();
                        path.push_str(&format!("[{index}]"));
                        collect_unknown(inner, item, path, limit, found);
                        path.truncate(item_length);
                    }
                }
                _ => (),
            },
            Some(_) => (),
        }
        path.truncate(length);
    }
}

/// A message's field by its JSON name, including the fields of inline messages.
fn named_field(fields: &'static Message, name: &str) -> Option<&'static Field> {
    fields.values().find(|field| field.name == name && !field.inline).or_else(|| {
        fields.values().filter(|field| field.inline).find_map(|field| match field.content {
            Content::Message(inner) => named_field(MESSAGES.get(inner)?, name),
            _ => None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_fields_are_reported_with_their_path() {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "labels": { "any": "x" } }, "specc": 1,
            "spec": { "containers": [{ "name": "c", "imagee": 1, "livenessProbe": { "httpGet": {}, "x": 1 } }],
                "volumes": [{ "name": "v", "emptyDir": { "y": 1 } }] } });
        assert_eq!(
            unknown_fields("core.v1.Pod", &pod, 10),
            ["spec.containers[0].imagee", "spec.containers[0].livenessProbe.x", "spec.volumes[0].emptyDir.y", "specc"]
        );
    }

    #[test]
    fn every_message_that_a_field_names_exists() {
        for message in MESSAGES.values() {
            for field in message.values() {
                if let Content::Message(name) = field.content {
                    assert!(MESSAGES.contains_key(name), "{name}");
                }
            }
        }
    }
}
