//! Generates Services and workload controllers, from which the default spread constraints take their selector.

use serde_json::{Value, json};

use super::dice::Dice;
use super::words::{NAMESPACES, POD_LABELS};
use crate::World;

/// The controllers of a world with owners: at most one of each kind per namespace.
const CONTROLLERS: &[(&str, &str, &str)] =
    &[("ReplicaSet", "apps/v1", "rs"), ("StatefulSet", "apps/v1", "sts"), ("ReplicationController", "v1", "rc")];

pub fn add(dice: &mut Dice, world: &mut World) {
    for namespace in NAMESPACES {
        for number in 0..dice.below(3) {
            world.services.push(service(dice, namespace, number));
        }
        if dice.chance(75) {
            world.replica_sets.push(controller(dice, CONTROLLERS[0], namespace));
        }
        if dice.chance(75) {
            world.stateful_sets.push(controller(dice, CONTROLLERS[1], namespace));
        }
        if dice.chance(75) {
            world.replication_controllers.push(controller(dice, CONTROLLERS[2], namespace));
        }
    }
}

fn service(dice: &mut Dice, namespace: &str, number: usize) -> Value {
    let mut spec = json!({ "ports": [{ "port": 80 }] });
    // A Service without a selector selects nothing.
    if dice.chance(88) {
        let (key, values) = dice.pick(POD_LABELS);
        spec["selector"] = json!({ key: dice.pick(values) });
    }
    json!({ "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": format!("svc{number}"), "namespace": namespace }, "spec": spec })
}

fn controller(dice: &mut Dice, (kind, api_version, name): (&str, &str, &str), namespace: &str) -> Value {
    let (key, values) = dice.pick(POD_LABELS);
    let value = dice.pick(values);
    let labels = json!({ key: value });
    let template =
        json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "web:1" }] } });
    let selector = if kind == "ReplicationController" {
        labels
    } else if dice.chance(20) {
        json!({ "matchExpressions": [{ "key": key, "operator": "In", "values": [value] }] })
    } else {
        json!({ "matchLabels": labels })
    };
    let mut spec = json!({ "selector": selector, "template": template });
    if kind == "StatefulSet" {
        spec["serviceName"] = "svc0".into();
    }
    json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name, "namespace": namespace }, "spec": spec })
}

/// Makes a controller of its namespace the pod's owner. The controller need not exist.
pub fn adopt(dice: &mut Dice, pod: &mut Value) {
    if dice.chance(60) {
        let (kind, api_version, name) =
            // The plugin takes no selector from a Job.
            if dice.chance(10) { ("Job", "batch/v1", "job") } else { dice.pick(CONTROLLERS) };
        // The plugin ignores an owner that is not the controller.
        let controls = dice.chance(90);
        pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": api_version, "kind": kind, "name": name,
            "uid": format!("uid-{name}"), "controller": controls }]);
    }
}
