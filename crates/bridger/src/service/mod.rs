//! Bridger as a service: settings, the checks at the start, one look at everything, and the running whole.

pub(crate) mod extender;
pub mod outside;
pub(crate) mod policy;
pub(crate) mod read_once;
pub(crate) mod running;
pub(crate) mod scheduler;
pub mod scheduler_metrics;
pub(crate) mod scheduler_world;
pub(crate) mod settings;
pub(crate) mod startup;
