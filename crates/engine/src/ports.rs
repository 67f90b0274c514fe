//! What the engine needs from the outside. Adapters implement these; the engine knows nothing of kube or SOAP.
//!
//! Every call is bounded in time by the adapter. An error tells whether trying again later may help, because that is all
//! the engine decides by.

use std::collections::BTreeMap;

use futures::future::BoxFuture;

/// Why a call to the outside failed. The variant is the metric's label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// May succeed later by itself: unreachable, overloaded, timed out, a conflict.
    #[error("{0}")]
    Passing(String),
    /// The object is gone: nothing is left to do.
    #[error("{0} is gone")]
    Gone(String),
    /// Somebody must change something first: permissions, configuration.
    #[error("{0}")]
    Refused(String),
}

/// Label keys with the value each shall have; `None` takes the label off.
pub type LabelChanges = BTreeMap<String, Option<String>>;

/// Writes labels on Kubernetes nodes.
pub trait LabelStore: Send + Sync {
    /// Changes exactly these keys of the node, and nothing else of it.
    fn change_labels<'a>(&'a self, node: &'a str, changes: &'a LabelChanges) -> BoxFuture<'a, Result<(), PortError>>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

/// Something to be seen by whoever looks at an object: a Kubernetes event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub about: NoticeSubject,
    pub severity: Severity,
    /// CamelCase, for machines: `HostChanged`.
    pub reason: &'static str,
    /// For people: "moved from esx-1 to esx-2".
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeSubject {
    Node { name: String, uid: String },
    Pod { namespace: String, name: String, uid: String },
}

/// Posts notices. Losing one does no harm, so the engine does not wait for it to succeed.
pub trait NoticeBoard: Send + Sync {
    fn post<'a>(&'a self, notice: &'a Notice) -> BoxFuture<'a, Result<(), PortError>>;
}
