//! The persistent volume controller: which claim has which volume, and the phases of both.
//!
//! A claim and its volume name each other. Either side may have been written by a scheduler or by a user; what is
//! missing is completed here. A claim that waits for its first consumer gets a volume only once a scheduler has chosen
//! one, or the node.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::Tools;
use super::super::queue::Target;
use super::claims::{self, release};
use super::{BIND_COMPLETED, BOUND_BY_CONTROLLER, PROVISIONED_BY, SELECTED_NODE, Storage, annotation, class_name};
use crate::clock::SimTime;
use crate::kubernetes::defaults::VOLUME_PROTECTION;
use crate::kubernetes::json::{items, put, take, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::label_selector::LabelSelector;
use crate::kubernetes::pod;
use crate::kubernetes::quantity::billionths;
use crate::kubernetes::store::{ObjectKey, Store};

const COMPONENT: &str = "persistentvolume-controller";

pub(super) fn reconcile_claim(storage: &mut Storage, tools: &mut Tools<'_>, key: &ObjectKey) {
    let Some(claim) = tools.store.get(KindId::PERSISTENT_VOLUME_CLAIM, &key.namespace, &key.name).cloned() else {
        return;
    };
    if pod::is_terminating(&claim) {
        return claims::release_unused(tools, key);
    }
    if annotation(&claim, BIND_COMPLETED).is_empty() {
        reconcile_unbound(storage, tools, key, &claim);
    } else {
        reconcile_bound(tools, key, &claim);
    }
}

fn reconcile_unbound(storage: &mut Storage, tools: &mut Tools<'_>, key: &ObjectKey, claim: &Arc<Value>) {
    let named = text(&claim["spec"]["volumeName"]);
    if !named.is_empty() {
        // Chosen by the user.
        if let Some(volume) = tools.store.get(KindId::PERSISTENT_VOLUME, "", named).cloned()
            && (volume["spec"]["claimRef"].is_null() || is_claimed_by(&volume, claim))
        {
            bind(tools, &volume, key);
        }
        return;
    }
    let class = tools.store.get(KindId::STORAGE_CLASS, "", class_name(claim)).cloned();
    let waits = class.as_ref().is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer");
    if let Some(volume) = find_volume(tools, claim, waits) {
        return bind(tools, &volume, key);
    }
    match class {
        Some(_) if waits && annotation(claim, SELECTED_NODE).is_empty() => {
            let message = "waiting for first consumer to be created before binding";
            tools.event(claim, COMPONENT, "WaitForFirstConsumer", message);
        }
        Some(class) => storage.start_provisioning(tools, key, claim, &class),
        None if class_name(claim).is_empty() => {
            let message = "no persistent volumes available for this claim and no storage class is set";
            tools.event(claim, COMPONENT, "FailedBinding", message);
        }
        None => {
            let message = format!("storageclass.storage.k8s.io \"{}\" not found", class_name(claim));
            tools.warning(claim, COMPONENT, "ProvisioningFailed", &message);
        }
    }
}

fn reconcile_bound(tools: &mut Tools<'_>, key: &ObjectKey, claim: &Arc<Value>) {
    let volume = tools.store.get(KindId::PERSISTENT_VOLUME, "", text(&claim["spec"]["volumeName"])).cloned();
    match volume {
        Some(volume) if volume["spec"]["claimRef"].is_null() || is_claimed_by(&volume, claim) => {
            bind(tools, &volume, key);
        }
        Some(_) => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            lose(tools, key, "ClaimMisbound", message);
        }
        None => {
            let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
            lose(tools, key, "ClaimLost", message);
        }
    }
}

fn lose(tools: &mut Tools<'_>, key: &ObjectKey, reason: &str, message: &str) {
    let lost = tools.store.edit(KindId::PERSISTENT_VOLUME_CLAIM, &key.namespace, &key.name, |claim| {
        put(claim, &["status", "phase"], json!("Lost"));
    });
    if let Ok(claim) = lost {
        tools.warning(&claim, COMPONENT, reason, message);
    }
}

/// Whether the volume's `claimRef` is this claim. Users and old versions leave out the uid.
fn is_claimed_by(volume: &Value, claim: &Value) -> bool {
    let (reference, metadata) = (&volume["spec"]["claimRef"], &claim["metadata"]);
    let uid = text(&reference["uid"]);
    reference["name"] == metadata["name"]
        && reference["namespace"] == metadata["namespace"]
        && (uid.is_empty() || uid == pod::uid(claim))
}

/// The volume that was reserved for the claim; else, unless the claim waits, the smallest one that fits.
fn find_volume(tools: &Tools<'_>, claim: &Value, waits: bool) -> Option<Arc<Value>> {
    let volume = |name: &String| tools.store.get(KindId::PERSISTENT_VOLUME, "", name);
    let key = ObjectKey::of(claim);
    let reserved = tools.index.volumes_of_claim(&key).filter_map(volume).find(|volume| is_claimed_by(volume, claim));
    if waits || reserved.is_some() {
        return reserved.cloned();
    }
    tools
        .index
        .unclaimed_volumes()
        .filter_map(volume)
        .filter(|volume| fits(volume, claim))
        .min_by_key(|volume| size(&volume["spec"]["capacity"]))
        .cloned()
}

fn size(resources: &Value) -> i128 {
    billionths(&resources["storage"]).unwrap_or(0)
}

fn fits(volume: &Value, claim: &Value) -> bool {
    let (has, wants) = (&volume["spec"], &claim["spec"]);
    let mode = |spec: &Value| spec["volumeMode"].as_str().unwrap_or("Filesystem").to_owned();
    let selector = LabelSelector::from_object(&wants["selector"]);
    volume["status"]["phase"] == "Available"
        && has["claimRef"].is_null()
        && !pod::is_terminating(volume)
        && class_name(volume) == class_name(claim)
        && mode(has) == mode(wants)
        && text(&has["volumeAttributesClassName"]) == text(&wants["volumeAttributesClassName"])
        && items(&wants["accessModes"]).iter().all(|mode| items(&has["accessModes"]).contains(mode))
        && size(&has["capacity"]) >= size(&wants["resources"]["requests"])
        && (wants["selector"].is_null() || selector.is_some_and(|s| s.matches(&volume["metadata"]["labels"])))
}

/// Writes both sides, each first its spec and then its status, as a real controller does. What is there stays.
fn bind(tools: &mut Tools<'_>, volume: &Value, key: &ObjectKey) {
    let now = tools.now;
    let name = text(&volume["metadata"]["name"]);
    let store = &mut *tools.store;
    let Some(claim) = store.get(KindId::PERSISTENT_VOLUME_CLAIM, &key.namespace, &key.name).cloned() else { return };
    let _ = store.edit(KindId::PERSISTENT_VOLUME, "", name, |volume| {
        if volume["spec"]["claimRef"].is_null() {
            put(volume, &["metadata", "annotations", BOUND_BY_CONTROLLER], json!("yes"));
        }
        if text(&volume["spec"]["claimRef"]["uid"]) != pod::uid(&claim) {
            put(volume, &["spec", "claimRef"], reference_to(&claim));
        }
    });
    set_phase(store, name, "Bound", now);
    let _ = store.edit(KindId::PERSISTENT_VOLUME_CLAIM, &key.namespace, &key.name, |claim| {
        if text(&claim["spec"]["volumeName"]).is_empty() {
            put(claim, &["metadata", "annotations", BOUND_BY_CONTROLLER], json!("yes"));
            put(claim, &["spec", "volumeName"], json!(name));
        }
        put(claim, &["metadata", "annotations", BIND_COMPLETED], json!("yes"));
    });
    let _ = store.edit(KindId::PERSISTENT_VOLUME_CLAIM, &key.namespace, &key.name, |claim| {
        put(claim, &["status", "phase"], json!("Bound"));
        put(claim, &["status", "accessModes"], volume["spec"]["accessModes"].clone());
        put(claim, &["status", "capacity"], volume["spec"]["capacity"].clone());
    });
}

/// A volume's `claimRef`.
pub(super) fn reference_to(claim: &Value) -> Value {
    let metadata = &claim["metadata"];
    json!({ "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": metadata["namespace"],
        "name": metadata["name"], "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"] })
}

fn set_phase(store: &mut Store, volume: &str, phase: &str, now: SimTime) {
    let _ = store.edit(KindId::PERSISTENT_VOLUME, "", volume, |volume| {
        if volume["status"]["phase"] != phase {
            put(volume, &["status", "phase"], json!(phase));
            put(volume, &["status", "lastPhaseTransitionTime"], json!(now.rfc3339_seconds()));
        }
    });
}

pub(super) fn reconcile_volume(storage: &mut Storage, tools: &mut Tools<'_>, name: &str) {
    let Some(volume) = tools.store.get(KindId::PERSISTENT_VOLUME, "", name).cloned() else { return };
    let now = tools.now;
    let reference = &volume["spec"]["claimRef"];
    let is_reserved_by_name = text(&reference["uid"]).is_empty();
    let claim = super::claim_of(&volume);
    let claim = tools.store.get(KindId::PERSISTENT_VOLUME_CLAIM, &claim.namespace, &claim.name).cloned();
    let owner = claim.filter(|claim| is_claimed_by(&volume, claim));
    if pod::is_terminating(&volume) {
        let in_use = owner.is_some_and(|claim| text(&claim["spec"]["volumeName"]) == name);
        if !in_use {
            release(tools, KindId::PERSISTENT_VOLUME, &ObjectKey::new("", name), VOLUME_PROTECTION);
        }
        return;
    }
    match owner {
        _ if reference.is_null() => set_phase(tools.store, name, "Available", now),
        Some(claim) => match text(&claim["spec"]["volumeName"]) {
            named if named == name => set_phase(tools.store, name, "Bound", now),
            "" => {
                if is_reserved_by_name {
                    set_phase(tools.store, name, "Available", now);
                }
                tools.queue.mark(tools.timeline, now, Target::Claim(ObjectKey::of(&claim)));
            }
            // The claim has another volume.
            _ if annotation(&volume, PROVISIONED_BY).is_empty() => unbind(tools, name),
            _ => reclaim(storage, tools, &volume),
        },
        None if is_reserved_by_name => set_phase(tools.store, name, "Available", now),
        None => reclaim(storage, tools, &volume),
    }
}

/// Frees a volume whose claim has another one. What the user wrote stays.
fn unbind(tools: &mut Tools<'_>, name: &str) {
    let now = tools.now;
    let _ = tools.store.edit(KindId::PERSISTENT_VOLUME, "", name, |volume| {
        if annotation(volume, BOUND_BY_CONTROLLER).is_empty() {
            take(volume, &["spec", "claimRef"], "uid");
        } else {
            take(volume, &["spec"], "claimRef");
            take(volume, &["metadata", "annotations"], BOUND_BY_CONTROLLER);
        }
    });
    set_phase(tools.store, name, "Available", now);
}

/// The volume's claim is gone.
fn reclaim(storage: &mut Storage, tools: &mut Tools<'_>, volume: &Value) {
    let name = text(&volume["metadata"]["name"]);
    set_phase(tools.store, name, "Released", tools.now);
    let is_attached = tools.index.attachments_of_volume(name).next().is_some();
    if volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete" && !is_attached {
        storage.start_deleting(tools, volume);
    }
}
