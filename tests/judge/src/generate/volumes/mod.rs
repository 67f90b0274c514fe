//! Generates volumes: claims in every state, ephemeral volumes, inline sources, the volumes and classes behind them, and
//! what the nodes' drivers report.
//!
//! Where upstream's result is the order of a Go map, the world leaves it no choice: the free volumes of a class differ in
//! capacity, and at most one of them is reserved for a claim.

mod attachments;
mod claims;
mod classes;
mod inline;
mod persistent;

use serde_json::{Value, json};

use super::dice::Dice;
use super::words::NAMESPACES;
use crate::World;

/// CSI drivers.
const DRIVERS: &[&str] = &["csi.a.example", "csi.b.example"];
/// The claims that several pods may use: `c0`, and so on.
const CLAIMS: usize = 3;

/// Gives the pod to place up to three volumes, many of the other pods one or two, and adds the objects behind them.
pub fn add(dice: &mut Dice, world: &mut World) {
    classes::add(dice, world);
    zone_labels(dice, world);
    let mut incoming = std::mem::take(&mut world.pod);
    for number in 0..dice.pick(&[1, 1, 2, 2, 3]) {
        let volume = of_incoming(dice, world, &incoming, number);
        append(&mut incoming, number, volume);
    }
    world.pod = incoming;
    persistent::add_free(dice, world);
    let mut pods = std::mem::take(&mut world.pods);
    for pod in &mut pods {
        for number in 0..dice.pick(&[0, 0, 0, 1, 1, 2]) {
            let volume = of_existing(dice, world, pod, number);
            append(pod, number, volume);
        }
    }
    world.pods = pods;
    attachments::add(dice, world);
}

fn append(pod: &mut Value, number: usize, mut volume: Value) {
    volume["name"] = volume_name(number).into();
    match pod["spec"]["volumes"].as_array_mut() {
        Some(volumes) => volumes.push(volume),
        None => pod["spec"]["volumes"] = json!([volume]),
    }
}

fn volume_name(number: usize) -> String {
    format!("v{number}")
}

fn of_incoming(dice: &mut Dice, world: &mut World, pod: &Value, number: usize) -> Value {
    match dice.below(100) {
        0..68 => {
            let name = format!("c{}", dice.below(CLAIMS));
            claims::for_incoming(dice, world, pod, &name, None);
            let read_only = dice.chance(5);
            json!({ "persistentVolumeClaim": { "claimName": name, "readOnly": read_only } })
        }
        68..82 => {
            let name = format!("{}-{}", text(pod, "name"), volume_name(number));
            let owner = claims::owner(dice, pod, 80);
            claims::for_incoming(dice, world, pod, &name, Some(owner));
            ephemeral()
        }
        _ => inline::source(dice),
    }
}

fn of_existing(dice: &mut Dice, world: &mut World, pod: &Value, number: usize) -> Value {
    let namespace = text(pod, "namespace");
    match dice.below(100) {
        // A claim of its own, which only counts towards its node's limit.
        0..45 => {
            let name = format!("{}-data", text(pod, "name"));
            claims::for_existing(dice, world, &namespace, &name, None);
            json!({ "persistentVolumeClaim": { "claimName": name } })
        }
        // A claim that the pod to place may use, or one of the same name in another namespace; it may not exist.
        45..68 => json!({ "persistentVolumeClaim": { "claimName": format!("c{}", dice.below(CLAIMS)) } }),
        68..78 => {
            let name = format!("{}-{}", text(pod, "name"), volume_name(number));
            // A claim of another owner makes NodeVolumeLimits fail instead of rejecting the node.
            let owner = claims::owner(dice, pod, 97);
            claims::for_existing(dice, world, &namespace, &name, Some(owner));
            ephemeral()
        }
        _ => inline::source(dice),
    }
}

fn ephemeral() -> Value {
    json!({ "ephemeral": { "volumeClaimTemplate": { "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } } } })
}

/// Some nodes also have the labels that zones had before they were part of the stable API, and some have only these. Some
/// have those of the drivers that in-tree volumes were moved to.
fn zone_labels(dice: &mut Dice, world: &mut World) {
    for driver_zone in ["topology.gke.io/zone", "topology.ebs.csi.aws.com/zone", "topology.disk.csi.azure.com/zone"] {
        if dice.chance(50) {
            for labels in world.nodes.iter_mut().filter_map(|node| node["metadata"]["labels"].as_object_mut()) {
                if let Some(zone) = labels.get(super::words::ZONE).cloned() {
                    labels.insert(driver_zone.to_owned(), zone);
                }
            }
        }
    }
    let some = dice.chance(35);
    for node in &mut world.nodes {
        if !some || dice.chance(40) {
            continue;
        }
        let Some(labels) = node["metadata"]["labels"].as_object_mut() else { continue };
        let (zone, region) = (format!("z{}", dice.between(1, 3)), format!("r{}", dice.between(1, 2)));
        labels.insert(persistent::BETA_ZONE.to_owned(), zone.into());
        labels.insert(persistent::BETA_REGION.to_owned(), region.into());
        if dice.chance(40) {
            labels.remove(super::words::ZONE);
            labels.remove(super::words::REGION);
        }
    }
}

fn text(object: &Value, field: &str) -> String {
    object["metadata"][field].as_str().unwrap_or_default().to_owned()
}

/// Whether the claim exists.
fn claim<'a>(world: &'a World, namespace: &str, name: &str) -> Option<&'a Value> {
    let is_it = |claim: &&Value| claim["metadata"]["namespace"] == namespace && claim["metadata"]["name"] == name;
    world.persistent_volume_claims.iter().find(is_it)
}

fn other_namespace(dice: &mut Dice, namespace: &str) -> &'static str {
    let others: Vec<&'static str> = NAMESPACES.iter().copied().filter(|other| *other != namespace).collect();
    dice.pick(&others)
}
