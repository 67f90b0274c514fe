//! All objects about volumes, with the indexes that schedulers query.
//!
//! In: objects as the watches show them, and what a scheduler assumes about claims and volumes. Out: an object by name,
//! the volumes and capacities of a class, the attachments of a node. Of claims and volumes the assumed version counts,
//! except where the observed one is asked for.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::facts::{
    AttachmentFacts, ClaimFacts, CsiDriverFacts, CsiNodeFacts, StorageCapacityFacts, StorageClassFacts, VolumeFacts,
    VolumeKind, VolumeObject,
};
use super::table::Table;
use crate::storage::arena::PodId;
use crate::world::sync::Generation;

/// The names of objects by a name that they refer to: its class or its node. In the order of names.
type Referring<K> = HashMap<Box<str>, BTreeSet<K>>;

#[derive(Debug)]
pub struct Volumes {
    claims: Table<ClaimFacts>,
    volumes: Table<VolumeFacts>,
    classes: Table<StorageClassFacts>,
    csi_nodes: Table<CsiNodeFacts>,
    csi_drivers: Table<CsiDriverFacts>,
    capacities: Table<StorageCapacityFacts>,
    attachments: Table<AttachmentFacts>,
    volumes_by_class: Referring<Box<str>>,
    /// By namespace and name.
    capacities_by_class: Referring<(Box<str>, Box<str>)>,
    attachments_by_node: Referring<Box<str>>,
    /// What is assumed for a pod.
    assumed_for: FxHashMap<PodId, Vec<VolumeObject>>,
    changes: u64,
}

impl Default for Volumes {
    fn default() -> Self {
        // Only claims and volumes are assumed, so only their versions matter.
        Self {
            claims: Table::new(|claim| &claim.version),
            volumes: Table::new(|volume| &volume.version),
            classes: Table::new(|_| ""),
            csi_nodes: Table::new(|_| ""),
            csi_drivers: Table::new(|_| ""),
            capacities: Table::new(|_| ""),
            attachments: Table::new(|_| ""),
            volumes_by_class: HashMap::new(),
            capacities_by_class: HashMap::new(),
            attachments_by_node: HashMap::new(),
            assumed_for: FxHashMap::default(),
            changes: 0,
        }
    }
}

/// Questions.
impl Volumes {
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<ClaimFacts>> {
        self.claims.get(namespace, name)
    }

    /// As the watch shows it.
    pub fn observed_claim(&self, namespace: &str, name: &str) -> Option<&Arc<ClaimFacts>> {
        self.claims.observed(namespace, name)
    }

    pub fn volume(&self, name: &str) -> Option<&Arc<VolumeFacts>> {
        self.volumes.get("", name)
    }

    /// As the watch shows it.
    pub fn observed_volume(&self, name: &str) -> Option<&Arc<VolumeFacts>> {
        self.volumes.observed("", name)
    }

    pub fn class(&self, name: &str) -> Option<&Arc<StorageClassFacts>> {
        self.classes.get("", name)
    }

    pub fn csi_node(&self, name: &str) -> Option<&Arc<CsiNodeFacts>> {
        self.csi_nodes.get("", name)
    }

    pub fn csi_driver(&self, name: &str) -> Option<&Arc<CsiDriverFacts>> {
        self.csi_drivers.get("", name)
    }

    /// In the order of names.
    pub fn volumes_of_class(&self, class: &str) -> impl Iterator<Item = &Arc<VolumeFacts>> {
        self.volumes_by_class.get(class).into_iter().flatten().filter_map(|name| self.volume(name))
    }

    /// Of all namespaces, in the order of namespaces and names.
    pub fn capacities_of_class(&self, class: &str) -> impl Iterator<Item = &Arc<StorageCapacityFacts>> {
        let names = self.capacities_by_class.get(class).into_iter().flatten();
        names.filter_map(|(namespace, name)| self.capacities.get(namespace, name))
    }

    /// In the order of names.
    pub fn attachments_on(&self, node: &str) -> impl Iterator<Item = &Arc<AttachmentFacts>> {
        let names = self.attachments_by_node.get(node).into_iter().flatten();
        names.filter_map(|name| self.attachments.get("", name))
    }

    pub fn attachment_count(&self, node: &str) -> usize {
        if self.attachments_by_node.is_empty() {
            0
        } else {
            self.attachments_by_node.get(node).map_or(0, BTreeSet::len)
        }
    }

    /// A counter that changes whenever any object does, or what is assumed about it.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How many objects of this kind there are.
    pub fn count(&self, kind: VolumeKind) -> usize {
        match kind {
            VolumeKind::Claim => self.claims.len(),
            VolumeKind::Volume => self.volumes.len(),
            VolumeKind::StorageClass => self.classes.len(),
            VolumeKind::CsiNode => self.csi_nodes.len(),
            VolumeKind::CsiDriver => self.csi_drivers.len(),
            VolumeKind::StorageCapacity => self.capacities.len(),
            VolumeKind::Attachment => self.attachments.len(),
        }
    }

    /// As the watch shows it.
    pub(crate) fn observed(&self, kind: VolumeKind, namespace: &str, name: &str) -> Option<VolumeObject> {
        Some(match kind {
            VolumeKind::Claim => VolumeObject::Claim(Arc::clone(self.claims.observed(namespace, name)?)),
            VolumeKind::Volume => VolumeObject::Volume(Arc::clone(self.volumes.observed("", name)?)),
            VolumeKind::StorageClass => VolumeObject::StorageClass(Arc::clone(self.classes.observed("", name)?)),
            VolumeKind::CsiNode => VolumeObject::CsiNode(Arc::clone(self.csi_nodes.observed("", name)?)),
            VolumeKind::CsiDriver => VolumeObject::CsiDriver(Arc::clone(self.csi_drivers.observed("", name)?)),
            VolumeKind::StorageCapacity => {
                VolumeObject::StorageCapacity(Arc::clone(self.capacities.observed(namespace, name)?))
            }
            VolumeKind::Attachment => VolumeObject::Attachment(Arc::clone(self.attachments.observed("", name)?)),
        })
    }
}

/// Changes.
impl Volumes {
    pub(crate) fn apply(&mut self, object: VolumeObject, generation: Generation) {
        self.changes += 1;
        match object {
            VolumeObject::Claim(claim) => {
                self.claims.apply(&claim.namespace, &claim.name, Arc::clone(&claim), generation);
            }
            VolumeObject::Volume(volume) => {
                let before = self.volumes.apply("", &volume.name, Arc::clone(&volume), generation);
                let name = || volume.name.as_str().into();
                refer(&mut self.volumes_by_class, before.map(|before| before.class.clone()), Some(&volume.class), name);
            }
            VolumeObject::StorageClass(class) => {
                self.classes.apply("", &class.name, Arc::clone(&class), generation);
            }
            VolumeObject::CsiNode(node) => {
                self.csi_nodes.apply("", &node.name, Arc::clone(&node), generation);
            }
            VolumeObject::CsiDriver(driver) => {
                self.csi_drivers.apply("", &driver.name, Arc::clone(&driver), generation);
            }
            VolumeObject::StorageCapacity(capacity) => {
                let (namespace, name) = (capacity.namespace.as_str(), capacity.name.as_str());
                let before = self.capacities.apply(namespace, name, Arc::clone(&capacity), generation);
                let key = || (namespace.into(), name.into());
                let before = before.map(|before| before.class.clone());
                refer(&mut self.capacities_by_class, before, Some(&capacity.class), key);
            }
            VolumeObject::Attachment(attachment) => {
                let before = self.attachments.apply("", &attachment.name, Arc::clone(&attachment), generation);
                let (name, before) = (|| attachment.name.as_str().into(), before.map(|before| before.node.clone()));
                refer(&mut self.attachments_by_node, before, Some(&attachment.node), name);
            }
        }
    }

    pub(crate) fn remove(&mut self, kind: VolumeKind, namespace: &str, name: &str) {
        self.changes += 1;
        match kind {
            VolumeKind::Claim => drop(self.claims.remove(namespace, name)),
            VolumeKind::Volume => {
                let before = self.volumes.remove("", name).map(|before| before.class.clone());
                refer(&mut self.volumes_by_class, before, None, || name.into());
            }
            VolumeKind::StorageClass => drop(self.classes.remove("", name)),
            VolumeKind::CsiNode => drop(self.csi_nodes.remove("", name)),
            VolumeKind::CsiDriver => drop(self.csi_drivers.remove("", name)),
            VolumeKind::StorageCapacity => {
                let before = self.capacities.remove(namespace, name).map(|before| before.class.clone());
                refer(&mut self.capacities_by_class, before, None, || (namespace.into(), name.into()));
            }
            VolumeKind::Attachment => {
                let before = self.attachments.remove("", name).map(|before| before.node.clone());
                refer(&mut self.attachments_by_node, before, None, || name.into());
            }
        }
    }

    /// The objects that the relist of this generation did not contain, by namespace and name.
    pub(crate) fn not_of(&self, kind: VolumeKind, generation: Generation) -> Vec<(Box<str>, Box<str>)> {
        match kind {
            VolumeKind::Claim => self.claims.not_of(generation),
            VolumeKind::Volume => self.volumes.not_of(generation),
            VolumeKind::StorageClass => self.classes.not_of(generation),
            VolumeKind::CsiNode => self.csi_nodes.not_of(generation),
            VolumeKind::CsiDriver => self.csi_drivers.not_of(generation),
            VolumeKind::StorageCapacity => self.capacities.not_of(generation),
            VolumeKind::Attachment => self.attachments.not_of(generation),
        }
    }

    /// The pod is about to change these claims and volumes. An object of another version is left out: it changed in the
    /// meantime.
    pub(crate) fn assume(&mut self, pod: PodId, objects: Vec<VolumeObject>) {
        self.changes += 1;
        for object in objects {
            let holds = match &object {
                VolumeObject::Claim(claim) => self.claims.assume(&claim.namespace, &claim.name, claim),
                VolumeObject::Volume(volume) => self.volumes.assume("", &volume.name, volume),
                _ => false,
            };
            if holds {
                self.assumed_for.entry(pod).or_default().push(object);
            }
        }
    }

    /// Ends what is assumed for the pod.
    pub(crate) fn forget(&mut self, pod: PodId) {
        let Some(objects) = self.assumed_for.remove(&pod) else { return };
        self.changes += 1;
        for object in objects {
            match &object {
                VolumeObject::Claim(claim) => self.claims.forget(&claim.namespace, &claim.name, claim),
                VolumeObject::Volume(volume) => self.volumes.forget("", &volume.name, volume),
                _ => {}
            }
        }
    }

    /// For how many pods something is assumed.
    #[cfg(test)]
    pub(crate) fn assumed_count(&self) -> usize {
        self.assumed_for.len()
    }
}

/// Moves an object from the name that it referred to before to the one that it refers to now.
fn refer<K: Ord>(index: &mut Referring<K>, before: Option<String>, after: Option<&String>, key: impl Fn() -> K) {
    if before.as_ref() == after {
        return;
    }
    if let Some(before) = before
        && let Some(names) = index.get_mut(before.as_str())
    {
        names.remove(&key());
        if names.is_empty() {
            index.remove(before.as_str());
        }
    }
    if let Some(after) = after {
        index.entry(after.as_str().into()).or_default().insert(key());
    }
}
