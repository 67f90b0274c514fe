//! The table of kinds: a new kind is one entry here.

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindId(usize);

/// What the API needs to know about a kind.
#[derive(Debug)]
pub struct Kind {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub namespaced: bool,
    /// Additional endpoints: `status`, `scale`, `binding`, `eviction`.
    pub subresources: &'static [&'static str],
    /// A change of `spec` increments `metadata.generation`.
    pub counts_generation: bool,
}

impl Kind {
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `Pod`, `Deployment.apps`: the kind's name in messages.
    #[must_use]
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    #[must_use]
    pub fn has_status(&self) -> bool {
        self.subresources.contains(&"status")
    }
}

macro_rules! kinds {
    ($($constant:ident = $index:literal { $($field:ident: $value:expr),* $(,)? })*) => {
        impl KindId {
            $(pub const $constant: KindId = KindId($index);)*
        }
        /// Every kind, in the order of [`KindId`].
        pub static KINDS: &[Kind] = &[$(Kind { $($field: $value),* }),*];
    };
}

const ALL: &[&str] = &["all"];
const NONE: &[&str] = &[];

#[rustfmt::skip]
kinds! {
    NAMESPACE = 0 { group: "", version: "v1", kind: "Namespace", plural: "namespaces", singular: "namespace",
        short_names: &["ns"], categories: NONE, namespaced: false, subresources: &["status"], counts_generation: false }
    NODE = 1 { group: "", version: "v1", kind: "Node", plural: "nodes", singular: "node",
        short_names: &["no"], categories: NONE, namespaced: false, subresources: &["status"], counts_generation: false }
    POD = 2 { group: "", version: "v1", kind: "Pod", plural: "pods", singular: "pod",
        short_names: &["po"], categories: ALL, namespaced: true, subresources: &["status", "binding", "eviction"], counts_generation: true }
    CONFIG_MAP = 3 { group: "", version: "v1", kind: "ConfigMap", plural: "configmaps", singular: "configmap",
        short_names: &["cm"], categories: NONE, namespaced: true, subresources: NONE, counts_generation: false }
    SECRET = 4 { group: "", version: "v1", kind: "Secret", plural: "secrets", singular: "secret",
        short_names: NONE, categories: NONE, namespaced: true, subresources: NONE, counts_generation: false }
    SERVICE = 5 { group: "", version: "v1", kind: "Service", plural: "services", singular: "service",
        short_names: &["svc"], categories: ALL, namespaced: true, subresources: &["status"], counts_generation: false }
    EVENT = 6 { group: "", version: "v1", kind: "Event", plural: "events", singular: "event",
        short_names: &["ev"], categories: NONE, namespaced: true, subresources: NONE, counts_generation: false }
    LEASE = 7 { group: "coordination.k8s.io", version: "v1", kind: "Lease", plural: "leases", singular: "lease",
        short_names: NONE, categories: NONE, namespaced: true, subresources: NONE, counts_generation: false }
    DEPLOYMENT = 8 { group: "apps", version: "v1", kind: "Deployment", plural: "deployments", singular: "deployment",
        short_names: &["deploy"], categories: ALL, namespaced: true, subresources: &["status", "scale"], counts_generation: true }
    REPLICA_SET = 9 { group: "apps", version: "v1", kind: "ReplicaSet", plural: "replicasets", singular: "replicaset",
        short_names: &["rs"], categories: ALL, namespaced: true, subresources: &["status", "scale"], counts_generation: true }
    STATEFUL_SET = 10 { group: "apps", version: "v1", kind: "StatefulSet", plural: "statefulsets", singular: "statefulset",
        short_names: &["sts"], categories: ALL, namespaced: true, subresources: &["status", "scale"], counts_generation: true }
    PRIORITY_CLASS = 11 { group: "scheduling.k8s.io", version: "v1", kind: "PriorityClass", plural: "priorityclasses", singular: "priorityclass",
        short_names: &["pc"], categories: NONE, namespaced: false, subresources: NONE, counts_generation: true }
    POD_DISRUPTION_BUDGET = 12 { group: "policy", version: "v1", kind: "PodDisruptionBudget", plural: "poddisruptionbudgets", singular: "poddisruptionbudget",
        short_names: &["pdb"], categories: NONE, namespaced: true, subresources: &["status"], counts_generation: true }
    // Exists for clients that list it, as schedulers do; no controller acts on it.
    REPLICATION_CONTROLLER = 13 { group: "", version: "v1", kind: "ReplicationController", plural: "replicationcontrollers", singular: "replicationcontroller",
        short_names: &["rc"], categories: ALL, namespaced: true, subresources: &["status"], counts_generation: true }
    PERSISTENT_VOLUME = 14 { group: "", version: "v1", kind: "PersistentVolume", plural: "persistentvolumes", singular: "persistentvolume",
        short_names: &["pv"], categories: NONE, namespaced: false, subresources: &["status"], counts_generation: false }
    PERSISTENT_VOLUME_CLAIM = 15 { group: "", version: "v1", kind: "PersistentVolumeClaim", plural: "persistentvolumeclaims", singular: "persistentvolumeclaim",
        short_names: &["pvc"], categories: NONE, namespaced: true, subresources: &["status"], counts_generation: false }
    STORAGE_CLASS = 16 { group: "storage.k8s.io", version: "v1", kind: "StorageClass", plural: "storageclasses", singular: "storageclass",
        short_names: &["sc"], categories: NONE, namespaced: false, subresources: NONE, counts_generation: false }
    CSI_NODE = 17 { group: "storage.k8s.io", version: "v1", kind: "CSINode", plural: "csinodes", singular: "csinode",
        short_names: NONE, categories: NONE, namespaced: false, subresources: NONE, counts_generation: false }
    CSI_DRIVER = 18 { group: "storage.k8s.io", version: "v1", kind: "CSIDriver", plural: "csidrivers", singular: "csidriver",
        short_names: NONE, categories: NONE, namespaced: false, subresources: NONE, counts_generation: false }
    CSI_STORAGE_CAPACITY = 19 { group: "storage.k8s.io", version: "v1", kind: "CSIStorageCapacity", plural: "csistoragecapacities", singular: "csistoragecapacity",
        short_names: NONE, categories: NONE, namespaced: true, subresources: NONE, counts_generation: false }
    VOLUME_ATTACHMENT = 20 { group: "storage.k8s.io", version: "v1", kind: "VolumeAttachment", plural: "volumeattachments", singular: "volumeattachment",
        short_names: NONE, categories: NONE, namespaced: false, subresources: &["status"], counts_generation: false }
    // The kinds of dynamic resource allocation exist for schedulers that watch them; no controller acts on them.
    RESOURCE_CLAIM = 21 { group: "resource.k8s.io", version: "v1", kind: "ResourceClaim", plural: "resourceclaims", singular: "resourceclaim",
        short_names: NONE, categories: NONE, namespaced: true, subresources: &["status"], counts_generation: false }
    RESOURCE_SLICE = 22 { group: "resource.k8s.io", version: "v1", kind: "ResourceSlice", plural: "resourceslices", singular: "resourceslice",
        short_names: NONE, categories: NONE, namespaced: false, subresources: NONE, counts_generation: true }
    DEVICE_CLASS = 23 { group: "resource.k8s.io", version: "v1", kind: "DeviceClass", plural: "deviceclasses", singular: "deviceclass",
        short_names: NONE, categories: NONE, namespaced: false, subresources: NONE, counts_generation: true }
}

impl KindId {
    #[must_use]
    pub fn kind(self) -> &'static Kind {
        &KINDS[self.0]
    }

    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }

    pub fn all() -> impl Iterator<Item = KindId> {
        (0..KINDS.len()).map(KindId)
    }

    #[must_use]
    pub fn by_plural(group: &str, version: &str, plural: &str) -> Option<KindId> {
        KindId::all().find(|id| {
            let kind = id.kind();
            kind.group == group && kind.version == version && kind.plural == plural
        })
    }

    #[must_use]
    pub fn of_object(object: &Value) -> Option<KindId> {
        let api_version = object["apiVersion"].as_str()?;
        let name = object["kind"].as_str()?;
        KindId::all().find(|id| id.kind().kind == name && id.kind().api_version() == api_version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_constant_names_its_table_entry() {
        assert_eq!(KindId::POD.kind().kind, "Pod");
        assert_eq!(KindId::POD_DISRUPTION_BUDGET.kind().kind, "PodDisruptionBudget");
        assert_eq!(KindId::DEVICE_CLASS.kind().kind, "DeviceClass");
        assert_eq!(KindId::by_plural("apps", "v1", "statefulsets"), Some(KindId::STATEFUL_SET));
        assert_eq!(KindId::all().count(), KINDS.len());
    }
}
