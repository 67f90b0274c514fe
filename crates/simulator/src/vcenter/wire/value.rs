//! Property values and answers: a small typed tree, its paths, and its serialization.
//!
//! A [`Value`] is the value of a property or the answer of a method. `xsi:type` is written wherever a client may need
//! it: on the value of a property, and on every data object. [`Value::at`] resolves a property path, for example
//! `config.hardware.numCPU` or `config.extraConfig["key"]`.
//!
//! Invariant: fields are in the order of the API's schema, because SOAP clients may rely on it.

use std::fmt::{Display, Write};

use super::schema;
use super::xml::escape_into;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A known property without a value. It is not written.
    Unset,
    /// A simple value or an enumeration value, by its type on the wire: `xsd:int`, `ManagedEntityStatus`.
    Simple {
        type_name: &'static str,
        text: String,
    },
    Ref(Reference),
    /// A reference that is returned as the client wrote it, because it refers to no object here.
    Foreign {
        type_name: String,
        value: String,
    },
    Object(Object),
    /// An array of elements of a declared type: `ManagedObjectReference`, `string`, `ClusterRuleInfo`.
    List {
        element: &'static str,
        items: Vec<Value>,
    },
}

/// A managed object reference in its wire format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub type_name: &'static str,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub type_name: &'static str,
    pub fields: Vec<(&'static str, Value)>,
}

/// The result of resolving a path.
#[derive(Debug, PartialEq, Eq)]
pub enum At<'a> {
    Found(&'a Value),
    /// The path is valid, but it or a part of it has no value.
    Unset,
    /// The property does not exist.
    Unknown,
}

impl Value {
    pub fn string(text: impl Into<String>) -> Value {
        Value::Simple { type_name: "xsd:string", text: text.into() }
    }

    pub fn int(number: impl Display) -> Value {
        Value::Simple { type_name: "xsd:int", text: number.to_string() }
    }

    pub fn long(number: impl Display) -> Value {
        Value::Simple { type_name: "xsd:long", text: number.to_string() }
    }

    pub fn short(number: impl Display) -> Value {
        Value::Simple { type_name: "xsd:short", text: number.to_string() }
    }

    pub fn bool(truth: bool) -> Value {
        Value::Simple { type_name: "xsd:boolean", text: truth.to_string() }
    }

    pub fn time(moment: crate::clock::SimTime) -> Value {
        Value::Simple { type_name: "xsd:dateTime", text: moment.rfc3339_micros() }
    }

    /// A member of an enumeration.
    pub fn of(type_name: &'static str, text: impl Into<String>) -> Value {
        Value::Simple { type_name, text: text.into() }
    }

    pub fn object(type_name: &'static str, fields: Vec<(&'static str, Value)>) -> Value {
        Value::Object(Object { type_name, fields })
    }

    pub fn strings<S: Into<String>>(items: impl IntoIterator<Item = S>) -> Value {
        Value::List { element: "string", items: items.into_iter().map(Value::string).collect() }
    }

    pub fn refs<R: Into<Reference>>(items: impl IntoIterator<Item = R>) -> Value {
        Value::List {
            element: "ManagedObjectReference",
            items: items.into_iter().map(|item| Value::Ref(item.into())).collect(),
        }
    }

    pub fn list(element: &'static str, items: Vec<Value>) -> Value {
        Value::List { element, items }
    }

    pub fn or_unset<T>(value: Option<T>, make: impl FnOnce(T) -> Value) -> Value {
        value.map_or(Value::Unset, make)
    }

    /// Resolves the rest of a property path.
    #[must_use]
    pub fn at(&self, path: &[Segment]) -> At<'_> {
        let Some((segment, rest)) = path.split_first() else {
            return if *self == Value::Unset { At::Unset } else { At::Found(self) };
        };
        match (self, segment) {
            (Value::Unset, _) => At::Unset,
            (Value::Object(object), Segment::Field(name)) => {
                match object.fields.iter().find(|(field, _)| field == name) {
                    Some((_, value)) => value.at(rest),
                    None if schema::has_field(object.type_name, name) => At::Unset,
                    None => At::Unknown,
                }
            }
            (Value::List { items, .. }, Segment::Key(key)) => match items.iter().find(|item| item.has_key(key)) {
                Some(item) => item.at(rest),
                None => At::Unset,
            },
            _ => At::Unknown,
        }
    }

    fn has_key(&self, key: &str) -> bool {
        match self {
            Value::Object(object) => object
                .fields
                .iter()
                .any(|(name, value)| *name == "key" && matches!(value, Value::Simple { text, .. } if text == key)),
            Value::Ref(reference) => reference.value == key,
            _ => false,
        }
    }

    /// The references in the value: itself, or the items of a list.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        let (one, many) = match self {
            Value::Ref(reference) => (Some(reference), &[][..]),
            Value::List { items, .. } => (None, &items[..]),
            _ => (None, &[][..]),
        };
        one.into_iter().chain(many.iter().filter_map(|item| match item {
            Value::Ref(reference) => Some(reference),
            _ => None,
        }))
    }

    /// Writes the value as `<name ...>`; a list as one element per item, like fields of data objects.
    pub fn write_field(&self, out: &mut String, name: &str) {
        match self {
            Value::Unset => (),
            Value::Simple { text, .. } => write_simple(out, name, "", text),
            Value::Ref(reference) => write_reference(out, name, reference.type_name, &reference.value),
            Value::Foreign { type_name, value } => write_reference(out, name, type_name, value),
            Value::Object(object) => write_object(out, name, object),
            Value::List { items, .. } => items.iter().for_each(|item| item.write_field(out, name)),
        }
    }

    /// Writes the value with its type, for fields that the schema declares as `xsd:anyType`.
    pub fn write_any(&self, out: &mut String, name: &str) {
        match self {
            Value::Simple { type_name, text } => write_simple(out, name, type_name, text),
            Value::List { element, items } => {
                let mut characters = element.chars();
                let capital = characters.next().map(|first| first.to_ascii_uppercase()).unwrap_or_default();
                let _ = write!(out, "<{name} xsi:type=\"ArrayOf{capital}{}\">", characters.as_str());
                items.iter().for_each(|item| item.write_field(out, element));
                let _ = write!(out, "</{name}>");
            }
            _ => self.write_field(out, name),
        }
    }
}

fn write_simple(out: &mut String, name: &str, type_name: &str, text: &str) {
    out.push('<');
    out.push_str(name);
    if !type_name.is_empty() {
        out.push_str(" xsi:type=\"");
        out.push_str(type_name);
        out.push('"');
    }
    out.push('>');
    escape_into(out, text);
    out.push_str("</");
    out.push_str(name);
    out.push('>');
}

fn write_reference(out: &mut String, name: &str, type_name: &str, value: &str) {
    let _ = write!(out, "<{name} type=\"");
    escape_into(out, type_name);
    out.push_str("\" xsi:type=\"ManagedObjectReference\">");
    escape_into(out, value);
    let _ = write!(out, "</{name}>");
}

fn write_object(out: &mut String, name: &str, object: &Object) {
    let _ = write!(out, "<{name} xsi:type=\"{}\">", object.type_name);
    for (field, value) in &object.fields {
        // The schema declares these as anyType, so their values need a type.
        if matches!(
            (object.type_name, *field),
            ("DynamicProperty" | "PropertyChange", "val") | ("OptionValue", "value") | ("TaskInfo", "result")
        ) {
            value.write_any(out, field);
        } else {
            value.write_field(out, field);
        }
    }
    let _ = write!(out, "</{name}>");
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    Field(String),
    /// `["key"]` or `[4000]`.
    Key(String),
}

/// A property path, as text and parsed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path {
    pub text: String,
    /// The property of the managed object itself.
    pub property: String,
    pub rest: Vec<Segment>,
}

impl Path {
    /// `None` if the text is not a path.
    #[must_use]
    pub fn parse(text: &str) -> Option<Path> {
        let mut segments = Vec::new();
        let mut left = text;
        loop {
            let end = left.find(['.', '[']).unwrap_or(left.len());
            let (name, after) = left.split_at(end);
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return None;
            }
            segments.push(Segment::Field(name.to_owned()));
            left = after;
            while let Some(bracket) = left.strip_prefix('[') {
                let (key, after) = match bracket.strip_prefix('"') {
                    Some(quoted) => quoted.split_once("\"]")?,
                    None => bracket.split_once(']')?,
                };
                segments.push(Segment::Key(key.to_owned()));
                left = after;
            }
            if left.is_empty() {
                break;
            }
            left = left.strip_prefix('.')?;
        }
        let property = match segments.remove(0) {
            Segment::Field(name) | Segment::Key(name) => name,
        };
        Some(Path { text: text.to_owned(), property, rest: segments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Value {
        let option = |key: &str, value| {
            Value::object("OptionValue", vec![("key", Value::string(key)), ("value", Value::string(value))])
        };
        Value::object(
            "VirtualMachineConfigInfo",
            vec![
                ("name", Value::string("a & b")),
                ("hardware", Value::object("VirtualHardware", vec![("numCPU", Value::int(4))])),
                ("extraConfig", Value::list("OptionValue", vec![option("x.y", "1"), option("z", "2")])),
            ],
        )
    }

    #[test]
    fn paths() {
        let four = Value::int(4);
        let two = Value::string("2");
        for (path, expected) in [
            ("config.hardware.numCPU", At::Found(&four)),
            ("config.extraConfig[\"z\"].value", At::Found(&two)),
            ("config.extraConfig[\"none\"].value", At::Unset),
            ("config.annotation", At::Unset),
            ("config.hardware.device", At::Unset),
            ("config.nonsense", At::Unknown),
            ("config.name.nonsense", At::Unknown),
            ("config.extraConfig.key", At::Unknown),
        ] {
            let path = Path::parse(path).unwrap();
            assert_eq!(sample().at(&path.rest), expected, "{path:?}");
        }
        for text in ["", ".", "a.", ".a", "a..b", "a[", "a[\"b]", "a[1]b", "a b", "<"] {
            assert_eq!(Path::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn values_are_written_with_their_types() {
        let mut out = String::new();
        sample().write_any(&mut out, "val");
        assert_eq!(
            out,
            "<val xsi:type=\"VirtualMachineConfigInfo\"><name>a &amp; b</name>\
             <hardware xsi:type=\"VirtualHardware\"><numCPU>4</numCPU></hardware>\
             <extraConfig xsi:type=\"OptionValue\"><key>x.y</key><value xsi:type=\"xsd:string\">1</value></extraConfig>\
             <extraConfig xsi:type=\"OptionValue\"><key>z</key><value xsi:type=\"xsd:string\">2</value></extraConfig></val>"
        );
        let mut out = String::new();
        Value::strings(["a"]).write_any(&mut out, "val");
        assert_eq!(out, "<val xsi:type=\"ArrayOfString\"><string>a</string></val>");
    }
}
