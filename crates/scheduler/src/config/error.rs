//! What is wrong with a configuration: a field, and why. Where kube-scheduler has the rule, the wording is its own.
//!
//! Invariant: a message is one line and quotes no more than a single short value, never the data of a key.

use std::fmt;

use serde_json::Value;

use super::path::{FieldPath, shortened};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ConfigError {
    pub path: FieldPath,
    pub problem: FieldProblem,
}

/// The classes of errors of the Kubernetes API, and what kube-scheduler's framework rejects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldProblem {
    UnknownField,
    Required(&'static str),
    Invalid {
        value: String,
        rule: String,
    },
    Duplicate(String),
    NotSupported {
        value: String,
        supported: &'static [&'static str],
    },
    Forbidden(&'static str),
    /// The values are valid, and cannot be used.
    Unusable(String),
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownField => f.write_str("unknown field"),
            Self::Required("") => f.write_str("Required value"),
            Self::Required(detail) => write!(f, "Required value: {detail}"),
            Self::Invalid { value, rule } => write!(f, "Invalid value: {value}: {rule}"),
            Self::Duplicate(value) => write!(f, "Duplicate value: {value}"),
            Self::NotSupported { value, supported } => {
                write!(f, "Unsupported value: {value}: supported values: {}", quoted_list(supported))
            }
            Self::Forbidden(detail) => write!(f, "Forbidden: {detail}"),
            Self::Unusable(why) => f.write_str(why),
        }
    }
}

impl FieldProblem {
    pub(super) fn at(self, path: &FieldPath) -> ConfigError {
        ConfigError { path: path.clone(), problem: self }
    }
}

fn quoted_list(values: &[&str]) -> String {
    values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ")
}

pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", shortened(text))
}

/// A value in a message.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(_) => "[...]".to_owned(),
        Value::Object(_) => "{...}".to_owned(),
    }
}
