//! Claims from their creation to the running pod, and back.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::testing::Bench;
use super::*;
use crate::kubernetes::condition;
use crate::kubernetes::json::{put, take};

fn class(bench: &mut Bench, name: &str, extra: &Value) {
    let mut class = json!({ "metadata": { "name": name }, "provisioner": DRIVER });
    class.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    bench.create(KindId::STORAGE_CLASS, class);
}

fn claim(bench: &mut Bench, name: &str, class: &str, extra: &Value) {
    let mut claim = json!({ "metadata": { "name": name, "namespace": "default" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
        "storageClassName": class } });
    for part in ["metadata", "spec"] {
        for (key, value) in extra[part].as_object().into_iter().flatten() {
            put(&mut claim, &[part, key], value.clone());
        }
    }
    bench.create(KindId::PERSISTENT_VOLUME_CLAIM, claim);
}

fn volume(name: &str, extra: &Value) -> Value {
    let mut spec = json!({ "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "5Gi" },
        "csi": { "driver": DRIVER, "volumeHandle": name } });
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    json!({ "metadata": { "name": name }, "spec": spec })
}

fn phase(bench: &Bench, kind: KindId, name: &str) -> String {
    bench.get(kind, name).map_or_else(|| "gone".to_owned(), |object| text(&object["status"]["phase"]).to_owned())
}

fn claim_phase(bench: &Bench, name: &str) -> String {
    phase(bench, KindId::PERSISTENT_VOLUME_CLAIM, name)
}

fn select_node(bench: &mut Bench, claim: &str, node: &str) {
    bench.edit(KindId::PERSISTENT_VOLUME_CLAIM, claim, |claim| {
        put(claim, &["metadata", "annotations", SELECTED_NODE], json!(node));
    });
}

fn uses(claim: &str) -> Value {
    json!({ "spec": { "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }] } })
}

fn attachments(bench: &Bench) -> Vec<(String, bool)> {
    let of = |object: &Arc<Value>| (text(&object["spec"]["nodeName"]).to_owned(), object["status"]["attached"] == true);
    bench.list(KindId::VOLUME_ATTACHMENT).iter().map(of).collect()
}

fn reasons(bench: &Bench, about: &str) -> Vec<String> {
    let events = bench.list(KindId::EVENT);
    let about = events.iter().filter(|event| event["involvedObject"]["name"] == about);
    about.map(|event| text(&event["reason"]).to_owned()).collect()
}

#[test]
fn an_immediate_claim_gets_a_volume_after_a_while_and_the_pod_starts_when_it_is_attached() {
    let mut bench = Bench::with_nodes(1);
    class(&mut bench, "now", &json!({}));
    claim(&mut bench, "data", "now", &json!({}));
    bench.create_pod("p", &uses("data"));
    bench.run_for_seconds(1);
    assert_eq!(claim_phase(&bench, "data"), "Pending", "provisioning takes two seconds or more");
    bench.run_watching(20, |bench| {
        let running = bench.get(KindId::POD, "p").is_some_and(|object| pod::is_running(&object));
        assert!(!running || attachments(bench) == [("node-1".to_owned(), true)], "{:?}", attachments(bench));
    });
    let bound = bench.get(KindId::PERSISTENT_VOLUME_CLAIM, "data").unwrap();
    assert_eq!(
        (&bound["status"]["phase"], &bound["status"]["capacity"]),
        (&json!("Bound"), &json!({ "storage": "1Gi" }))
    );
    assert_eq!(annotation(&bound, BIND_COMPLETED), "yes");
    let name = text(&bound["spec"]["volumeName"]).to_owned();
    assert_eq!(name, format!("pvc-{}", pod::uid(&bound)));
    assert_eq!(phase(&bench, KindId::PERSISTENT_VOLUME, &name), "Bound");
    assert!(pod::is_running(&bench.get(KindId::POD, "p").unwrap()));
    assert!(reasons(&bench, "data").contains(&"ProvisioningSucceeded".to_owned()), "{:?}", reasons(&bench, "data"));
    assert!(reasons(&bench, "p").contains(&"SuccessfulAttachVolume".to_owned()), "{:?}", reasons(&bench, "p"));

    // A claim in use stays until its pod is gone; then its volume goes too.
    bench.delete(KindId::PERSISTENT_VOLUME_CLAIM, "data");
    bench.run_for_seconds(30);
    assert_eq!(claim_phase(&bench, "data"), "Bound");
    bench.delete(KindId::POD, "p");
    bench.run_for_seconds(30);
    assert_eq!(claim_phase(&bench, "data"), "gone");
    assert!(attachments(&bench).is_empty());
    assert_eq!(phase(&bench, KindId::PERSISTENT_VOLUME, &name), "gone");
    let lines = bench.happenings.join("\n");
    for line in ["claim default/data bound to", "attached to node-1", "detached from node-1", " deleted"] {
        assert!(lines.contains(line), "{line} in {lines}");
    }
}

#[test]
fn a_claim_that_waits_gets_its_volume_for_the_selected_node() {
    let mut bench = Bench::with_nodes(2);
    let zone = |bench: &mut Bench, node: &str, zone: &str| {
        bench.edit(KindId::NODE, node, |node| put(node, &["metadata", "labels", "zone"], json!(zone)));
    };
    zone(&mut bench, "node-1", "a");
    zone(&mut bench, "node-2", "b");
    let topologies = json!([{ "matchLabelExpressions": [{ "key": "zone", "values": ["a", "c"] }] }]);
    let waits = json!({ "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": topologies });
    class(&mut bench, "wait", &waits);
    claim(&mut bench, "data", "wait", &json!({}));
    bench.run_for_seconds(60);
    assert_eq!(claim_phase(&bench, "data"), "Pending");
    assert!(reasons(&bench, "data").contains(&"WaitForFirstConsumer".to_owned()));
    // Nodes that do not exist, or where the class allows no volume: the choice is taken back.
    for node in ["nowhere", "node-2"] {
        select_node(&mut bench, "data", node);
        bench.run_for_seconds(10);
        let claim = bench.get(KindId::PERSISTENT_VOLUME_CLAIM, "data").unwrap();
        assert_eq!(
            (annotation(&claim, SELECTED_NODE), claim_phase(&bench, "data").as_str()),
            ("", "Pending"),
            "{node}"
        );
    }
    assert!(reasons(&bench, "data").contains(&"ProvisioningFailed".to_owned()));
    select_node(&mut bench, "data", "node-1");
    bench.run_for_seconds(10);
    let bound = bench.get(KindId::PERSISTENT_VOLUME_CLAIM, "data").unwrap();
    assert_eq!(bound["status"]["phase"], "Bound");
    let volume = bench.get(KindId::PERSISTENT_VOLUME, text(&bound["spec"]["volumeName"])).unwrap();
    assert_eq!(
        volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"],
        json!([{ "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a"] }] }])
    );
}

#[test]
fn a_class_states_how_long_provisioning_takes_and_a_choice_can_be_taken_back() {
    let mut bench = Bench::with_nodes(1);
    let slow = json!({ "metadata": { "name": "slow", "annotations": { provisioner::PROVISION_SECONDS_ANNOTATION: "60" } },
        "volumeBindingMode": "WaitForFirstConsumer" });
    class(&mut bench, "slow", &slow);
    claim(&mut bench, "data", "slow", &json!({}));
    select_node(&mut bench, "data", "node-1");
    bench.run_for_seconds(30);
    bench.edit(KindId::PERSISTENT_VOLUME_CLAIM, "data", |claim| {
        take(claim, &["metadata", "annotations"], SELECTED_NODE);
    });
    bench.run_for_seconds(60);
    assert_eq!(claim_phase(&bench, "data"), "Pending");
    select_node(&mut bench, "data", "node-1");
    bench.run_for_seconds(59);
    assert_eq!(claim_phase(&bench, "data"), "Pending");
    bench.run_for_seconds(2);
    assert_eq!(claim_phase(&bench, "data"), "Bound");
}

#[test]
fn a_scheduler_completes_a_binding_by_writing_the_volume() {
    let mut bench = Bench::with_nodes(1);
    class(
        &mut bench,
        "local",
        &json!({ "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer" }),
    );
    for name in ["v1", "v2"] {
        bench.create(KindId::PERSISTENT_VOLUME, volume(name, &json!({ "storageClassName": "local" })));
    }
    claim(&mut bench, "data", "local", &json!({}));
    bench.run_for_seconds(30);
    assert_eq!(phase(&bench, KindId::PERSISTENT_VOLUME, "v2"), "Available");
    assert_eq!(claim_phase(&bench, "data"), "Pending", "only a scheduler binds a claim that waits");
    let wanted = bench.get(KindId::PERSISTENT_VOLUME_CLAIM, "data").unwrap();
    bench.edit(KindId::PERSISTENT_VOLUME, "v2", |volume| {
        put(volume, &["spec", "claimRef"], binder::reference_to(&wanted));
        put(volume, &["metadata", "annotations", BOUND_BY_CONTROLLER], json!("yes"));
    });
    bench.run_for_seconds(1);
    let bound = bench.get(KindId::PERSISTENT_VOLUME_CLAIM, "data").unwrap();
    assert_eq!((&bound["spec"]["volumeName"], &bound["status"]["phase"]), (&json!("v2"), &json!("Bound")));
    assert_eq!(bound["status"]["capacity"]["storage"], "5Gi");
    // Its volume is not deleted with the claim: it is released.
    bench.delete(KindId::PERSISTENT_VOLUME_CLAIM, "data");
    bench.run_for_seconds(30);
    assert_eq!(phase(&bench, KindId::PERSISTENT_VOLUME, "v2"), "Released");
    assert_eq!(phase(&bench, KindId::PERSISTENT_VOLUME, "v1"), "Available");
}

#[test]
fn the_smallest_volume_that_fits_is_bound_and_losing_it_is_reported() {
    let mut bench = Bench::with_nodes(1);
    for (name, size, labels) in
        [("big", "9Gi", "x"), ("small", "2Gi", "x"), ("tiny", "1Mi", "x"), ("other", "1Gi", "y")]
    {
        let mut object = volume(name, &json!({ "capacity": { "storage": size } }));
        put(&mut object, &["metadata", "labels"], json!({ "of": labels }));
        bench.create(KindId::PERSISTENT_VOLUME, object);
    }
    claim(&mut bench, "data", "", &json!({ "spec": { "selector": { "matchLabels": { "of": "x" } } } }));
    bench.run_for_seconds(1);
    assert_eq!(bench.get(KindId::PERSISTENT_VOLUME_CLAIM, "data").unwrap()["spec"]["volumeName"], "small");
    bench.delete(KindId::PERSISTENT_VOLUME, "small");
    bench.run_for_seconds(1);
    assert_eq!(phase(&bench, KindId::PERSISTENT_VOLUME, "small"), "Bound", "a bound volume is protected");
    bench.edit(KindId::PERSISTENT_VOLUME, "small", |volume| {
        take(volume, &["metadata"], "finalizers");
    });
    bench.kubernetes.store_mut().remove(KindId::PERSISTENT_VOLUME, "", "small").unwrap();
    bench.run_for_seconds(1);
    assert_eq!(claim_phase(&bench, "data"), "Lost");
}

#[test]
fn a_volume_for_one_node_follows_its_pod_and_a_full_node_takes_no_more() {
    let config = Config { volumes_per_node_max: 1, ..Config::default() };
    let mut bench = Bench::with(2, &config);
    class(&mut bench, "now", &json!({}));
    claim(&mut bench, "data", "now", &json!({}));
    claim(&mut bench, "more", "now", &json!({}));
    let on = |node: &str, claim: &str| {
        let mut pod = uses(claim);
        pod["spec"]["nodeName"] = json!(node);
        pod
    };
    bench.create_pod("first", &on("node-1", "data"));
    bench.run_for_seconds(20);
    bench.create_pod("second", &on("node-2", "data"));
    bench.create_pod("third", &on("node-1", "more"));
    bench.run_watching(60, |bench| {
        let used = bench.list(KindId::VOLUME_ATTACHMENT);
        let of_data = used.iter().filter(|known| volume_of(known) == volume_name(bench, "data")).count();
        assert!(of_data <= 1, "attached to two nodes");
    });
    let running = |bench: &Bench, name: &str| pod::is_running(&bench.get(KindId::POD, name).unwrap());
    assert!(!running(&bench, "second") && !running(&bench, "third"));
    assert!(reasons(&bench, "second").contains(&"FailedAttachVolume".to_owned()));
    bench.delete(KindId::POD, "first");
    bench.run_for_seconds(30);
    assert!(running(&bench, "second") && running(&bench, "third"));
    let mut nodes = attachments(&bench);
    nodes.sort();
    assert_eq!(nodes, [("node-1".to_owned(), true), ("node-2".to_owned(), true)]);
}

fn volume_name(bench: &Bench, claim: &str) -> String {
    text(&bench.get(KindId::PERSISTENT_VOLUME_CLAIM, claim).unwrap()["spec"]["volumeName"]).to_owned()
}

#[test]
fn stateful_sets_keep_their_claims_and_ephemeral_claims_go_with_their_pod() {
    let mut bench = Bench::with_nodes(2);
    class(&mut bench, "now", &json!({}));
    let template = json!({ "metadata": { "name": "data", "annotations": { "a": "b" } }, "spec": { "storageClassName": "now",
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    let set = json!({ "metadata": { "name": "db", "namespace": "default" }, "spec": {
        "replicas": 2, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
        "volumeClaimTemplates": [template],
        "template": { "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{ "name": "c", "image": "i" }],
            "volumes": [{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": {
                "metadata": { "labels": { "kind": "scratch" } }, "spec": template["spec"] } } }] } } } });
    bench.create(KindId::STATEFUL_SET, set);
    bench.run_for_seconds(60);
    let names = |bench: &Bench| -> Vec<String> {
        let claims = bench.list(KindId::PERSISTENT_VOLUME_CLAIM);
        claims.iter().map(|claim| text(&claim["metadata"]["name"]).to_owned()).collect()
    };
    assert_eq!(names(&bench), ["data-db-0", "data-db-1", "db-0-scratch", "db-1-scratch"]);
    let kept = bench.get(KindId::PERSISTENT_VOLUME_CLAIM, "data-db-1").unwrap();
    assert_eq!(
        (&kept["metadata"]["labels"]["app"], &kept["metadata"]["annotations"]["a"]),
        (&json!("db"), &json!("b"))
    );
    let status = bench.get(KindId::STATEFUL_SET, "db").unwrap()["status"].clone();
    assert_eq!(status["readyReplicas"], 2, "{status}");
    bench.edit(KindId::STATEFUL_SET, "db", |set| set["spec"]["replicas"] = json!(1));
    bench.run_for_seconds(30);
    assert_eq!(names(&bench), ["data-db-0", "data-db-1", "db-0-scratch"]);
    bench.edit(KindId::STATEFUL_SET, "db", |set| set["spec"]["replicas"] = json!(2));
    bench.run_for_seconds(30);
    let again = bench.get(KindId::PERSISTENT_VOLUME_CLAIM, "data-db-1").unwrap();
    assert_eq!(pod::uid(&again), pod::uid(&kept), "the second pod has its old volume");
    assert!(condition::is_true(&bench.get(KindId::POD, "db-1").unwrap(), "Ready"));
}

#[test]
fn claims_without_a_class_get_the_default_and_nodes_publish_their_driver() {
    let mut bench = Bench::with_nodes(1);
    let claim = json!({ "metadata": { "name": "data", "namespace": "default" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    bench.create(KindId::PERSISTENT_VOLUME_CLAIM, claim);
    assert_eq!(bench.get(KindId::PERSISTENT_VOLUME_CLAIM, "data").unwrap()["spec"]["storageClassName"], "standard");
    let driver = bench.get(KindId::CSI_NODE, "node-1").unwrap()["spec"]["drivers"][0].clone();
    assert_eq!((&driver["name"], &driver["allocatable"]["count"]), (&json!(DRIVER), &json!(59)));
    bench.destroy_machine("node-1");
    bench.run_for_seconds(1);
    assert!(bench.get(KindId::CSI_NODE, "node-1").is_none());
}

#[test]
fn the_same_seed_gives_the_same_volumes() {
    let run = || {
        let mut bench = Bench::with_nodes(2);
        class(&mut bench, "now", &json!({}));
        for number in 0..10 {
            claim(&mut bench, &format!("c{number}"), "now", &json!({}));
            bench.create_pod(&format!("p{number}"), &uses(&format!("c{number}")));
        }
        bench.run_for_seconds(20);
        for number in 0..5 {
            bench.delete(KindId::POD, &format!("p{number}"));
            bench.delete(KindId::PERSISTENT_VOLUME_CLAIM, &format!("c{number}"));
        }
        bench.run_for_seconds(60);
        (bench.happenings, bench.kubernetes.version())
    };
    let first = run();
    assert_eq!(first, run());
    assert_eq!(first.0.iter().filter(|line| line.contains("claim default/c")).count(), 10, "{:#?}", first.0);
    assert_eq!(first.0.iter().filter(|line| line.contains("detached from")).count(), 5);
}
