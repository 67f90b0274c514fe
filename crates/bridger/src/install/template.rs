//! Kubernetes objects with values left open: the one form from which both the Helm chart and `bridger manifests all` are
//! made.
//!
//! `chart.rs` prints a template as a Helm template, `render.rs` inserts values. What both need to agree on is only what
//! is here: few building blocks, each with one meaning.

use serde_json::Value;

/// A YAML node.
#[derive(Clone, Debug, PartialEq)]
pub enum Yaml {
    /// The same in every installation.
    Literal(Value),
    /// A value of the installation, of any type.
    Inserted(Origin),
    /// Text with values in it.
    Text(Vec<Piece>),
    Map(Vec<Entry>),
    List(Vec<Item>),
    /// A file: YAML as text.
    File(Box<Yaml>),
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A path in the values, `image.tag`.
    Value(&'static str),
    /// A field of the element that a [`Item::Each`] is at.
    Field(&'static str),
    /// The element itself.
    Element,
    /// Changes if any value does, so that pods that read the values start again.
    Digest,
    /// The namespace that everything is installed into.
    Namespace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Literal(String),
    Inserted(Origin),
}

/// A part of a map.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    Key(&'static str, Yaml),
    When(Condition, Vec<Entry>),
    /// All entries of a map among the values.
    Spread(Origin),
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    One(Yaml),
    When(Condition, Vec<Item>),
    /// These items for each element of a list among the values.
    Each(&'static str, Vec<Item>),
}

/// A value is true if it is not empty, zero, false or absent, as in Helm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    Is(Origin),
    Not(Box<Condition>),
    Any(Vec<Condition>),
    All(Vec<Condition>),
    /// The value is a number above this one.
    Above(Origin, i64),
}

/// An object, and when it is installed.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// The name of its file in the chart.
    pub file: &'static str,
    pub when: Option<Condition>,
    pub object: Yaml,
}

pub fn literal(value: impl Into<Value>) -> Yaml {
    Yaml::Literal(value.into())
}

pub fn value(path: &'static str) -> Yaml {
    Yaml::Inserted(Origin::Value(path))
}

pub fn field(name: &'static str) -> Yaml {
    Yaml::Inserted(Origin::Field(name))
}

pub fn namespace() -> Yaml {
    Yaml::Inserted(Origin::Namespace)
}

pub fn map(entries: impl IntoIterator<Item = (&'static str, Yaml)>) -> Yaml {
    Yaml::Map(entries.into_iter().map(|(key, node)| Entry::Key(key, node)).collect())
}

pub fn list(nodes: impl IntoIterator<Item = Yaml>) -> Yaml {
    Yaml::List(nodes.into_iter().map(Item::One).collect())
}

/// Text in which `{path}` stands for a value, `{.name}` for a field and `{namespace}` for the namespace.
pub fn text(format: &'static str) -> Yaml {
    let mut pieces = Vec::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((path, after)) = after.split_once('}') else { break };
        if !before.is_empty() {
            pieces.push(Piece::Literal(before.to_owned()));
        }
        pieces.push(Piece::Inserted(match path.strip_prefix('.') {
            Some(name) => Origin::Field(name),
            None if path == "namespace" => Origin::Namespace,
            None => Origin::Value(path),
        }));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Literal(rest.to_owned()));
    }
    Yaml::Text(pieces)
}

pub fn is(path: &'static str) -> Condition {
    Condition::Is(Origin::Value(path))
}

pub fn has(name: &'static str) -> Condition {
    Condition::Is(Origin::Field(name))
}

pub fn not(condition: Condition) -> Condition {
    Condition::Not(Box::new(condition))
}

impl Yaml {
    /// Adds entries to a map; other nodes stay as they are.
    pub fn with(mut self, more: impl IntoIterator<Item = Entry>) -> Yaml {
        if let Yaml::Map(entries) = &mut self {
            entries.extend(more);
        }
        self
    }

    /// Adds labels from the values to those of an object.
    pub fn labelled(mut self, more: Origin) -> Yaml {
        if let Some(Yaml::Map(labels)) = self.at_mut("metadata").and_then(|metadata| metadata.at_mut("labels")) {
            labels.push(Entry::Spread(more));
        }
        self
    }

    fn at_mut(&mut self, name: &str) -> Option<&mut Yaml> {
        let Yaml::Map(entries) = self else { return None };
        entries.iter_mut().find_map(|entry| match entry {
            Entry::Key(key, node) if *key == name => Some(node),
            _ => None,
        })
    }
}
