//! The StatefulSet controller: pods with stable names, in order.
//!
//! In: a StatefulSet and the pods it controls. Out: pods `<set>-<ordinal>` created and deleted, and its status.
//!
//! A template is identified by its revision, a name with a hash. A real cluster stores past templates in
//! ControllerRevision objects; here [`Revisions`] stores the two that matter, the current revision and the update
//! revision. A claim is created before its pod and stays when the pod goes.
//!
//! Invariants: with OrderedReady, a pod is created only when all before it are ready, and one is removed at a time,
//! from the highest ordinal; an update goes from the highest ordinal down to the partition, one pod at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Tools;
use super::pod_template::{create_pod, pod_from, template_hash};
use super::queue::Target;
use super::storage::claims;
use crate::clock::SimTime;
use crate::kubernetes::deletion::{self, DeleteOptions};
use crate::kubernetes::json::{array, count, items, put, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::label_selector::selects;
use crate::kubernetes::pod;
use crate::kubernetes::store::ObjectKey;

const COMPONENT: &str = "statefulset-controller";
const REVISION_LABEL: &str = "controller-revision-hash";
/// The maximum replicas of one set. It bounds the work of one reconcile.
const REPLICAS_MAX: i64 = 10_000;
/// How often a set whose claim is being deleted checks whether it is gone.
const CLAIM_GONE_CHECK: Duration = Duration::from_secs(5);

/// Templates by the set's uid and the revision's name.
#[derive(Debug, Default)]
pub(crate) struct Revisions {
    templates: BTreeMap<String, BTreeMap<String, Value>>,
}

impl Revisions {
    pub(crate) fn forget(&mut self, set_uid: &str) {
        self.templates.remove(set_uid);
    }

    /// Stores the template of `update` and returns the current revision. Drops revisions that are no longer needed.
    fn note(&mut self, set: &Value, update: &str) -> String {
        let known = self.templates.entry(pod::uid(set).to_owned()).or_default();
        known.insert(update.to_owned(), set["spec"]["template"].clone());
        let current = text(&set["status"]["currentRevision"]);
        let current = if known.contains_key(current) { current.to_owned() } else { update.to_owned() };
        known.retain(|revision, _| *revision == current || revision == update);
        current
    }

    fn template(&self, set: &Value, revision: &str) -> Value {
        self.templates
            .get(pod::uid(set))
            .and_then(|known| known.get(revision))
            .unwrap_or(&set["spec"]["template"])
            .clone()
    }
}

/// A set and the data for one reconcile.
struct Look {
    set: Arc<Value>,
    key: ObjectKey,
    now: SimTime,
    start: i64,
    wanted: i64,
    ordered: bool,
    min_ready_seconds: u64,
    current: String,
    update: String,
    /// Pods by ordinal.
    pods: BTreeMap<i64, Arc<Value>>,
}

impl Look {
    fn in_range(&self, ordinal: i64) -> bool {
        (self.start..self.start + self.wanted).contains(&ordinal)
    }

    fn is_available(&self, object: &Value) -> bool {
        !pod::is_terminating(object)
            && pod::is_running(object)
            && pod::available_from(object, self.min_ready_seconds).is_some_and(|from| from <= self.now)
    }
}

pub(crate) fn reconcile(tools: &mut Tools<'_>, revisions: &mut Revisions, key: &ObjectKey) {
    let Some(set) = tools.store.get(KindId::STATEFUL_SET, &key.namespace, &key.name).cloned() else { return };
    let hash = template_hash(&set["spec"]["template"], set["status"]["collisionCount"].as_u64().unwrap_or(0));
    let update = format!("{}-{hash}", key.name);
    let current = revisions.note(&set, &update);
    let pods = tools
        .controlled(&set, KindId::POD)
        .into_iter()
        .filter_map(|object| Some((ordinal(&key.name, text(&object["metadata"]["name"]))?, object)))
        .collect();
    let look = Look {
        key: key.clone(),
        now: tools.now,
        start: count(&set["spec"]["ordinals"]["start"], 0).max(0),
        wanted: count(&set["spec"]["replicas"], 1).clamp(0, REPLICAS_MAX),
        ordered: set["spec"]["podManagementPolicy"] != "Parallel",
        min_ready_seconds: set["spec"]["minReadySeconds"].as_u64().unwrap_or(0),
        current,
        update,
        pods,
        set,
    };
    if !pod::is_terminating(&look.set) {
        act(tools, revisions, &look);
    }
    write_status(tools, &look);
}

fn ordinal(set: &str, pod: &str) -> Option<i64> {
    pod.strip_prefix(set)?.strip_prefix('-')?.parse().ok().filter(|ordinal| *ordinal >= 0)
}

/// Takes the next steps; with OrderedReady at most one.
fn act(tools: &mut Tools<'_>, revisions: &Revisions, look: &Look) {
    for ordinal in look.start..look.start + look.wanted {
        match look.pods.get(&ordinal) {
            None => {
                if !create(tools, revisions, look, ordinal) || look.ordered {
                    return;
                }
            }
            Some(object) if pod::is_finished(object) => {
                delete(tools, look, object);
                if look.ordered {
                    return;
                }
            }
            Some(object) => {
                if look.ordered && !look.is_available(object) {
                    return;
                }
            }
        }
    }
    let first_unavailable = look.pods.values().find(|object| !look.is_available(object)).map(|object| pod::uid(object));
    for (_, object) in look.pods.iter().rev().filter(|(ordinal, _)| !look.in_range(**ordinal)) {
        if look.ordered {
            let first = first_unavailable == Some(pod::uid(object));
            if !pod::is_terminating(object) && (look.is_available(object) || first) {
                delete(tools, look, object);
            }
            return;
        }
        delete(tools, look, object);
    }
    update(tools, look);
}

/// Replaces the highest pod that has an old revision, unless a replacement is already in progress.
fn update(tools: &mut Tools<'_>, look: &Look) {
    if look.set["spec"]["updateStrategy"]["type"] == "OnDelete" {
        return;
    }
    let partition = count(&look.set["spec"]["updateStrategy"]["rollingUpdate"]["partition"], 0).max(0);
    for ordinal in (look.start + partition..look.start + look.wanted).rev() {
        let Some(object) = look.pods.get(&ordinal) else { return };
        if revision(object) != look.update && !pod::is_terminating(object) {
            return delete(tools, look, object);
        }
        if !look.is_available(object) {
            return;
        }
    }
}

fn revision(object: &Value) -> &str {
    text(&object["metadata"]["labels"][REVISION_LABEL])
}

fn create(tools: &mut Tools<'_>, revisions: &Revisions, look: &Look, ordinal: i64) -> bool {
    let strategy = &look.set["spec"]["updateStrategy"];
    let keeps_current = match count(&strategy["rollingUpdate"]["partition"], 0) {
        _ if strategy["type"] == "OnDelete" => false,
        // Without a partition, the pods with the lowest ordinals are the ones not yet updated.
        ..=0 => ordinal < look.start + count(&look.set["status"]["currentReplicas"], 0),
        partition => ordinal < look.start + partition,
    };
    let revision = if keeps_current { &look.current } else { &look.update };
    let name = format!("{}-{ordinal}", look.key.name);
    let mut pod = pod_from(&revisions.template(&look.set, revision), &look.set);
    put(&mut pod, &["metadata", "name"], json!(name));
    put(&mut pod, &["metadata", "labels", REVISION_LABEL], json!(revision));
    put(&mut pod, &["metadata", "labels", "statefulset.kubernetes.io/pod-name"], json!(name));
    put(&mut pod, &["metadata", "labels", "apps.kubernetes.io/pod-index"], json!(ordinal.to_string()));
    put(&mut pod, &["spec", "hostname"], json!(name));
    if let Some(service) = look.set["spec"]["serviceName"].as_str() {
        put(&mut pod, &["spec", "subdomain"], json!(service));
    }
    if !selects(&look.set["spec"]["selector"], &pod["metadata"]["labels"])
        || !create_claims(tools, look, &name, &mut pod)
        || create_pod(tools, pod).is_err()
    {
        return false;
    }
    let message = format!("create Pod {name} in StatefulSet {} successful", look.key.name);
    tools.event(&look.set, COMPONENT, "SuccessfulCreate", &message);
    true
}

/// Creates the claims `<template>-<pod>` that do not exist, and has the pod use them. False if one is being deleted: the
/// pod has to wait.
fn create_claims(tools: &mut Tools<'_>, look: &Look, pod_name: &str, pod: &mut Value) -> bool {
    let namespace = &look.key.namespace;
    for template in items(&look.set["spec"]["volumeClaimTemplates"]) {
        let volume = text(&template["metadata"]["name"]);
        let name = format!("{volume}-{pod_name}");
        match tools.store.get(KindId::PERSISTENT_VOLUME_CLAIM, namespace, &name) {
            Some(claim) if pod::is_terminating(claim) => {
                tools.again_at(look.now.after(CLAIM_GONE_CHECK), Target::StatefulSet(look.key.clone()));
                return false;
            }
            Some(_) => (),
            None => {
                let mut claim = claims::claim_from(template, namespace, &name);
                for (key, value) in look.set["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten() {
                    put(&mut claim, &["metadata", "labels", key], value.clone());
                }
                if claims::create(tools, claim).is_err() {
                    return false;
                }
                let set = &look.key.name;
                let message = format!("create Claim {name} Pod {pod_name} in StatefulSet {set} success");
                tools.event(&look.set, COMPONENT, "SuccessfulCreate", &message);
            }
        }
        let volumes = array(pod, &["spec", "volumes"]);
        volumes.retain(|known| known["name"] != volume);
        volumes.push(json!({ "name": volume, "persistentVolumeClaim": { "claimName": name } }));
    }
    true
}

fn delete(tools: &mut Tools<'_>, look: &Look, object: &Value) {
    if pod::is_terminating(object) {
        return;
    }
    let name = text(&object["metadata"]["name"]);
    let options = DeleteOptions::default();
    if deletion::delete(tools.store, KindId::POD, &look.key.namespace, name, &options, tools.now).is_ok() {
        let message = format!("delete Pod {name} in StatefulSet {} successful", look.key.name);
        tools.event(&look.set, COMPONENT, "SuccessfulDelete", &message);
    }
}

fn write_status(tools: &mut Tools<'_>, look: &Look) {
    // The current pods, after the steps just taken.
    let mut pods: Vec<Arc<Value>> = Vec::new();
    let ordinals =
        (look.start..look.start + look.wanted).chain(look.pods.keys().copied().filter(|o| !look.in_range(*o)));
    for ordinal in ordinals {
        let name = format!("{}-{ordinal}", look.key.name);
        if let Some(object) = tools.store.get(KindId::POD, &look.key.namespace, &name)
            && pod::is_controlled_by(object, pod::uid(&look.set))
        {
            pods.push(object.clone());
        }
    }
    let count = |test: &dyn Fn(&Value) -> bool| pods.iter().filter(|object| test(object)).count();
    let of_revision = |wanted: &str| count(&|object| !pod::is_terminating(object) && revision(object) == wanted);
    let replicas = pods.len();
    let ready = count(&|object| pod::is_running(object) && pod::is_ready(object));
    let available = count(&|object| look.is_available(object));
    let (mut current, mut in_current) = (look.current.clone(), of_revision(&look.current));
    let updated = of_revision(&look.update);
    let whole =
        usize::try_from(look.wanted).is_ok_and(|wanted| updated == wanted && ready == wanted && replicas == wanted);
    if whole && look.set["spec"]["updateStrategy"]["type"] != "OnDelete" {
        current.clone_from(&look.update);
        in_current = updated;
    }
    let _ = tools.store.edit(KindId::STATEFUL_SET, &look.key.namespace, &look.key.name, |set| {
        let generation = set["metadata"]["generation"].clone();
        for (field, value) in [
            ("observedGeneration", generation),
            ("replicas", json!(replicas)),
            ("readyReplicas", json!(ready)),
            ("availableReplicas", json!(available)),
            ("currentReplicas", json!(in_current)),
            ("updatedReplicas", json!(updated)),
            ("currentRevision", json!(current)),
            ("updateRevision", json!(look.update)),
        ] {
            put(set, &["status", field], value);
        }
        if set["status"]["collisionCount"].is_null() {
            put(set, &["status", "collisionCount"], json!(0));
        }
    });
    let next = pods
        .iter()
        .filter_map(|object| pod::available_from(object, look.min_ready_seconds))
        .filter(|from| *from > look.now)
        .min();
    if let Some(moment) = next {
        tools.again_at(moment, Target::StatefulSet(look.key.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;

    fn stateful_set(replicas: u64, policy: &str, partition: u64) -> Value {
        json!({ "metadata": { "name": "db", "namespace": "default" }, "spec": {
            "replicas": replicas, "podManagementPolicy": policy, "serviceName": "db",
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": partition } },
            "selector": { "matchLabels": { "app": "db" } },
            "template": { "metadata": { "labels": { "app": "db" } },
                "spec": { "containers": [{ "name": "c", "image": "one" }] } } } })
    }

    fn names(bench: &Bench) -> Vec<String> {
        bench.pods().iter().map(|object| text(&object["metadata"]["name"]).to_owned()).collect()
    }

    fn images(bench: &Bench) -> Vec<String> {
        bench.pods().iter().map(|object| text(&object["spec"]["containers"][0]["image"]).to_owned()).collect()
    }

    fn roll_to(bench: &mut Bench, image: &str) {
        bench.edit(KindId::STATEFUL_SET, "db", |set| {
            set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        });
    }

    #[test]
    fn pods_start_in_order_and_stop_from_the_highest_ordinal() {
        let mut bench = Bench::with_nodes(2);
        bench.create(KindId::STATEFUL_SET, stateful_set(3, "OrderedReady", 0));
        bench.run_watching(30, |bench| {
            let pods = bench.pods();
            let not_ready = pods.iter().filter(|object| !pod::is_ready(object)).count();
            assert!(not_ready <= 1, "{not_ready} pods started at the same time");
        });
        assert_eq!(names(&bench), ["db-0", "db-1", "db-2"]);
        let status = bench.get(KindId::STATEFUL_SET, "db").unwrap()["status"].clone();
        assert_eq!((&status["readyReplicas"], &status["updatedReplicas"]), (&json!(3), &json!(3)));
        bench.edit(KindId::STATEFUL_SET, "db", |set| set["spec"]["replicas"] = json!(1));
        bench.run_watching(30, |bench| {
            let going = bench.pods().iter().filter(|object| pod::is_terminating(object)).count();
            assert!(going <= 1, "{going} pods stopped at the same time");
        });
        assert_eq!(names(&bench), ["db-0"]);
    }

    #[test]
    fn parallel_pods_start_at_the_same_time() {
        let mut bench = Bench::with_nodes(2);
        bench.create(KindId::STATEFUL_SET, stateful_set(3, "Parallel", 0));
        bench.run_for_seconds(0);
        assert_eq!(names(&bench), ["db-0", "db-1", "db-2"]);
    }

    #[test]
    fn an_update_goes_from_the_highest_ordinal_down_to_the_partition() {
        let mut bench = Bench::with_nodes(2);
        bench.create(KindId::STATEFUL_SET, stateful_set(3, "OrderedReady", 1));
        bench.run_for_seconds(30);
        roll_to(&mut bench, "two");
        bench.run_watching(60, |bench| {
            let up = bench.pods().iter().filter(|object| pod::is_ready(object) && pod::is_active(object)).count();
            assert!(up >= 2, "only {up} pods are up");
        });
        assert_eq!(images(&bench), ["one", "two", "two"]);
        // A pod below the partition keeps the old template.
        bench.delete(KindId::POD, "db-0");
        bench.run_for_seconds(20);
        assert_eq!(images(&bench), ["one", "two", "two"]);
        bench.edit(KindId::STATEFUL_SET, "db", |set| {
            set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(0);
        });
        bench.run_for_seconds(30);
        assert_eq!(images(&bench), ["two", "two", "two"]);
        let status = bench.get(KindId::STATEFUL_SET, "db").unwrap()["status"].clone();
        assert_eq!(status["currentRevision"], status["updateRevision"]);
        assert_eq!(status["currentReplicas"], json!(3));
    }
}
