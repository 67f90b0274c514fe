//! The Kubernetes adapter: turns watches into events, and implements the engine's ports with API requests. The only
//! crate that imports kube.
//!
//! - [`mod@connect`]: a client from a kubeconfig or the service account. [`mod@preflight`]: checks once what the server
//!   allows.
//! - [`mod@watch`]: watches, as [`model::event::Event`]s. `kinds`: how each row of [`model::KUBERNETES_SOURCES`] is
//!   read. `facts`: the fields that are read of each object.
//! - [`objects`]: objects from a file. [`pod_json`]: a pod from another client's request.
//! - [`owned_labels`]: the labels that Bridger wrote, for its removal.
//! - [`labels`], [`events`], [`record_store`], [`binder`], [`conditions`], [`volumes`], [`lease`]: the engine's ports.
//! - `bounded`: time and size limits for any client. `paced`: limits how often watches are opened.
//!
//! Invariants: every request has a time limit and every response a size limit. Time is tokio's and randomness comes
//! from a given seed, so that everything runs on a paused clock against a server in the same process. No credential is
//! in an error, a log line or debug output of this crate. kube itself logs a list that it cannot decode in full, as a
//! warning of `kube_client`: a log filter should keep that target at `error`.

pub mod binder;
mod bounded;
pub mod conditions;
pub mod connect;
pub mod events;
mod facts;
mod failure;
mod kinds;
pub mod labels;
pub mod lease;
pub mod objects;
pub mod owned_labels;
mod paced;
pub mod pod_json;
pub mod preflight;
pub mod record_store;
pub mod volumes;
pub mod watch;

#[cfg(test)]
mod scripted;

pub use binder::PodBinder;
pub use bounded::BoundedClient;
pub use conditions::PodConditions;
pub use connect::{ConnectError, Connection, KubernetesCredentials, connect};
pub use events::EventWriter;
pub use kube::Client;
pub use labels::NodeLabelWriter;
pub use lease::LeaseObject;
pub use preflight::{Access, Need, OwnObjects, Scope, ServerFacts, preflight, preflight_in, watch_needs};
pub use record_store::ConfigMapRecordStore;
pub use volumes::VolumeWriter;
pub use watch::watch;

/// Bridger's name in Kubernetes: the field manager of its writes and the source of its Events.
pub const COMPONENT: &str = "bridger";
