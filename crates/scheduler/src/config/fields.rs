//! Strict reading of JSON values, with the path of each.
//!
//! In: a value of the document. Out: texts, numbers, lists and fields of objects, or an error that names the field.
//! Invariants: a field that nobody takes is an error; `null` is an absent field, as in Go.

use std::collections::BTreeMap;

use serde_json::Value;

use super::error::{ConfigError, FieldProblem, shown};
use super::go_duration;
use super::path::FieldPath;

/// A value and where it is.
#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    pub(super) path: FieldPath,
    pub(super) value: &'a Value,
}

/// The fields of an object. Each can be taken once.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    path: FieldPath,
    left: BTreeMap<&'a str, &'a Value>,
}

impl<'a> Node<'a> {
    pub(super) fn document(value: &'a Value) -> Self {
        Self { path: FieldPath::default(), value }
    }

    pub(super) fn invalid(&self, rule: impl Into<String>) -> ConfigError {
        FieldProblem::Invalid { value: shown(self.value), rule: rule.into() }.at(&self.path)
    }

    pub(super) fn not_supported(&self, supported: &'static [&'static str]) -> ConfigError {
        FieldProblem::NotSupported { value: shown(self.value), supported }.at(&self.path)
    }

    pub(super) fn text(&self) -> Result<&'a str, ConfigError> {
        self.value.as_str().ok_or_else(|| self.invalid("must be a string"))
    }

    /// An empty text is an absent one.
    pub(super) fn filled_text(&self) -> Result<Option<&'a str>, ConfigError> {
        Ok(Some(self.text()?).filter(|text| !text.is_empty()))
    }

    pub(super) fn flag(&self) -> Result<bool, ConfigError> {
        self.value.as_bool().ok_or_else(|| self.invalid("must be a boolean"))
    }

    pub(super) fn int64(&self) -> Result<i64, ConfigError> {
        self.value.as_i64().ok_or_else(|| self.invalid("must be an integer"))
    }

    pub(super) fn int32(&self) -> Result<i32, ConfigError> {
        i32::try_from(self.int64()?).map_err(|_| self.invalid("must be an integer of 32 bits"))
    }

    pub(super) fn float32(&self) -> Result<f32, ConfigError> {
        let number = self.value.as_f64().map(|number| number as f32).filter(|number| number.is_finite());
        number.ok_or_else(|| self.invalid("must be a number of 32 bits"))
    }

    /// In nanoseconds; it may be negative.
    pub(super) fn duration(&self) -> Result<i64, ConfigError> {
        go_duration::parse(self.text()?).ok_or_else(|| self.invalid("must be a duration like 15s"))
    }

    pub(super) fn list(&self) -> Result<Vec<Node<'a>>, ConfigError> {
        let items = self.value.as_array().ok_or_else(|| self.invalid("must be a list"))?;
        let node = |(index, value)| Node { path: self.path.index(index), value };
        Ok(items.iter().enumerate().map(node).collect())
    }

    pub(super) fn fields(&self) -> Result<Fields<'a>, ConfigError> {
        let fields = self.value.as_object().ok_or_else(|| self.invalid("must be an object"))?;
        let left = fields.iter().map(|(name, value)| (name.as_str(), value)).collect();
        Ok(Fields { path: self.path.clone(), left })
    }
}

impl<'a> Fields<'a> {
    pub(super) fn path(&self) -> &FieldPath {
        &self.path
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Node<'a>> {
        let value = self.left.remove(name)?;
        (!value.is_null()).then(|| Node { path: self.path.field(name), value })
    }

    /// Takes a field and reads it.
    pub(super) fn read<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&Node<'a>) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        self.take(name).map(|node| read(&node)).transpose()
    }

    pub(super) fn filled_text(&mut self, name: &str) -> Result<Option<String>, ConfigError> {
        Ok(self.read(name, Node::filled_text)?.flatten().map(str::to_owned))
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<bool, ConfigError> {
        Ok(self.read(name, Node::flag)?.unwrap_or_default())
    }

    pub(super) fn list(&mut self, name: &str) -> Result<Vec<Node<'a>>, ConfigError> {
        Ok(self.read(name, Node::list)?.unwrap_or_default())
    }

    /// Rejects the first field that was not taken.
    pub(super) fn done(self) -> Result<(), ConfigError> {
        match self.left.first_key_value() {
            Some((name, _)) => Err(FieldProblem::UnknownField.at(&self.path.field(name))),
            None => Ok(()),
        }
    }
}
