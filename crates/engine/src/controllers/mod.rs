//! What the runtime runs: one folder for each controller, each a state machine without I/O and its executor.

pub mod drs_rules;
pub mod extender;
pub mod node_labels;
pub mod scheduling;
