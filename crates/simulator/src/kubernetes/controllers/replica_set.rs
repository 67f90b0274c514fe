//! The ReplicaSet controller: keeps `spec.replicas` pods.
//!
//! In: a ReplicaSet and the pods it controls. Out: pods created or deleted, and its status.
//!
//! It adopts no pods. A pod whose labels no longer match the selector is released. Terminating and finished pods do not
//! count.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Tools;
use super::pod_template::{create_pod, pod_from};
use super::queue::Target;
use crate::kubernetes::deletion::{self, DeleteOptions};
use crate::kubernetes::json::{array, items, put, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::label_selector::{LabelSelector, selects};
use crate::kubernetes::pod;
use crate::kubernetes::store::ObjectKey;

const COMPONENT: &str = "replicaset-controller";
/// The maximum number of pods created or deleted in one reconcile.
const BURST: usize = 500;

pub(crate) fn reconcile(tools: &mut Tools<'_>, key: &ObjectKey) {
    let Some(set) = tools.store.get(KindId::REPLICA_SET, &key.namespace, &key.name).cloned() else { return };
    let pods = claimed_pods(tools, &set);
    if !pod::is_terminating(&set) {
        let wanted = usize::try_from(set["spec"]["replicas"].as_i64().unwrap_or(1)).unwrap_or(0);
        let active: Vec<&Arc<Value>> = pods.iter().filter(|pod| pod::is_active(pod)).collect();
        if active.len() < wanted {
            create(tools, &set, (wanted - active.len()).min(BURST));
        } else if active.len() > wanted {
            delete(tools, &set, &active, (active.len() - wanted).min(BURST));
        }
    }
    write_status(tools, &set, &pods);
}

/// The pods that the ReplicaSet controls and selects. Releases those that its selector no longer matches.
fn claimed_pods(tools: &mut Tools<'_>, set: &Value) -> Vec<Arc<Value>> {
    let selector = LabelSelector::from_object(&set["spec"]["selector"]);
    let (claimed, released): (Vec<_>, Vec<_>) = tools
        .controlled(set, KindId::POD)
        .into_iter()
        .partition(|pod| selector.as_ref().is_some_and(|selector| selector.matches(&pod["metadata"]["labels"])));
    for object in released.iter().filter(|object| !pod::is_terminating(object)) {
        let key = ObjectKey::of(object);
        let _ = tools.store.edit(KindId::POD, &key.namespace, &key.name, |object| {
            array(object, &["metadata", "ownerReferences"]).retain(|owner| text(&owner["uid"]) != pod::uid(set));
        });
    }
    claimed
}

fn create(tools: &mut Tools<'_>, set: &Value, count: usize) {
    for _ in 0..count {
        let mut pod = pod_from(&set["spec"]["template"], set);
        put(&mut pod, &["metadata", "generateName"], json!(format!("{}-", text(&set["metadata"]["name"]))));
        // A template that does not match its own selector would create pods endlessly. The API rejects such sets.
        if !selects(&set["spec"]["selector"], &pod["metadata"]["labels"]) {
            return;
        }
        let Ok(pod) = create_pod(tools, pod) else { return };
        tools.event(set, COMPONENT, "SuccessfulCreate", &format!("Created pod: {}", text(&pod["metadata"]["name"])));
    }
}

fn delete(tools: &mut Tools<'_>, set: &Value, active: &[&Arc<Value>], count: usize) {
    for victim in victims(active, count) {
        let key = ObjectKey::of(&victim);
        let deleted =
            deletion::delete(tools.store, KindId::POD, &key.namespace, &key.name, &DeleteOptions::default(), tools.now);
        if deleted.is_ok() {
            tools.event(set, COMPONENT, "SuccessfulDelete", &format!("Deleted pod: {}", key.name));
        }
    }
}

/// The least valuable pods: unbound, not running, not ready, lowest deletion cost, most crowded, youngest.
fn victims(active: &[&Arc<Value>], count: usize) -> Vec<Arc<Value>> {
    let mut per_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in active {
        *per_node.entry(pod::node_name(pod)).or_default() += 1;
    }
    let mut ranked: Vec<&Arc<Value>> = active.to_vec();
    ranked.sort_by_cached_key(|pod| {
        let phase = match text(&pod["status"]["phase"]) {
            "Running" => 2,
            "Unknown" => 1,
            _ => 0,
        };
        let cost: i64 =
            text(&pod["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"]).parse().unwrap_or(0);
        let restarts = items(&pod["status"]["containerStatuses"])
            .iter()
            .filter_map(|container| container["restartCount"].as_u64())
            .max()
            .unwrap_or(0);
        let node = pod::node_name(pod);
        (
            !node.is_empty(),
            phase,
            pod::is_ready(pod),
            cost,
            Reverse(if node.is_empty() { 0 } else { per_node[node] }),
            Reverse(pod::ready_since(pod)),
            Reverse(restarts),
            Reverse(text(&pod["metadata"]["creationTimestamp"]).to_owned()),
            text(&pod["metadata"]["name"]).to_owned(),
        )
    });
    ranked.into_iter().take(count).cloned().collect()
}

fn write_status(tools: &mut Tools<'_>, set: &Value, pods: &[Arc<Value>]) {
    let min_ready_seconds = set["spec"]["minReadySeconds"].as_u64().unwrap_or(0);
    let template_labels = set["spec"]["template"]["metadata"]["labels"].as_object();
    let (mut replicas, mut labelled, mut ready, mut available, mut terminating) = (0, 0, 0, 0, 0);
    let mut next_available = None;
    for object in pods {
        if pod::is_terminating(object) {
            terminating += u64::from(!pod::is_finished(object));
            continue;
        }
        if pod::is_finished(object) {
            continue;
        }
        replicas += 1;
        let labels = &object["metadata"]["labels"];
        labelled += u64::from(
            template_labels.is_none_or(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value))),
        );
        if let Some(from) = pod::available_from(object, min_ready_seconds) {
            ready += 1;
            if from <= tools.now {
                available += 1;
            } else {
                next_available = Some(next_available.map_or(from, |known| from.min(known)));
            }
        }
    }
    let key = ObjectKey::of(set);
    let _ = tools.store.edit(KindId::REPLICA_SET, &key.namespace, &key.name, |set| {
        put(set, &["status", "replicas"], json!(replicas));
        put(set, &["status", "fullyLabeledReplicas"], json!(labelled));
        put(set, &["status", "readyReplicas"], json!(ready));
        put(set, &["status", "availableReplicas"], json!(available));
        put(set, &["status", "terminatingReplicas"], json!(terminating));
        let generation = set["metadata"]["generation"].clone();
        put(set, &["status", "observedGeneration"], generation);
    });
    if let Some(moment) = next_available {
        tools.again_at(moment, Target::ReplicaSet(key));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;

    fn replica_set(name: &str, replicas: u64) -> Value {
        json!({ "metadata": { "name": name, "namespace": "default" }, "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "i" }] } } } })
    }

    fn status(bench: &Bench, name: &str) -> (u64, u64) {
        let set = bench.get(KindId::REPLICA_SET, name).unwrap();
        (set["status"]["replicas"].as_u64().unwrap(), set["status"]["readyReplicas"].as_u64().unwrap())
    }

    #[test]
    fn it_keeps_the_replica_count() {
        let mut bench = Bench::with_nodes(3);
        bench.create(KindId::REPLICA_SET, replica_set("web", 3));
        bench.run_for_seconds(10);
        assert_eq!(status(&bench, "web"), (3, 3));
        let victim = bench.pods()[0].clone();
        bench.delete(KindId::POD, text(&victim["metadata"]["name"]));
        bench.run_for_seconds(10);
        assert_eq!(bench.pods().len(), 3);
        assert!(bench.get(KindId::POD, text(&victim["metadata"]["name"])).is_none());
        bench.edit(KindId::REPLICA_SET, "web", |set| set["spec"]["replicas"] = json!(1));
        bench.run_for_seconds(10);
        assert_eq!(status(&bench, "web"), (1, 1));
        assert_eq!(bench.pods().len(), 1);
        bench.delete(KindId::REPLICA_SET, "web");
        bench.run_for_seconds(10);
        assert!(bench.pods().is_empty());
    }

    #[test]
    fn a_relabelled_pod_is_released_and_replaced() {
        let mut bench = Bench::with_nodes(1);
        bench.create(KindId::REPLICA_SET, replica_set("web", 2));
        bench.run_for_seconds(10);
        let name = text(&bench.pods()[0]["metadata"]["name"]).to_owned();
        bench.edit(KindId::POD, &name, |pod| pod["metadata"]["labels"]["app"] = json!("debug"));
        bench.run_for_seconds(10);
        assert_eq!(bench.pods().len(), 3);
        assert!(items(&bench.get(KindId::POD, &name).unwrap()["metadata"]["ownerReferences"]).is_empty());
    }

    #[test]
    fn the_least_valuable_pods_are_deleted_first() {
        let pod = |name: &str, node: &str, phase: &str, ready_at: Option<&str>| {
            let conditions = ready_at.map_or(
                json!([]),
                |moment| json!([{ "type": "Ready", "status": "True", "lastTransitionTime": moment }]),
            );
            Arc::new(json!({ "metadata": { "name": name }, "spec": { "nodeName": node },
                "status": { "phase": phase, "conditions": conditions } }))
        };
        let (early, late) = (Some("2026-01-01T00:00:00Z"), Some("2026-01-01T01:00:00Z"));
        let pods = [
            pod("settled", "a", "Running", early),
            pod("recent", "b", "Running", late),
            pod("unready", "c", "Running", None),
            pod("pending", "d", "Pending", None),
            pod("unbound", "", "Pending", None),
            pod("crowded", "e", "Running", early),
            pod("crowding", "e", "Running", early),
        ];
        let refs: Vec<&Arc<Value>> = pods.iter().collect();
        let order: Vec<String> =
            victims(&refs, 7).iter().map(|pod| text(&pod["metadata"]["name"]).to_owned()).collect();
        assert_eq!(order, ["unbound", "pending", "unready", "crowded", "crowding", "recent", "settled"]);
    }
}
