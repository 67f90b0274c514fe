//! Objects with invalid values: the controllers and the placer must keep working.
//!
//! The API rejects most of these objects. The controllers do not rely on that: an invalid object must not crash the
//! whole world.

use std::sync::Arc;

use serde_json::{Value, json};

use super::testing::Bench;
use crate::kubernetes::json::put;
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::placer;
use crate::seed::{Seed, Stream};

fn sound_objects() -> Vec<(KindId, Value)> {
    let template = json!({ "metadata": { "labels": { "app": "web" }, "annotations": { "a": "b" } }, "spec": {
        "containers": [{ "name": "c", "image": "i", "ports": [{ "hostPort": 80 }],
            "resources": { "requests": { "cpu": "100m", "memory": "1Gi" }, "limits": { "cpu": "1" } } }],
        "initContainers": [{ "name": "i", "image": "i", "restartPolicy": "Always" }],
        "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "x5" } },
            { "name": "e", "ephemeral": { "volumeClaimTemplate": { "spec": { "storageClassName": "x1",
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } } } }],
        "nodeSelector": { "a": "b" }, "overhead": { "cpu": "1" }, "priority": 5, "terminationGracePeriodSeconds": 3,
        "tolerations": [{ "key": "k", "operator": "Exists", "tolerationSeconds": 5 }],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                    { "matchExpressions": [{ "key": "a", "operator": "In", "values": ["b"] }] }] },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    { "weight": 3, "preference": { "matchFields": [] } }] },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "a", "labelSelector": {} }],
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    { "weight": 3, "podAffinityTerm": { "topologyKey": "a", "labelSelector": {} } }] } } } });
    let selector = json!({ "matchLabels": { "app": "web" } });
    let condition = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    vec![
        (
            KindId::DEPLOYMENT,
            json!({ "metadata": { "annotations": { "deployment.kubernetes.io/revision": "3" } }, "spec": {
                "replicas": 2, "selector": selector, "template": template, "minReadySeconds": 1,
                "progressDeadlineSeconds": 9, "revisionHistoryLimit": 1, "paused": false,
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": "5%" } } },
                "status": { "replicas": 3, "conditions": condition } }),
        ),
        (
            KindId::REPLICA_SET,
            json!({ "spec": { "replicas": 2, "selector": selector, "template": template },
                "status": { "replicas": 1 } }),
        ),
        (
            KindId::STATEFUL_SET,
            json!({ "spec": { "replicas": 2, "selector": selector, "template": template, "serviceName": "s",
                "volumeClaimTemplates": [{ "metadata": { "name": "d" }, "spec": { "accessModes": ["ReadWriteOnce"] } }],
                "ordinals": { "start": 1 }, "updateStrategy": { "rollingUpdate": { "partition": 1 } } },
                "status": { "currentReplicas": 1, "currentRevision": "r" } }),
        ),
        (
            KindId::POD_DISRUPTION_BUDGET,
            json!({ "spec": { "minAvailable": "50%", "maxUnavailable": 1, "selector": selector },
                "status": { "disruptedPods": { "p": "2026-01-01T00:00:00Z" }, "conditions": condition } }),
        ),
        (
            KindId::POD,
            json!({ "metadata": { "labels": { "app": "web" }, "finalizers": ["f"], "ownerReferences": [
                { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "u", "controller": true }] },
                "spec": template["spec"], "status": { "phase": "Running", "conditions": condition,
                    "containerStatuses": [{ "name": "c", "restartCount": 1 }] } }),
        ),
        (
            KindId::NODE,
            json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "unschedulable": true,
                "taints": [{ "key": "k", "effect": "NoExecute" }] },
                "status": { "allocatable": { "cpu": "4", "pods": "9" }, "conditions": condition } }),
        ),
        (
            KindId::PERSISTENT_VOLUME_CLAIM,
            json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": "node-1" },
                "finalizers": ["kubernetes.io/pvc-protection"] }, "spec": { "storageClassName": "x1",
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
                "selector": selector, "volumeName": "x2" }, "status": { "phase": "Bound" } }),
        ),
        (
            KindId::PERSISTENT_VOLUME,
            json!({ "metadata": { "finalizers": ["kubernetes.io/pv-protection"] }, "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
                "claimRef": { "namespace": "default", "name": "x3", "uid": "" },
                "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": "x4", "volumeHandle": "h" },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [] }] } } },
                "status": { "phase": "Available" } }),
        ),
        (
            KindId::STORAGE_CLASS,
            json!({ "provisioner": "x4", "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": [
                { "matchLabelExpressions": [{ "key": "a", "values": ["b"] }] }] }),
        ),
        (KindId::CSI_DRIVER, json!({ "spec": { "attachRequired": true } })),
        (
            KindId::CSI_NODE,
            json!({ "spec": { "drivers": [{ "name": "x4", "nodeID": "n", "allocatable": { "count": 3 } }] } }),
        ),
        (
            KindId::VOLUME_ATTACHMENT,
            json!({ "metadata": { "finalizers": ["external-attacher/x4"] }, "spec": { "attacher": "x4",
                "nodeName": "node-1", "source": { "persistentVolumeName": "x2" } }, "status": { "attached": false } }),
        ),
        (
            KindId::EVENT,
            json!({ "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1, "involvedObject": { "uid": "u" } }),
        ),
    ]
}

/// Replaces a randomly chosen part of the value with an invalid one.
fn spoil(value: &mut Value, random: &mut Stream) {
    let deeper = random.chance(0.8);
    match value {
        Value::Object(fields) if deeper && !fields.is_empty() => {
            let at = usize::try_from(random.below(fields.len() as u64)).unwrap();
            let key = fields.keys().nth(at).unwrap().clone();
            spoil(&mut fields[&key], random);
        }
        Value::Array(list) if deeper && !list.is_empty() => {
            let at = usize::try_from(random.below(list.len() as u64)).unwrap();
            spoil(&mut list[at], random);
        }
        _ => {
            let nonsense = [
                json!(null),
                json!("nonsense"),
                json!(""),
                json!(-1),
                json!(i64::MAX),
                json!(i64::MIN),
                json!(u64::MAX),
                json!(0.5),
                json!(true),
                json!([]),
                json!([[1], null, "x"]),
                json!({}),
                json!({ "a": { "b": null } }),
                json!("9223372036854775807"),
                json!("100000000000%"),
            ];
            let at = usize::try_from(random.below(nonsense.len() as u64)).unwrap();
            *value = nonsense[at].clone();
        }
    }
}

#[test]
fn invalid_objects_do_not_break_the_controllers() {
    let mut random = Seed(7).stream("nonsense");
    for round in 0..40 {
        let config = crate::kubernetes::Config { pods_max: 60, ..crate::kubernetes::Config::default() };
        let mut bench = Bench::with(2, &config);
        for number in 0..12 {
            for (kind, sound) in sound_objects() {
                let mut object = sound;
                for _ in 0..=random.below(3) {
                    spoil(&mut object, &mut random);
                }
                put(&mut object, &["metadata", "name"], json!(format!("x{number}")));
                if kind.kind().namespaced {
                    put(&mut object, &["metadata", "namespace"], json!("default"));
                }
                bench.kubernetes.store_mut().create(kind, object, bench.now).unwrap();
            }
        }
        bench.run_for_seconds(30);
        bench.stop_machine("node-1");
        bench.run_for_seconds(400);
        bench.start_machine(1);
        bench.run_for_seconds(60);
        assert!(bench.get(KindId::NODE, "node-2").is_some(), "round {round}");
        let pods: Vec<Arc<Value>> = bench.pods();
        placer::consider_all(bench.kubernetes.store(), &pods);
    }
}
