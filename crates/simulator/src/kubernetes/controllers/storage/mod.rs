//! Volumes: what kube-controller-manager, a CSI driver's provisioner and its attacher do, each in simulated time.
//!
//! - [`claims`]: claims for StatefulSets and ephemeral volumes; the finalizers that keep claims and volumes in use.
//! - [`binder`]: binds claims and volumes to each other, also those that a scheduler chose; phases; reclaiming.
//! - [`provisioner`]: creates and deletes volumes for the drivers that have a CSIDriver object.
//! - [`attacher`]: VolumeAttachments of the volumes that a node's pods use.
//!
//! No data is stored. A pod's containers start only when its volumes are attached ([`are_ready`]).

mod attacher;
mod binder;
pub(crate) mod claims;
mod provisioner;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::index::{Index, claim_of, volume_of};
use super::queue::Target;
use super::{Step, Tools};
use crate::clock::SimTime;
use crate::kubernetes::Config;
use crate::kubernetes::json::text;
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::store::{Change, ChangeType, ObjectKey, Store};
use crate::seed::{Seed, Stream};
use crate::timeline::Timeline;

/// The storage driver that every node has.
pub const DRIVER: &str = "csi.vsphere.vmware.com";

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StorageStep {
    /// The provisioner has created the volume for a claim.
    Provision {
        claim: ObjectKey,
        uid: String,
    },
    /// The provisioner has deleted the volume.
    Delete {
        volume: String,
        uid: String,
    },
    Attach {
        attachment: String,
        uid: String,
    },
    Detach {
        attachment: String,
        uid: String,
    },
}

#[derive(Debug)]
pub(crate) struct Storage {
    random: Stream,
    /// uids of the claims that volumes are being created for, and of the volumes that are being deleted.
    provisioning: BTreeSet<String>,
    deleting: BTreeSet<String>,
}

impl Storage {
    pub(crate) fn new(seed: Seed) -> Storage {
        Storage { random: seed.stream("kubernetes storage"), provisioning: BTreeSet::new(), deleting: BTreeSet::new() }
    }

    pub(crate) fn execute(&mut self, tools: &mut Tools<'_>, step: StorageStep) {
        match step {
            StorageStep::Provision { claim, uid } => self.provision(tools, &claim, &uid),
            StorageStep::Delete { volume, uid } => self.delete(tools, &volume, &uid),
            StorageStep::Attach { attachment, uid } => attacher::attach(tools, &attachment, &uid),
            StorageStep::Detach { attachment, uid } => attacher::detach(tools, &attachment, &uid),
        }
    }

    pub(crate) fn reconcile_claim(&mut self, tools: &mut Tools<'_>, key: &ObjectKey) {
        binder::reconcile_claim(self, tools, key);
    }

    pub(crate) fn reconcile_volume(&mut self, tools: &mut Tools<'_>, name: &str) {
        binder::reconcile_volume(self, tools, name);
    }

    pub(crate) fn reconcile_attachments(tools: &mut Tools<'_>, node: &str) {
        attacher::reconcile(tools, node);
    }

    /// Starts to attach and detach.
    pub(crate) fn observe(
        &mut self,
        change: &Change,
        store: &Store,
        config: &Config,
        timeline: &mut Timeline<Step>,
        now: SimTime,
    ) {
        if change.change_type == ChangeType::Deleted {
            return;
        }
        match change.kind {
            KindId::VOLUME_ATTACHMENT => {
                let before = change.before.as_deref();
                self.schedule_attachment(&change.object, before, config, timeline, now);
            }
            // The driver can do now what was waiting for it.
            KindId::CSI_DRIVER if change.before.is_none() => {
                let of_driver = store
                    .list(KindId::VOLUME_ATTACHMENT, None)
                    .filter(|attachment| attachment["spec"]["attacher"] == change.object["metadata"]["name"]);
                for attachment in of_driver {
                    self.schedule_attachment(attachment, None, config, timeline, now);
                }
            }
            _ => (),
        }
    }

    fn schedule_attachment(
        &mut self,
        object: &Value,
        before: Option<&Value>,
        config: &Config,
        timeline: &mut Timeline<Step>,
        now: SimTime,
    ) {
        let (attachment, uid) = (text(&object["metadata"]["name"]).to_owned(), pod::uid(object).to_owned());
        let step = if pod::is_terminating(object) && !before.is_some_and(pod::is_terminating) {
            StorageStep::Detach { attachment, uid }
        } else if before.is_none() && object["status"]["attached"] != true {
            StorageStep::Attach { attachment, uid }
        } else {
            return;
        };
        let wait = super::kubelet::draw_ms(&mut self.random, &config.attach_ms);
        timeline.schedule(now.after(wait), Step::Storage(step));
    }
}

/// Marks what a change affects.
pub(super) fn affected(change: &Change, store: &Store, index: &Index, mut mark: impl FnMut(Target)) {
    let object = &change.object;
    let key = ObjectKey::of(object);
    let deleted = change.change_type == ChangeType::Deleted;
    match change.kind {
        KindId::POD => affected_by_pod(change, &key, mark),
        KindId::PERSISTENT_VOLUME_CLAIM => {
            let named = text(&object["spec"]["volumeName"]);
            for volume in index.volumes_of_claim(&key).map(String::as_str).chain([named]).filter(|v| !v.is_empty()) {
                mark(Target::Volume(volume.to_owned()));
            }
            for pod in index.pods_of_claim(&key).filter(|_| deleted) {
                mark(Target::EphemeralClaims(pod.clone()));
            }
            mark_nodes(&key, store, index, &mut mark);
            mark(Target::Claim(key));
        }
        KindId::PERSISTENT_VOLUME => {
            for version in change.before.iter().chain([object]) {
                let claim = claim_of(version);
                if !claim.name.is_empty() {
                    mark_nodes(&claim, store, index, &mut mark);
                    mark(Target::Claim(claim));
                }
            }
            if !deleted && claim_of(object).name.is_empty() {
                mark_unbound(store, |_| true, &mut mark);
            }
            mark(Target::Volume(key.name));
        }
        KindId::STORAGE_CLASS if !deleted => mark_unbound(store, |claim| class_name(claim) == key.name, &mut mark),
        KindId::CSI_DRIVER if !deleted => mark_unbound(store, |_| true, &mut mark),
        KindId::VOLUME_ATTACHMENT => {
            let volume = volume_of(object).to_owned();
            if let Some(volume) = store.get(KindId::PERSISTENT_VOLUME, "", &volume) {
                // Pods on other nodes may wait for this volume.
                mark_nodes(&claim_of(volume), store, index, &mut mark);
            }
            mark(Target::Volume(volume));
            mark(Target::Attachments(text(&object["spec"]["nodeName"]).to_owned()));
        }
        KindId::NODE if deleted => mark(Target::Attachments(key.name)),
        _ => (),
    }
}

fn affected_by_pod(change: &Change, key: &ObjectKey, mut mark: impl FnMut(Target)) {
    let object = &change.object;
    let claims = pod::claim_names(object);
    if claims.is_empty() {
        return;
    }
    let deleted = change.change_type == ChangeType::Deleted;
    let use_of = |pod: &Value| (pod::node_name(pod).to_owned(), pod::is_finished(pod));
    if deleted || change.before.as_deref().is_none_or(|before| use_of(before) != use_of(object)) {
        for name in claims {
            mark(Target::Claim(ObjectKey { namespace: key.namespace.clone(), name }));
        }
        if !pod::node_name(object).is_empty() {
            mark(Target::Attachments(pod::node_name(object).to_owned()));
        }
    }
    if change.before.is_none() && !deleted {
        mark(Target::EphemeralClaims(key.clone()));
    }
}

/// Marks the nodes of the pods that use a claim.
fn mark_nodes(claim: &ObjectKey, store: &Store, index: &Index, mark: &mut impl FnMut(Target)) {
    for pod in index.pods_of_claim(claim) {
        if let Some(object) = store.get(KindId::POD, &pod.namespace, &pod.name)
            && !pod::node_name(object).is_empty()
        {
            mark(Target::Attachments(pod::node_name(object).to_owned()));
        }
    }
}

fn mark_unbound(store: &Store, concerns: impl Fn(&Value) -> bool, mark: &mut impl FnMut(Target)) {
    for claim in store.list(KindId::PERSISTENT_VOLUME_CLAIM, None) {
        if text(&claim["spec"]["volumeName"]).is_empty() && concerns(claim) {
            mark(Target::Claim(ObjectKey::of(claim)));
        }
    }
}

/// The claims whose pods a change may let start.
pub(super) fn claims_of_change(change: &Change, store: &Store) -> Option<ObjectKey> {
    let claim = match change.kind {
        KindId::PERSISTENT_VOLUME_CLAIM => ObjectKey::of(&change.object),
        KindId::PERSISTENT_VOLUME => claim_of(&change.object),
        KindId::VOLUME_ATTACHMENT => claim_of(store.get(KindId::PERSISTENT_VOLUME, "", volume_of(&change.object))?),
        _ => return None,
    };
    (!claim.name.is_empty()).then_some(claim)
}

/// Whether the pod's volumes are bound, and attached to its node.
pub(crate) fn are_ready(store: &Store, object: &Value) -> bool {
    let namespace = text(&object["metadata"]["namespace"]);
    pod::claim_names(object).iter().all(|claim| {
        let Some(volume) = bound_volume(store, namespace, claim) else { return false };
        !attacher::needs_attachment(store, &volume)
            || store
                .get(KindId::VOLUME_ATTACHMENT, "", &attacher::name(&volume, pod::node_name(object)))
                .is_some_and(|attachment| attachment["status"]["attached"] == true)
    })
}

/// The volume of a bound claim.
fn bound_volume(store: &Store, namespace: &str, claim: &str) -> Option<Arc<Value>> {
    let claim = store.get(KindId::PERSISTENT_VOLUME_CLAIM, namespace, claim)?;
    let volume = store.get(KindId::PERSISTENT_VOLUME, "", text(&claim["spec"]["volumeName"]))?;
    (claim["status"]["phase"] == "Bound" && volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"])
        .then(|| volume.clone())
}

/// The class of a claim or of a volume, empty if it has none. The annotation came before the field and wins.
pub(crate) fn class_name(object: &Value) -> &str {
    let old = &object["metadata"]["annotations"][BETA_CLASS];
    old.as_str().unwrap_or_else(|| text(&object["spec"]["storageClassName"]))
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    text(&object["metadata"]["annotations"][name])
}
