//! Bridger as a service: settings, the checks at the start, one look at everything, and the running whole.

pub mod extender;
pub mod look;
pub mod outside;
pub mod policy;
pub mod running;
pub mod scheduler;
pub mod scheduler_metrics;
pub mod scheduler_run;
pub mod scheduler_world;
pub mod settings;
pub mod startup;
