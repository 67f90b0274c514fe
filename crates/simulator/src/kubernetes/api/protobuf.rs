//! Protobuf bodies: the form in which Go clients, including kubectl, send objects to create.
//!
//! In: `application/vnd.kubernetes.protobuf`. Out: the same object as JSON. Answers are always JSON, which these
//! clients also accept. The field numbers are in [`schema`]; unknown fields are skipped.
//!
//! Invariants: every length is checked against the remaining bytes; nesting is bounded.

mod schema;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::clock::SimTime;
use schema::{Content, Field, FieldShape, MESSAGES};
pub use schema::{message_name, unknown_fields};

pub const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The prefix of every protobuf body.
const MAGIC: &[u8] = b"k8s\0";
const DEPTH_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error("proto: the body does not begin with the Kubernetes prefix")]
    Prefix,
    #[error("proto: unexpected EOF")]
    Truncated,
    #[error("proto: wrong wire type")]
    WireType,
    #[error("proto: a text is not UTF-8")]
    Text,
    #[error("proto: nested too deeply")]
    Depth,
    #[error("proto: unknown kind")]
    UnknownKind,
}

/// Decodes the object in a body, with the apiVersion and kind from the body.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtobufError::Prefix)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for entry in Entries(envelope) {
        match entry? {
            (1, Wire::Bytes(type_meta)) => {
                for entry in Entries(type_meta) {
                    match entry? {
                        (1, Wire::Bytes(bytes)) => api_version = text(bytes)?,
                        (2, Wire::Bytes(bytes)) => kind = text(bytes)?,
                        _ => (),
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => (),
        }
    }
    let message =
        if kind == "DeleteOptions" { "meta.v1.DeleteOptions".to_owned() } else { message_name(&api_version, &kind) };
    let mut object = decode_message(&message, raw, 0)?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

fn decode_message(name: &str, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, ProtobufError> {
    if depth > DEPTH_MAX {
        return Err(ProtobufError::Depth);
    }
    let message = MESSAGES.get(name).ok_or(ProtobufError::UnknownKind)?;
    let mut object = Map::new();
    for entry in Entries(bytes) {
        let (number, wire) = entry?;
        let Some(field) = message.get(&number) else { continue };
        match field.shape {
            FieldShape::One if field.inline => {
                if let Value::Object(inner) = decode_value(field, wire, depth)? {
                    object.extend(inner);
                }
            }
            FieldShape::One => {
                let value = decode_value(field, wire, depth)?;
                let empty = value.is_null() || value == "" || value == 0 || value == false;
                if !empty || (field.keeps_zero && !value.is_null()) {
                    object.insert(field.name.to_owned(), value);
                }
            }
            FieldShape::List => {
                let value = decode_value(field, wire, depth)?;
                let list = object.entry(field.name).or_insert_with(|| json!([]));
                if let Some(list) = list.as_array_mut() {
                    list.push(value);
                }
            }
            FieldShape::Map => {
                let Wire::Bytes(pair) = wire else { return Err(ProtobufError::WireType) };
                let (mut key, mut value) = (String::new(), Value::Null);
                for entry in Entries(pair) {
                    match entry? {
                        (1, Wire::Bytes(bytes)) => key = text(bytes)?,
                        (2, wire) => value = decode_value(field, wire, depth)?,
                        _ => (),
                    }
                }
                if value.is_null() && matches!(field.content, Content::Text | Content::Bytes) {
                    value = json!("");
                }
                let map = object.entry(field.name).or_insert_with(|| json!({}));
                if let Some(map) = map.as_object_mut() {
                    map.insert(key, value);
                }
            }
        }
    }
    Ok(object)
}

fn decode_value(field: &Field, wire: Wire<'_>, depth: usize) -> Result<Value, ProtobufError> {
    Ok(match (field.content, wire) {
        (Content::Text, Wire::Bytes(bytes)) => json!(text(bytes)?),
        // Negative numbers are encoded in two's complement.
        (Content::Whole, Wire::Varint(number)) => json!(number.cast_signed()),
        (Content::Flag, Wire::Varint(number)) => json!(number != 0),
        (Content::Number, Wire::Fixed64(bits)) => json!(f64::from_bits(bits)),
        (Content::Bytes, Wire::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        (Content::Time { micros }, Wire::Bytes(bytes)) => time(bytes, micros)?,
        (Content::Quantity, Wire::Bytes(bytes)) => {
            Entries(bytes).try_fold(Value::Null, |value, entry| match entry? {
                (1, Wire::Bytes(bytes)) => Ok(json!(text(bytes)?)),
                _ => Ok(value),
            })?
        }
        (Content::WholeOrText, Wire::Bytes(bytes)) => whole_or_text(bytes)?,
        (Content::Json, Wire::Bytes(bytes)) => Entries(bytes).try_fold(Value::Null, |value, entry| match entry? {
            (1, Wire::Bytes(bytes)) => Ok(serde_json::from_slice(bytes).unwrap_or_default()),
            _ => Ok::<_, ProtobufError>(value),
        })?,
        (Content::Message(name), Wire::Bytes(bytes)) => Value::Object(decode_message(name, bytes, depth + 1)?),
        _ => return Err(ProtobufError::WireType),
    })
}

/// Null for the zero time, which is encoded as an empty message.
fn time(bytes: &[u8], micros: bool) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    for entry in Entries(bytes) {
        match entry? {
            (1, Wire::Varint(number)) => seconds = number.cast_signed(),
            (2, Wire::Varint(number)) => nanos = number.cast_signed(),
            _ => (),
        }
    }
    let unix_ms = seconds.checked_mul(1000).and_then(|ms| ms.checked_add(nanos / 1_000_000));
    Ok(match unix_ms.map(u64::try_from) {
        Some(Ok(unix_ms)) if unix_ms > 0 => {
            let moment = SimTime { unix_ms };
            json!(if micros { moment.rfc3339_micros() } else { moment.rfc3339_seconds() })
        }
        _ => Value::Null,
    })
}

fn whole_or_text(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_text, mut number, mut string) = (false, 0_i64, String::new());
    for entry in Entries(bytes) {
        match entry? {
            (1, Wire::Varint(kind)) => is_text = kind == 1,
            (2, Wire::Varint(value)) => number = value.cast_signed(),
            (3, Wire::Bytes(bytes)) => string = text(bytes)?,
            _ => (),
        }
    }
    Ok(if is_text { json!(string) } else { json!(number) })
}

fn text(bytes: &[u8]) -> Result<String, ProtobufError> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| ProtobufError::Text)
}

/// One field in its wire format.
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

/// The fields of a message in order; ends after the first error.
struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(u64, Wire<'a>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.0 = &[];
        }
        Some(entry)
    }
}

impl<'a> Entries<'a> {
    fn entry(&mut self) -> Result<(u64, Wire<'a>), ProtobufError> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?;
                Wire::Fixed64(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Truncated)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            _ => return Err(ProtobufError::WireType),
        };
        Ok((tag >> 3, wire))
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(ProtobufError::WireType)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        if length > self.0.len() {
            return Err(ProtobufError::Truncated);
        }
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        field.extend(content);
        field
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), bytes(1, &type_meta), bytes(2, raw)].concat()
    }

    #[test]
    fn an_object_decodes_to_its_json() {
        let metadata = [bytes(1, b"web"), bytes(2, b""), bytes(8, b"")].concat();
        let spec = [vec![1 << 3, 0], vec![5 << 3, 0]].concat(); // replicas 0 is kept, minReadySeconds 0 is omitted
        let object = decode(&body("apps/v1", "Deployment", &[bytes(1, &metadata), bytes(2, &spec)].concat())).unwrap();
        assert_eq!(
            object,
            json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" }, "spec": { "replicas": 0 } })
        );
        let data = bytes(2, &[bytes(1, b"a"), bytes(2, b"b")].concat());
        assert_eq!(decode(&body("v1", "Secret", &data)).unwrap()["data"], json!({ "a": "Yg==" }));
    }

    #[test]
    fn invalid_bodies_are_rejected() {
        let good = body("v1", "Pod", &bytes(1, &bytes(1, b"web")));
        for length in 0..good.len() {
            let _ = decode(&good[..length]);
        }
        for (broken, error) in [
            (b"{}".to_vec(), ProtobufError::Prefix),
            (body("v9", "Pod", b""), ProtobufError::UnknownKind),
            (body("v1", "Pod", &[0x0a, 0xff]), ProtobufError::Truncated),
            (body("v1", "Pod", &[0x08, 0x01]), ProtobufError::WireType),
            (body("v1", "Pod", &bytes(1, &bytes(1, &[0xff]))), ProtobufError::Text),
        ] {
            assert_eq!(decode(&broken), Err(error));
        }
    }
}
