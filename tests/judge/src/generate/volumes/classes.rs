//! Generates StorageClasses, CSIDrivers and CSIStorageCapacities.

use serde_json::{Value, json};

use super::DRIVERS;
use crate::World;
use crate::generate::dice::Dice;
use crate::generate::words::{HOSTNAME, NAMESPACES, RACK, ZONE, set};

pub const SIZES: &[&str] = &["1Gi", "2Gi", "5Gi", "8Gi", "10Gi", "20Gi", "50Gi"];

/// Classes whose volumes wait for a pod, with their provisioners.
pub const WAITING: &[(&str, &str)] = &[
    ("fast", "csi.a.example"),
    ("near", "csi.b.example"),
    ("static", "kubernetes.io/no-provisioner"),
    ("disk", "kubernetes.io/gce-pd"),
    ("vm", "kubernetes.io/vsphere-volume"),
];
pub const IMMEDIATE: &str = "now";

pub fn add(dice: &mut Dice, world: &mut World) {
    for (name, provisioner) in WAITING {
        // A missing class counts as one whose volumes do not wait.
        if dice.chance(96) {
            let restricted = dice.chance(if *name == "near" { 75 } else { 8 });
            let class = class(dice, name, provisioner, Some("WaitForFirstConsumer"), restricted);
            world.storage_classes.push(class);
        }
    }
    let mode = dice.maybe(70, |_| "Immediate");
    let immediate = class(dice, IMMEDIATE, DRIVERS[0], mode, false);
    world.storage_classes.push(immediate);
    for driver in DRIVERS {
        if dice.chance(85) {
            let mut spec = json!({});
            set(&mut spec, "storageCapacity", dice.maybe(90, |dice| dice.chance(75).into()));
            world.csi_drivers.push(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
                "metadata": { "name": driver }, "spec": spec }));
        }
    }
    for number in 0..dice.between(0, 8) {
        let capacity = capacity(dice, number);
        world.csi_storage_capacities.push(capacity);
    }
}

fn class(dice: &mut Dice, name: &str, provisioner: &str, mode: Option<&str>, restricted: bool) -> Value {
    let mut class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": { "name": name }, "provisioner": provisioner });
    set(&mut class, "volumeBindingMode", mode.map(Into::into));
    if restricted {
        let mut terms: Vec<Value> = (0..dice.between(1, 2)).map(|_| topology(dice)).collect();
        // The API accepts neither two equal terms nor an empty one.
        terms.dedup();
        class["allowedTopologies"] = terms.into();
    }
    class
}

fn topology(dice: &mut Dice) -> Value {
    let mut expressions = vec![match dice.below(10) {
        0..7 => json!({ "key": ZONE, "values": dice.several(&["z1", "z2", "z3"], 2) }),
        7 => json!({ "key": HOSTNAME, "values": ["n00", "n01", "n02"] }),
        _ => json!({ "key": RACK, "values": ["k1", "k2"] }),
    }];
    if dice.chance(15) {
        expressions.push(json!({ "key": "disk", "values": ["ssd"] }));
    }
    json!({ "matchLabelExpressions": expressions })
}

fn capacity(dice: &mut Dice, number: usize) -> Value {
    // In any namespace: that of its driver.
    let mut capacity = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": { "name": format!("capacity-{number}"), "namespace": dice.pick(NAMESPACES) },
        "storageClassName": dice.pick(&["fast", "fast", "near", "near", "gone"]) });
    // Nil matches no node, and empty all of them.
    let reachable = match dice.below(20) {
        0..2 => None,
        2..5 => Some(json!({})),
        5..15 => Some(json!({ "matchLabels": { ZONE: dice.pick(&["z1", "z2", "z3"]) } })),
        15..18 => Some(json!({ "matchExpressions": [{ "key": RACK, "operator": "Exists" }] })),
        _ => Some(json!({ "matchLabels": { HOSTNAME: dice.pick(&["n00", "n01", "n02", "n03"]) } })),
    };
    set(&mut capacity, "nodeTopology", reachable);
    set(&mut capacity, "capacity", dice.maybe(85, |dice| dice.pick(SIZES).into()));
    // The larger of two limits is not the one that counts.
    set(&mut capacity, "maximumVolumeSize", dice.maybe(35, |dice| dice.pick(SIZES).into()));
    capacity
}
