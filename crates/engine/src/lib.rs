//! Owns the world and the event loop: what adapters tell goes in, what pure code decides goes out through the ports.
//!
//! - [`ports`]: what the engine needs from the outside; adapters implement it.
//! - [`gates`]: whether anything may be written now.
//! - [`labeller`], [`problems`]: when to write which node's labels, and when to tell of a node that cannot be labelled.
//! - [`rules`]: DRS rules, from the plan to the vCenter.
//! - [`extender`]: what kube-scheduler asks, decided; bindings.
//! - [`scheduling`]: the scheduler's effects, carried out.
//! - [`run`]: the loop that ties them together. [`pace`]: rates and waits. [`counters`]: what is counted.

pub mod counters;
pub mod extender;
pub mod gates;
pub mod labeller;
pub mod pace;
pub mod ports;
pub mod problems;
mod rule_counters;
pub mod rules;
pub mod run;
pub mod scheduling;

pub use rules::{RuleSettings, WallClock};
pub use run::{Engine, Ports, Settings, SharedWorld};
