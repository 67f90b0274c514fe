//! What a pod's claims mean for its placement.
//!
//! In: the store and the pod. Out: why the pod cannot be placed yet, which nodes its volumes allow, and the claims whose
//! volume is created once a node is selected. The placer selects a node for them and binds the pod when they are bound.
//! It does not choose among existing volumes: that part of kube-scheduler needs kube-scheduler.

use serde_json::Value;

use super::node_affinity::{Labels, NodeAffinity};
use crate::kubernetes::controllers::storage_class_name;
use crate::kubernetes::json::{items, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::store::{ObjectKey, Store};

pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

#[derive(Debug, Default)]
pub(crate) struct Volumes {
    /// Why no node is considered.
    pub blocked: Option<String>,
    /// Claims without a volume, which wait for their first pod.
    pub unbound: Vec<ObjectKey>,
    /// The node that was selected for one of them.
    selected: Option<String>,
    affinities: Vec<NodeAffinity>,
    /// The allowed topologies of the classes of unbound claims.
    topologies: Vec<Value>,
}

impl Volumes {
    pub(crate) fn of(store: &Store, pod: &Value) -> Volumes {
        let mut volumes = Volumes::default();
        let namespace = text(&pod["metadata"]["namespace"]);
        for name in pod::claim_names(pod) {
            if let Err(why) = volumes.add(store, ObjectKey::new(namespace, &name)) {
                volumes.blocked = Some(why);
                break;
            }
        }
        volumes
    }

    fn add(&mut self, store: &Store, key: ObjectKey) -> Result<(), String> {
        let name = &key.name;
        let Some(claim) = store.get(KindId::PERSISTENT_VOLUME_CLAIM, &key.namespace, name) else {
            return Err(format!("persistentvolumeclaim \"{name}\" not found"));
        };
        if pod::is_terminating(claim) {
            return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        let (volume, annotations) = (text(&claim["spec"]["volumeName"]), &claim["metadata"]["annotations"]);
        if claim["status"]["phase"] == "Lost" {
            return Err(format!(
                "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
            ));
        }
        if !volume.is_empty() && annotations[BIND_COMPLETED].is_string() {
            let Some(volume) = store.get(KindId::PERSISTENT_VOLUME, "", volume) else {
                return Err("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)".to_owned());
            };
            self.affinities.extend(NodeAffinity::of_volume(volume));
            return Ok(());
        }
        let class = store.get(KindId::STORAGE_CLASS, "", storage_class_name(claim));
        match class.filter(|class| class["volumeBindingMode"] == "WaitForFirstConsumer" && volume.is_empty()) {
            None => Err("pod has unbound immediate PersistentVolumeClaims".to_owned()),
            Some(class) if class["provisioner"] == "kubernetes.io/no-provisioner" => {
                Err("node(s) didn't find available persistent volumes to bind".to_owned())
            }
            Some(class) => {
                if let Some(node) = annotations[SELECTED_NODE].as_str().filter(|node| !node.is_empty()) {
                    self.selected = Some(node.to_owned());
                }
                if !items(&class["allowedTopologies"]).is_empty() {
                    self.topologies.push(class["allowedTopologies"].clone());
                }
                self.unbound.push(key);
                Ok(())
            }
        }
    }

    pub(crate) fn objection(&self, node: &str, labels: &Labels) -> Option<&'static str> {
        if !self.affinities.iter().all(|affinity| affinity.allows(node, labels)) {
            return Some("node(s) didn't match PersistentVolume's node affinity");
        }
        let is_selected = self.selected.as_ref().is_none_or(|selected| selected == node);
        let is_among = |topologies: &Value| {
            items(topologies).iter().any(|term| {
                let wanted = items(&term["matchLabelExpressions"]);
                !wanted.is_empty()
                    && wanted.iter().all(|wanted| {
                        let label = labels.get(text(&wanted["key"]));
                        label.is_some_and(|label| items(&wanted["values"]).iter().any(|value| value == label))
                    })
            })
        };
        if !is_selected || !self.topologies.iter().all(is_among) {
            return Some("node(s) didn't find available persistent volumes to bind");
        }
        None
    }
}
