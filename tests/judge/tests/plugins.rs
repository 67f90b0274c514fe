//! Hand-written worlds with answers known from the documentation, at least one per plugin. They test the judge, not the
//! plugins: that it runs the real plugins, in the profile's order, on objects with the API's defaults.

use std::collections::BTreeMap;

use judge::{Answer, Judge, NodeAnswer, Verdict, World};
use serde_json::{Value, json};

fn node(name: &str, change: &Value) -> Value {
    let mut node = json!({ "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" } } });
    merge(&mut node, change);
    node
}

fn pod(name: &str, change: &Value) -> Value {
    let mut pod = json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "blue", "uid": name, "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "c", "image": "web:1" }] } });
    merge(&mut pod, change);
    pod
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

/// Nodes n1 and n2 with the given changes, some pods, and the pod to place.
fn world(n1: &Value, n2: &Value, pods: Vec<Value>, incoming: &Value) -> World {
    World {
        nodes: vec![node("n1", n1), node("n2", n2)],
        namespaces: vec![json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "blue" } })],
        pods,
        pod: pod("incoming", incoming),
        ..World::default()
    }
}

fn ask(world: &World) -> Answer {
    Judge::start().unwrap().ask(world).unwrap()
}

/// Asserts that the pod fits on n1 and that this plugin rejects n2.
#[track_caller]
fn rejects(world: &World, verdict: Verdict, plugin: &str, reason: &str) {
    let answer = ask(world);
    assert_eq!(answer.pod, "blue/incoming");
    assert_eq!((answer.feasible, answer.best.as_slice()), (1, &["n1".to_owned()][..]), "{answer:#?}");
    let [n1, n2] = &answer.nodes[..] else { panic!("{answer:#?}") };
    assert_eq!((n1.name.as_str(), n1.verdict, n2.name.as_str()), ("n1", Verdict::Feasible, "n2"));
    assert_eq!((n2.verdict, n2.plugin.as_str(), n2.reason.as_str()), (verdict, plugin, reason));
    assert_eq!((n2.total, &n2.scores), (None, &BTreeMap::new()));
}

/// Asserts the scores of one plugin on n1 and n2.
#[track_caller]
fn scores(world: &World, plugin: &str, expected: [i64; 2]) {
    let answer = ask(world);
    let score = |node: &NodeAnswer| node.scores.get(plugin).copied();
    let given: Vec<Option<i64>> = answer.nodes.iter().map(score).collect();
    assert_eq!(given, expected.map(Some), "{answer:#?}");
    for node in &answer.nodes {
        let total: i64 = node.scores.iter().map(|(plugin, score)| score * answer.weights[plugin]).sum();
        assert_eq!(node.total, Some(total));
    }
}

#[test]
fn node_unschedulable() {
    let cordoned = json!({ "spec": { "unschedulable": true } });
    let world = world(&json!({}), &cordoned, vec![], &json!({}));
    rejects(&world, Verdict::UnschedulableAndUnresolvable, "NodeUnschedulable", "node(s) were unschedulable");
}

#[test]
fn node_name() {
    let world = world(&json!({}), &json!({}), vec![], &json!({ "spec": { "nodeName": "n1" } }));
    rejects(&world, Verdict::UnschedulableAndUnresolvable, "NodeName", "node(s) didn't match the requested node name");
}

#[test]
fn taint_toleration() {
    let taint = |effect: &str| json!({ "spec": { "taints": [{ "key": "k", "value": "v", "effect": effect }] } });
    let tolerates = json!({ "spec": { "tolerations": [{ "key": "k", "value": "v", "effect": "NoExecute" }] } });
    for effect in ["NoSchedule", "NoExecute"] {
        let rejecting = world(&json!({}), &taint(effect), vec![], &json!({}));
        rejects(
            &rejecting,
            Verdict::UnschedulableAndUnresolvable,
            "TaintToleration",
            "node(s) had untolerated taint(s)",
        );
    }
    scores(&world(&taint("NoExecute"), &taint("PreferNoSchedule"), vec![], &tolerates), "TaintToleration", [100, 0]);
}

#[test]
fn node_affinity() {
    let ssd = json!({ "metadata": { "labels": { "disk": "ssd" } } });
    let term = json!({ "matchExpressions": [{ "key": "disk", "operator": "In", "values": ["ssd"] }] });
    let required = json!({ "spec": { "affinity": { "nodeAffinity":
        { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } } } } });
    rejects(
        &world(&ssd, &json!({}), vec![], &required),
        Verdict::UnschedulableAndUnresolvable,
        "NodeAffinity",
        "node(s) didn't match Pod's node affinity/selector",
    );
    let preferred = json!({ "spec": { "affinity": { "nodeAffinity":
        { "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 5, "preference": term }] } } } });
    scores(&world(&ssd, &json!({}), vec![], &preferred), "NodeAffinity", [100, 0]);
}

#[test]
fn node_affinity_by_name_restricts_the_nodes_before_all_filters() {
    let by_name = json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
        { "nodeSelectorTerms": [{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }] }] } } } } });
    let cordoned = json!({ "spec": { "unschedulable": true } });
    let narrowed = world(&json!({}), &cordoned, vec![], &by_name);
    rejects(
        &narrowed,
        Verdict::UnschedulableAndUnresolvable,
        "NodeAffinity",
        "node(s) didn't satisfy plugin(s) [NodeAffinity]",
    );
    assert_eq!(ask(&narrowed).narrowed_by, ["NodeAffinity"]);
}

#[test]
fn a_pre_filter_rejection_is_the_verdict_of_every_node() {
    let name = |name: &str| json!({ "key": "metadata.name", "operator": "In", "values": [name] });
    let conflicting = json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
        { "nodeSelectorTerms": [{ "matchFields": [name("n1"), name("n2")] }] } } } } });
    let answer = ask(&world(&json!({}), &json!({}), vec![], &conflicting));
    assert_eq!((answer.feasible, answer.best.len()), (0, 0));
    let rejection = answer.pre_filter.clone().unwrap();
    assert_eq!((rejection.verdict, rejection.plugin.as_str()), (Verdict::UnschedulableAndUnresolvable, "NodeAffinity"));
    assert!(answer.nodes.iter().all(|node| node.verdict == rejection.verdict && node.plugin == rejection.plugin));
}

#[test]
fn node_ports() {
    let on = |address: &str| {
        json!({ "containers": [{ "name": "c", "image": "web:1",
            "ports": [{ "containerPort": 80, "hostPort": 80, "hostIP": address }] }] })
    };
    let running = |address: &str| {
        let mut pod = pod("p", &json!({ "spec": on(address) }));
        pod["spec"]["nodeName"] = "n2".into();
        vec![pod]
    };
    let clash = world(&json!({}), &json!({}), running("10.0.0.1"), &json!({ "spec": on("0.0.0.0") }));
    rejects(&clash, Verdict::Unschedulable, "NodePorts", "node(s) didn't have free ports for the requested pod ports");
    let distinct = world(&json!({}), &json!({}), running("10.0.0.1"), &json!({ "spec": on("10.0.0.2") }));
    assert_eq!(ask(&distinct).feasible, 2);
}

fn requesting(cpu: &str, memory: &str) -> Value {
    json!({ "spec": { "containers": [{ "name": "c", "image": "web:1",
        "resources": { "requests": { "cpu": cpu, "memory": memory } } }] } })
}

#[test]
fn node_resources_fit() {
    let small = json!({ "status": { "allocatable": { "cpu": "1" } } });
    let beyond = world(&json!({}), &small, vec![], &requesting("2", "1Gi"));
    rejects(&beyond, Verdict::UnschedulableAndUnresolvable, "NodeResourcesFit", "Insufficient cpu");
    let mut running = pod("p", &requesting("3", "1Gi"));
    running["spec"]["nodeName"] = "n2".into();
    let full = world(&json!({}), &json!({}), vec![running], &requesting("2", "1Gi"));
    rejects(&full, Verdict::Unschedulable, "NodeResourcesFit", "Insufficient cpu");
    // LeastAllocated: cpu 3/4 and 1/2 free, memory 6/8 and 6/8.
    let half = json!({ "status": { "allocatable": { "cpu": "2" } } });
    scores(&world(&json!({}), &half, vec![], &requesting("1", "2Gi")), "NodeResourcesFit", [75, 62]);
}

#[test]
fn a_configuration_is_applied() {
    let half = json!({ "status": { "allocatable": { "cpu": "2" } } });
    let mut most = world(&json!({}), &half, vec![], &requesting("1", "2Gi"));
    most.config = Some(json!({ "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{ "schedulerName": "packing",
            "plugins": { "multiPoint": { "enabled": [{ "name": "NodeResourcesFit", "weight": 9 }] },
                "score": { "disabled": [{ "name": "ImageLocality" }] } },
            "pluginConfig": [{ "name": "NodeResourcesFit", "args": { "scoringStrategy": { "type": "MostAllocated",
                "resources": [{ "name": "cpu", "weight": 1 }] } } }] }] }));
    scores(&most, "NodeResourcesFit", [25, 50]);
    let answer = ask(&most);
    assert_eq!((answer.profile.as_str(), answer.weights["NodeResourcesFit"]), ("packing", 9));
    assert!(!answer.nodes[0].scores.contains_key("ImageLocality"));
}

#[test]
fn node_resources_balanced_allocation() {
    // cpu and memory are equally used on n1 (1/4 and 2/8); 1/2 and 1/4 on n2. An empty node counts as balanced.
    let half = json!({ "status": { "allocatable": { "cpu": "2" } } });
    let world = world(&json!({}), &half, vec![], &requesting("1", "2Gi"));
    scores(&world, "NodeResourcesBalancedAllocation", [75, 68]);
}

#[test]
fn image_locality() {
    let with_image = json!({ "status": { "images": [{ "names": ["web:1"], "sizeBytes": 2_000_000_000_u64 }] } });
    // One of two nodes has the image, so half its size counts: 953 MiB between 23 MiB (score 0) and 1000 MiB (100).
    scores(&world(&with_image, &json!({}), vec![], &json!({})), "ImageLocality", [95, 0]);
}

fn running_on(node: &str, name: &str) -> Value {
    pod(name, &json!({ "spec": { "nodeName": node } }))
}

#[test]
fn pod_topology_spread() {
    let spread = |action: &str| {
        json!({ "spec": { "topologySpreadConstraints": [{ "topologyKey": "kubernetes.io/hostname", "maxSkew": 1,
            "whenUnsatisfiable": action, "labelSelector": { "matchLabels": { "app": "web" } } }] } })
    };
    let hard = world(&json!({}), &json!({}), vec![running_on("n2", "p")], &spread("DoNotSchedule"));
    rejects(&hard, Verdict::Unschedulable, "PodTopologySpread", "node(s) didn't match pod topology spread constraints");
    let soft = world(&json!({}), &json!({}), vec![running_on("n2", "p")], &spread("ScheduleAnyway"));
    scores(&soft, "PodTopologySpread", [100, 0]);
}

#[test]
fn the_default_spread_constraints_follow_services_and_owners() {
    let plain = || world(&json!({}), &json!({}), vec![running_on("n2", "p")], &json!({}));
    assert!(ask(&plain()).skipped_score.iter().any(|plugin| plugin == "PodTopologySpread"));
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": "blue" },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } });
    // The defaults also require a zone; nodes without one are not scored, as upstream documents.
    let zoned = |mut world: World| {
        for node in &mut world.nodes {
            node["metadata"]["labels"]["topology.kubernetes.io/zone"] = "z1".into();
        }
        world
    };
    let answer = ask(&zoned(World { services: vec![service], ..plain() }));
    assert!(answer.nodes[0].scores["PodTopologySpread"] > answer.nodes[1].scores["PodTopologySpread"], "{answer:#?}");
    let set = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "web", "namespace": "blue" },
        "spec": { "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [] } } } });
    let mut owned = zoned(World { replica_sets: vec![set], ..plain() });
    owned.pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
        "uid": "u", "controller": true }]);
    let answer = ask(&owned);
    assert!(answer.nodes[0].scores["PodTopologySpread"] > answer.nodes[1].scores["PodTopologySpread"], "{answer:#?}");
}

fn against_web(namespaces: &Value) -> Value {
    let mut term =
        json!({ "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } } });
    merge(&mut term, namespaces);
    json!({ "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } } })
}

#[test]
fn inter_pod_affinity() {
    let own = world(&json!({}), &json!({}), vec![running_on("n2", "p")], &against_web(&json!({})));
    rejects(&own, Verdict::Unschedulable, "InterPodAffinity", "node(s) didn't match pod anti-affinity rules");
    let mut existing = pod("p", &against_web(&json!({})));
    existing["spec"]["nodeName"] = "n2".into();
    rejects(
        &world(&json!({}), &json!({}), vec![existing], &json!({})),
        Verdict::Unschedulable,
        "InterPodAffinity",
        "node(s) didn't satisfy existing pods anti-affinity rules",
    );
    let elsewhere = against_web(&json!({ "namespaces": ["green"] }));
    assert_eq!(ask(&world(&json!({}), &json!({}), vec![running_on("n2", "p")], &elsewhere)).feasible, 2);
    // The API server labels every namespace with its name.
    let by_label =
        against_web(&json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "blue" } } }));
    assert_eq!(ask(&world(&json!({}), &json!({}), vec![running_on("n2", "p")], &by_label)).feasible, 1);
    let near_web = json!({ "spec": { "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } } }] } } } });
    rejects(
        &world(&json!({}), &json!({}), vec![running_on("n1", "p")], &near_web),
        Verdict::UnschedulableAndUnresolvable,
        "InterPodAffinity",
        "node(s) didn't match pod affinity rules",
    );
    let prefers_web = json!({ "spec": { "affinity": { "podAffinity": { "preferredDuringSchedulingIgnoredDuringExecution":
        [{ "weight": 7, "podAffinityTerm": { "topologyKey": "kubernetes.io/hostname",
            "labelSelector": { "matchLabels": { "app": "web" } } } }] } } } });
    scores(&world(&json!({}), &json!({}), vec![running_on("n2", "p")], &prefers_web), "InterPodAffinity", [0, 100]);
}

#[test]
fn one_plugin_alone_ignores_the_others_and_can_score_every_node() {
    let cordoned = json!({ "spec": { "unschedulable": true } });
    let mut world = world(&cordoned, &json!({}), vec![running_on("n2", "p")], &against_web(&json!({})));
    world.plugins = vec!["InterPodAffinity".to_owned()];
    rejects(&world, Verdict::Unschedulable, "InterPodAffinity", "node(s) didn't match pod anti-affinity rules");
    world.pod = pod(
        "incoming",
        &json!({ "spec": { "affinity": { "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } } }],
        "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 7, "podAffinityTerm":
            { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } } } }] } } } }),
    );
    world.score_all = true;
    world.raw = true;
    let answer = ask(&world);
    assert_eq!((answer.feasible, answer.best.as_slice()), (1, &["n1".to_owned()][..]));
    let of = |map: fn(&NodeAnswer) -> &BTreeMap<String, i64>| -> Vec<i64> {
        answer.nodes.iter().map(|node| map(node)["InterPodAffinity"]).collect()
    };
    assert_eq!((of(|node| &node.scores), of(|node| &node.raw)), (vec![100, 0], vec![0, -7]));
}

#[test]
fn node_declared_features() {
    let declared = json!({ "status": { "declaredFeatures": ["RestartAllContainersOnContainerExits"] } });
    let restarts = json!({ "spec": { "containers": [{ "name": "c", "image": "web:1", "restartPolicy": "Never",
        "restartPolicyRules": [{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [42] } }] }] } });
    rejects(
        &world(&declared, &json!({}), vec![], &restarts),
        Verdict::UnschedulableAndUnresolvable,
        "NodeDeclaredFeatures",
        "node(s) didn't match Pod's required features",
    );
}

#[test]
fn scheduling_gates_are_reported() {
    let gated =
        ask(&world(&json!({}), &json!({}), vec![], &json!({ "spec": { "schedulingGates": [{ "name": "wait" }] } })));
    let rejection = gated.pre_enqueue.unwrap();
    assert_eq!((rejection.plugin.as_str(), gated.feasible), ("SchedulingGates", 2));
}

#[test]
fn finished_terminating_pending_and_stray_pods() {
    let spec = against_web(&json!({}));
    let with = |change: &Value| world(&json!({}), &json!({}), vec![pod("p", change)], &spec);
    let on = |node: &str, more: &Value| {
        let mut change = json!({ "spec": { "nodeName": node } });
        merge(&mut change, more);
        ask(&with(&change)).feasible
    };
    assert_eq!(on("n2", &json!({})), 1);
    assert_eq!(on("n2", &json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })), 1);
    assert_eq!(on("n2", &json!({ "status": { "phase": "Succeeded" } })), 2);
    assert_eq!(on("n2", &json!({ "status": { "phase": "Failed" } })), 2);
    assert_eq!(on("gone", &json!({})), 2);
    assert_eq!(ask(&with(&json!({}))).feasible, 2);
    // A nominated pod of equal or higher priority counts as if it ran on the node.
    assert_eq!(ask(&with(&json!({ "status": { "nominatedNodeName": "n2" } }))).feasible, 1);
    assert_eq!(ask(&with(&json!({ "spec": { "priority": -1 }, "status": { "nominatedNodeName": "n2" } }))).feasible, 2);
}

#[test]
fn the_defaults_of_the_api_are_filled_in() {
    // Only a limit is set: the request equals it, and 5 CPUs do not fit on a node with 4.
    let limited = json!({ "spec": { "containers": [{ "name": "c", "image": "web:1",
        "resources": { "limits": { "cpu": "5" } } }] } });
    let large = json!({ "status": { "allocatable": { "cpu": "8" } } });
    rejects(
        &world(&large, &json!({}), vec![], &limited),
        Verdict::UnschedulableAndUnresolvable,
        "NodeResourcesFit",
        "Insufficient cpu",
    );
}
