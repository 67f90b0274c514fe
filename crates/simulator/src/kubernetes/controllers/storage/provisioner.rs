//! The provisioner of a CSI driver: creates a volume for a claim, and deletes volumes that are no longer claimed.
//!
//! It serves the classes whose provisioner has a CSIDriver object. A claim that waits for its first consumer gets its
//! volume when a scheduler has selected a node, and is given back to the scheduler if that node is gone or not among the
//! class's topologies.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::kubelet::draw_ms;
use super::super::{Step, Tools};
use super::binder::reference_to;
use super::{BIND_COMPLETED, PROVISIONED_BY, SELECTED_NODE, Storage, StorageStep, annotation, class_name};
use crate::kubernetes::defaults;
use crate::kubernetes::deletion::{self, DeleteOptions};
use crate::kubernetes::json::{items, put, take, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::store::{ObjectKey, Store};

/// A class with this annotation gets its volumes after this many seconds.
pub const PROVISION_SECONDS_ANNOTATION: &str = "sandbox.bridger.dev/provision-seconds";
/// Both names of the annotation by which a claim is handed to a provisioner.
const PROVISIONER: [&str; 2] =
    ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"];

impl Storage {
    pub(super) fn start_provisioning(&mut self, tools: &mut Tools<'_>, key: &ObjectKey, claim: &Value, class: &Value) {
        let provisioner = text(&class["provisioner"]);
        if provisioner.is_empty() || provisioner == "kubernetes.io/no-provisioner" {
            let message = "no persistent volumes available for this claim and its class has no provisioner";
            return tools.event(claim, "persistentvolume-controller", "FailedBinding", message);
        }
        if PROVISIONER.iter().any(|name| annotation(claim, name) != provisioner) {
            let _ = tools.store.edit(KindId::PERSISTENT_VOLUME_CLAIM, &key.namespace, &key.name, |claim| {
                for name in PROVISIONER {
                    put(claim, &["metadata", "annotations", name], json!(provisioner));
                }
            });
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by \
                 the system administrator. If volume creation is delayed, please verify that the provisioner is \
                 running and correctly registered."
            );
            tools.event(claim, "persistentvolume-controller", "ExternalProvisioning", &message);
        }
        if !is_served(tools.store, class) || !self.provisioning.insert(pod::uid(claim).to_owned()) {
            return;
        }
        let message =
            format!("External provisioner is provisioning volume for claim \"{}/{}\"", key.namespace, key.name);
        tools.event(claim, provisioner, "Provisioning", &message);
        let wait = match annotation(class, PROVISION_SECONDS_ANNOTATION).parse::<u32>() {
            Ok(seconds) => Duration::from_secs(seconds.into()),
            Err(_) => draw_ms(&mut self.random, &tools.config.provision_ms),
        };
        let step = StorageStep::Provision { claim: key.clone(), uid: pod::uid(claim).to_owned() };
        tools.timeline.schedule(tools.now.after(wait), Step::Storage(step));
    }

    pub(super) fn provision(&mut self, tools: &mut Tools<'_>, key: &ObjectKey, uid: &str) {
        self.provisioning.remove(uid);
        let Some(claim) = tools.store.get(KindId::PERSISTENT_VOLUME_CLAIM, &key.namespace, &key.name).cloned() else {
            return;
        };
        let Some(class) = tools.store.get(KindId::STORAGE_CLASS, "", class_name(&claim)).cloned() else { return };
        let is_open = pod::uid(&claim) == uid
            && !pod::is_terminating(&claim)
            && annotation(&claim, BIND_COMPLETED).is_empty()
            && text(&claim["spec"]["volumeName"]).is_empty()
            && tools.index.volumes_of_claim(key).next().is_none();
        if !is_open || !is_served(tools.store, &class) {
            return;
        }
        let waits = class["volumeBindingMode"] == "WaitForFirstConsumer";
        let selected = annotation(&claim, SELECTED_NODE);
        let topology = match (waits, selected) {
            // The scheduler has taken its choice back.
            (true, "") => return,
            (true, node) => match tools.store.get(KindId::NODE, "", node) {
                None => Err(format!("error getting node \"{node}\" of the claim: nodes \"{node}\" not found")),
                Some(object) => topology_of(&class, Some(&object["metadata"]["labels"]))
                    .ok_or_else(|| format!("node \"{node}\" is in none of the allowed topologies")),
            },
            (false, _) => Ok(topology_of(&class, None).unwrap_or_default()),
        };
        let provisioner = text(&class["provisioner"]).to_owned();
        match topology {
            Ok(topology) => self.create(tools, &claim, &class, &topology),
            Err(why) => {
                let message = format!("failed to provision volume with StorageClass \"{}\": {why}", class_name(&claim));
                tools.warning(&claim, &provisioner, "ProvisioningFailed", &message);
                // Without the annotation the scheduler chooses again.
                let _ = tools.store.edit(KindId::PERSISTENT_VOLUME_CLAIM, &key.namespace, &key.name, |claim| {
                    take(claim, &["metadata", "annotations"], SELECTED_NODE);
                });
            }
        }
    }

    /// `topology`: the expressions of the node affinity; none if every node can use the volume.
    fn create(&mut self, tools: &mut Tools<'_>, claim: &Value, class: &Value, topology: &[Value]) {
        let (provisioner, spec) = (text(&class["provisioner"]), &claim["spec"]);
        let name = format!("pvc-{}", pod::uid(claim));
        let mut volume = json!({
            "metadata": { "name": name, "annotations": { PROVISIONED_BY: provisioner } },
            "spec": {
                "accessModes": spec["accessModes"],
                "capacity": { "storage": spec["resources"]["requests"]["storage"] },
                "claimRef": reference_to(claim),
                "csi": { "driver": provisioner, "volumeHandle": self.random.uuid().to_string(), "fsType": "ext4",
                    "volumeAttributes": { "type": "vSphere CNS Block Volume" } },
                "persistentVolumeReclaimPolicy": class["reclaimPolicy"].as_str().unwrap_or("Delete"),
                "storageClassName": class_name(claim),
                "volumeMode": spec["volumeMode"].as_str().unwrap_or("Filesystem"),
            },
        });
        if let Some(options) = class.get("mountOptions") {
            put(&mut volume, &["spec", "mountOptions"], options.clone());
        }
        if !topology.is_empty() {
            let terms = json!([{ "matchExpressions": topology }]);
            put(&mut volume, &["spec", "nodeAffinity", "required", "nodeSelectorTerms"], terms);
        }
        defaults::apply(KindId::PERSISTENT_VOLUME, &mut volume, tools.store);
        if tools.store.create(KindId::PERSISTENT_VOLUME, volume, tools.now).is_ok() {
            let message = format!("Successfully provisioned volume {name}");
            tools.event(claim, provisioner, "ProvisioningSucceeded", &message);
        }
    }

    pub(super) fn start_deleting(&mut self, tools: &mut Tools<'_>, volume: &Value) {
        let driver = text(&volume["spec"]["csi"]["driver"]);
        let is_served = tools.store.get(KindId::CSI_DRIVER, "", driver).is_some();
        if !is_served || !self.deleting.insert(pod::uid(volume).to_owned()) {
            return;
        }
        let wait = draw_ms(&mut self.random, &tools.config.provision_ms);
        let step = StorageStep::Delete {
            volume: text(&volume["metadata"]["name"]).to_owned(),
            uid: pod::uid(volume).to_owned(),
        };
        tools.timeline.schedule(tools.now.after(wait), Step::Storage(step));
    }

    pub(super) fn delete(&mut self, tools: &mut Tools<'_>, volume: &str, uid: &str) {
        self.deleting.remove(uid);
        let still_released = tools
            .store
            .get(KindId::PERSISTENT_VOLUME, "", volume)
            .is_some_and(|volume| pod::uid(volume) == uid && volume["status"]["phase"] == "Released");
        let is_attached = tools.index.attachments_of_volume(volume).next().is_some();
        if still_released && !is_attached {
            let options = DeleteOptions::default();
            let _ = deletion::delete(tools.store, KindId::PERSISTENT_VOLUME, "", volume, &options, tools.now);
        }
    }
}

fn is_served(store: &Store, class: &Value) -> bool {
    store.get(KindId::CSI_DRIVER, "", text(&class["provisioner"])).is_some()
}

/// The node affinity of a volume for a node with these labels, or for any node, from the class's topologies; `None` if
/// the class has topologies and the node is in none of them.
fn topology_of(class: &Value, labels: Option<&Value>) -> Option<Vec<Value>> {
    let terms = items(&class["allowedTopologies"]);
    if terms.is_empty() {
        return Some(Vec::new());
    }
    terms.iter().find_map(|term| {
        let wanted = items(&term["matchLabelExpressions"]);
        let expressions: Option<Vec<Value>> = wanted
            .iter()
            .map(|wanted| {
                let values = match labels {
                    None => wanted["values"].clone(),
                    Some(labels) => {
                        let label = &labels[text(&wanted["key"])];
                        json!([items(&wanted["values"]).iter().find(|value| *value == label)?])
                    }
                };
                Some(json!({ "key": wanted["key"], "operator": "In", "values": values }))
            })
            .collect();
        expressions.filter(|expressions| !expressions.is_empty())
    })
}
