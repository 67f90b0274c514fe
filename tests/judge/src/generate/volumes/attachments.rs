//! Generates CSINodes with the limits of their drivers, and VolumeAttachments.

use serde_json::{Value, json};

use super::{DRIVERS, text};
use crate::World;
use crate::generate::dice::Dice;
use crate::generate::node;

/// The drivers that in-tree volumes were moved to.
const MIGRATED_DRIVERS: &[&str] = &["pd.csi.storage.gke.io", "ebs.csi.aws.com", "csi.vsphere.vmware.com"];
const MIGRATED_PLUGINS: &[&str] = &[
    "kubernetes.io/gce-pd",
    "kubernetes.io/aws-ebs",
    "kubernetes.io/cinder",
    "kubernetes.io/azure-disk",
    "kubernetes.io/vsphere-volume",
];

pub fn add(dice: &mut Dice, world: &mut World) {
    let limits = dice.pick(&[&[2, 3, 5, 8][..], &[1, 2, 3, 3][..], &[0, 1, 1, 2][..]]);
    for index in 0..world.nodes.len() {
        if dice.chance(88) {
            let node = csi_node(dice, index, limits);
            world.csi_nodes.push(node);
        }
    }
    let volumes: Vec<(String, Option<String>)> = world
        .persistent_volumes
        .iter()
        .map(|volume| (text(volume, "name"), volume["spec"]["csi"]["driver"].as_str().map(str::to_owned)))
        .collect();
    for number in 0..dice.below(10) {
        let mut source = json!({ "persistentVolumeName": "pv-gone" });
        let mut attacher = dice.pick(DRIVERS).to_owned();
        if !volumes.is_empty() && dice.chance(92) {
            let (volume, driver) = &volumes[dice.below(volumes.len())];
            source = json!({ "persistentVolumeName": volume });
            if let Some(driver) = driver
                && dice.chance(95)
            {
                attacher.clone_from(driver);
            }
        }
        if dice.chance(4) {
            let inline = json!({ "csi": { "driver": attacher, "volumeHandle": "inline" }, "accessModes": ["ReadWriteOnce"]
            });
            source = json!({ "inlineVolumeSpec": inline });
        }
        let on = node::name(dice.below(world.nodes.len()));
        world.volume_attachments.push(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": { "name": format!("attachment-{number}") },
            "spec": { "attacher": attacher, "nodeName": on, "source": source } }));
    }
}

fn csi_node(dice: &mut Dice, index: usize, limits: &[i32]) -> Value {
    let name = node::name(index);
    let mut drivers = Vec::new();
    for (driver, percent) in
        DRIVERS.iter().map(|driver| (driver, 85)).chain(MIGRATED_DRIVERS.iter().map(|driver| (driver, 35)))
    {
        if !dice.chance(percent) {
            continue;
        }
        let mut entry = json!({ "name": driver, "nodeID": name, "topologyKeys": [] });
        match dice.below(10) {
            0 => {}
            1 => entry["allocatable"] = json!({}),
            _ => entry["allocatable"] = json!({ "count": dice.pick(limits) }),
        }
        drivers.push(entry);
    }
    let mut made = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": name },
        "spec": { "drivers": drivers } });
    if dice.chance(60) {
        let count = dice.between(0, MIGRATED_PLUGINS.len());
        let plugins = dice.several(MIGRATED_PLUGINS, count).join(",");
        made["metadata"]["annotations"]["storage.alpha.kubernetes.io/migrated-plugins"] = plugins.into();
    }
    made
}
