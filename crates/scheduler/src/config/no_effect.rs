//! Settings that are accepted although they change nothing, and why. The caller logs each of them at the start.

use std::fmt;

use super::fields::Node;
use super::path::FieldPath;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoEffect {
    pub path: FieldPath,
    pub why: &'static str,
}

impl fmt::Display for NoEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no effect: {}", self.path, self.why)
    }
}

/// Collects them while the document is read.
#[derive(Debug, Default)]
pub(super) struct Collected(pub(super) Vec<NoEffect>);

impl Collected {
    pub(super) fn add(&mut self, path: &FieldPath, why: &'static str) {
        self.0.push(NoEffect { path: path.clone(), why });
    }

    /// Adds a field if it is given.
    pub(super) fn add_given(&mut self, node: Option<&Node<'_>>, why: &'static str) {
        if let Some(node) = node {
            self.add(&node.path, why);
        }
    }
}
