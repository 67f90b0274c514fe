//! The objects that a cluster has from the start.

use serde_json::{Value, json};

use crate::clock::SimTime;
use crate::kubernetes::controllers::STORAGE_DRIVER;
use crate::kubernetes::defaults;
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::store::Store;

/// The class of claims that name none.
const DEFAULT_STORAGE_CLASS: &str = "standard";

/// Creates the system namespaces, the system priority classes, the storage driver with its class, and the API's own
/// Service if they are missing.
pub fn bootstrap(store: &mut Store, now: SimTime) {
    let named = |name: &str| json!({ "metadata": { "name": name } });
    let mut objects: Vec<(KindId, Value)> = ["default", "kube-system", "kube-public", "kube-node-lease"]
        .map(|name| (KindId::NAMESPACE, named(name)))
        .to_vec();
    for (name, value, description) in [
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ] {
        let mut class = named(name);
        class["value"] = json!(value);
        class["description"] = json!(description);
        objects.push((KindId::PRIORITY_CLASS, class));
    }
    objects.push((KindId::CSI_DRIVER, named(STORAGE_DRIVER)));
    let mut class = named(DEFAULT_STORAGE_CLASS);
    class["metadata"]["annotations"] = json!({ "storageclass.kubernetes.io/is-default-class": "true" });
    class["provisioner"] = json!(STORAGE_DRIVER);
    class["allowVolumeExpansion"] = json!(true);
    class["volumeBindingMode"] = json!("WaitForFirstConsumer");
    objects.push((KindId::STORAGE_CLASS, class));
    objects.push((
        KindId::SERVICE,
        json!({
            "metadata": { "name": "kubernetes", "namespace": "default",
                "labels": { "component": "apiserver", "provider": "kubernetes" } },
            "spec": { "clusterIP": "10.96.0.1", "ports": [{ "name": "https", "port": 443, "targetPort": 6443 }] },
        }),
    ));
    for (kind, mut object) in objects {
        defaults::apply(kind, &mut object, store);
        // An existing object stays unchanged.
        let _ = store.create(kind, object, now);
    }
}
