//! Generates volume sources inside pods. There are few disks, so that pods conflict over them.

use serde_json::{Value, json};

use super::DRIVERS;
use crate::generate::dice::Dice;

pub fn source(dice: &mut Dice) -> Value {
    let read_only = dice.chance(50);
    match dice.below(20) {
        0..4 => json!({ "gcePersistentDisk": { "pdName": dice.pick(&["d1", "d2"]), "readOnly": read_only } }),
        4..7 => {
            json!({ "awsElasticBlockStore": { "volumeID": dice.pick(&["vol-1", "vol-2"]), "readOnly": read_only } })
        }
        7..10 => json!({ "iscsi": { "targetPortal": dice.pick(&["10.0.0.1:3260", "10.0.0.2:3260"]),
            "iqn": dice.pick(&["iqn.2025-01.example:a", "iqn.2025-01.example:b"]), "lun": dice.below(2), "readOnly": read_only } }),
        10..14 => {
            let monitors = dice.several(&["10.0.0.1:6789", "10.0.0.2:6789", "10.0.0.3:6789"], 2);
            json!({ "rbd": { "monitors": monitors, "pool": dice.pick(&["rbd", "rbd", "other"]),
                "image": dice.pick(&["i1", "i1", "i2"]), "readOnly": read_only } })
        }
        14..16 => {
            json!({ "vsphereVolume": { "volumePath": dice.pick(&["[datastore] a.vmdk", "[datastore] b.vmdk"]) } })
        }
        16 => {
            let uri = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
            json!({ "azureDisk": { "diskName": "d", "diskURI": uri, "kind": "Managed", "cachingMode": "None" } })
        }
        17 => json!({ "cinder": { "volumeID": dice.pick(&["c1", "c2"]) } }),
        18 => json!({ "csi": { "driver": dice.pick(DRIVERS) } }),
        _ => json!({ "emptyDir": {} }),
    }
}
