//! The table rows of volumes, claims, and what storage drivers report; and of resource claims.

use serde_json::{Value, json};

use super::{AGE, Column, NAME, or_empty, plain, text, whole, wide};
use crate::kubernetes::kinds::KindId;

const fn flag(name: &'static str, description: &'static str) -> Column {
    Column { name, column_type: "boolean", priority: 0, description }
}

const CLASS: Column = text("StorageClass", "The class of the storage.");
const ATTRIBUTES_CLASS: Column = text("VolumeAttributesClass", "The class of the volume's attributes.");
const VOLUME_MODE: Column = wide("VolumeMode", "Filesystem or Block.");
const ACCESS_MODES: Column = text("Access Modes", "How many nodes can mount it, and how.");

pub(super) fn columns(kind: KindId) -> Option<&'static [Column]> {
    Some(match kind {
        KindId::PERSISTENT_VOLUME => {
            const {
                &[
                    NAME,
                    text("Capacity", "The size of the volume."),
                    ACCESS_MODES,
                    text("Reclaim Policy", "What happens to the volume when its claim is deleted."),
                    text("Status", "Whether the volume is available, bound or released."),
                    text("Claim", "The claim that the volume belongs to."),
                    CLASS,
                    ATTRIBUTES_CLASS,
                    text("Reason", "Why the volume failed."),
                    AGE,
                    VOLUME_MODE,
                ]
            }
        }
        KindId::PERSISTENT_VOLUME_CLAIM => {
            const {
                &[
                    NAME,
                    text("Status", "Whether the claim is bound."),
                    text("Volume", "The volume that the claim is bound to."),
                    text("Capacity", "The size of the volume."),
                    ACCESS_MODES,
                    CLASS,
                    ATTRIBUTES_CLASS,
                    AGE,
                    VOLUME_MODE,
                ]
            }
        }
        KindId::STORAGE_CLASS => {
            const {
                &[
                    NAME,
                    text("Provisioner", "Who creates the volumes."),
                    text("ReclaimPolicy", "What happens to a volume when its claim is deleted."),
                    text("VolumeBindingMode", "Whether a volume is bound at once or with the first pod."),
                    text("AllowVolumeExpansion", "Whether volumes can grow."),
                    AGE,
                ]
            }
        }
        KindId::VOLUME_ATTACHMENT => {
            const {
                &[
                    NAME,
                    text("Attacher", "Who attaches the volume."),
                    text("PV", "The volume."),
                    text("Node", "The node that the volume is attached to."),
                    flag("Attached", "Whether it is attached now."),
                    AGE,
                ]
            }
        }
        KindId::CSI_NODE => const { &[NAME, whole("Drivers", "How many drivers run on the node."), AGE] },
        KindId::CSI_DRIVER => {
            const {
                &[
                    NAME,
                    flag("AttachRequired", "Whether volumes must be attached to a node."),
                    flag("PodInfoOnMount", "Whether the driver needs to know the pod."),
                    flag("StorageCapacity", "Whether the driver reports its free capacity."),
                    text("TokenRequests", "The audiences of the tokens that the driver needs."),
                    flag("RequiresRepublish", "Whether volumes are mounted again from time to time."),
                    text("Modes", "The kinds of volumes that the driver supports."),
                    AGE,
                ]
            }
        }
        // A real server has no columns of its own for it.
        KindId::CSI_STORAGE_CAPACITY => {
            const CREATED: Column =
                Column { name: "Created At", column_type: "date", priority: 0, description: "When it was created." };
            const { &[NAME, CREATED] }
        }
        KindId::RESOURCE_CLAIM => const { &[NAME, text("State", "Whether the claim is allocated and in use."), AGE] },
        KindId::RESOURCE_SLICE => {
            const {
                &[
                    NAME,
                    text("Node", "The node that has the devices."),
                    text("Driver", "The driver of the devices."),
                    text("Pool", "The pool that the devices belong to."),
                    AGE,
                ]
            }
        }
        _ => return None,
    })
}

pub(super) fn cells(kind: KindId, object: &Value, age: &str) -> Option<Value> {
    let (name, spec, status) = (&object["metadata"]["name"], &object["spec"], &object["status"]);
    let or_unset = |value: &Value| value.as_str().unwrap_or("<unset>").to_owned();
    let is_set = |value: &Value, default: bool| value.as_bool().unwrap_or(default);
    let phase = || {
        let terminating = object["metadata"]["deletionTimestamp"].is_string();
        if terminating { "Terminating" } else { or_empty(&status["phase"]) }
    };
    let size = |list: &Value| plain(&list["storage"]).unwrap_or_else(|| "0".to_owned());
    Some(match kind {
        KindId::PERSISTENT_VOLUME => {
            let claim = match &spec["claimRef"] {
                Value::Object(_) => {
                    let of = |field: &str| or_empty(&spec["claimRef"][field]).to_owned();
                    format!("{}/{}", of("namespace"), of("name"))
                }
                _ => String::new(),
            };
            json!([
                name,
                size(&spec["capacity"]),
                access_modes(&spec["accessModes"]),
                or_empty(&spec["persistentVolumeReclaimPolicy"]),
                phase(),
                claim,
                class_of(object),
                or_unset(&spec["volumeAttributesClassName"]),
                or_empty(&status["reason"]),
                age,
                or_unset(&spec["volumeMode"]),
            ])
        }
        KindId::PERSISTENT_VOLUME_CLAIM => {
            let volume = or_empty(&spec["volumeName"]);
            let of_volume = |text: String| if volume.is_empty() { String::new() } else { text };
            json!([
                name,
                phase(),
                volume,
                of_volume(size(&status["capacity"])),
                of_volume(access_modes(&status["accessModes"])),
                class_of(object),
                or_unset(&spec["volumeAttributesClassName"]),
                age,
                or_unset(&spec["volumeMode"]),
            ])
        }
        KindId::STORAGE_CLASS => {
            let is_default = object["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true";
            let text = |field: &str, default: &str| object[field].as_str().unwrap_or(default).to_owned();
            json!([
                format!("{}{}", or_empty(name), if is_default { " (default)" } else { "" }),
                text("provisioner", ""),
                text("reclaimPolicy", "Delete"),
                text("volumeBindingMode", "Immediate"),
                is_set(&object["allowVolumeExpansion"], false),
                age,
            ])
        }
        KindId::VOLUME_ATTACHMENT => json!([
            name,
            or_empty(&spec["attacher"]),
            or_empty(&spec["source"]["persistentVolumeName"]),
            or_empty(&spec["nodeName"]),
            is_set(&status["attached"], false),
            age,
        ]),
        KindId::CSI_NODE => json!([name, items(&spec["drivers"]).len(), age]),
        KindId::CSI_DRIVER => {
            let modes = texts(&spec["volumeLifecycleModes"]).join(",");
            let audiences: Vec<&str> = items(&spec["tokenRequests"]).iter().map(|r| or_empty(&r["audience"])).collect();
            json!([
                name,
                is_set(&spec["attachRequired"], true),
                is_set(&spec["podInfoOnMount"], false),
                is_set(&spec["storageCapacity"], false),
                if spec["tokenRequests"].is_array() { audiences.join(",") } else { "<unset>".to_owned() },
                is_set(&spec["requiresRepublish"], false),
                if modes.is_empty() { "<none>" } else { &modes },
                age,
            ])
        }
        KindId::CSI_STORAGE_CAPACITY => json!([name, or_empty(&object["metadata"]["creationTimestamp"])]),
        KindId::RESOURCE_CLAIM => {
            let deleted = object["metadata"]["deletionTimestamp"].is_string();
            let mut states = if deleted { vec!["deleted"] } else { Vec::new() };
            if !status["allocation"].is_object() {
                states.extend((!deleted).then_some("pending"));
            } else {
                states.push("allocated");
                states.extend((!items(&status["reservedFor"]).is_empty()).then_some("reserved"));
            }
            json!([name, states.join(","), age])
        }
        KindId::RESOURCE_SLICE => {
            let (node, driver) = (or_empty(&spec["nodeName"]), or_empty(&spec["driver"]));
            json!([name, node, driver, or_empty(&spec["pool"]["name"]), age])
        }
        _ => return None,
    })
}

/// The class, from the field or from the annotation that came before it.
fn class_of(object: &Value) -> &str {
    let old = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    old.as_str().unwrap_or_else(|| or_empty(&object["spec"]["storageClassName"]))
}

/// `RWO,RWX`, in the order of a real server.
fn access_modes(modes: &Value) -> String {
    let given = texts(modes);
    let short =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    short.iter().filter(|(mode, _)| given.contains(mode)).map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn texts(value: &Value) -> Vec<&str> {
    items(value).iter().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let claim = json!({ "metadata": { "name": "c" }, "spec": { "volumeName": "v", "storageClassName": "s",
            "volumeMode": "Filesystem" }, "status": { "phase": "Bound", "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadOnlyMany", "ReadWriteOnce"] } });
        let row = cells(KindId::PERSISTENT_VOLUME_CLAIM, &claim, "5s").unwrap();
        assert_eq!(row, json!(["c", "Bound", "v", "1Gi", "RWO,ROX", "s", "<unset>", "5s", "Filesystem"]));
        let claim = json!({ "metadata": { "name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": {},
            "status": { "phase": "Pending" } });
        let row = cells(KindId::PERSISTENT_VOLUME_CLAIM, &claim, "5s").unwrap();
        assert_eq!(row, json!(["c", "Terminating", "", "", "", "", "<unset>", "5s", "<unset>"]));
    }
}
