//! Defaults of volumes, claims, classes and drivers, and what admission adds to new ones.

use serde_json::{Value, json};

use super::set_default;
use crate::kubernetes::json::{array, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::store::Store;

/// Keeps a claim while a pod uses it.
pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Keeps a volume while it is bound.
pub const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// Marks the class of claims that name none.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// The name of the class before there was a field for it.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn fill_in_volume(volume: &mut Value) {
    let spec = &mut volume["spec"];
    set_default(spec, "persistentVolumeReclaimPolicy", || json!("Retain"));
    set_default(spec, "volumeMode", || json!("Filesystem"));
    if let Some(path) = spec.get_mut("hostPath").filter(|path| path.is_object()) {
        set_default(path, "type", || json!(""));
    }
}

pub(super) fn complete_new_volume(volume: &mut Value) {
    protect(volume, VOLUME_PROTECTION);
    volume["status"] = json!({ "phase": "Pending" });
}

pub(super) fn complete_new_claim(claim: &mut Value, store: &Store) {
    protect(claim, CLAIM_PROTECTION);
    let names_class =
        claim["spec"]["storageClassName"].is_string() || claim["metadata"]["annotations"][BETA_CLASS].is_string();
    if !names_class && let Some(class) = default_class(store) {
        claim["spec"]["storageClassName"] = json!(class);
    }
    claim["status"] = json!({ "phase": "Pending" });
}

/// The newest of the default classes, as in a real server; of equally old ones the first by name.
fn default_class(store: &Store) -> Option<String> {
    let defaults = store
        .list(KindId::STORAGE_CLASS, None)
        .filter(|class| class["metadata"]["annotations"][DEFAULT_CLASS] == "true");
    let mut newest: Option<&Value> = None;
    for class in defaults {
        let created = |class: &Value| text(&class["metadata"]["creationTimestamp"]).to_owned();
        if newest.is_none_or(|known| created(class) > created(known)) {
            newest = Some(class);
        }
    }
    newest.map(|class| text(&class["metadata"]["name"]).to_owned())
}

fn protect(object: &mut Value, finalizer: &str) {
    let finalizers = array(object, &["metadata", "finalizers"]);
    if !finalizers.iter().any(|known| known == finalizer) {
        finalizers.push(json!(finalizer));
    }
}

pub(super) fn fill_in_class(class: &mut Value) {
    set_default(class, "reclaimPolicy", || json!("Delete"));
    set_default(class, "volumeBindingMode", || json!("Immediate"));
}

pub(super) fn fill_in_driver(spec: &mut Value) {
    set_default(spec, "attachRequired", || json!(true));
    set_default(spec, "fsGroupPolicy", || json!("ReadWriteOnceWithFSType"));
    set_default(spec, "volumeLifecycleModes", || json!(["Persistent"]));
    for flag in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        set_default(spec, flag, || json!(false));
    }
}
