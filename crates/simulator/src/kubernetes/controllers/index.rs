//! Relations between objects: dependents by their owner's uid, pods by their node and by their claims, volumes by their
//! claim, attachments by their volume and by their node.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::kubernetes::json::{items, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::store::{Change, ChangeType, ObjectKey};

#[derive(Debug, Default)]
pub(crate) struct Index {
    dependents: BTreeMap<String, BTreeSet<(KindId, ObjectKey)>>,
    pods_by_node: BTreeMap<String, BTreeSet<ObjectKey>>,
    pods_by_claim: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// Names of volumes. Those that belong to no claim are under a key without a name.
    volumes_by_claim: BTreeMap<ObjectKey, BTreeSet<String>>,
    attachments_by_volume: BTreeMap<String, BTreeSet<String>>,
    attachments_by_node: BTreeMap<String, BTreeSet<String>>,
}

impl Index {
    pub(crate) fn apply(&mut self, change: &Change) {
        let key = ObjectKey::of(&change.object);
        if let Some(before) = &change.before {
            self.remove(change.kind, before, &key);
        }
        if change.change_type != ChangeType::Deleted {
            self.add(change.kind, &change.object, &key);
        }
    }

    fn add(&mut self, kind: KindId, object: &Value, key: &ObjectKey) {
        for owner in owners(object) {
            self.dependents.entry(owner.to_owned()).or_default().insert((kind, key.clone()));
        }
        match kind {
            KindId::POD => {
                if !pod::node_name(object).is_empty() {
                    insert(&mut self.pods_by_node, pod::node_name(object).to_owned(), key.clone());
                }
                for claim in claims_of(object) {
                    insert(&mut self.pods_by_claim, claim, key.clone());
                }
            }
            KindId::PERSISTENT_VOLUME => insert(&mut self.volumes_by_claim, claim_of(object), key.name.clone()),
            KindId::VOLUME_ATTACHMENT => {
                let (volume, node) = (volume_of(object).to_owned(), text(&object["spec"]["nodeName"]).to_owned());
                insert(&mut self.attachments_by_volume, volume, key.name.clone());
                insert(&mut self.attachments_by_node, node, key.name.clone());
            }
            _ => (),
        }
    }

    fn remove(&mut self, kind: KindId, object: &Value, key: &ObjectKey) {
        for owner in owners(object) {
            remove(&mut self.dependents, owner, &(kind, key.clone()));
        }
        match kind {
            KindId::POD => {
                remove(&mut self.pods_by_node, pod::node_name(object), key);
                for claim in claims_of(object) {
                    remove(&mut self.pods_by_claim, &claim, key);
                }
            }
            KindId::PERSISTENT_VOLUME => remove(&mut self.volumes_by_claim, &claim_of(object), &key.name),
            KindId::VOLUME_ATTACHMENT => {
                remove(&mut self.attachments_by_volume, volume_of(object), &key.name);
                remove(&mut self.attachments_by_node, text(&object["spec"]["nodeName"]), &key.name);
            }
            _ => (),
        }
    }

    pub(crate) fn dependents(&self, owner_uid: &str) -> impl Iterator<Item = &(KindId, ObjectKey)> {
        self.dependents.get(owner_uid).into_iter().flatten()
    }

    pub(crate) fn dependents_count(&self, owner_uid: &str) -> usize {
        self.dependents.get(owner_uid).map_or(0, BTreeSet::len)
    }

    pub(crate) fn pods_on(&self, node: &str) -> impl Iterator<Item = &ObjectKey> {
        self.pods_by_node.get(node).into_iter().flatten()
    }

    pub(crate) fn pods_of_claim(&self, claim: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.pods_by_claim.get(claim).into_iter().flatten()
    }

    /// The names of the volumes whose `claimRef` has the claim's name.
    pub(crate) fn volumes_of_claim(&self, claim: &ObjectKey) -> impl Iterator<Item = &String> {
        self.volumes_by_claim.get(claim).into_iter().flatten()
    }

    pub(crate) fn unclaimed_volumes(&self) -> impl Iterator<Item = &String> {
        self.volumes_of_claim(&NO_CLAIM)
    }

    pub(crate) fn attachments_of_volume(&self, volume: &str) -> impl Iterator<Item = &String> {
        self.attachments_by_volume.get(volume).into_iter().flatten()
    }

    pub(crate) fn attachments_on(&self, node: &str) -> impl Iterator<Item = &String> {
        self.attachments_by_node.get(node).into_iter().flatten()
    }
}

static NO_CLAIM: ObjectKey = ObjectKey { namespace: String::new(), name: String::new() };

fn insert<K: Ord, V: Ord>(index: &mut BTreeMap<K, BTreeSet<V>>, key: K, value: V) {
    index.entry(key).or_default().insert(value);
}

fn remove<K: Ord + Borrow<Q>, Q: Ord + ?Sized, V: Ord>(index: &mut BTreeMap<K, BTreeSet<V>>, key: &Q, value: &V) {
    if let Some(values) = index.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            index.remove(key);
        }
    }
}

fn claims_of(pod: &Value) -> impl Iterator<Item = ObjectKey> {
    let namespace = text(&pod["metadata"]["namespace"]).to_owned();
    pod::claim_names(pod).into_iter().map(move |name| ObjectKey { namespace: namespace.clone(), name })
}

/// The key in a volume's `claimRef`; without a name if it has none.
pub(crate) fn claim_of(volume: &Value) -> ObjectKey {
    let claim = &volume["spec"]["claimRef"];
    ObjectKey::new(text(&claim["namespace"]), text(&claim["name"]))
}

pub(crate) fn volume_of(attachment: &Value) -> &str {
    text(&attachment["spec"]["source"]["persistentVolumeName"])
}

fn owners(object: &Value) -> impl Iterator<Item = &str> {
    items(&object["metadata"]["ownerReferences"]).iter().map(|owner| text(&owner["uid"])).filter(|uid| !uid.is_empty())
}
