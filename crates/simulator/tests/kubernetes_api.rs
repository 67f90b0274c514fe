//! The embedded Kubernetes API, request by request: the answers match a kube-apiserver.

mod kubernetes_api_support;

use http::Method;
use kubernetes_api_support::{Client, config_map, pod, summary};
use serde_json::{Value, json};
use simulator::kubernetes::kinds::KindId;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test(start_paused = true)]
async fn an_object_is_created_updated_and_deleted() {
    let client = Client::new();
    let (code, created) = client.post(MAPS, &config_map("a", &json!({}))).await;
    assert_eq!((code, &created["kind"]), (201, &json!("ConfigMap")));
    assert_eq!(client.post(MAPS, &config_map("a", &json!({}))).await.1["reason"], "AlreadyExists");

    let mut stale = created.clone();
    stale["data"]["a"] = json!("2");
    assert_eq!(client.put(&format!("{MAPS}/a"), &stale).await.0, 200);
    stale["data"]["a"] = json!("3");
    let (code, conflict) = client.put(&format!("{MAPS}/a"), &stale).await;
    assert_eq!(code, 409);
    assert_eq!(
        conflict["message"],
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to \
         the latest version and try again"
    );
    let (code, status) = client.delete(&format!("{MAPS}/a")).await;
    assert_eq!((code, &status["status"]), (200, &json!("Success")));
    assert_eq!(client.get(&format!("{MAPS}/a")).await.1["message"], "configmaps \"a\" not found");

    let (_, generated) = client.post(MAPS, &json!({ "metadata": { "generateName": "g-" } })).await;
    assert!(generated["metadata"]["name"].as_str().unwrap().starts_with("g-"));
}

#[tokio::test(start_paused = true)]
async fn patches_of_every_type() {
    let client = Client::new();
    let path = format!("{PODS}/p");
    client.post(PODS, &pod("p", &json!({ "a": "1" }))).await;
    for (kind, patch, label) in [
        ("json", json!([{ "op": "replace", "path": "/metadata/labels/a", "value": "2" }]), "2"),
        ("merge", json!({ "metadata": { "labels": { "a": "3" } } }), "3"),
        ("strategic-merge", json!({ "metadata": { "labels": { "a": "4" } } }), "4"),
    ] {
        let (code, patched) = client.patch(&path, kind, &patch).await;
        assert_eq!((code, &patched["metadata"]["labels"]["a"]), (200, &json!(label)), "{kind}");
    }
    let stated = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "labels": { "b": "1" } } });
    let (code, applied) = client.patch(&format!("{path}?fieldManager=m1"), "apply", &stated).await;
    assert_eq!((code, &applied["metadata"]["labels"]), (200, &json!({ "a": "4", "b": "1" })));
    let mut other = stated.clone();
    other["metadata"]["labels"]["b"] = json!("2");
    assert_eq!(client.patch(&format!("{path}?fieldManager=m2"), "apply", &other).await.0, 409);
    assert_eq!(client.patch(&format!("{path}?fieldManager=m2&force=true"), "apply", &other).await.0, 200);
    assert_eq!(client.patch(&path, "apply", &stated).await.0, 422, "an apply needs a manager");

    let (code, refused) = client.patch(&path, "merge", &json!({ "spec": { "nodeName": "n" } })).await;
    assert_eq!((code, &refused["details"]["causes"][0]["reason"]), (422, &json!("FieldValueForbidden")));
    let image = json!({ "spec": { "containers": [{ "name": "c", "image": "i:2" }] } });
    let (code, patched) = client.patch(&path, "strategic-merge", &image).await;
    assert_eq!((code, &patched["spec"]["containers"][0]["image"]), (200, &json!("i:2")));
    assert_eq!(client.patch(&path, "merge", &json!({ "metadata": { "resourceVersion": "1" } })).await.0, 409);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_changes_nothing() {
    let client = Client::new();
    client.post(MAPS, &config_map("a", &json!({}))).await;
    let before = client.world.with(|core, _| core.kubernetes.version());
    assert_eq!(client.post(&format!("{MAPS}?dryRun=All"), &config_map("b", &json!({}))).await.0, 201);
    let change = json!({ "data": { "a": "9" } });
    let (code, shown) = client.patch(&format!("{MAPS}/a?dryRun=All"), "merge", &change).await;
    assert_eq!((code, &shown["data"]["a"]), (200, &json!("9")));
    assert_eq!(client.delete(&format!("{MAPS}/a?dryRun=All")).await.0, 200);
    assert_eq!(client.delete(&format!("{MAPS}?dryRun=All")).await.0, 200);
    assert_eq!(client.world.with(|core, _| core.kubernetes.version()), before);
    assert_eq!(client.post(&format!("{MAPS}?dryRun=Some"), &config_map("b", &json!({}))).await.0, 422);
}

#[tokio::test(start_paused = true)]
async fn status_is_written_separately() {
    let client = Client::new();
    client.post(PODS, &pod("p", &json!({}))).await;
    let path = format!("{PODS}/p");
    client.patch(&path, "merge", &json!({ "status": { "phase": "Running" } })).await;
    assert_eq!(client.get(&path).await.1["status"]["phase"], "Pending", "not through the pod itself");
    let patch = json!({ "status": { "phase": "Running" }, "spec": { "nodeName": "n" } });
    client.patch(&format!("{path}/status"), "merge", &patch).await;
    let (_, shown) = client.get(&path).await;
    assert_eq!((&shown["status"]["phase"], &shown["spec"]["nodeName"]), (&json!("Running"), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_once() {
    let client = Client::new();
    client.post(PODS, &pod("p", &json!({}))).await;
    let binding = json!({ "metadata": { "name": "p" }, "target": { "kind": "Node", "name": "n1" } });
    assert_eq!(client.post(&format!("{PODS}/p/binding"), &binding).await.0, 201);
    let (code, again) = client.post("/api/v1/namespaces/default/bindings", &binding).await;
    assert_eq!(code, 409);
    assert_eq!(
        again["message"],
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\""
    );
    let (_, bound) = client.get(&format!("{PODS}/p")).await;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(
        client.get(&format!("{PODS}?fieldSelector=spec.nodeName%3Dn1")).await.1["items"][0]["metadata"]["name"],
        "p"
    );
}

#[tokio::test(start_paused = true)]
async fn an_eviction_respects_the_budget() {
    let client = Client::new();
    for name in ["p1", "p2"] {
        client.post(PODS, &pod(name, &json!({ "app": "x" }))).await;
        let running =
            json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
        client.patch(&format!("{PODS}/{name}/status"), "merge", &running).await;
    }
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({ "metadata": { "name": "b" }, "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "x" } } } });
    client.post(budgets, &budget).await;
    let evict = |name: &str| json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } });
    let (code, refused) = client.post(&format!("{PODS}/p1/eviction"), &evict("p1")).await;
    assert_eq!(code, 429);
    let cause = &refused["details"]["causes"][0];
    assert_eq!(cause["message"], "The disruption budget b is still being processed by the server.");

    let status = json!({ "status": { "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1 } });
    client.patch(&format!("{budgets}/b/status"), "merge", &status).await;
    let mut dry = evict("p1");
    dry["deleteOptions"] = json!({ "dryRun": ["All"] });
    assert_eq!(client.post(&format!("{PODS}/p1/eviction"), &dry).await.0, 201);
    assert_eq!(client.post(&format!("{PODS}/p1/eviction"), &evict("p1")).await.0, 201);
    let (code, refused) = client.post(&format!("{PODS}/p2/eviction"), &evict("p2")).await;
    assert_eq!((code, &refused["reason"]), (429, &json!("TooManyRequests")));
    assert_eq!(client.get(&format!("{PODS}/p2")).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn scale() {
    let client = Client::new();
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let template =
        json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let deployment = json!({ "metadata": { "name": "d" }, "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": template } });
    assert_eq!(client.post(deployments, &deployment).await.0, 201);
    let path = format!("{deployments}/d/scale");
    let (_, mut scale) = client.get(&path).await;
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(1), &json!("a=b")));
    let (code, patched) = client.patch(&path, "merge", &json!({ "spec": { "replicas": 3 } })).await;
    assert_eq!((code, &patched["spec"]["replicas"]), (200, &json!(3)));
    scale["spec"]["replicas"] = json!(5);
    assert_eq!(client.put(&path, &scale).await.0, 409, "its version is old");
    scale["metadata"]["resourceVersion"] = json!("");
    assert_eq!(client.put(&path, &scale).await.0, 200);
    assert_eq!(client.get(&format!("{deployments}/d")).await.1["metadata"]["generation"], 3);
    assert_eq!(client.patch(&path, "merge", &json!({ "spec": { "replicas": -1 } })).await.0, 422);
}

#[tokio::test(start_paused = true)]
async fn rejected_requests() {
    let client = Client::new();
    for (method, path, body, code, message) in [
        ("POST", "/api/v1/pods", json!({}), 405, "the server does not allow this method"),
        ("PUT", PODS, json!({}), 405, "the server does not allow this method"),
        ("GET", "/api/v1/nope", Value::Null, 404, "the server could not find the requested resource"),
        ("POST", "/api/v1/namespaces/nope/pods", pod("p", &json!({})), 404, "namespaces \"nope\" not found"),
        ("POST", PODS, json!({ "kind": "Node" }), 400, "cannot be handled as a Pod"),
        ("POST", PODS, json!({ "metadata": { "name": 3 } }), 400, "cannot unmarshal number"),
        ("POST", PODS, json!({ "metadata": { "namespace": "x" } }), 400, "the namespace of the provided object"),
        ("POST", PODS, json!({ "metadata": { "name": "A_" } }), 422, "Pod \"A_\" is invalid: [metadata.name: Invalid"),
        ("POST", MAPS, config_map("a", &json!({ "a b": "1" })), 422, "metadata.labels: Invalid value: \"a b\""),
        ("POST", MAPS, json!({}), 422, "name or generateName is required"),
        ("GET", "/api/v1/pods?labelSelector=a%3D%3D%3Db", Value::Null, 400, "unable to parse requirement"),
        ("GET", "/api/v1/pods?fieldSelector=foo%3Db", Value::Null, 400, "field label not supported: foo"),
        (
            "GET",
            "/api/v1/pods?watch=1&sendInitialEvents=true",
            Value::Null,
            422,
            "requires setting resourceVersionMatch",
        ),
    ] {
        let (found, answer) = client.send(method.parse().unwrap(), path, "application/json", &body).await;
        let text = answer["message"].as_str().unwrap_or_default();
        assert_eq!((found, text.contains(message)), (code, true), "{method} {path} {body}: {answer}");
    }
    let mut misspelt = pod("p", &json!({}));
    misspelt["spec"]["containerz"] = json!([]);
    let (code, refused) = client.post(&format!("{PODS}?fieldValidation=Strict"), &misspelt).await;
    assert_eq!(
        (code, refused["message"].as_str().unwrap()),
        (
            400,
            "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \"spec.containerz\""
        )
    );
    let (code, _) = client.send(Method::POST, PODS, "foo/bar", &json!({})).await;
    assert_eq!(code, 415);
    let mut classy = pod("p", &json!({}));
    classy["spec"]["priorityClassName"] = json!("nope");
    assert_eq!(client.post(PODS, &classy).await.1["reason"], "Forbidden");
    let huge = json!({ "metadata": { "name": "a" }, "data": { "a": "x".repeat(4 << 20) } });
    assert_eq!(client.post(MAPS, &huge).await.0, 413);
    client
        .world
        .with(|core, now| core.kubernetes.store_mut().mark_deleted(KindId::NAMESPACE, "", "default", now, 0))
        .unwrap();
    let (code, refused) = client.post(MAPS, &config_map("a", &json!({}))).await;
    assert_eq!((code, &refused["details"]["causes"][0]["reason"]), (403, &json!("NamespaceTerminating")));
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_a_selector_sees_objects_enter_and_leave() {
    let client = Client::new();
    client.post(MAPS, &config_map("a", &json!({ "in": "1" }))).await;
    client.post(MAPS, &config_map("b", &json!({}))).await;
    let version = client.get(MAPS).await.1["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    client.patch(&format!("{MAPS}/b"), "merge", &json!({ "metadata": { "labels": { "in": "1" } } })).await;
    client.patch(&format!("{MAPS}/b"), "merge", &json!({ "data": { "a": "2" } })).await;
    client.patch(&format!("{MAPS}/a"), "merge", &json!({ "metadata": { "labels": { "in": null } } })).await;
    client.delete(&format!("{MAPS}/b")).await;
    client.delete(&format!("{MAPS}/a")).await;
    let events =
        client.watch(&format!("{MAPS}?watch=1&labelSelector=in&timeoutSeconds=1&resourceVersion={version}")).await;
    assert_eq!(summary(&events), ["ADDED b", "MODIFIED b", "DELETED a", "DELETED b"]);
    let versions: Vec<u64> = events
        .iter()
        .map(|event| event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!(versions.is_sorted(), "{versions:?}");
    assert_eq!(events[2]["object"]["metadata"]["labels"]["in"], "1", "the last selected state");
}

#[tokio::test(start_paused = true)]
async fn a_watch_can_start_with_a_list_and_gets_bookmarks() {
    let client = Client::new();
    client.post(MAPS, &config_map("a", &json!({}))).await;
    let query =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=150";
    let events = client.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(summary(&events), ["ADDED a", "BOOKMARK ", "BOOKMARK ", "BOOKMARK "]);
    assert_eq!(events[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert!(events[2]["object"]["metadata"]["annotations"].is_null());
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_before_the_window_must_list_again() {
    let client = Client::new();
    for name in ["a", "b", "c"] {
        client.post(MAPS, &config_map(name, &json!({}))).await;
    }
    client.world.with(|core, _| core.kubernetes.store_mut().compact(1));
    let events = client.watch(&format!("{MAPS}?watch=1&resourceVersion=1")).await;
    assert_eq!((&events[0]["type"], &events[0]["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(events.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn events_of_both_groups_are_the_same_objects() {
    let client = Client::new();
    let event = json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "e" },
        "regarding": { "kind": "Pod", "name": "p", "namespace": "default" }, "note": "hello", "reason": "R",
        "type": "Normal", "action": "A", "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "bridger", "reportingInstance": "b-0" });
    let (code, created) = client.post("/apis/events.k8s.io/v1/namespaces/default/events", &event).await;
    assert_eq!((code, &created["note"], &created["apiVersion"]), (201, &json!("hello"), &json!("events.k8s.io/v1")));
    let found =
        client.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dp,source%3Dbridger").await;
    assert_eq!(found.1["items"][0]["message"], "hello");
    let series = json!({ "series": { "count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z" } });
    assert_eq!(client.patch("/apis/events.k8s.io/v1/namespaces/default/events/e", "merge", &series).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn five_thousand_nodes_are_listed_and_watched() {
    let client = Client::new();
    client.world.with(|core, now| {
        for number in 0..5000 {
            let labels =
                json!({ "kubernetes.io/hostname": format!("node-{number}"), "zone": format!("z{}", number % 3) });
            let status = json!({ "capacity": { "cpu": "8", "memory": "32Gi", "pods": "110" },
                "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready" }] });
            let node =
                json!({ "metadata": { "name": format!("node-{number:04}"), "labels": labels }, "status": status });
            core.kubernetes.store_mut().create(KindId::NODE, node, now).unwrap();
        }
    });
    let (_, list) = client.get("/api/v1/nodes").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 5000);
    assert_eq!(client.watch("/api/v1/nodes?watch=1&timeoutSeconds=1").await.len(), 5000);
}

#[tokio::test(start_paused = true)]
async fn object_size_is_bounded() {
    let client = Client::new();
    client.post("/api/v1/nodes", &json!({ "metadata": { "name": "n" } })).await;
    let mut codes = Vec::new();
    for round in 0..6 {
        let images = json!({ "status": { format!("extra{round}"): "x".repeat(1024 * 1024) } });
        codes.push(client.patch("/api/v1/nodes/n/status", "merge", &images).await.0);
    }
    assert_eq!(codes, [200, 200, 413, 413, 413, 413]);
    assert_eq!(client.get("/api/v1/nodes/n").await.0, 200);
}
