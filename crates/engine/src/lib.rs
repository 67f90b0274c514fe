//! Owns the world and the only loop: what adapters observe goes in, what pure code decides goes out through the ports.
//!
//! - [`runtime`]: the loop, and all that controllers share. [`controllers`]: what it runs, a folder each.
//! - [`ports`]: what the engine needs from the outside; adapters implement it. [`counters`]: what is counted.

pub mod controllers;
pub mod counters;
pub mod ports;
pub mod runtime;

pub use controllers::{drs_rules, extender, node_labels, scheduling};
pub use runtime::SharedWorld;
