//! The vCenter's wire protocol: SOAP, sessions, the property collector, views, and the methods that clients call.
//!
//! - [`http`]: the router, cookies, the faults that apply to a request.
//! - `xml`, `soap`, `value`: parsing requests and writing answers.
//! - `target`, `schema`, `properties`: the objects that can be referenced, and their properties.
//! - `collector`, `view`, `history`, `wait`: following changes.
//! - `methods`: all other methods that a client can call.
//!
//! Invariants: every request gets an answer or a fault; no client sees another's views, filters or collectors; the
//! world's lock is held for one synchronous step at a time.

mod collector;
mod history;
mod http;
mod methods;
mod properties;
mod relations;
mod schema;
mod session;
mod soap;
mod target;
mod value;
mod view;
mod wait;
mod xml;

#[cfg(test)]
mod tests;

pub use http::router;
pub(crate) use session::State;
