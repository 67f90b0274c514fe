//! The controllers, one folder each: a state machine without I/O, and its executor.

pub mod drs_rules;
pub mod extender;
pub mod node_labels;
pub mod scheduling;
