//! Validation of the kinds of storage: what is required, and what stays as it was created.

use serde_json::{Value, json};

use super::{immutable, is_dns_subdomain, is_qualified_name};
use crate::kubernetes::error::FieldError;
use crate::kubernetes::json::{items, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::quantity::billionths;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
const RECLAIM_POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
const BINDING_MODES: [&str; 2] = ["Immediate", "WaitForFirstConsumer"];
/// The fields of a PersistentVolume's spec that are not its source.
const NOT_A_SOURCE: [&str; 9] = [
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];

pub(super) fn check(kind: KindId, object: &Value, errors: &mut Vec<FieldError>) {
    match kind {
        KindId::PERSISTENT_VOLUME_CLAIM => check_claim(&object["spec"], "spec", errors),
        KindId::PERSISTENT_VOLUME => check_volume(&object["spec"], errors),
        KindId::STORAGE_CLASS => {
            let provisioner = text(&object["provisioner"]);
            if provisioner.is_empty() {
                errors.push(FieldError::required("provisioner", ""));
            } else if !is_qualified_name(&provisioner.to_lowercase()) {
                errors.push(FieldError::invalid("provisioner", &object["provisioner"], super::LABEL_KEY));
            }
            check_one_of(object, "reclaimPolicy", "reclaimPolicy", &RECLAIM_POLICIES, errors);
            check_one_of(object, "volumeBindingMode", "volumeBindingMode", &BINDING_MODES, errors);
        }
        KindId::CSI_NODE => {
            for (index, driver) in items(&object["spec"]["drivers"]).iter().enumerate() {
                for field in ["name", "nodeID"] {
                    if text(&driver[field]).is_empty() {
                        errors.push(FieldError::required(format!("spec.drivers[{index}].{field}"), ""));
                    }
                }
            }
        }
        KindId::VOLUME_ATTACHMENT => {
            let spec = &object["spec"];
            if text(&spec["attacher"]).is_empty() {
                errors.push(FieldError::required("spec.attacher", ""));
            }
            if spec["source"]["persistentVolumeName"].is_null() && spec["source"]["inlineVolumeSpec"].is_null() {
                let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                errors.push(FieldError::required("spec.source", detail));
            }
            if text(&spec["nodeName"]).is_empty() {
                errors.push(FieldError::required("spec.nodeName", ""));
            }
        }
        _ => (),
    }
}

/// What an update may not change.
pub(super) fn check_kept(kind: KindId, before: &Value, after: &Value, errors: &mut Vec<FieldError>) {
    let mut fixed = |field: &str, was: &Value, is: &Value| {
        if was != is {
            errors.push(immutable(field, is));
        }
    };
    match kind {
        KindId::PERSISTENT_VOLUME_CLAIM => check_claim_kept(before, after, errors),
        KindId::PERSISTENT_VOLUME => check_volume_kept(&before["spec"], &after["spec"], errors),
        KindId::STORAGE_CLASS => {
            for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
                fixed(field, &before[field], &after[field]);
            }
        }
        KindId::CSI_STORAGE_CAPACITY => {
            for field in ["nodeTopology", "storageClassName"] {
                fixed(field, &before[field], &after[field]);
            }
        }
        KindId::CSI_DRIVER => {
            for (field, name) in
                [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")]
            {
                fixed(&format!("spec.{name}"), &before["spec"][field], &after["spec"][field]);
            }
        }
        KindId::VOLUME_ATTACHMENT => fixed("spec", &before["spec"], &after["spec"]),
        _ => (),
    }
}

fn check_one_of(object: &Value, field: &str, place: &str, supported: &[&str], errors: &mut Vec<FieldError>) {
    if object[field].as_str().is_some_and(|value| !value.is_empty() && !supported.contains(&value)) {
        errors.push(FieldError::not_supported(place, &object[field], supported));
    }
}

fn check_access_modes(spec: &Value, place: &str, detail: &str, errors: &mut Vec<FieldError>) {
    let field = format!("{place}.accessModes");
    let modes = items(&spec["accessModes"]);
    if modes.is_empty() {
        errors.push(FieldError::required(&field, detail));
    }
    for mode in modes.iter().filter(|mode| !ACCESS_MODES.contains(&text(mode))) {
        errors.push(FieldError::not_supported(&field, mode, &ACCESS_MODES));
    }
    let exclusive = modes.iter().any(|mode| mode == "ReadWriteOncePod");
    if exclusive && modes.iter().any(|mode| mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&text(mode))) {
        errors.push(FieldError::forbidden(&field, "may not use ReadWriteOncePod with other access modes"));
    }
}

fn check_positive(quantity: &Value, field: &str, errors: &mut Vec<FieldError>) {
    if billionths(quantity).is_none_or(|size| size <= 0) {
        let shown = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
        errors.push(FieldError::invalid(field, &json!(shown), "must be greater than zero"));
    }
}

fn check_class_name(spec: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let name = &spec["storageClassName"];
    if name.as_str().is_some_and(|name| !name.is_empty() && !is_dns_subdomain(name)) {
        errors.push(FieldError::invalid(format!("{place}.storageClassName"), name, super::SUBDOMAIN));
    }
}

pub(super) fn check_claim(spec: &Value, place: &str, errors: &mut Vec<FieldError>) {
    check_access_modes(spec, place, "at least 1 access mode is required", errors);
    let field = format!("{place}.resources[storage]");
    match &spec["resources"]["requests"]["storage"] {
        Value::Null => errors.push(FieldError::required(field, "")),
        size => check_positive(size, &field, errors),
    }
    check_class_name(spec, place, errors);
    check_one_of(spec, "volumeMode", &format!("{place}.volumeMode"), &VOLUME_MODES, errors);
}

fn check_volume(spec: &Value, errors: &mut Vec<FieldError>) {
    check_access_modes(spec, "spec", "", errors);
    match &spec["capacity"] {
        Value::Object(capacity) if capacity.len() == 1 && capacity.contains_key("storage") => {
            check_positive(&capacity["storage"], "spec.capacity[storage]", errors);
        }
        capacity => {
            if capacity.as_object().is_none_or(serde_json::Map::is_empty) {
                errors.push(FieldError::required("spec.capacity", ""));
            }
            errors.push(FieldError::not_supported("spec.capacity", capacity, &["storage"]));
        }
    }
    check_one_of(
        spec,
        "persistentVolumeReclaimPolicy",
        "spec.persistentVolumeReclaimPolicy",
        &RECLAIM_POLICIES,
        errors,
    );
    if spec["local"].is_object() && spec["nodeAffinity"]["required"].is_null() {
        errors.push(FieldError::required("spec.nodeAffinity", "Local volume requires node affinity"));
    }
    if spec["csi"].is_object() {
        for field in ["driver", "volumeHandle"] {
            if text(&spec["csi"][field]).is_empty() {
                errors.push(FieldError::required(format!("spec.csi.{field}"), ""));
            }
        }
    }
    let sources = source(spec);
    if sources.is_empty() {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
    for (extra, _) in sources.iter().skip(1) {
        errors.push(FieldError::forbidden(format!("spec.{extra}"), "may not specify more than 1 volume type"));
    }
    check_class_name(spec, "spec", errors);
    check_one_of(spec, "volumeMode", "spec.volumeMode", &VOLUME_MODES, errors);
}

fn source(spec: &Value) -> Vec<(&String, &Value)> {
    spec.as_object().into_iter().flatten().filter(|(field, _)| !NOT_A_SOURCE.contains(&field.as_str())).collect()
}

/// A claim's spec is fixed, except for its volume, which is set once, and its size once it is bound.
fn check_claim_kept(before: &Value, after: &Value, errors: &mut Vec<FieldError>) {
    let (was, is) = (&before["spec"], &after["spec"]);
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        let bound = after["status"]["phase"] == "Bound";
        if let Some(fields) = spec.as_object_mut() {
            if text(&was["volumeName"]).is_empty() {
                fields.remove("volumeName");
            }
            // A claim without a class may get one later.
            if was["storageClassName"].is_null() {
                fields.remove("storageClassName");
            }
            if bound {
                fields.remove("volumeAttributesClassName");
            }
            if let Some(requests) = fields.get_mut("resources").and_then(|r| r.get_mut("requests"))
                && let (true, Some(requests)) = (bound, requests.as_object_mut())
            {
                requests.remove("storage");
            }
        }
        spec
    };
    if fixed(was) != fixed(is) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                      bound claims\n";
        errors.push(FieldError::forbidden("spec", detail));
    }
    let size = |value: &Value| billionths(&value["storage"]).unwrap_or(0);
    let (requested, requested_before) = (size(&is["resources"]["requests"]), size(&was["resources"]["requests"]));
    if requested < requested_before && requested <= size(&before["status"]["capacity"]) {
        let detail = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden("spec.resources.requests.storage", detail));
    }
}

fn check_volume_kept(was: &Value, is: &Value, errors: &mut Vec<FieldError>) {
    if source(was) != source(is) {
        let detail = "spec.persistentvolumesource is immutable after creation\n";
        errors.push(FieldError::forbidden("spec.persistentvolumesource", detail));
    }
    if was["volumeMode"] != is["volumeMode"] {
        errors.push(immutable("volumeMode", &is["volumeMode"]));
    }
    if !was["nodeAffinity"].is_null() && was["nodeAffinity"] != is["nodeAffinity"] {
        errors.push(immutable("nodeAffinity", &is["nodeAffinity"]));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check_changed, check_new};
    use super::*;

    fn claim() -> Value {
        json!({ "metadata": { "name": "c" }, "status": { "phase": "Pending" }, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
            "storageClassName": "s", "volumeMode": "Filesystem" } })
    }

    #[test]
    fn a_claim_needs_a_size_and_keeps_what_it_asked_for() {
        assert_eq!(check_new(KindId::PERSISTENT_VOLUME_CLAIM, &claim()), Ok(()));
        let message = check_new(KindId::PERSISTENT_VOLUME_CLAIM, &json!({ "metadata": { "name": "c" } })).unwrap_err();
        assert_eq!(
            message.to_string(),
            "PersistentVolumeClaim \"c\" is invalid: [spec.accessModes: Required value: at least 1 access mode is \
             required, spec.resources[storage]: Required value]"
        );
        type Edit = fn(&mut Value);
        let cases: [(Edit, bool); 5] = [
            (|claim| claim["spec"]["volumeName"] = json!("v"), true),
            (|claim| claim["spec"]["storageClassName"] = json!("other"), false),
            (|claim| claim["spec"]["resources"]["requests"]["storage"] = json!("2Gi"), false),
            (|claim| claim["metadata"]["annotations"] = json!({ "a": "b" }), true),
            (|claim| claim["spec"]["selector"] = json!({}), false),
        ];
        for (index, (edit, allowed)) in cases.into_iter().enumerate() {
            let mut after = claim();
            edit(&mut after);
            let checked = check_changed(KindId::PERSISTENT_VOLUME_CLAIM, &claim(), &after);
            assert_eq!(checked.is_ok(), allowed, "case {index}");
        }
        let mut bound = claim();
        bound["status"] = json!({ "phase": "Bound", "capacity": { "storage": "1Gi" } });
        bound["spec"]["volumeName"] = json!("v");
        for (size, allowed) in [("2Gi", true), ("1Mi", false)] {
            let mut after = bound.clone();
            after["spec"]["resources"]["requests"]["storage"] = json!(size);
            assert_eq!(check_changed(KindId::PERSISTENT_VOLUME_CLAIM, &bound, &after).is_ok(), allowed, "{size}");
        }
    }

    #[test]
    fn a_volume_has_one_source() {
        let volume = |spec: Value| {
            let mut volume = json!({ "metadata": { "name": "v" }, "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" } } });
            volume["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            volume
        };
        for (source, allowed) in [
            (json!({ "csi": { "driver": "d", "volumeHandle": "h" } }), true),
            (json!({ "csi": { "driver": "d" } }), false),
            (json!({}), false),
            (json!({ "hostPath": { "path": "/a" }, "nfs": {} }), false),
            (json!({ "local": { "path": "/a" } }), false),
        ] {
            let checked = check_new(KindId::PERSISTENT_VOLUME, &volume(source.clone()));
            assert_eq!(checked.is_ok(), allowed, "{source}: {checked:?}");
        }
    }
}
