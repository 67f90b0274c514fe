//! The namespace controller: empties a deleted namespace, then removes it.

use super::Tools;
use crate::kubernetes::deletion::{self, DeleteOptions};
use crate::kubernetes::json::put;
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::store::{ObjectKey, Store};

pub(crate) fn is_terminating(store: &Store, namespace: &str) -> bool {
    store.get(KindId::NAMESPACE, "", namespace).is_some_and(|namespace| pod::is_terminating(namespace))
}

pub(crate) fn reconcile(tools: &mut Tools<'_>, name: &str) {
    if !is_terminating(tools.store, name) {
        return;
    }
    let mut empty = true;
    for kind in KindId::all().filter(|kind| kind.kind().namespaced) {
        let keys: Vec<ObjectKey> = tools.store.list(kind, Some(name)).map(|object| ObjectKey::of(object)).collect();
        for key in keys {
            let _ = deletion::delete(tools.store, kind, name, &key.name, &DeleteOptions::default(), tools.now);
        }
        empty &= tools.store.list(kind, Some(name)).next().is_none();
    }
    // The remaining objects are terminating. The removal of the last one triggers this controller again.
    if empty {
        let _ = tools.store.edit(KindId::NAMESPACE, "", name, |namespace| {
            put(namespace, &["spec", "finalizers"], serde_json::json!([]));
        });
        deletion::finish_if_ready(tools.store, KindId::NAMESPACE, "", name);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_deleted_namespace_is_emptied_before_it_is_removed() {
        let mut bench = Bench::with_nodes(1);
        bench.create_pod("p", &json!({}));
        bench.create(KindId::CONFIG_MAP, json!({ "metadata": { "name": "c", "namespace": "default" } }));
        bench.run_for_seconds(10);
        bench.delete(KindId::NAMESPACE, "default");
        bench.run_for_seconds(0);
        assert_eq!(bench.get(KindId::NAMESPACE, "default").unwrap()["status"]["phase"], "Terminating");
        assert!(bench.list(KindId::CONFIG_MAP).is_empty());
        bench.run_for_seconds(10);
        assert!(bench.pods().is_empty());
        assert!(bench.get(KindId::NAMESPACE, "default").is_none());
    }
}
