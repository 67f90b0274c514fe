//! The defaults that kube-apiserver sets, for the fields that clients read.
//!
//! [`apply`] is for a new object: all defaults, plus what admission adds at creation (priority, default tolerations,
//! the selectors of `matchLabelKeys`, a Service's address). [`fill_in`] is the part that also applies to updates.
//!
//! Invariant: applying the defaults twice gives the same result as applying them once.

mod parts;
mod pod;
mod service;
mod storage;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::kinds::KindId;
use super::store::Store;
pub use storage::{CLAIM_PROTECTION, VOLUME_PROTECTION};

/// Completes a new object. Namespaced kinds must have `metadata.namespace`.
pub fn apply(kind: KindId, object: &mut Value, store: &Store) {
    fill_in(kind, object);
    match kind {
        KindId::POD => pod::complete_new(object, store),
        KindId::SERVICE => service::complete_new(object, store),
        KindId::PERSISTENT_VOLUME_CLAIM => storage::complete_new_claim(object, store),
        KindId::PERSISTENT_VOLUME => storage::complete_new_volume(object),
        KindId::VOLUME_ATTACHMENT => object["status"] = json!({ "attached": false }),
        KindId::RESOURCE_CLAIM => object["status"] = json!({}),
        KindId::NAMESPACE => {
            let name = object["metadata"]["name"].clone();
            if name.is_string() {
                object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            }
            let finalizers = &mut object["spec"]["finalizers"];
            if finalizers.is_null() {
                *finalizers = json!(["kubernetes"]);
            }
            object["status"] = json!({ "phase": "Active" });
        }
        KindId::DEPLOYMENT => object["status"] = json!({}),
        KindId::REPLICA_SET => object["status"] = json!({ "replicas": 0 }),
        KindId::STATEFUL_SET => object["status"] = json!({ "replicas": 0, "availableReplicas": 0 }),
        KindId::POD_DISRUPTION_BUDGET => {
            object["status"] =
                json!({ "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0 });
        }
        KindId::NODE => {
            for field in [
                "machineID",
                "systemUUID",
                "bootID",
                "kernelVersion",
                "osImage",
                "containerRuntimeVersion",
                "kubeletVersion",
                "kubeProxyVersion",
                "operatingSystem",
                "architecture",
            ] {
                set_default(&mut object["status"]["nodeInfo"], field, || json!(""));
            }
            set_default(&mut object["status"], "daemonEndpoints", || json!({ "kubeletEndpoint": { "Port": 0 } }));
        }
        _ => (),
    }
}

/// Completes a new or updated object.
pub fn fill_in(kind: KindId, object: &mut Value) {
    match kind {
        KindId::POD => {
            pod::fill_in_spec(&mut object["spec"]);
            pod::requests_from_limits(&mut object["spec"]);
            pod::add_default_tolerations(&mut object["spec"]);
            set_default(&mut object["spec"], "enableServiceLinks", || json!(true));
        }
        KindId::DEPLOYMENT | KindId::REPLICA_SET | KindId::STATEFUL_SET => fill_in_workload(kind, object),
        KindId::SERVICE => service::fill_in(&mut object["spec"]),
        KindId::PERSISTENT_VOLUME => storage::fill_in_volume(object),
        KindId::PERSISTENT_VOLUME_CLAIM => set_default(&mut object["spec"], "volumeMode", || json!("Filesystem")),
        KindId::STORAGE_CLASS => storage::fill_in_class(object),
        KindId::CSI_DRIVER => storage::fill_in_driver(&mut object["spec"]),
        KindId::VOLUME_ATTACHMENT => set_default(&mut object["status"], "attached", || json!(false)),
        KindId::EVENT => {
            set_default(object, "source", || json!({}));
            set_default(object, "reportingComponent", || json!(""));
            set_default(object, "reportingInstance", || json!(""));
        }
        KindId::CONFIG_MAP => drop_empty(object, &["data", "binaryData"]),
        KindId::SECRET => {
            set_default(object, "type", || json!("Opaque"));
            let plain = object.as_object_mut().and_then(|object| object.remove("stringData"));
            for (key, value) in plain.as_ref().and_then(Value::as_object).into_iter().flatten() {
                object["data"][key] = json!(STANDARD.encode(value.as_str().unwrap_or_default()));
            }
            drop_empty(object, &["data"]);
        }
        KindId::PRIORITY_CLASS => {
            set_default(object, "value", || json!(0));
            set_default(object, "preemptionPolicy", || json!("PreemptLowerPriority"));
        }
        KindId::NODE => {
            // A node's allocatable resources default to its capacity.
            let capacity = object["status"]["capacity"].clone();
            if capacity.is_object() {
                set_default(&mut object["status"], "allocatable", || capacity);
            }
        }
        _ => (),
    }
}

/// A real server omits empty maps.
fn drop_empty(object: &mut Value, fields: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        object.retain(|field, value| {
            !fields.contains(&field.as_str()) || value.as_object().is_none_or(|map| !map.is_empty())
        });
    }
}

fn fill_in_workload(kind: KindId, object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "replicas", || json!(1));
    if kind == KindId::DEPLOYMENT {
        set_default(spec, "revisionHistoryLimit", || json!(10));
        set_default(spec, "progressDeadlineSeconds", || json!(600));
        set_default(&mut spec["strategy"], "type", || json!("RollingUpdate"));
        if spec["strategy"]["type"] == "RollingUpdate" {
            let rolling = &mut spec["strategy"]["rollingUpdate"];
            set_default(rolling, "maxUnavailable", || json!("25%"));
            set_default(rolling, "maxSurge", || json!("25%"));
        }
    }
    if kind == KindId::STATEFUL_SET {
        set_default(spec, "revisionHistoryLimit", || json!(10));
        set_default(spec, "podManagementPolicy", || json!("OrderedReady"));
        set_default(spec, "serviceName", || json!(""));
        set_default(&mut spec["updateStrategy"], "type", || json!("RollingUpdate"));
        if spec["updateStrategy"]["type"] == "RollingUpdate" {
            set_default(&mut spec["updateStrategy"]["rollingUpdate"], "partition", || json!(0));
        }
        set_default(
            spec,
            "persistentVolumeClaimRetentionPolicy",
            || json!({ "whenDeleted": "Retain", "whenScaled": "Retain" }),
        );
    }
    parts::fill_in_claims(spec);
    pod::fill_in_spec(&mut spec["template"]["spec"]);
}

/// Sets a field that is absent or null. Skips values that are not objects: other code checks their type.
fn set_default(object: &mut Value, field: &str, default: impl FnOnce() -> Value) {
    if object.is_null() {
        *object = json!({});
    }
    if let Some(map) = object.as_object_mut() {
        let value = map.entry(field).or_insert(Value::Null);
        if value.is_null() {
            *value = default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SimTime;
    use crate::seed::Seed;

    fn completed(kind: KindId, mut object: Value) -> Value {
        let store = Store::new(Seed(1));
        apply(kind, &mut object, &store);
        let once = object.clone();
        fill_in(kind, &mut object);
        assert_eq!(object, once, "applying the defaults again changes nothing");
        object
    }

    #[test]
    fn a_new_pod_gets_the_defaults_of_a_real_server() {
        let pod = completed(
            KindId::POD,
            json!({ "metadata": { "name": "p", "labels": { "a": "b" } }, "spec": {
                "containers": [{ "name": "p", "image": "nginx", "resources": { "limits": { "cpu": "1" } } }],
                "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
                    "topologyKey": "x", "matchLabelKeys": ["a"], "mismatchLabelKeys": ["zz"],
                    "labelSelector": { "matchLabels": { "q": "r" } } }] } } } }),
        );
        let spec = &pod["spec"];
        assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");
        assert_eq!(spec["containers"][0]["resources"]["requests"], json!({ "cpu": "1" }));
        assert_eq!(spec["priority"], 0);
        assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
        let term = &spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
        let expressions = json!([{ "key": "a", "operator": "In", "values": ["b"] }]);
        assert_eq!(term["labelSelector"]["matchExpressions"], expressions);
        assert_eq!(pod["status"], json!({ "phase": "Pending", "qosClass": "Burstable" }));
    }

    #[test]
    fn probes_environment_and_volumes_get_defaults() {
        let spec = json!({
            "containers": [{ "name": "c", "image": "i", "livenessProbe": { "httpGet": { "port": 1 }, "periodSeconds": 5 },
                "env": [{ "name": "P", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } }, 7] }],
            "volumes": [{ "projected": { "sources": [{ "serviceAccountToken": { "path": "t" } }, "?"] } }, { "secret": 1 }],
        });
        let pod = completed(KindId::POD, json!({ "metadata": {}, "spec": spec }));
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["livenessProbe"]["periodSeconds"], 5);
        assert_eq!(container["livenessProbe"]["httpGet"], json!({ "path": "/", "port": 1, "scheme": "HTTP" }));
        assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
        let projected = &pod["spec"]["volumes"][0]["projected"];
        assert_eq!(projected["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3600);
        assert_eq!(projected["defaultMode"], 420);
    }

    #[test]
    fn quality_of_service() {
        for (resources, class) in [
            (json!({}), "BestEffort"),
            (json!({ "requests": { "cpu": "1" } }), "Burstable"),
            (json!({ "limits": { "cpu": "1", "memory": "1Gi" } }), "Guaranteed"),
            (
                json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "1000m", "memory": "1024Mi" } }),
                "Guaranteed",
            ),
            (json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "500m" } }), "Burstable"),
        ] {
            let container = json!({ "name": "c", "image": "i:1", "resources": resources });
            let pod = completed(KindId::POD, json!({ "metadata": {}, "spec": { "containers": [container] } }));
            assert_eq!(pod["status"]["qosClass"], class, "{resources}");
        }
    }

    #[test]
    fn priority_comes_from_the_class_or_the_global_default() {
        let mut store = Store::new(Seed(1));
        let mut class = |name: &str, value: i64, global: bool| {
            let object = json!({ "metadata": { "name": name }, "value": value, "globalDefault": global });
            store.create(KindId::PRIORITY_CLASS, object, SimTime::VIRTUAL_START).unwrap();
        };
        class("high", 1000, false);
        class("usual", 7, true);
        for (given, priority, name) in [(json!({ "priorityClassName": "high" }), 1000, "high"), (json!({}), 7, "usual")]
        {
            let mut pod = json!({ "metadata": {}, "spec": given });
            apply(KindId::POD, &mut pod, &store);
            assert_eq!((&pod["spec"]["priority"], &pod["spec"]["priorityClassName"]), (&json!(priority), &json!(name)));
        }
    }

    #[test]
    fn services_get_distinct_addresses() {
        let mut store = Store::new(Seed(1));
        let mut addresses = std::collections::BTreeSet::new();
        for number in 0..50 {
            let mut service = json!({ "metadata": { "name": format!("s{number}"), "namespace": "default" },
                "spec": { "type": "NodePort", "ports": [{ "port": 80 }] } });
            apply(KindId::SERVICE, &mut service, &store);
            assert!(addresses.insert(service["spec"]["clusterIP"].to_string()));
            assert!(addresses.insert(service["spec"]["ports"][0]["nodePort"].to_string()));
            store.create(KindId::SERVICE, service, SimTime::VIRTUAL_START).unwrap();
        }
    }

    #[test]
    fn other_kinds() {
        let deployment = completed(KindId::DEPLOYMENT, json!({ "metadata": {}, "spec": {} }));
        assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"], "25%");
        assert_eq!(deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 30);
        let secret = completed(KindId::SECRET, json!({ "metadata": {}, "stringData": { "a": "b" } }));
        assert_eq!(secret["data"]["a"], "Yg==");
        let namespace = completed(KindId::NAMESPACE, json!({ "metadata": { "name": "n" } }));
        assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "n");
    }
}
