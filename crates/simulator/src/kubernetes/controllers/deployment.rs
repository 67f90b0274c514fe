//! The Deployment controller: one ReplicaSet per template, rolled from one to the next.
//!
//! In: a Deployment and the ReplicaSets it controls. Out: ReplicaSets created, scaled and pruned; its status (in
//! [`super::deployment_status`]).
//!
//! Invariant: a rolling update has at most `maxUnavailable` pods unavailable and creates at most `maxSurge` pods beyond
//! `replicas`. Each reconcile takes one step, and the resulting changes trigger the next.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Tools;
use super::deployment_scale::{self, Fenceposts};
use super::deployment_status;
use super::pod_template::{controller_reference, template_hash};
use crate::kubernetes::deletion::{self, DeleteOptions};
use crate::kubernetes::json::{bounded, count, put, take, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::store::ObjectKey;

pub(super) const COMPONENT: &str = "deployment-controller";
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
const HASH_LABEL: &str = "pod-template-hash";

/// A ReplicaSet with the numbers that a Deployment reads from it.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub object: Arc<Value>,
}

impl Set {
    pub(super) fn name(&self) -> &str {
        text(&self.object["metadata"]["name"])
    }

    pub(super) fn replicas(&self) -> i64 {
        count(&self.object["spec"]["replicas"], 1)
    }

    pub(super) fn status(&self, field: &str) -> i64 {
        count(&self.object["status"][field], 0)
    }

    pub(super) fn annotation(&self, name: &str) -> Option<i64> {
        text(&self.object["metadata"]["annotations"][name]).parse().ok().map(bounded)
    }

    /// Sort key: oldest first, then by name.
    pub(super) fn age(&self) -> (String, String) {
        (text(&self.object["metadata"]["creationTimestamp"]).to_owned(), self.name().to_owned())
    }
}

pub(super) fn total(sets: &[Set]) -> i64 {
    sets.iter().map(Set::replicas).sum()
}

/// A Deployment with its ReplicaSets.
pub(super) struct Rollout {
    pub deployment: Arc<Value>,
    pub key: ObjectKey,
    pub wanted: i64,
    pub fenceposts: Fenceposts,
    /// The ReplicaSet of the current template.
    pub new: Option<Set>,
    /// All others, oldest first.
    pub old: Vec<Set>,
}

impl Rollout {
    pub(super) fn all(&self) -> Vec<Set> {
        self.old.iter().chain(&self.new).cloned().collect()
    }

    /// Scales one of the ReplicaSets and stores the updated object.
    pub(super) fn scale(&mut self, tools: &mut Tools<'_>, name: &str, replicas: i64, even_if_same: bool) -> bool {
        let Some(set) = self.old.iter_mut().chain(&mut self.new).find(|set| set.name() == name) else { return false };
        let before = set.replicas();
        if before == replicas && !even_if_same {
            return false;
        }
        let (wanted, maximum) = (self.wanted, self.wanted + self.fenceposts.surge);
        let scaled = tools.store.edit(KindId::REPLICA_SET, &self.key.namespace, name, |set| {
            put(set, &["spec", "replicas"], json!(replicas));
            put(set, &["metadata", "annotations", DESIRED], json!(wanted.to_string()));
            put(set, &["metadata", "annotations", MAXIMUM], json!(maximum.to_string()));
        });
        let Ok(object) = scaled else { return false };
        set.object = object;
        if before == replicas {
            return false;
        }
        let direction = if before < replicas { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {name} from {before} to {replicas}");
        tools.event(&self.deployment, COMPONENT, "ScalingReplicaSet", &message);
        true
    }
}

pub(crate) fn reconcile(tools: &mut Tools<'_>, key: &ObjectKey) {
    let Some(deployment) = tools.store.get(KindId::DEPLOYMENT, &key.namespace, &key.name).cloned() else { return };
    let mut rollout = gather(tools, deployment, key);
    if pod::is_terminating(&rollout.deployment) {
        return deployment_status::write(tools, &rollout, false);
    }
    sync_revision(tools, &mut rollout);
    let paused = rollout.deployment["spec"]["paused"] == true;
    if paused || deployment_scale::was_scaled(&rollout) {
        deployment_scale::scale(tools, &mut rollout);
        if paused {
            prune(tools, &rollout);
        }
        return deployment_status::write(tools, &rollout, false);
    }
    if rollout.deployment["spec"]["strategy"]["type"] == "Recreate" {
        recreate(tools, &mut rollout);
    } else {
        roll(tools, &mut rollout);
    }
    deployment_status::write(tools, &rollout, true);
}

fn gather(tools: &Tools<'_>, deployment: Arc<Value>, key: &ObjectKey) -> Rollout {
    let mut sets: Vec<Set> =
        tools.controlled(&deployment, KindId::REPLICA_SET).into_iter().map(|object| Set { object }).collect();
    sets.sort_by_cached_key(Set::age);
    // The label is set and removed again, so that a template without labels also compares equal.
    let mut template = deployment["spec"]["template"].clone();
    put(&mut template, &["metadata", "labels", HASH_LABEL], json!(""));
    take(&mut template, &["metadata", "labels"], HASH_LABEL);
    let new = sets.iter().position(|set| {
        let mut known = set.object["spec"]["template"].clone();
        take(&mut known, &["metadata", "labels"], HASH_LABEL);
        known == template
    });
    let new = new.map(|at| sets.remove(at));
    let wanted = count(&deployment["spec"]["replicas"], 1).max(0);
    let fenceposts = Fenceposts::of(&deployment, wanted);
    Rollout { deployment, key: key.clone(), wanted, fenceposts, new, old: sets }
}

/// The newest template has the highest revision, on its ReplicaSet and on the Deployment.
fn sync_revision(tools: &mut Tools<'_>, rollout: &mut Rollout) {
    let next = next_revision(&rollout.old);
    let Some(new) = &mut rollout.new else { return };
    let revision = new.annotation(REVISION).unwrap_or(0).max(next);
    let edited = tools.store.edit(KindId::REPLICA_SET, &rollout.key.namespace, new.name(), |set| {
        put(set, &["metadata", "annotations", REVISION], json!(revision.to_string()));
    });
    if let Ok(object) = edited {
        new.object = object;
    }
    note_revision(tools, rollout, revision);
}

fn next_revision(old: &[Set]) -> i64 {
    old.iter().filter_map(|set| set.annotation(REVISION)).max().unwrap_or(0) + 1
}

fn note_revision(tools: &mut Tools<'_>, rollout: &mut Rollout, revision: i64) {
    let key = &rollout.key;
    let edited = tools.store.edit(KindId::DEPLOYMENT, &key.namespace, &key.name, |deployment| {
        put(deployment, &["metadata", "annotations", REVISION], json!(revision.to_string()));
    });
    if let Ok(object) = edited {
        rollout.deployment = object;
    }
}

/// Creates the ReplicaSet of the current template if it is missing.
fn ensure_new(tools: &mut Tools<'_>, rollout: &mut Rollout) {
    if rollout.new.is_some() {
        return;
    }
    let replicas = deployment_scale::new_set_replicas(rollout);
    let revision = next_revision(&rollout.old);
    let mut collisions = rollout.deployment["status"]["collisionCount"].as_u64().unwrap_or(0);
    // An unrelated ReplicaSet can have the name; the collision count changes the hash.
    for _ in 0..5 {
        let hash = template_hash(&rollout.deployment["spec"]["template"], collisions);
        let set = new_set(rollout, &hash, replicas, revision);
        match tools.store.create(KindId::REPLICA_SET, set, tools.now) {
            Ok(object) => {
                let name = text(&object["metadata"]["name"]).to_owned();
                rollout.new = Some(Set { object });
                if replicas > 0 {
                    let message = format!("Scaled up replica set {name} from 0 to {replicas}");
                    tools.event(&rollout.deployment, COMPONENT, "ScalingReplicaSet", &message);
                }
                note_revision(tools, rollout, revision);
                deployment_status::note_created(tools, rollout, &name);
                return;
            }
            Err(_) => {
                collisions += 1;
                let key = &rollout.key;
                let _ = tools.store.edit(KindId::DEPLOYMENT, &key.namespace, &key.name, |deployment| {
                    put(deployment, &["status", "collisionCount"], json!(collisions));
                });
            }
        }
    }
}

fn new_set(rollout: &Rollout, hash: &str, replicas: i64, revision: i64) -> Value {
    let deployment = &rollout.deployment;
    let mut template = deployment["spec"]["template"].clone();
    put(&mut template, &["metadata", "labels", HASH_LABEL], json!(hash));
    let mut selector = deployment["spec"]["selector"].clone();
    put(&mut selector, &["matchLabels", HASH_LABEL], json!(hash));
    let mut annotations = json!({});
    for (name, value) in deployment["metadata"]["annotations"].as_object().into_iter().flatten() {
        if name != "kubectl.kubernetes.io/last-applied-configuration" {
            put(&mut annotations, &[name], value.clone());
        }
    }
    put(&mut annotations, &[REVISION], json!(revision.to_string()));
    put(&mut annotations, &[DESIRED], json!(rollout.wanted.to_string()));
    put(&mut annotations, &[MAXIMUM], json!((rollout.wanted + rollout.fenceposts.surge).to_string()));
    let mut spec = json!({ "replicas": replicas, "selector": selector, "template": template });
    if let Some(seconds) = deployment["spec"].get("minReadySeconds") {
        put(&mut spec, &["minReadySeconds"], seconds.clone());
    }
    json!({
        "metadata": {
            "name": format!("{}-{hash}", rollout.key.name), "namespace": rollout.key.namespace,
            "labels": spec["template"]["metadata"]["labels"], "annotations": annotations,
            "ownerReferences": [controller_reference(deployment)],
        },
        "spec": spec, "status": { "replicas": 0 },
    })
}

/// Recreate: all old pods terminate before the new ones are created.
fn recreate(tools: &mut Tools<'_>, rollout: &mut Rollout) {
    let mut scaled = false;
    for name in active_names(&rollout.old) {
        scaled |= rollout.scale(tools, &name, 0, false);
    }
    if scaled {
        return;
    }
    let old_pods_left = rollout
        .old
        .iter()
        .flat_map(|set| tools.controlled(&set.object, KindId::POD))
        .any(|object| !pod::is_finished(&object));
    if old_pods_left {
        return;
    }
    ensure_new(tools, rollout);
    if let Some(name) = rollout.new.as_ref().map(|set| set.name().to_owned()) {
        let wanted = rollout.wanted;
        rollout.scale(tools, &name, wanted, false);
    }
    if deployment_status::is_complete(rollout) {
        prune(tools, rollout);
    }
}

/// RollingUpdate: scales up if the surge allows it, otherwise down if availability allows it.
fn roll(tools: &mut Tools<'_>, rollout: &mut Rollout) {
    ensure_new(tools, rollout);
    let Some(new) = rollout.new.clone() else { return };
    if new.replicas() != rollout.wanted {
        let replicas =
            if new.replicas() > rollout.wanted { rollout.wanted } else { deployment_scale::new_set_replicas(rollout) };
        if rollout.scale(tools, new.name(), replicas, false) {
            return;
        }
    }
    if scale_down_old(tools, rollout, &new) {
        return;
    }
    if deployment_status::is_complete(rollout) {
        prune(tools, rollout);
    }
}

fn scale_down_old(tools: &mut Tools<'_>, rollout: &mut Rollout, new: &Set) -> bool {
    if total(&rollout.old) == 0 {
        return false;
    }
    let min_available = rollout.wanted - rollout.fenceposts.unavailable;
    let new_unavailable = new.replicas() - new.status("availableReplicas");
    let most = total(&rollout.all()) - min_available - new_unavailable;
    if most <= 0 {
        return false;
    }
    // First the unavailable pods, which costs no availability.
    let mut scaled_down = 0;
    for set in rollout.old.clone() {
        let unhealthy = set.replicas() - set.status("availableReplicas");
        let count = unhealthy.min(most - scaled_down);
        if count > 0 && rollout.scale(tools, set.name(), set.replicas() - count, false) {
            scaled_down += count;
        }
    }
    // Then the available pods beyond the minimum.
    let available: i64 = rollout.all().iter().map(|set| set.status("availableReplicas")).sum();
    let mut spare = available - min_available;
    for set in rollout.old.clone() {
        let count = set.replicas().min(spare);
        if count > 0 && rollout.scale(tools, set.name(), set.replicas() - count, false) {
            scaled_down += count;
            spare -= count;
        }
    }
    scaled_down > 0
}

/// Keeps only as many old ReplicaSets as `revisionHistoryLimit` allows.
fn prune(tools: &mut Tools<'_>, rollout: &Rollout) {
    let limit = rollout.deployment["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10);
    let mut old = rollout.old.clone();
    old.retain(|set| !pod::is_terminating(&set.object));
    old.sort_by_key(|set| (set.annotation(REVISION).unwrap_or(0), set.age()));
    let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    for set in old.iter().take(excess) {
        let observed = set.status("observedGeneration") >= set.object["metadata"]["generation"].as_i64().unwrap_or(0);
        if set.replicas() == 0 && set.status("replicas") == 0 && observed {
            let _ = deletion::delete(
                tools.store,
                KindId::REPLICA_SET,
                &rollout.key.namespace,
                set.name(),
                &DeleteOptions::default(),
                tools.now,
            );
        }
    }
}

fn active_names(sets: &[Set]) -> Vec<String> {
    sets.iter().filter(|set| set.replicas() > 0).map(|set| set.name().to_owned()).collect()
}
