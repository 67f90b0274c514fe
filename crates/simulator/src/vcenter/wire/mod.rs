//! The vCenter's wire: SOAP, sessions, the property collector, views, and the methods clients call.
//!
//! - [`http`]: the router, cookies, the faults that a request can meet.
//! - `xml`, `soap`, `value`: reading requests and writing answers.
//! - `target`, `schema`, `properties`: what there is to refer to, and what it shows.
//! - `collector`, `view`, `history`, `wait`: following changes.
//! - `methods`: everything else that a client can call.
//!
//! Invariants: whatever a client sends, it gets an answer or a fault; no client sees another's views, filters or
//! collectors; the world's lock is held for one synchronous step at a time.

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
