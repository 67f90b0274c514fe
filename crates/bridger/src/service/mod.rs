//! Bridger as a service: settings, startup checks, a one-time read of both sides, and the running service.

pub(crate) mod audit;
pub(crate) mod extender;
pub mod leading;
mod lines;
pub mod outside;
pub(crate) mod plugin_metrics;
pub(crate) mod policy;
pub(crate) mod read_once;
pub(crate) mod running;
pub(crate) mod scheduler;
pub mod scheduler_metrics;
pub(crate) mod scheduler_world;
pub(crate) mod settings;
pub(crate) mod startup;
