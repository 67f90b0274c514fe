//! Owns the world and the only event loop. Adapters send events in; the decisions of pure code go out through the
//! ports.
//!
//! - [`runtime`]: the loop, and what all controllers share. [`controllers`]: the controllers, one folder each.
//! - [`ports`]: the traits that adapters implement for the engine. [`counters`]: counters for metrics. [`changes`]: the
//!   wording of changes, for people. `binding`: binds a pod, for all controllers that do.

mod binding;
pub mod changes;
pub mod controllers;
pub mod counters;
pub mod fenced;
pub mod ports;
pub mod runtime;

pub use controllers::{drs_rules, extender, node_labels, scheduling};
pub use runtime::SharedWorld;
