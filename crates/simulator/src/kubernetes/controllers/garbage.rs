//! Garbage collection: handles the dependents of a deleted owner, and pods whose node no longer exists.
//!
//! - Background: dependents whose owners are all gone are deleted.
//! - Foreground: a terminating owner waits, by a finalizer, until its dependents are deleted.
//! - Orphan: a terminating owner waits until no dependent references it.
//!
//! Owners of kinds that the simulator does not know are assumed to exist.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Tools;
use super::index::Index;
use crate::kubernetes::condition::{self, State};
use crate::kubernetes::deletion::{self, DeleteOptions, FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use crate::kubernetes::json::{array, items, put, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::store::{Change, ChangeType, ObjectKey, Store};

/// Marks the objects that a change may have turned into garbage.
pub(super) fn observe(change: &Change, store: &Store, index: &Index, mut mark: impl FnMut(KindId, ObjectKey)) {
    let object = &change.object;
    let deleted = change.change_type == ChangeType::Deleted;
    if deleted {
        for (kind, key) in index.dependents(pod::uid(object)) {
            mark(*kind, key.clone());
        }
        // A terminating owner may wait for this object.
        for owner in items(&object["metadata"]["ownerReferences"]) {
            if let Some((kind, owner)) = live_owner(store, object, owner)
                && pod::is_terminating(owner)
            {
                mark(kind, ObjectKey::of(owner));
            }
        }
        return;
    }
    let references_changed = change
        .before
        .as_ref()
        .is_none_or(|before| before["metadata"]["ownerReferences"] != object["metadata"]["ownerReferences"]);
    let waits = pod::is_terminating(object) && !items(&object["metadata"]["finalizers"]).is_empty();
    let ownerless = references_changed
        && items(&object["metadata"]["ownerReferences"]).iter().any(|owner| !owner_exists(store, object, owner));
    if ownerless || waits {
        mark(change.kind, ObjectKey::of(object));
    }
}

pub(crate) fn reconcile(tools: &mut Tools<'_>, kind: KindId, key: &ObjectKey) {
    let Some(object) = tools.store.get(kind, &key.namespace, &key.name).cloned() else { return };
    if pod::is_terminating(&object) {
        return finalize(tools, kind, key, &object);
    }
    let owners = items(&object["metadata"]["ownerReferences"]);
    let (living, gone): (Vec<&Value>, Vec<&Value>) =
        owners.iter().partition(|owner| owner_exists(tools.store, &object, owner));
    if gone.is_empty() {
        return;
    }
    if living.is_empty() {
        let _ = deletion::delete(tools.store, kind, &key.namespace, &key.name, &DeleteOptions::default(), tools.now);
    } else {
        let living: Vec<Value> = living.into_iter().cloned().collect();
        let _ = tools.store.edit(kind, &key.namespace, &key.name, |object| {
            put(object, &["metadata", "ownerReferences"], Value::Array(living));
        });
    }
}

/// Handles the dependents of a terminating owner, then removes the finalizer.
fn finalize(tools: &mut Tools<'_>, kind: KindId, key: &ObjectKey, object: &Value) {
    let has = |finalizer: &str| items(&object["metadata"]["finalizers"]).iter().any(|known| known == finalizer);
    let uid = pod::uid(object);
    let dependents: Vec<(KindId, ObjectKey)> = tools.index.dependents(uid).cloned().collect();
    if has(ORPHAN_FINALIZER) {
        for (kind, key) in dependents {
            let _ = tools.store.edit(kind, &key.namespace, &key.name, |dependent| {
                array(dependent, &["metadata", "ownerReferences"]).retain(|owner| text(&owner["uid"]) != uid);
            });
        }
        take_off(tools, kind, key, ORPHAN_FINALIZER);
    } else if has(FOREGROUND_FINALIZER) {
        if dependents.is_empty() {
            return take_off(tools, kind, key, FOREGROUND_FINALIZER);
        }
        for (kind, key) in dependents {
            let _ =
                deletion::delete(tools.store, kind, &key.namespace, &key.name, &DeleteOptions::default(), tools.now);
        }
    }
}

fn take_off(tools: &mut Tools<'_>, kind: KindId, key: &ObjectKey, finalizer: &str) {
    let _ = tools.store.edit(kind, &key.namespace, &key.name, |object| {
        array(object, &["metadata", "finalizers"]).retain(|known| known != finalizer);
    });
    deletion::finish_if_ready(tools.store, kind, &key.namespace, &key.name);
}

fn owner_exists(store: &Store, dependent: &Value, owner: &Value) -> bool {
    KindId::of_object(owner).is_none() || live_owner(store, dependent, owner).is_some()
}

fn live_owner<'a>(store: &'a Store, dependent: &Value, owner: &Value) -> Option<(KindId, &'a Arc<Value>)> {
    let kind = KindId::of_object(owner)?;
    let namespace = if kind.kind().namespaced { text(&dependent["metadata"]["namespace"]) } else { "" };
    let object = store.get(kind, namespace, text(&owner["name"]))?;
    (object["metadata"]["uid"] == owner["uid"]).then_some((kind, object))
}

/// Removes the pods bound to a node that does not exist: no kubelet will ever confirm that they stopped.
pub(crate) fn collect_orphans(tools: &mut Tools<'_>, node: &str) {
    tools.queue.orphans_collected(node);
    if tools.store.get(KindId::NODE, "", node).is_some() {
        return;
    }
    let pods: Vec<ObjectKey> = tools.index.pods_on(node).cloned().collect();
    for key in pods {
        let now = tools.now;
        let _ = tools.store.edit(KindId::POD, &key.namespace, &key.name, |object| {
            if !pod::is_finished(object) {
                put(object, &["status", "phase"], json!("Failed"));
            }
            let message = "PodGC: node no longer exists";
            condition::set(object, "DisruptionTarget", State::new("True", "DeletionByPodGC", message), now);
        });
        let _ = deletion::delete(tools.store, KindId::POD, &key.namespace, &key.name, &DeleteOptions::at_once(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use crate::kubernetes::deletion::Propagation;

    fn deployment() -> Value {
        json!({ "metadata": { "name": "web", "namespace": "default" }, "spec": { "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "i" }] } } } })
    }

    #[test]
    fn dependents_are_handled_by_propagation_policy() {
        for (propagation, sets_left, pods_left) in
            [(Propagation::Background, 0, 0), (Propagation::Foreground, 0, 0), (Propagation::Orphan, 1, 2)]
        {
            let mut bench = Bench::with_nodes(2);
            bench.create(KindId::DEPLOYMENT, deployment());
            bench.run_for_seconds(10);
            let options = DeleteOptions { propagation, ..DeleteOptions::default() };
            bench.delete_with(KindId::DEPLOYMENT, "web", &options);
            bench.run_watching(20, |bench| {
                if propagation == Propagation::Foreground && !bench.list(KindId::REPLICA_SET).is_empty() {
                    assert!(bench.get(KindId::DEPLOYMENT, "web").is_some(), "the owner waits for its dependents");
                }
            });
            assert!(bench.get(KindId::DEPLOYMENT, "web").is_none(), "{propagation:?}");
            let sets = bench.list(KindId::REPLICA_SET);
            assert_eq!((sets.len(), bench.pods().len()), (sets_left, pods_left), "{propagation:?}");
            assert!(sets.iter().all(|set| items(&set["metadata"]["ownerReferences"]).is_empty()));
        }
    }

    #[test]
    fn an_object_of_a_missing_owner_is_deleted_and_one_of_an_unknown_kind_stays() {
        let mut bench = Bench::with_nodes(0);
        let map = |name: &str, kind: &str| {
            json!({ "metadata": { "name": name, "namespace": "default", "ownerReferences": [
                { "apiVersion": "v1", "kind": kind, "name": "gone", "uid": "0" }] } })
        };
        bench.create(KindId::CONFIG_MAP, map("orphaned", "Pod"));
        bench.create(KindId::CONFIG_MAP, map("foreign", "Spaceship"));
        bench.run_for_seconds(1);
        let left: Vec<_> = bench.list(KindId::CONFIG_MAP).iter().map(|map| map["metadata"]["name"].clone()).collect();
        assert_eq!(left, ["foreign"]);
    }
}
