//! Inserts values into a template.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::chart::document;
use super::template::{Condition, Entry, Item, Origin, Piece, Template, Yaml};

/// What is inserted.
#[derive(Clone, Copy, Debug)]
pub struct Installation<'a> {
    pub namespace: &'a str,
    /// Complete and checked: [`super::values::complete`].
    pub values: &'a Value,
}

/// The object, if it is installed.
pub fn object(template: &Template, installation: Installation<'_>) -> Option<Value> {
    let scope = Scope { installation, each: None };
    let is_installed = template.when.as_ref().is_none_or(|condition| scope.holds(condition));
    is_installed.then(|| scope.node(&template.object))
}

#[derive(Clone, Copy)]
struct Scope<'a> {
    installation: Installation<'a>,
    each: Option<&'a Value>,
}

impl<'a> Scope<'a> {
    fn node(self, node: &Yaml) -> Value {
        match node {
            Yaml::Literal(value) => value.clone(),
            Yaml::Inserted(source) => self.value(*source),
            Yaml::Text(pieces) => Value::from(pieces.iter().map(|piece| self.piece(piece)).collect::<String>()),
            Yaml::Map(entries) => {
                let mut members = Map::new();
                self.entries(entries, &mut members);
                or_null(entries.is_empty(), members.is_empty(), Value::Object(members))
            }
            Yaml::List(items) => {
                let mut values = Vec::new();
                self.items(items, &mut values);
                or_null(items.is_empty(), values.is_empty(), Value::Array(values))
            }
            Yaml::File(content) => Value::from(document(&self.node(content))),
        }
    }

    fn entries(self, entries: &[Entry], members: &mut Map<String, Value>) {
        for entry in entries {
            match entry {
                Entry::Key(key, node) => {
                    members.insert((*key).to_owned(), self.node(node));
                }
                Entry::When(condition, entries) if self.holds(condition) => self.entries(entries, members),
                Entry::When(..) => {}
                Entry::Spread(source) => {
                    if let Value::Object(more) = self.value(*source) {
                        members.extend(more);
                    }
                }
            }
        }
    }

    fn items(self, items: &[Item], values: &mut Vec<Value>) {
        for item in items {
            match item {
                Item::One(node) => values.push(self.node(node)),
                Item::When(condition, items) if self.holds(condition) => self.items(items, values),
                Item::When(..) => {}
                Item::Each(list, items) => {
                    let elements = at(self.installation.values, list).and_then(Value::as_array);
                    for element in elements.into_iter().flatten() {
                        Scope { each: Some(element), ..self }.items(items, values);
                    }
                }
            }
        }
    }

    fn piece(self, piece: &Piece) -> String {
        match piece {
            Piece::Literal(literal) => literal.clone(),
            Piece::Inserted(source) => match self.value(*source) {
                Value::String(text) => text,
                other => other.to_string(),
            },
        }
    }

    fn value(self, source: Origin) -> Value {
        match source {
            Origin::Element => self.each.cloned().unwrap_or_default(),
            Origin::Digest => Value::from(digest(self.installation.values)),
            Origin::Namespace => Value::from(self.installation.namespace),
            Origin::Value(path) => at(self.installation.values, path).cloned().unwrap_or_default(),
            Origin::Field(name) => self.each.and_then(|each| at(each, name)).cloned().unwrap_or_default(),
        }
    }

    fn holds(self, condition: &Condition) -> bool {
        match condition {
            Condition::Is(source) => is_true(&self.value(*source)),
            Condition::Not(condition) => !self.holds(condition),
            Condition::Any(conditions) => conditions.iter().any(|condition| self.holds(condition)),
            Condition::All(conditions) => conditions.iter().all(|condition| self.holds(condition)),
            Condition::Above(source, least) => self.value(*source).as_i64().is_some_and(|value| value > *least),
        }
    }
}

/// A block of which every part is left out is empty text in a chart, which is null.
fn or_null(is_empty_by_itself: bool, is_empty: bool, value: Value) -> Value {
    if is_empty && !is_empty_by_itself { Value::Null } else { value }
}

fn digest(values: &Value) -> String {
    Sha256::digest(values.to_string()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value at a dotted path.
pub fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, name| value.get(name))
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}
