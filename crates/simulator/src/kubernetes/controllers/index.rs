//! Relations between objects: dependents by their owner's uid, pods by their node.

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
        if kind == KindId::POD && !pod::node_name(object).is_empty() {
            self.pods_by_node.entry(pod::node_name(object).to_owned()).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, kind: KindId, object: &Value, key: &ObjectKey) {
        for owner in owners(object) {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(&(kind, key.clone()));
                if dependents.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        if kind == KindId::POD
            && let Some(pods) = self.pods_by_node.get_mut(pod::node_name(object))
        {
            pods.remove(key);
            if pods.is_empty() {
                self.pods_by_node.remove(pod::node_name(object));
            }
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
}

fn owners(object: &Value) -> impl Iterator<Item = &str> {
    items(&object["metadata"]["ownerReferences"]).iter().map(|owner| text(&owner["uid"])).filter(|uid| !uid.is_empty())
}
