//! The traits through which the engine reaches Kubernetes and vCenter. Adapters implement them; the engine itself knows
//! neither kube nor SOAP.
//!
//! The adapter bounds the duration of every call. An error says only whether a retry may help, because the engine
//! decides by nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use drs::{ChangeKind, GroupChange, RecordedGroups, RuleChange, RuleType, UnixMillis, VmRef};
use futures::future::BoxFuture;
use model::event::{GroupFacts, PodFacts, RuleFacts, VcenterId};
pub use scheduler::plugins::{ProvisionWork, VolumeBindingWork};

use crate::changes::ChangeReport;

/// Why a call through a port failed. Metrics count failures per variant. Their label values keep the old words
/// (`passing`, `gone`, `refused`, `faulty`), because label values are a compatibility promise (tests/golden).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// A retry may succeed: unreachable, overloaded, timed out, a conflict.
    #[error("{0}")]
    Transient(String),
    /// The object does not exist: nothing is left to do.
    #[error("{0} not found")]
    NotFound(String),
    /// A retry fails until an administrator changes something: permissions, configuration.
    #[error("{0}")]
    Permanent(String),
    /// A part of the request is invalid, for example a VM that was just deleted. The rest may succeed without that
    /// part.
    #[error("{0}")]
    Invalid(String),
}

/// The desired value of each label key; `None` removes the label.
pub type LabelChanges = BTreeMap<String, Option<String>>;

/// The node for which a change of labels was decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeBefore {
    /// Excludes a later node of the same name. Empty if it is not known.
    pub uid: String,
    /// The value of each label that changes; `None`: the node does not have it.
    pub labels: LabelChanges,
    /// It has a label, whichever.
    pub has_labels: bool,
}

/// Writes labels on Kubernetes nodes.
pub trait LabelStore: Send + Sync {
    /// Changes these keys of the node and nothing else. A node that differs from `before` stays as it is, which is
    /// [`PortError::Transient`]: a write that arrives late must not undo a later one.
    fn change_labels<'a>(
        &'a self,
        node: &'a str,
        before: &'a NodeBefore,
        changes: &'a LabelChanges,
    ) -> BoxFuture<'a, Result<(), PortError>>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

/// Something that happened to an object and that its users should see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    pub regarding: Regarding,
    pub severity: Severity,
    /// CamelCase, for machines: `HostChanged`.
    pub reason: &'static str,
    /// For people: "moved from esx-1 to esx-2".
    pub message: String,
    /// The scheduler that reports it, by the name in `schedulerName`; `None`: Bridger.
    pub reporter: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regarding {
    Node { name: String, uid: String },
    Pod { namespace: String, name: String, uid: String },
}

impl Regarding {
    /// `None` for a node.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Regarding::Node { .. } => None,
            Regarding::Pod { namespace, .. } => Some(namespace),
        }
    }

    /// The object's UID, or its name if it has no UID.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Regarding::Node { name, uid } | Regarding::Pod { name, uid, .. } if uid.is_empty() => name,
            Regarding::Node { uid, .. } | Regarding::Pod { uid, .. } => uid,
        }
    }
}

/// A Kubernetes Event: an occurrence, and the series of which it is the latest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    pub occurrence: Occurrence,
    /// How often it happened, including this time.
    pub count: u32,
    /// Time since it first happened.
    pub since: Duration,
}

/// Posts Kubernetes Events. Losing an Event does no harm.
pub trait EventSink: Send + Sync {
    fn post<'a>(&'a self, record: &'a EventRecord) -> BoxFuture<'a, Result<(), PortError>>;
}

/// All rules and groups of one cluster, including those that Bridger did not create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterRules {
    /// By key.
    pub rules: Vec<RuleFacts>,
    /// By name.
    pub groups: Vec<GroupFacts>,
}

/// Reads and changes DRS rules and groups.
pub trait RuleStore: Send + Sync {
    /// Reads the current state; `cluster` is the id within its vCenter.
    fn read<'a>(&'a self, vcenter: VcenterId, cluster: &'a str) -> BoxFuture<'a, Result<ClusterRules, PortError>>;

    /// Applies all changes in one atomic operation and returns when it has completed.
    fn change<'a>(
        &'a self,
        vcenter: VcenterId,
        cluster: &'a str,
        changes: &'a [RuleChange],
    ) -> BoxFuture<'a, Result<(), PortError>>;
}

impl<P: RuleStore + ?Sized> RuleStore for Arc<P> {
    fn read<'a>(&'a self, vcenter: VcenterId, cluster: &'a str) -> BoxFuture<'a, Result<ClusterRules, PortError>> {
        (**self).read(vcenter, cluster)
    }

    fn change<'a>(
        &'a self,
        vcenter: VcenterId,
        cluster: &'a str,
        changes: &'a [RuleChange],
    ) -> BoxFuture<'a, Result<(), PortError>> {
        (**self).change(vcenter, cluster, changes)
    }
}

/// The version of a stored record. Opaque to all but the record store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordVersion(pub String);

/// A rule record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    pub text: String,
    pub version: RecordVersion,
}

/// Stores the rule record, which lists what Bridger owns: one stored record for each vSphere cluster, outside of
/// vCenter.
pub trait RecordStore: Send + Sync {
    /// All stored records by name; empty if there are none.
    fn load(&self) -> BoxFuture<'_, Result<BTreeMap<String, StoredRecord>, PortError>>;

    /// Writes one record. Fails with [`PortError::Transient`] if another client changed it since `expected` was read,
    /// and with [`PortError::NotFound`] if another client deleted it. `None` expects that no record of this name
    /// exists.
    fn save<'a>(
        &'a self,
        name: &'a str,
        text: &'a str,
        expected: Option<&'a RecordVersion>,
    ) -> BoxFuture<'a, Result<RecordVersion, PortError>>;
}

/// Keeps reports of changes, for auditors. Never blocks.
pub trait ChangeSink: Send + Sync {
    fn put(&self, change: &ChangeReport);
}

/// A pod and the node to bind it to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub namespace: String,
    pub pod: String,
    /// The pod is bound only if it still has this UID.
    pub uid: String,
    pub node: String,
}

/// Binds pods to nodes.
pub trait Binder: Send + Sync {
    fn bind<'a>(&'a self, binding: &'a Binding) -> BoxFuture<'a, Result<(), PortError>>;
}

/// Asks the volume controller and provisioners for the volumes of a pod.
pub trait VolumeBinder: Send + Sync {
    /// Makes the volume refer to the claim. Returns the volume's new resource version. Fails with
    /// [`PortError::Invalid`] if the volume changed since it was read.
    fn bind_volume<'a>(&'a self, binding: &'a VolumeBindingWork) -> BoxFuture<'a, Result<String, PortError>>;

    /// Has a volume provisioned for the claim where this node can use it. Returns the claim's new resource version.
    /// Fails with [`PortError::Invalid`] if the claim changed since it was read.
    fn select_node<'a>(
        &'a self,
        provision: &'a ProvisionWork,
        node: &'a str,
    ) -> BoxFuture<'a, Result<String, PortError>>;
}

/// Identifies one pod; the UID excludes a later pod of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// Reads single pods, apart from the watch.
pub trait PodLookup: Send + Sync {
    /// The current pod of this name, with any UID; `None` if it does not exist.
    fn read<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<PodFacts>, PortError>>;
}

/// What a scheduler reads and writes on pods, besides binding them. A write to a pod of another UID is
/// [`PortError::Invalid`].
pub trait PodStatusWriter: PodLookup {
    /// Sets the condition PodScheduled to false, and with it `status.nominatedNodeName` if `nominated` is given:
    /// `Some(None)` clears it.
    fn not_scheduled<'a>(
        &'a self,
        pod: &'a PodName,
        reason: &'a str,
        message: &'a str,
        nominated: Option<Option<&'a str>>,
    ) -> BoxFuture<'a, Result<(), PortError>>;

    /// Writes `status.nominatedNodeName`; `None` clears it.
    fn nominate<'a>(&'a self, pod: &'a PodName, node: Option<&'a str>) -> BoxFuture<'a, Result<(), PortError>>;

    /// Sets the condition DisruptionTarget: a scheduler preempts the pod.
    fn disrupt<'a>(&'a self, pod: &'a PodName, message: &'a str) -> BoxFuture<'a, Result<(), PortError>>;

    /// Deletes the pod (preemption).
    fn delete<'a>(&'a self, pod: &'a PodName) -> BoxFuture<'a, Result<(), PortError>>;
}
