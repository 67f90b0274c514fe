//! Where in a configuration something is.
//!
//! In: the names and positions from the document down to a value. Out: the path as messages show it, and its steps, with
//! which the caller finds the line of the file.

use std::fmt;

/// A step from a value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    Field(String),
    Index(usize),
}

/// The path of a value, for example `profiles[0].plugins.score.enabled[1].weight`. Empty: the document itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(Vec<PathStep>);

/// A name in a message is cut after so many characters: names come from the file.
const NAME_LENGTH_MAX: usize = 100;

impl FieldPath {
    pub fn steps(&self) -> &[PathStep] {
        &self.0
    }

    pub(super) fn field(&self, name: &str) -> Self {
        self.and(PathStep::Field(name.to_owned()))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        self.and(PathStep::Index(index))
    }

    fn and(&self, step: PathStep) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// The number of the profile that the value is part of.
    pub(super) fn profile(&self) -> Option<usize> {
        match self.0.as_slice() {
            [PathStep::Field(name), PathStep::Index(index), ..] if name == "profiles" => Some(*index),
            _ => None,
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the document");
        }
        for (position, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Field(name) => {
                    let dot = if position == 0 { "" } else { "." };
                    write!(f, "{dot}{}", shortened(name))?;
                }
                PathStep::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// On one line, and cut if it is too long.
pub(super) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(NAME_LENGTH_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(NAME_LENGTH_MAX).is_some() {
        short.push_str("...");
    }
    short
}
