//! Bridger as a service: settings, the checks at the start, and the running whole.

pub mod extender;
pub mod running;
pub mod settings;
pub mod startup;
