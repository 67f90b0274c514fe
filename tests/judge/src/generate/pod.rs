//! Generates pods: running, terminating and finished ones, and the pod to place.

use serde_json::{Value, json};

use super::affinity::{self, TermRates};
use super::containers;
use super::dice::Dice;
use super::node::{self, CORDON_TAINT, TAINT_EFFECTS, TAINT_KEYS, TAINT_VALUES};
use super::words::{HOMES, POD_LABELS, labels, set};
use super::{Focus, owners};

/// An existing pod: mostly running; some are terminating, finished, pending, or on a node that no longer exists.
pub fn existing(dice: &mut Dice, focus: &Focus, index: usize, node_count: usize) -> Value {
    let mut pod = base(dice, &format!("p{index:02}"));
    let mut spec = json!({});
    containers::fill(dice, focus, &mut spec, false);
    let rates = if focus.pod_affinity {
        TermRates { required_affinity: 14, required_anti_affinity: 14, preferred: 22, narrow: true }
    } else {
        TermRates { required_affinity: 0, required_anti_affinity: 0, preferred: 0, narrow: true }
    };
    add_pod_affinity(dice, rates, &pod, &mut spec);
    let mut status = json!({ "phase": dice.pick(&["Running", "Running", "Running", "Pending"]) });
    match dice.below(100) {
        0..3 => spec["nodeName"] = "gone".into(),
        3..6 => {
            status["phase"] = "Pending".into();
            if focus.nominated {
                status["nominatedNodeName"] = node::name(dice.below(node_count)).into();
                spec["priority"] = dice.pick(&[-1, 0, 1, 100]).into();
            }
        }
        6..14 if focus.nominated => {
            status = json!({ "phase": "Pending", "nominatedNodeName": node::name(dice.below(node_count)) });
            spec["priority"] = dice.pick(&[0, 1, 100]).into();
        }
        _ => spec["nodeName"] = node::name(dice.below(node_count)).into(),
    }
    match dice.below(100) {
        0..7 => status["phase"] = dice.pick(&["Succeeded", "Failed"]).into(),
        7..16 => {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
        }
        _ => {}
    }
    if focus.resizes && spec.get("nodeName").is_some() && dice.chance(35) {
        containers::resized_status(dice, &spec, &mut status);
    }
    pod["spec"] = spec;
    pod["status"] = status;
    pod
}

/// The pod to place.
pub fn incoming(dice: &mut Dice, focus: &Focus, node_count: usize) -> Value {
    let mut pod = base(dice, "incoming");
    let mut spec = json!({});
    containers::fill(dice, focus, &mut spec, true);
    let rates = if focus.pod_affinity {
        TermRates { required_affinity: 30, required_anti_affinity: 35, preferred: 40, narrow: false }
    } else {
        TermRates { required_affinity: 0, required_anti_affinity: 0, preferred: 0, narrow: false }
    };
    add_pod_affinity(dice, rates, &pod, &mut spec);
    if focus.node_affinity {
        let mut affinity = spec.get("affinity").cloned().unwrap_or_else(|| json!({}));
        affinity::node_affinity(dice, node_count, &mut spec, &mut affinity);
        if affinity != json!({}) {
            spec["affinity"] = affinity;
        }
    }
    if let Some(labels) = pod["metadata"]["labels"].as_object()
        && focus.spread
    {
        spec["topologySpreadConstraints"] = affinity::spread(dice, labels);
    }
    if focus.taints || focus.cordons {
        set(&mut spec, "tolerations", dice.maybe(65, tolerations));
    }
    if focus.node_name {
        // One in ten names a node that does not exist.
        spec["nodeName"] = if dice.chance(10) { "gone".into() } else { node::name(dice.below(node_count)).into() };
    }
    if focus.owners {
        owners::adopt(dice, &mut pod);
    }
    if focus.nominated {
        spec["priority"] = dice.pick(&[0, 0, 1, 50]).into();
    }
    pod["spec"] = spec;
    pod["status"] = json!({ "phase": "Pending" });
    pod
}

fn base(dice: &mut Dice, name: &str) -> Value {
    let namespace = dice.pick(HOMES);
    let labels = labels(dice, POD_LABELS, 85);
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "uid": format!("uid-{name}"), "labels": labels } })
}

fn add_pod_affinity(dice: &mut Dice, rates: TermRates, pod: &Value, spec: &mut Value) {
    let Some(labels) = pod["metadata"]["labels"].as_object() else { return };
    let mut affinity = json!({});
    affinity::pod_affinity(dice, rates, labels, &mut affinity);
    if affinity != json!({}) {
        spec["affinity"] = affinity;
    }
}

fn tolerations(dice: &mut Dice) -> Value {
    let tolerations: Vec<Value> = (0..dice.between(1, 3))
        .map(|_| match dice.below(20) {
            // Tolerates everything.
            0 => json!({ "operator": "Exists" }),
            1 => json!({ "operator": "Exists", "effect": dice.pick(TAINT_EFFECTS) }),
            2 | 3 => json!({ "key": CORDON_TAINT, "operator": "Exists", "effect": "NoSchedule" }),
            4..12 => {
                let mut toleration = json!({ "key": dice.pick(TAINT_KEYS), "operator": "Exists" });
                set(&mut toleration, "effect", dice.maybe(70, |dice| dice.pick(TAINT_EFFECTS).into()));
                toleration
            }
            _ => {
                let mut toleration = json!({ "key": dice.pick(TAINT_KEYS), "value": dice.pick(TAINT_VALUES) });
                set(&mut toleration, "operator", dice.maybe(50, |_| "Equal".into()));
                set(&mut toleration, "effect", dice.maybe(70, |dice| dice.pick(TAINT_EFFECTS).into()));
                toleration
            }
        })
        .collect();
    tolerations.into()
}
