//! Placement tables: which nodes are feasible, which is best, and the message if none is.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::clock::SimTime;
use crate::kubernetes::json::put;
use crate::kubernetes::kinds::KindId;
use crate::seed::Seed;

/// A store with nodes and bound pods.
struct Scene {
    store: Store,
}

impl Scene {
    /// Four nodes of 4 CPUs and 8Gi: n1 and n2 in zone a, n3 in zone b, n4 in no zone.
    fn new() -> Scene {
        let mut scene = Scene { store: Store::new(Seed(1)) };
        for (name, labels) in [("default", json!({ "team": "red" })), ("other", json!({ "team": "blue" }))] {
            scene.create(KindId::NAMESPACE, json!({ "metadata": { "name": name, "labels": labels } }));
        }
        for (name, zone) in [("n1", Some("a")), ("n2", Some("a")), ("n3", Some("b")), ("n4", None)] {
            let mut labels = json!({ "host": name });
            if let Some(zone) = zone {
                labels["zone"] = json!(zone);
            }
            scene.create(
                KindId::NODE,
                json!({ "metadata": { "name": name, "labels": labels }, "status": { "allocatable":
                    { "cpu": "4", "memory": "8Gi", "pods": "10" } } }),
            );
        }
        scene
    }

    fn create(&mut self, kind: KindId, object: Value) {
        self.store.create(kind, object, SimTime::VIRTUAL_START).unwrap();
    }

    fn node(mut self, name: &str, edit: impl FnOnce(&mut Value)) -> Scene {
        self.store.edit(KindId::NODE, "", name, edit).unwrap();
        self
    }

    /// A pod on a node, in a namespace, with labels, and with `spec`.
    fn pod(mut self, node: &str, namespace: &str, labels: &Value, mut spec: Value) -> Scene {
        put(&mut spec, &["nodeName"], json!(node));
        let metadata = json!({ "generateName": "p-", "namespace": namespace, "labels": labels });
        self.create(KindId::POD, json!({ "metadata": metadata, "spec": spec, "status": { "phase": "Running" } }));
        self
    }

    fn decide(&self, pod: &Value) -> Decision {
        let mut cache = Cache::default();
        cache.update(&self.store);
        let mut pod = pod.clone();
        put(&mut pod, &["metadata", "name"], json!("incoming"));
        put(&mut pod, &["metadata", "namespace"], json!("default"));
        decide(&self.store, &cache, &PodInfo::of(&Arc::new(pod)), "")
    }

    fn feasible(&self, pod: &Value) -> String {
        let names: Vec<String> = self.decide(pod).feasible.into_iter().map(|candidate| candidate.node).collect();
        names.join(" ")
    }

    fn best(&self, pod: &Value) -> String {
        let decision = self.decide(pod);
        let highest = decision.feasible.iter().map(|candidate| candidate.score).max();
        let names: Vec<&str> = decision
            .feasible
            .iter()
            .filter(|candidate| Some(candidate.score) == highest)
            .map(|candidate| candidate.node.as_str())
            .collect();
        names.join(" ")
    }
}

fn requests(cpu: &str, memory: &str) -> Value {
    json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu, "memory": memory } } }] })
}

fn web() -> Value {
    json!({ "app": "web" })
}

/// A pod with labels app=web and one required term of this kind.
fn with_term(kind: &str, term: &Value) -> Value {
    json!({ "metadata": { "labels": web() }, "spec": { "affinity": {
        kind: { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } } })
}

fn term(key: &str, app: &str) -> Value {
    json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } })
}

#[test]
fn feasible_by_node_properties() {
    let busy = || Scene::new().pod("n1", "default", &json!({}), requests("3500m", "1Gi"));
    let ports = json!({ "containers": [{ "ports": [{ "hostPort": 80, "containerPort": 80 }] }] });
    let udp = json!({ "containers": [{ "ports": [{ "hostPort": 80, "containerPort": 80, "protocol": "UDP" }] }] });
    let taint = |effect: &str| json!([{ "key": "k", "value": "v", "effect": effect }]);
    let cordon = |node: &mut Value| put(node, &["spec", "unschedulable"], json!(true));
    let gpu = json!({ "containers": [{ "resources": { "requests": { "example.com/gpu": "1" } } }] });
    for (name, scene, spec, expected) in
        [
            ("no requests", Scene::new(), json!({}), "n1 n2 n3 n4"),
            ("enough left", busy(), requests("500m", "1Gi"), "n1 n2 n3 n4"),
            ("too little left", busy(), requests("501m", "1Gi"), "n2 n3 n4"),
            ("too little anywhere", busy(), requests("1", "9Gi"), ""),
            (
                "a pod without requests always fits",
                Scene::new().pod("n1", "default", &json!({}), requests("4", "8Gi")),
                json!({}),
                "n1 n2 n3 n4",
            ),
            ("an unknown device", Scene::new(), gpu.clone(), ""),
            (
                "a device",
                Scene::new().node("n3", |node| put(node, &["status", "allocatable", "example.com/gpu"], json!("1"))),
                gpu.clone(),
                "n3",
            ),
            (
                "a device in use",
                Scene::new()
                    .node("n3", |node| put(node, &["status", "allocatable", "example.com/gpu"], json!("1")))
                    .pod("n3", "default", &json!({}), gpu.clone()),
                gpu,
                "",
            ),
            (
                "the maximum number of pods",
                (0..10).fold(Scene::new(), |scene, _| scene.pod("n4", "default", &json!({}), json!({}))),
                json!({}),
                "n1 n2 n3",
            ),
            ("a port in use", Scene::new().pod("n2", "default", &json!({}), ports.clone()), ports.clone(), "n1 n3 n4"),
            ("another protocol", Scene::new().pod("n2", "default", &json!({}), udp), ports, "n1 n2 n3 n4"),
            (
                "a taint",
                Scene::new().node("n1", |node| put(node, &["spec", "taints"], taint("NoSchedule"))),
                json!({}),
                "n2 n3 n4",
            ),
            (
                "a PreferNoSchedule taint",
                Scene::new().node("n1", |node| put(node, &["spec", "taints"], taint("PreferNoSchedule"))),
                json!({}),
                "n1 n2 n3 n4",
            ),
            (
                "a tolerated taint",
                Scene::new().node("n1", |node| put(node, &["spec", "taints"], taint("NoExecute"))),
                json!({ "tolerations": [{ "key": "k", "value": "v", "effect": "NoExecute" }] }),
                "n1 n2 n3 n4",
            ),
            ("a cordoned node", Scene::new().node("n1", cordon), json!({}), "n2 n3 n4"),
            (
                "a cordoned node, tolerated",
                Scene::new().node("n1", cordon),
                json!({ "tolerations": [{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" }] }),
                "n1 n2 n3 n4",
            ),
            ("a node selector", Scene::new(), json!({ "nodeSelector": { "zone": "a" } }), "n1 n2"),
        ]
    {
        assert_eq!(scene.feasible(&json!({ "spec": spec })), expected, "{name}");
    }
}

#[test]
fn required_affinity_between_pods() {
    let affinity = |term: Value| with_term("podAffinity", &term);
    let in_namespaces = |extra: Value| {
        let mut term = term("zone", "db");
        for (key, value) in extra.as_object().unwrap() {
            term[key] = value.clone();
        }
        affinity(term)
    };
    let db = || Scene::new().pod("n1", "default", &json!({ "app": "db" }), json!({}));
    let foreign = || Scene::new().pod("n1", "other", &json!({ "app": "db" }), json!({}));
    for (name, scene, pod, expected) in [
        ("the zone of the other pod", db(), affinity(term("zone", "db")), "n1 n2"),
        ("its host", db(), affinity(term("host", "db")), "n1"),
        ("no matching pod", Scene::new(), affinity(term("zone", "db")), ""),
        ("the first pod of a group that matches itself", Scene::new(), affinity(term("zone", "web")), "n1 n2 n3"),
        (
            "the second pod of a group that matches itself",
            Scene::new().pod("n3", "default", &web(), json!({})),
            affinity(term("zone", "web")),
            "n3",
        ),
        (
            "a pod on a node without the label does not count",
            Scene::new().pod("n4", "default", &web(), json!({})),
            affinity(term("zone", "web")),
            "n1 n2 n3",
        ),
        ("a pod of another namespace", foreign(), affinity(term("zone", "db")), ""),
        ("a named namespace", foreign(), in_namespaces(json!({ "namespaces": ["other"] })), "n1 n2"),
        ("every namespace", foreign(), in_namespaces(json!({ "namespaceSelector": {} })), "n1 n2"),
        (
            "namespaces by label",
            foreign(),
            in_namespaces(json!({ "namespaceSelector": { "matchLabels": { "team": "blue" } } })),
            "n1 n2",
        ),
        (
            "namespaces by another label",
            foreign(),
            in_namespaces(json!({ "namespaceSelector": { "matchLabels": { "team": "red" } } })),
            "",
        ),
        ("a missing selector matches no pod", db(), affinity(json!({ "topologyKey": "zone" })), ""),
        (
            "an empty selector matches every pod",
            db(),
            affinity(json!({ "topologyKey": "zone", "labelSelector": {} })),
            "n1 n2",
        ),
        (
            "a finished pod does not count",
            {
                let mut scene = db();
                let name =
                    crate::kubernetes::store::ObjectKey::of(scene.store.list(KindId::POD, None).next().unwrap()).name;
                scene
                    .store
                    .edit(KindId::POD, "default", &name, |pod| put(pod, &["status", "phase"], json!("Succeeded")))
                    .unwrap();
                scene
            },
            affinity(term("zone", "db")),
            "",
        ),
    ] {
        assert_eq!(scene.feasible(&pod), expected, "{name}");
    }
    // Two terms: a pod counts only if it matches both.
    let mut both = affinity(term("zone", "db"));
    both["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        .as_array_mut()
        .unwrap()
        .push(term("host", "cache"));
    let separate = db().pod("n2", "default", &json!({ "app": "cache" }), json!({}));
    assert_eq!(separate.feasible(&both), "", "one pod must match both terms");
}

#[test]
fn required_anti_affinity_in_both_directions() {
    let anti = |key: &str, app: &str| with_term("podAntiAffinity", &term(key, app));
    let existing = |namespace: &str, term: Value| {
        let affinity = json!({ "affinity": { "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [term] } } });
        Scene::new().pod("n1", namespace, &json!({ "app": "db" }), affinity)
    };
    let plain = json!({ "metadata": { "labels": web() }, "spec": {} });
    for (name, scene, pod, expected) in [
        ("no matching pod", Scene::new(), anti("host", "web"), "n1 n2 n3 n4"),
        ("the same app by host", Scene::new().pod("n1", "default", &web(), json!({})), anti("host", "web"), "n2 n3 n4"),
        ("the same app by zone", Scene::new().pod("n1", "default", &web(), json!({})), anti("zone", "web"), "n3 n4"),
        ("another namespace", Scene::new().pod("n1", "other", &web(), json!({})), anti("zone", "web"), "n1 n2 n3 n4"),
        ("an existing pod's term matches it", existing("default", term("zone", "web")), plain.clone(), "n3 n4"),
        ("a term that does not match", existing("default", term("zone", "cache")), plain.clone(), "n1 n2 n3 n4"),
        ("a term for its own namespace", existing("other", term("zone", "web")), plain.clone(), "n1 n2 n3 n4"),
        (
            "a term for all namespaces",
            existing("other", json!({ "topologyKey": "zone", "namespaceSelector": {}, "labelSelector": {} })),
            plain,
            "n3 n4",
        ),
        (
            "a terminating pod still counts",
            {
                let mut scene = Scene::new().pod("n1", "default", &web(), json!({}));
                let name =
                    crate::kubernetes::store::ObjectKey::of(scene.store.list(KindId::POD, None).next().unwrap()).name;
                scene.store.mark_deleted(KindId::POD, "default", &name, SimTime::VIRTUAL_START, 30).unwrap();
                scene
            },
            anti("host", "web"),
            "n2 n3 n4",
        ),
    ] {
        assert_eq!(scene.feasible(&pod), expected, "{name}");
    }
}

#[test]
fn the_best_node_by_score() {
    let preferred = |kind: &str, key: &str, app: &str| {
        json!({ "spec": { "affinity": { kind: { "preferredDuringSchedulingIgnoredDuringExecution": [
            { "weight": 100, "podAffinityTerm": term(key, app) }] } } } })
    };
    let used = |scene: Scene, nodes: &[&str]| {
        nodes.iter().fold(scene, |scene, node| scene.pod(node, "default", &web(), requests("1", "1Gi")))
    };
    let prefers_zone_b = json!({ "spec": { "affinity": { "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "preference": { "matchExpressions": [
            { "key": "zone", "operator": "In", "values": ["b"] }] } }] } } } });
    for (name, scene, pod, expected) in [
        ("equal nodes", Scene::new(), json!({}), "n1 n2 n3 n4"),
        ("the least loaded", used(Scene::new(), &["n1", "n2", "n4"]), json!({}), "n3"),
        ("preferred node affinity", used(Scene::new(), &["n3"]), prefers_zone_b, "n3"),
        ("preferred pod affinity", used(Scene::new(), &["n3"]), preferred("podAffinity", "host", "web"), "n3"),
        (
            "preferred pod anti-affinity",
            used(Scene::new(), &["n3", "n4"]).pod("n1", "default", &json!({}), requests("2", "4Gi")),
            preferred("podAntiAffinity", "zone", "web"),
            "n2",
        ),
        (
            "a PreferNoSchedule taint",
            Scene::new().node("n1", |node| {
                put(node, &["spec", "taints"], json!([{ "key": "k", "effect": "PreferNoSchedule" }]));
            }),
            json!({}),
            "n2 n3 n4",
        ),
    ] {
        assert_eq!(scene.best(&pod), expected, "{name}");
    }
}

#[test]
fn the_message_lists_the_reasons() {
    let scene = Scene::new()
        .node("n1", |node| put(node, &["spec", "unschedulable"], json!(true)))
        .node("n2", |node| put(node, &["spec", "taints"], json!([{ "key": "k", "effect": "NoSchedule" }])));
    let decision = scene.decide(&json!({ "spec": requests("5", "9Gi") }));
    assert_eq!(
        decision.reasons.message(4),
        "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, \
         2 Insufficient cpu, 2 Insufficient memory. preemption: 0/4 nodes are available: 4 Preemption is not helpful \
         for scheduling."
    );
    assert_eq!(Reasons::default().message(0), "no nodes available to schedule pods");
}

#[test]
fn a_large_cluster_is_searched_in_rotation() {
    let mut scene = Scene { store: Store::new(Seed(1)) };
    for number in 0..200 {
        scene.create(
            KindId::NODE,
            json!({ "metadata": { "name": format!("n{number:03}") }, "status": { "allocatable": { "pods": "10" } } }),
        );
    }
    let mut cache = Cache::default();
    cache.update(&scene.store);
    let pod = PodInfo::of(&Arc::new(json!({ "metadata": { "name": "p", "namespace": "default" } })));
    let first = decide(&scene.store, &cache, &pod, "");
    assert_eq!((first.feasible.len(), first.next.as_str()), (100, "n100"));
    let second = decide(&scene.store, &cache, &pod, "n150");
    assert_eq!((second.feasible.len(), second.next.as_str()), (100, "n050"));
    assert_eq!(second.feasible[0].node, "n000");
}

#[test]
fn an_updated_cache_equals_a_new_one() {
    let mut scene = Scene::new();
    let mut kept = Cache::default();
    kept.update(&scene.store);
    let names: Vec<String> = (0..20).map(|number| format!("p-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let node = format!("n{}", number % 4 + 1);
        let mut spec = requests("100m", "64Mi");
        spec["affinity"] = with_term("podAntiAffinity", &term("host", name))["spec"]["affinity"].clone();
        if number % 3 > 0 {
            spec["nodeName"] = json!(node);
        }
        let metadata = json!({ "name": name, "namespace": "default", "labels": web() });
        scene.create(KindId::POD, json!({ "metadata": metadata, "spec": spec }));
        kept.update(&scene.store);
    }
    for (number, name) in names.iter().enumerate() {
        match number % 5 {
            0 => drop(scene.store.remove(KindId::POD, "default", name).unwrap()),
            1 => drop(
                scene
                    .store
                    .edit(KindId::POD, "default", name, |pod| put(pod, &["status", "phase"], json!("Failed")))
                    .unwrap(),
            ),
            2 => drop(
                scene
                    .store
                    .edit(KindId::POD, "default", name, |pod| put(pod, &["spec", "nodeName"], json!("n2")))
                    .unwrap(),
            ),
            _ => (),
        }
        kept.update(&scene.store);
    }
    let mut fresh = Cache::default();
    fresh.update(&scene.store);
    assert_eq!(kept.pods.keys().collect::<Vec<_>>(), fresh.pods.keys().collect::<Vec<_>>());
    assert_eq!(kept.with_anti_affinity, fresh.with_anti_affinity);
    for node in ["n1", "n2", "n3", "n4"] {
        let sums = |cache: &Cache| cache.usage(node).map(|usage| (usage.pods, usage.requested.clone()));
        assert_eq!(sums(&kept), sums(&fresh), "{node}");
    }
}
