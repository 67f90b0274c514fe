//! The Kubernetes side of the bridge: watches become events, the engine's ports become requests. The only crate that
//! imports kube.
//!
//! - [`mod@connect`]: a client from a kubeconfig or the service account. [`mod@preflight`]: what the server allows, asked once.
//! - [`mod@watch`]: nodes, pods and namespaces as [`model::event::Event`]s. `facts`: what is kept of each object.
//! - [`objects`]: the same for objects from a file. [`pod_json`]: a pod that somebody else hands over.
//! - [`labels`], [`notices`], [`ledger`], [`binder`], [`conditions`]: the engine's ports.
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
mod facts;
mod failure;
pub mod labels;
pub mod ledger;
pub mod notices;
pub mod objects;
mod paced;
pub mod pod_json;
pub mod preflight;
pub mod watch;

#[cfg(test)]
mod scripted;

pub use binder::PodBinder;
pub use bounded::BoundedClient;
pub use conditions::PodConditions;
pub use connect::{ConnectError, Connection, Credentials, connect};
pub use kube::Client;
pub use labels::NodeLabels;
pub use ledger::ConfigMapLedger;
pub use notices::EventBoard;
pub use preflight::{
    BIND_NEEDS, LABEL_NEEDS, NOTICE_NEEDS, Need, POD_NEEDS, RULE_NEEDS, SELECTING_NEEDS, Scope, ServerFacts,
    WATCH_NEEDS, preflight, preflight_in,
};
pub use watch::{watch, watch_for_scheduling};

/// Who Bridger is to Kubernetes: the field manager of what it writes and the source of its events.
pub const COMPONENT: &str = "bridger";
