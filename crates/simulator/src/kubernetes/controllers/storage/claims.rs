//! Claims that controllers create for pods, and the protection of claims and volumes in use.

use serde_json::{Value, json};

use super::super::Tools;
use super::super::namespace;
use super::super::pod_template::controller_reference;
use crate::kubernetes::defaults::{self, CLAIM_PROTECTION};
use crate::kubernetes::deletion;
use crate::kubernetes::error::ApiError;
use crate::kubernetes::json::{array, items, put, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::store::ObjectKey;

/// Creates the claims of a pod's ephemeral volumes. The pod owns them.
pub(crate) fn reconcile_ephemeral(tools: &mut Tools<'_>, key: &ObjectKey) {
    let Some(owner) = tools.store.get(KindId::POD, &key.namespace, &key.name).cloned() else { return };
    if pod::is_terminating(&owner) {
        return;
    }
    for volume in items(&owner["spec"]["volumes"]) {
        let template = &volume["ephemeral"]["volumeClaimTemplate"];
        if !template.is_object() {
            continue;
        }
        let name = format!("{}-{}", key.name, text(&volume["name"]));
        match tools.store.get(KindId::PERSISTENT_VOLUME_CLAIM, &key.namespace, &name) {
            None => {
                let mut claim = claim_from(template, &key.namespace, &name);
                put(&mut claim, &["metadata", "ownerReferences"], json!([controller_reference(&owner)]));
                let _ = create(tools, claim);
            }
            Some(claim) if !pod::is_controlled_by(claim, pod::uid(&owner)) => {
                let message = format!(
                    "PVC {}/{name} was not created for pod {}/{} (pod is not owner)",
                    key.namespace, key.namespace, key.name
                );
                tools.warning(&owner, "ephemeral_volume", "FailedCreate", &message);
            }
            Some(_) => (),
        }
    }
}

/// A claim from a template, without an owner.
pub(crate) fn claim_from(template: &Value, namespace: &str, name: &str) -> Value {
    let mut claim = json!({ "metadata": { "name": name, "namespace": namespace }, "spec": template["spec"] });
    for field in ["labels", "annotations"] {
        if let Some(value) = template["metadata"].get(field).filter(|value| value.is_object()) {
            put(&mut claim, &["metadata", field], value.clone());
        }
    }
    if !claim["spec"].is_object() {
        put(&mut claim, &["spec"], json!({}));
    }
    claim
}

/// Creates a claim as the API would for a controller.
pub(crate) fn create(tools: &mut Tools<'_>, mut claim: Value) -> Result<(), ApiError> {
    let in_namespace = text(&claim["metadata"]["namespace"]).to_owned();
    if namespace::is_terminating(tools.store, &in_namespace) {
        return Err(ApiError::BadRequest(format!("namespace {in_namespace} is being terminated")));
    }
    defaults::apply(KindId::PERSISTENT_VOLUME_CLAIM, &mut claim, tools.store);
    tools.store.create(KindId::PERSISTENT_VOLUME_CLAIM, claim, tools.now).map(|_| ())
}

/// A terminating claim is removed when no pod on a node uses it.
pub(super) fn release_unused(tools: &mut Tools<'_>, key: &ObjectKey) {
    let is_used = tools
        .index
        .pods_of_claim(key)
        .filter_map(|pod| tools.store.get(KindId::POD, &pod.namespace, &pod.name))
        .any(|pod| !pod::node_name(pod).is_empty() && !pod::is_finished(pod));
    if !is_used {
        release(tools, KindId::PERSISTENT_VOLUME_CLAIM, key, CLAIM_PROTECTION);
    }
}

/// Takes a finalizer off an object, and removes the object if it was the last one.
pub(super) fn release(tools: &mut Tools<'_>, kind: KindId, key: &ObjectKey, finalizer: &str) {
    let _ = tools.store.edit(kind, &key.namespace, &key.name, |object| {
        array(object, &["metadata", "finalizers"]).retain(|known| known != finalizer);
    });
    deletion::finish_if_ready(tools.store, kind, &key.namespace, &key.name);
}
