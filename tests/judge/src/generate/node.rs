//! Generates nodes: topology labels that may be missing or shared, taints, resources, images, declared features.

use serde_json::{Map, Value, json};

use super::Focus;
use super::dice::Dice;
use super::words::{HOSTNAME, PHYSICAL_HOST, RACK, REGION, ZONE};

/// Container images and their names in a node's status. A name without a tag means `:latest`.
pub const IMAGES: &[(&str, &str)] = &[
    ("web:1", "web:1"),
    ("db", "db:latest"),
    ("registry.example:5000/cache", "registry.example:5000/cache:latest"),
    (
        "tools@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "tools@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    ),
    ("nobody-has-this:2", "other:2"),
];

pub const TAINT_KEYS: &[&str] = &["dedicated", "maintenance"];
pub const TAINT_VALUES: &[&str] = &["", "infra", "gpu"];
pub const TAINT_EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "PreferNoSchedule", "NoExecute"];
pub const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

pub const DISKS: &[&str] = &["ssd", "hdd"];
/// Values for Gt and Lt; one is not a number.
pub const GENERATIONS: &[&str] = &["1", "3", "5", "7", "old"];

/// Zero-padded, so that index order equals name order.
pub fn name(index: usize) -> String {
    format!("n{index:02}")
}

pub fn node(dice: &mut Dice, focus: &Focus, index: usize, count: usize) -> Value {
    let name = name(index);
    let mut spec = json!({});
    let mut taints = taints(dice, focus);
    if focus.cordons && dice.chance(20) {
        spec["unschedulable"] = true.into();
        // The node controller adds the taint a moment later.
        if dice.chance(70) {
            taints.push(json!({ "key": CORDON_TAINT, "effect": "NoSchedule" }));
        }
    }
    if !taints.is_empty() {
        spec["taints"] = taints.into();
    }
    let allocatable = allocatable(dice, focus);
    let mut status = json!({ "capacity": allocatable, "allocatable": allocatable });
    if focus.images {
        status["images"] = images(dice);
    }
    if focus.declared_features && dice.chance(50) {
        status["declaredFeatures"] = json!(["RestartAllContainersOnContainerExits"]);
    }
    json!({ "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": labels(dice, &name, count) }, "spec": spec, "status": status })
}

fn labels(dice: &mut Dice, name: &str, count: usize) -> Map<String, Value> {
    let mut labels = Map::new();
    if dice.chance(2) {
        return labels;
    }
    let mut put = |key: &str, value: String| {
        labels.insert(key.to_owned(), value.into());
    };
    match dice.below(100) {
        0..7 => {}
        // Two nodes with the same hostname: cloned VMs whose label was never corrected.
        7..15 => put(HOSTNAME, self::name(dice.below(count))),
        _ => put(HOSTNAME, name.to_owned()),
    }
    for (key, prefix, values, percent) in
        [(ZONE, "z", 3, 88), (RACK, "k", 3, 80), (PHYSICAL_HOST, "esx", 4, 85), (REGION, "r", 2, 90)]
    {
        if dice.chance(percent) {
            put(key, format!("{prefix}{}", dice.between(1, values)));
        }
    }
    if dice.chance(80) {
        put("disk", dice.pick(DISKS).to_owned());
    }
    if dice.chance(70) {
        put("generation", dice.pick(GENERATIONS).to_owned());
    }
    labels
}

fn taints(dice: &mut Dice, focus: &Focus) -> Vec<Value> {
    let mut taints: Vec<Value> = Vec::new();
    if !focus.taints {
        return taints;
    }
    for _ in 0..dice.pick(&[0, 0, 1, 1, 2, 3]) {
        let taint = json!({ "key": dice.pick(TAINT_KEYS), "value": dice.pick(TAINT_VALUES), "effect": dice.pick(TAINT_EFFECTS) });
        // The pair of key and effect is unique on a node.
        if !taints.iter().any(|other| other["key"] == taint["key"] && other["effect"] == taint["effect"]) {
            taints.push(taint);
        }
    }
    taints
}

fn allocatable(dice: &mut Dice, focus: &Focus) -> Value {
    let mut resources = if focus.tight {
        json!({ "cpu": dice.pick(&["1", "2", "3900m", "4"]), "memory": dice.pick(&["1Gi", "2Gi", "4Gi"]),
            "pods": dice.pick(&["2", "4", "6", "110"]) })
    } else {
        json!({ "cpu": dice.pick(&["6", "7910m", "8", "16"]), "memory": dice.pick(&["7900Mi", "8Gi", "16Gi"]),
            "pods": "110" })
    };
    if dice.chance(85) {
        resources["ephemeral-storage"] = dice.pick(&["10Gi", "50Gi"]).into();
    }
    if focus.extended_resources && dice.chance(85) {
        resources["example.com/gpu"] = dice.pick(&["0", "2", "4", "8"]).into();
    }
    if focus.extended_resources && dice.chance(80) {
        resources["hugepages-2Mi"] = dice.pick(&["64Mi", "256Mi"]).into();
    }
    resources
}

fn images(dice: &mut Dice) -> Value {
    let count = dice.below(IMAGES.len() + 1);
    let images: Vec<Value> = dice
        .several(IMAGES, count)
        .into_iter()
        .map(|(_, known_as)| {
            let size = dice.pick(&[10_000_000, 80_000_000, 300_000_000, 900_000_000, 2_500_000_000_u64]);
            json!({ "names": [known_as], "sizeBytes": size })
        })
        .collect();
    images.into()
}
