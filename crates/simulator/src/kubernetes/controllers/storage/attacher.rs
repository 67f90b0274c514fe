//! The attach/detach controller and the attacher of a CSI driver: one VolumeAttachment per volume and node in use.
//!
//! A volume that only one node may use is attached to the next node after it is detached from the last one. A node takes
//! no more volumes of a driver than its CSINode states.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::index::volume_of;
use super::super::{Step, Tools};
use super::{StorageStep, bound_volume, claims::release};
use crate::kubernetes::deletion::{self, DeleteOptions};
use crate::kubernetes::json::{items, put, take, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::store::{ObjectKey, Store};

const COMPONENT: &str = "attachdetach-controller";
/// When a failed attachment is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// Keeps a VolumeAttachment until the volume is detached.
fn finalizer(driver: &str) -> String {
    format!("external-attacher/{}", driver.replace('.', "-"))
}

/// The name of a VolumeAttachment, as the attach/detach controller chooses it.
pub(super) fn name(volume: &Value, node: &str) -> String {
    let csi = &volume["spec"]["csi"];
    let mut hash = Sha256::new();
    for part in [text(&csi["volumeHandle"]), text(&csi["driver"]), node] {
        hash.update(part.as_bytes());
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{hex}")
}

pub(super) fn needs_attachment(store: &Store, volume: &Value) -> bool {
    let driver = text(&volume["spec"]["csi"]["driver"]);
    let stated =
        store.get(KindId::CSI_DRIVER, "", driver).map_or(&Value::Null, |driver| &driver["spec"]["attachRequired"]);
    !driver.is_empty() && *stated != false
}

/// Whether several nodes can use the volume at the same time.
fn is_shared(volume: &Value) -> bool {
    items(&volume["spec"]["accessModes"]).iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
}

/// Creates and deletes the VolumeAttachments of a node.
pub(super) fn reconcile(tools: &mut Tools<'_>, node: &str) {
    let mut wanted: BTreeMap<String, (Arc<Value>, Arc<Value>)> = BTreeMap::new();
    for key in tools.index.pods_on(node) {
        let Some(object) = tools.store.get(KindId::POD, &key.namespace, &key.name) else { continue };
        if pod::is_finished(object) {
            continue;
        }
        for claim in pod::claim_names(object) {
            if let Some(volume) = bound_volume(tools.store, &key.namespace, &claim)
                && needs_attachment(tools.store, &volume)
            {
                wanted.insert(name(&volume, node), (volume, object.clone()));
            }
        }
    }
    let existing: BTreeSet<String> = tools.index.attachments_on(node).cloned().collect();
    for attachment in &existing {
        let Some(object) = tools.store.get(KindId::VOLUME_ATTACHMENT, "", attachment).cloned() else { continue };
        let volume = tools.store.get(KindId::PERSISTENT_VOLUME, "", volume_of(&object));
        // Those that somebody else created have other names, and stay.
        let is_own = volume.is_none_or(|volume| name(volume, node) == *attachment) && attachment.starts_with("csi-");
        if is_own && !wanted.contains_key(attachment) {
            let options = DeleteOptions::default();
            let _ = deletion::delete(tools.store, KindId::VOLUME_ATTACHMENT, "", attachment, &options, tools.now);
        }
    }
    for (attachment, (volume, pod)) in wanted {
        if !existing.contains(&attachment) {
            create(tools, node, &attachment, &volume, &pod);
        }
    }
}

fn create(tools: &mut Tools<'_>, node: &str, attachment: &str, volume: &Value, pod: &Value) {
    let (name, driver) = (text(&volume["metadata"]["name"]), text(&volume["spec"]["csi"]["driver"]));
    if !is_shared(volume) && tools.index.attachments_of_volume(name).next().is_some() {
        let message = format!(
            "Multi-Attach error for volume \"{name}\" Volume is already exclusively attached to one node and can't be \
             attached to another"
        );
        return tools.warning(pod, COMPONENT, "FailedAttachVolume", &message);
    }
    let object = json!({
        "metadata": { "name": attachment, "finalizers": [finalizer(driver)],
            "annotations": { "csi.alpha.kubernetes.io/node-id": node } },
        "spec": { "attacher": driver, "nodeName": node, "source": { "persistentVolumeName": name } },
        "status": { "attached": false },
    });
    let _ = tools.store.create(KindId::VOLUME_ATTACHMENT, object, tools.now);
}

fn current(store: &Store, attachment: &str, uid: &str) -> Option<Arc<Value>> {
    store.get(KindId::VOLUME_ATTACHMENT, "", attachment).filter(|object| pod::uid(object) == uid).cloned()
}

pub(super) fn attach(tools: &mut Tools<'_>, attachment: &str, uid: &str) {
    let Some(object) = current(tools.store, attachment, uid) else { return };
    let (driver, node) = (text(&object["spec"]["attacher"]), text(&object["spec"]["nodeName"]));
    if pod::is_terminating(&object) || tools.store.get(KindId::CSI_DRIVER, "", driver).is_none() {
        return;
    }
    if is_full(tools, driver, node) {
        let error = json!({ "time": tools.now.rfc3339_seconds(),
            "message": format!("rpc error: code = ResourceExhausted desc = node {node} has no free slot for a volume") });
        let _ = tools.store.edit(KindId::VOLUME_ATTACHMENT, "", attachment, |object| {
            put(object, &["status", "attachError"], error);
        });
        let step = StorageStep::Attach { attachment: attachment.to_owned(), uid: uid.to_owned() };
        return tools.timeline.schedule(tools.now.after(RETRY), Step::Storage(step));
    }
    let _ = tools.store.edit(KindId::VOLUME_ATTACHMENT, "", attachment, |object| {
        put(object, &["status", "attached"], json!(true));
        take(object, &["status"], "attachError");
    });
    let message = format!("AttachVolume.Attach succeeded for volume \"{}\"", volume_of(&object));
    let pods: Vec<Arc<Value>> = users(tools, volume_of(&object), node);
    for pod in pods {
        tools.event(&pod, COMPONENT, "SuccessfulAttachVolume", &message);
    }
}

/// Whether the node has as many volumes of the driver as its CSINode allows.
fn is_full(tools: &Tools<'_>, driver: &str, node: &str) -> bool {
    let limit = tools
        .store
        .get(KindId::CSI_NODE, "", node)
        .and_then(|known| items(&known["spec"]["drivers"]).iter().find(|known| known["name"] == driver))
        .and_then(|known| known["allocatable"]["count"].as_u64());
    let attached = tools
        .index
        .attachments_on(node)
        .filter_map(|name| tools.store.get(KindId::VOLUME_ATTACHMENT, "", name))
        .filter(|known| known["spec"]["attacher"] == driver && known["status"]["attached"] == true)
        .count();
    limit.is_some_and(|limit| attached as u64 >= limit)
}

/// The pods on a node that use the volume.
fn users(tools: &Tools<'_>, volume: &str, node: &str) -> Vec<Arc<Value>> {
    let Some(volume) = tools.store.get(KindId::PERSISTENT_VOLUME, "", volume) else { return Vec::new() };
    tools
        .index
        .pods_of_claim(&super::claim_of(volume))
        .filter_map(|key| tools.store.get(KindId::POD, &key.namespace, &key.name))
        .filter(|pod| pod::node_name(pod) == node)
        .cloned()
        .collect()
}

pub(super) fn detach(tools: &mut Tools<'_>, attachment: &str, uid: &str) {
    let Some(object) = current(tools.store, attachment, uid) else { return };
    let finalizer = finalizer(text(&object["spec"]["attacher"]));
    release(tools, KindId::VOLUME_ATTACHMENT, &ObjectKey::new("", attachment), &finalizer);
}
