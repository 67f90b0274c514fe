//! What the engine needs from the outside. Adapters implement these; the engine knows nothing of kube or SOAP.
//!
//! Every call is bounded in time by the adapter. An error tells whether trying again later may help, because that is all
//! the engine decides by.

use std::collections::BTreeMap;
use std::time::Duration;

pub use drs::{Change, ChangeKind, GroupChange, RecordedGroups, RuleType, VmRef};
use futures::future::BoxFuture;
use model::event::{GroupFacts, PodFacts, RuleFacts, VcenterId};

/// Why a call to the outside failed. The variant is the metric's label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// May succeed later by itself: unreachable, overloaded, timed out, a conflict.
    #[error("{0}")]
    Transient(String),
    /// The object is gone: nothing is left to do.
    #[error("{0} is gone")]
    NotFound(String),
    /// Somebody must change something first: permissions, configuration.
    #[error("{0}")]
    Permanent(String),
    /// Something in the request can not be, say a VM that was just deleted: parts of it may go through without the rest.
    #[error("{0}")]
    Invalid(String),
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

/// Something that happened to an object and that people shall see there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    pub regarding: Regarding,
    pub severity: Severity,
    /// CamelCase, for machines: `HostChanged`.
    pub reason: &'static str,
    /// For people: "moved from esx-1 to esx-2".
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regarding {
    Node { name: String, uid: String },
    Pod { namespace: String, name: String, uid: String },
}

impl Regarding {
    /// What tells it from all others: its UID; its name where it has none.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Regarding::Node { name, uid } | Regarding::Pod { name, uid, .. } if uid.is_empty() => name,
            Regarding::Node { uid, .. } | Regarding::Pod { uid, .. } => uid,
        }
    }
}

/// A Kubernetes Event: an occurrence, and the series that it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    pub occurrence: Occurrence,
    /// How often it happened, this time included.
    pub count: u32,
    /// How long ago it happened first.
    pub since: Duration,
}

/// Posts Kubernetes Events. Losing one does no harm.
pub trait EventSink: Send + Sync {
    fn post<'a>(&'a self, record: &'a EventRecord) -> BoxFuture<'a, Result<(), PortError>>;
}

/// The rules and groups of one cluster, whoever made them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterRules {
    /// By key.
    pub rules: Vec<RuleFacts>,
    /// By name.
    pub groups: Vec<GroupFacts>,
}

/// Reads and changes DRS rules and groups.
pub trait RuleStore: Send + Sync {
    /// As they are at this moment; `cluster` is the id within its vCenter.
    fn read<'a>(&'a self, vcenter: VcenterId, cluster: &'a str) -> BoxFuture<'a, Result<ClusterRules, PortError>>;

    /// Carries out all changes at once, or none of them, and returns when that is done.
    fn change<'a>(
        &'a self,
        vcenter: VcenterId,
        cluster: &'a str,
        changes: &'a [Change],
    ) -> BoxFuture<'a, Result<(), PortError>>;
}

/// What tells one state of a record from a later one; only its keeper understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordVersion(pub String);

/// A record as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    pub text: String,
    pub version: RecordVersion,
}

/// Keeps the record of what Bridger owns, one text for each vSphere cluster, apart from what it speaks of.
pub trait RecordStore: Send + Sync {
    /// All texts by name; empty when there are none.
    fn load(&self) -> BoxFuture<'_, Result<BTreeMap<String, StoredRecord>, PortError>>;

    /// Writes one text, unless somebody else changed or deleted it since `expected` was read: [`PortError::Transient`] and
    /// [`PortError::NotFound`] then. `None` expects that there is none of this name.
    fn save<'a>(
        &'a self,
        name: &'a str,
        text: &'a str,
        expected: Option<&'a RecordVersion>,
    ) -> BoxFuture<'a, Result<RecordVersion, PortError>>;
}

/// A pod and the node it shall run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub namespace: String,
    pub pod: String,
    /// The pod is bound only if it is still this one.
    pub uid: String,
    pub node: String,
}

/// Binds pods to nodes.
pub trait Binder: Send + Sync {
    fn bind<'a>(&'a self, binding: &'a Binding) -> BoxFuture<'a, Result<(), PortError>>;
}

/// One pod, never another of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// What a scheduler reads and writes of pods, besides binding them. A write to a pod of another UID is [`PortError::Invalid`].
pub trait PodStatusWriter: Send + Sync {
    /// The pod of this name as it is at this moment, whatever its UID; `None` when there is none.
    fn read<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<PodFacts>, PortError>>;

    /// Sets the condition PodScheduled to false.
    fn not_scheduled<'a>(
        &'a self,
        pod: &'a PodName,
        reason: &'a str,
        message: &'a str,
    ) -> BoxFuture<'a, Result<(), PortError>>;

    /// Writes `status.nominatedNodeName`; `None` clears it.
    fn nominate<'a>(&'a self, pod: &'a PodName, node: Option<&'a str>) -> BoxFuture<'a, Result<(), PortError>>;

    /// Deletes the pod, to make room for another.
    fn delete<'a>(&'a self, pod: &'a PodName) -> BoxFuture<'a, Result<(), PortError>>;
}
