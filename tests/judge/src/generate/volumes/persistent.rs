//! Generates PersistentVolumes: node affinity, zone labels, sources, access modes, and the free volumes that claims of the
//! pod to place may get.

use serde_json::{Map, Value, json};

use super::DRIVERS;
use super::claims::BETA_CLASS;
use super::classes::WAITING;
use crate::World;
use crate::generate::dice::Dice;
use crate::generate::words::{HOSTNAME, REGION, ZONE, set};
use crate::generate::{affinity, node};

pub const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
pub const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

/// All different.
const CAPACITIES: &[&str] = &["1Gi", "2Gi", "3Gi", "5Gi", "6Gi", "10Gi", "15Gi", "20Gi", "40Gi"];

/// The name of the next volume.
pub fn name(world: &World) -> String {
    format!("pv-{:02}", world.persistent_volumes.len())
}

/// The reference of a volume to its claim.
pub fn reference(claim: &Value, with_uid: bool) -> Value {
    let metadata = &claim["metadata"];
    let mut reference = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": metadata["namespace"],
        "name": metadata["name"] });
    if with_uid {
        reference["uid"] = metadata["uid"].clone();
    }
    reference
}

pub fn volume(dice: &mut Dice, node_count: usize, name: &str, class: &str) -> Value {
    let mut spec = json!({ "capacity": { "storage": "10Gi" }, "accessModes": ["ReadWriteOnce"],
        "storageClassName": class });
    source(dice, name, &mut spec);
    let required = match dice.below(100) {
        0..55 => None,
        55..75 => Some(term(ZONE, &dice.several(&["z1", "z2", "z3"], 2))),
        75..82 => Some(term(ZONE, &["z1"])),
        82..90 => {
            let names: Vec<String> = (0..node_count).map(node::name).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let count = node_count.div_ceil(2);
            Some(term(HOSTNAME, &dice.several(&names, count)))
        }
        // Also by the node's name, which matches nothing here, and empty terms.
        _ => Some(affinity::required_nodes(dice, node_count)),
    };
    if let Some(required) = required {
        spec["nodeAffinity"]["required"] = required;
    }
    // The region of a disk's zones, which have names of another form, is not known.
    let labels = labels(dice, spec.get("gcePersistentDisk").is_some());
    json!({ "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": name, "uid": format!("uid-{name}"), "labels": labels }, "spec": spec,
        "status": { "phase": "Available" } })
}

fn term(key: &str, values: &[&str]) -> Value {
    json!({ "nodeSelectorTerms": [{ "matchExpressions": [{ "key": key, "operator": "In", "values": values }] }] })
}

fn source(dice: &mut Dice, name: &str, spec: &mut Value) {
    let (kind, source) = match dice.below(100) {
        0..70 => {
            // Some volumes are one and the same on the storage.
            let handle = if dice.chance(18) { "shared".to_owned() } else { format!("handle-{name}") };
            ("csi", json!({ "driver": dice.pick(DRIVERS), "volumeHandle": handle }))
        }
        70..76 => ("gcePersistentDisk", json!({ "pdName": format!("disk-{name}") })),
        76..82 => ("awsElasticBlockStore", json!({ "volumeID": format!("vol-{name}") })),
        82..90 => ("vsphereVolume", json!({ "volumePath": format!("[datastore] {name}.vmdk") })),
        90..93 => ("cinder", json!({ "volumeID": name })),
        93..96 => {
            let uri = format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/{name}");
            ("azureDisk", json!({ "diskName": name, "diskURI": uri, "kind": "Managed" }))
        }
        _ => ("nfs", json!({ "server": "10.0.0.1", "path": "/" })),
    };
    spec[kind] = source;
}

fn labels(dice: &mut Dice, one_zone: bool) -> Map<String, Value> {
    let mut labels = Map::new();
    set_some(dice, &mut labels, "tier", 40, &["gold", "iron"]);
    if !dice.chance(40) {
        return labels;
    }
    // A set with an empty member is not a set, and counts for nothing.
    let zones: &[&str] = if one_zone {
        &["z1", "z2", "z3"]
    } else {
        &["z1", "z2", "z3", "z1__z2", "z1__z2", "z2__z3", "z1__z2__z3", "z1__z2__z3", "z1____z2", "z9"]
    };
    let regions = &["r1", "r2", "r1__r2", "r1__r2"];
    let (zone, region) = if dice.chance(30) { (BETA_ZONE, BETA_REGION) } else { (ZONE, REGION) };
    set_some(dice, &mut labels, zone, 85, zones);
    set_some(dice, &mut labels, region, 30, regions);
    // Both generations of labels.
    set_some(dice, &mut labels, BETA_ZONE, 8, zones);
    labels
}

fn set_some(dice: &mut Dice, labels: &mut Map<String, Value>, key: &str, percent: usize, values: &[&str]) {
    if dice.chance(percent) {
        labels.insert(key.to_owned(), dice.pick(values).into());
    }
}

/// Adds volumes that claims of the pod to place may get. The volumes of a class differ in capacity, and at most one of
/// them is reserved for a claim.
pub fn add_free(dice: &mut Dice, world: &mut World) {
    let unbound: Vec<Value> = world
        .persistent_volume_claims
        .iter()
        .filter(|claim| claim["spec"].get("volumeName").is_none())
        .cloned()
        .collect();
    let mut reservable = unbound.clone();
    for (class, _) in WAITING {
        let wanted = unbound.iter().any(|claim| {
            claim["spec"]["storageClassName"] == *class || claim["metadata"]["annotations"][BETA_CLASS] == *class
        });
        let count = if wanted { dice.pick(&[0, 1, 2, 3, 4, 6]) } else { dice.pick(&[0, 0, 1]) };
        for capacity in dice.several(CAPACITIES, count) {
            let volume = free(dice, world, class, capacity, &mut reservable);
            world.persistent_volumes.push(volume);
        }
    }
}

fn free(dice: &mut Dice, world: &World, class: &str, capacity: &str, reservable: &mut Vec<Value>) -> Value {
    let name = name(world);
    // A class that the annotation names, not the field.
    let by_annotation = dice.chance(6);
    let mut volume = volume(dice, world.nodes.len(), &name, if by_annotation { "now" } else { class });
    if by_annotation {
        volume["metadata"]["annotations"][BETA_CLASS] = class.into();
    }
    let spec = &mut volume["spec"];
    spec["capacity"]["storage"] = capacity.into();
    spec["accessModes"] = match dice.below(10) {
        0..5 => json!(["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"]),
        5..7 => json!(["ReadWriteOnce"]),
        7..9 => json!(["ReadWriteOncePod"]),
        _ => json!(["ReadWriteMany"]),
    };
    set(spec, "volumeMode", dice.maybe(15, |dice| dice.pick(&["Block", "Filesystem"]).into()));
    if spec.get("csi").is_some() {
        set(spec, "volumeAttributesClassName", dice.maybe(5, |_| "gold".into()));
    }
    match dice.below(100) {
        0..14 if !reservable.is_empty() => {
            // Any class: only volumes of the claim's class are considered.
            let claim = reservable.remove(dice.below(reservable.len()));
            let with_uid = dice.chance(60);
            spec["claimRef"] = reference(&claim, with_uid);
            if dice.chance(15) {
                spec["claimRef"]["uid"] = "uid-of-the-one-before".into();
            }
            if dice.chance(30) {
                volume["status"]["phase"] = "Released".into();
            }
        }
        14..20 => {
            spec["claimRef"] = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "blue",
                "name": "other", "uid": "uid-other" });
        }
        20..27 => volume["status"]["phase"] = dice.pick(&["Pending", "Released", "Failed", "Bound"]).into(),
        27..30 => {
            volume["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            volume["metadata"]["finalizers"] = json!(["kubernetes.io/pv-protection"]);
        }
        _ => {}
    }
    volume
}
