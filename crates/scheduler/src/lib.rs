//! The scheduling framework and the plugins on it. Pure: no I/O, no clock, no randomness of its own, no async.
//!
//! - [`points`]: the extension points, a small trait each. [`plugin`]: what every plugin says of itself.
//! - [`status`]: the answers, with their reasons. [`cycle`]: what a plugin sees of one attempt.
//! - [`registry`]: which plugins there are.
//! - [`change`]: what happened in the world, as plugins are asked whether it helps a waiting pod.
//!
//! Invariants: what a plugin answers depends on nothing but the pod, the world and its own configuration.

pub mod change;
pub mod cycle;
mod erased;
pub mod node_set;
pub mod plugin;
pub mod points;
pub mod registry;
pub mod status;

pub use change::{Change, ChangeKinds, ChangedPod};
pub use cycle::Cycle;
pub use node_set::NodeSet;
pub use plugin::{Plugin, Reads};
pub use points::*;
pub use registry::{NoArgs, Points, Register, Registry};
pub use status::{Rejection, Rejections, Status};
