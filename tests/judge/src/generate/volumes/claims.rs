//! Generates PersistentVolumeClaims: bound, unbound, reserved, lost, deleted, and missing ones.

use serde_json::{Value, json};

use super::classes::{IMMEDIATE, WAITING};
use super::{claim, other_namespace, persistent, text};
use crate::World;
use crate::generate::dice::Dice;
use crate::generate::node;
use crate::generate::words::set;

pub const BOUND: &str = "pv.kubernetes.io/bind-completed";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The annotation that was the class's name before the field, and still overrides it.
pub const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub const REQUESTS: &[&str] = &["1Gi", "2Gi", "3Gi", "5Gi", "10Gi", "20Gi"];
/// A volume that only one pod may use has no other mode.
const ONE_POD: &str = "ReadWriteOncePod";

/// A claim of the pod to place: often without a volume, in a state that lets the pod be placed. It may already exist.
pub fn for_incoming(dice: &mut Dice, world: &mut World, pod: &Value, name: &str, owner: Option<Value>) {
    let namespace = text(pod, "namespace");
    if claim(world, &namespace, name).is_some() {
        return;
    }
    let mut made = claim_named(name, &namespace, owner);
    modes(dice, &mut made);
    match dice.below(100) {
        0..40 => bind(dice, world, &mut made),
        40..88 => wait(dice, world, &mut made),
        88..90 => return,
        90..92 => {
            bind(dice, world, &mut made);
            made["status"]["phase"] = "Lost".into();
        }
        92..94 => {
            bind(dice, world, &mut made);
            made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            made["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
        }
        94..96 => {
            // Reserved, but not bound: only the volume's controller can complete it.
            wait(dice, world, &mut made);
            made["spec"]["volumeName"] = "pv-reserved".into();
        }
        96..98 => made["spec"]["storageClassName"] = dice.pick(&[IMMEDIATE, "gone"]).into(),
        // Without a class; it waits for a volume without a class.
        98 => made["spec"]["storageClassName"] = "".into(),
        _ => {}
    }
    // The same name in another namespace, perhaps in use there.
    if dice.chance(20) {
        let mut double = made.clone();
        let namespace = other_namespace(dice, &namespace);
        double["metadata"]["namespace"] = namespace.into();
        double["metadata"]["uid"] = format!("uid-{namespace}-{name}").into();
        if claim(world, namespace, name).is_none() {
            world.persistent_volume_claims.push(double);
        }
    }
    world.persistent_volume_claims.push(made);
}

/// A claim of a pod that runs: mostly bound. It may already exist.
pub fn for_existing(dice: &mut Dice, world: &mut World, namespace: &str, name: &str, owner: Option<Value>) {
    if claim(world, namespace, name).is_some() || dice.chance(5) {
        return;
    }
    let mut made = claim_named(name, namespace, owner);
    made["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
    if dice.chance(82) {
        bind(dice, world, &mut made);
    } else {
        wait(dice, world, &mut made);
    }
    world.persistent_volume_claims.push(made);
}

/// Makes the pod the claim's owner with a probability of `percent`, else another pod of the same name, or nobody.
pub fn owner(dice: &mut Dice, pod: &Value, percent: usize) -> Value {
    let uid = if dice.chance(percent) { text(pod, "uid") } else { "uid-of-the-one-before".to_owned() };
    let controls = dice.chance(98);
    json!({ "apiVersion": "v1", "kind": "Pod", "name": text(pod, "name"), "uid": uid, "controller": controls })
}

fn claim_named(name: &str, namespace: &str, owner: Option<Value>) -> Value {
    let mut claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": namespace, "uid": format!("uid-{namespace}-{name}") },
        "spec": { "resources": { "requests": { "storage": "1Gi" } } }, "status": { "phase": "Pending" } });
    set(&mut claim["metadata"], "ownerReferences", owner.map(|owner| json!([owner])));
    claim
}

fn modes(dice: &mut Dice, claim: &mut Value) {
    claim["spec"]["accessModes"] = match dice.below(20) {
        0..10 => json!(["ReadWriteOnce"]),
        10..16 => json!([ONE_POD]),
        16 => json!(["ReadOnlyMany", "ReadWriteOnce"]),
        _ => json!(["ReadWriteMany"]),
    };
}

/// Binds the claim to a volume of its own; a few volumes are gone, of claims with an owner more, because there are few of them.
fn bind(dice: &mut Dice, world: &mut World, claim: &mut Value) {
    let class = dice.pick(&["fast", "near", "static", "disk", "vm", IMMEDIATE]);
    let modes = claim["spec"]["accessModes"].clone();
    let volume = persistent::name(world);
    claim["spec"]["storageClassName"] = class.into();
    claim["spec"]["volumeName"] = volume.clone().into();
    claim["metadata"]["annotations"][BOUND] = dice.pick(&["yes", "yes", "yes", "no"]).into();
    claim["status"]["phase"] = "Bound".into();
    let is_owned = claim["metadata"].get("ownerReferences").is_some();
    if dice.chance(if is_owned { 15 } else { 3 }) {
        claim["spec"]["volumeName"] = "pv-gone".into();
        return;
    }
    let mut made = persistent::volume(dice, world.nodes.len(), &volume, class);
    made["spec"]["accessModes"] = modes;
    made["spec"]["claimRef"] = persistent::reference(claim, true);
    made["status"]["phase"] = "Bound".into();
    world.persistent_volumes.push(made);
}

/// Lets the claim wait for the pod, of a class that does.
fn wait(dice: &mut Dice, world: &World, claim: &mut Value) {
    let (class, _) = dice.pick(WAITING);
    claim["spec"]["resources"]["requests"]["storage"] = dice.pick(REQUESTS).into();
    if dice.chance(8) {
        claim["metadata"]["annotations"][BETA_CLASS] = class.into();
        set(&mut claim["spec"], "storageClassName", dice.maybe(50, |_| IMMEDIATE.into()));
    } else {
        claim["spec"]["storageClassName"] = class.into();
    }
    if dice.chance(15) {
        let selector = match dice.below(3) {
            0 => json!({}),
            1 => json!({ "matchLabels": { "tier": "gold" } }),
            _ => json!({ "matchExpressions": [{ "key": "tier", "operator": "NotIn", "values": ["gold"] }] }),
        };
        claim["spec"]["selector"] = selector;
    }
    set(&mut claim["spec"], "volumeMode", dice.maybe(12, |dice| dice.pick(&["Block", "Filesystem"]).into()));
    set(&mut claim["spec"], "volumeAttributesClassName", dice.maybe(4, |_| "gold".into()));
    if dice.chance(8) {
        claim["metadata"]["annotations"][SELECTED_NODE] = node::name(dice.below(world.nodes.len())).into();
    }
}
