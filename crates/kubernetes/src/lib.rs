//! The Kubernetes side of the bridge: watches become events, the engine's ports become requests. The only crate that
//! imports kube.
//!
//! - [`mod@connect`]: a client from a kubeconfig or the service account. [`mod@preflight`]: what the server allows, asked once.
//! - [`mod@watch`]: what is watched, as [`model::event::Event`]s. `kinds`: how each row of [`model::KUBERNETES_SOURCES`] is read.
//!   `facts`: what is kept of each object.
//! - [`objects`]: the same for objects from a file. [`pod_json`]: a pod that somebody else hands over.
//! - [`labels`], [`events`], [`record_store`], [`binder`], [`conditions`]: the engine's ports.
//! - `bounded`: limits of time and size around any client. `paced`: watches opened at a steady pace.
//!
//! Invariants: every request has a time limit and every answer a size limit; time is tokio's and randomness comes from a
//! given seed, so that all of it runs on a paused clock against a server in the same process; no credential is in an
//! error, a log line or debug output of this crate. kube itself logs, as a warning of `kube_client`, the whole of a list
//! that it can't decode: a log filter should keep that target at `error`.

pub mod binder;
mod bounded;
pub mod conditions;
pub mod connect;
pub mod events;
mod facts;
mod failure;
mod kinds;
pub mod labels;
pub mod objects;
mod paced;
pub mod pod_json;
pub mod preflight;
pub mod record_store;
pub mod watch;

#[cfg(test)]
mod scripted;

pub use binder::PodBinder;
pub use bounded::BoundedClient;
pub use conditions::PodConditions;
pub use connect::{ConnectError, Connection, Credentials, connect};
pub use events::EventWriter;
pub use kube::Client;
pub use labels::NodeLabels;
pub use preflight::{Access, Need, Scope, ServerFacts, preflight, preflight_in, watch_needs};
pub use record_store::ConfigMapRecordStore;
pub use watch::watch;

/// Who Bridger is to Kubernetes: the field manager of what it writes and the source of its events.
pub const COMPONENT: &str = "bridger";
