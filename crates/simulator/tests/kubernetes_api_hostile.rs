//! Random, malformed and truncated requests: always an answer, never a server error, never a panic.

mod kubernetes_api_support;

use std::time::{Duration, Instant};

use axum::body::Body;
use http::{Request, header};
use kubernetes_api_support::{Client, config_map, pod};
use serde_json::{Value, json};
use simulator::seed::{Seed, Stream};

const REQUESTS: usize = 20_000;

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "NONSENSE"];
const USUAL_METHODS: &[&str] = &["GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE"];
const PATCH_TYPES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
#[rustfmt::skip]
const SEGMENTS: &[&str] = &[
    "api", "apis", "v1", "apps", "policy", "events.k8s.io", "namespaces", "default", "nope", "pods", "nodes",
    "configmaps", "deployments", "poddisruptionbudgets", "events", "bindings", "p", "a", "b", "d", "status", "scale",
    "binding", "eviction", "openapi", "v3", "version", "healthz", "%2e%2e", "%zz", "%00", "..", "",
];
#[rustfmt::skip]
const PATHS: &[&str] = &[
    "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/pods/p",
    "/api/v1/namespaces/default/pods/p/status", "/api/v1/namespaces/default/pods/p/binding",
    "/api/v1/namespaces/default/pods/p/eviction", "/api/v1/nodes/n", "/api/v1/nodes",
    "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/configmaps/a",
    "/apis/apps/v1/namespaces/default/deployments", "/apis/apps/v1/namespaces/default/deployments/d",
    "/apis/apps/v1/namespaces/default/deployments/d/scale", "/api/v1/namespaces/default/services",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets", "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/apps/v1/namespaces/default/statefulsets", "/apis/apps/v1/namespaces/default/replicasets",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/l", "/api/v1/namespaces/default/events",
    "/apis/events.k8s.io/v1/namespaces/default/events", "/api/v1/namespaces", "/api/v1/namespaces/default/secrets",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/api/v1/namespaces/default/bindings",
];
#[rustfmt::skip]
const QUERIES: &[&str] = &[
    "", "watch=1&timeoutSeconds=1", "watch=true&timeoutSeconds=1&resourceVersion=1", "limit=1", "limit=-1", "limit=x",
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIvYSJ9", "continue=%ff",
    "labelSelector=a%20in%20(b,c)", "labelSelector=%28%28%28", "labelSelector=,,", "fieldSelector=metadata.name%3Da",
    "fieldSelector=%3D%3D", "resourceVersion=0", "resourceVersion=-1", "resourceVersion=1&resourceVersionMatch=Exact",
    "dryRun=All", "dryRun=x", "fieldManager=m", "fieldManager=m&force=true", "gracePeriodSeconds=-1",
    "gracePeriodSeconds=0", "propagationPolicy=Foreground", "propagationPolicy=x", "includeObject=x",
    "includeObject=Object",
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1&allowWatchBookmarks=1",
    "&&=&=%", "fieldValidation=Strict", "watch=1&timeoutSeconds=1&labelSelector=!a&fieldSelector=metadata.name!%3Dx",
];
#[rustfmt::skip]
const CONTENT_TYPES: &[&str] = &[
    "application/json", "application/json-patch+json", "application/merge-patch+json", "", "text/plain",
    "application/strategic-merge-patch+json", "application/apply-patch+yaml", "application/yaml",
    "application/json;;;=", "application/vnd.kubernetes.protobuf",
];
#[rustfmt::skip]
const ACCEPTS: &[&str] = &[
    "", "application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", ",;=,;", "foo/bar",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf",
];
#[rustfmt::skip]
const KEYS: &[&str] = &[
    "metadata", "spec", "status", "name", "namespace", "labels", "annotations", "containers", "template", "selector",
    "matchLabels", "matchExpressions", "replicas", "conditions", "type", "finalizers", "ownerReferences", "kind",
    "apiVersion", "op", "path", "value", "from", "$patch", "$retainKeys", "$setElementOrder/containers", "target",
    "deleteOptions", "preconditions", "data", "stringData", "ports", "taints", "tolerations", "affinity",
    "managedFields", "resourceVersion", "uid", "generateName", "involvedObject", "regarding", "image",
    "priorityClassName", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "labelSelector",
    "matchLabelKeys", "minAvailable", "series", "source", "nodeName", "schedulingGates", "strategy", "resources",
    "limits", "cpu", "clusterIP", "loadBalancer", "disruptedPods", "containerStatuses", "state",
];
#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "", "a", "p", "d", "default", "Pod", "v1", "Deployment", "apps/v1", "remove", "copy", "/metadata",
    "/spec/containers/0", "/metadata/labels", "delete", "replace", "1", "0", "500m", "\u{0}", "é", "In", "Exists",
    "A_", "2026-01-01T00:00:00Z",
];

fn pick<'a>(random: &mut Stream, from: &[&'a str]) -> &'a str {
    from[usize::try_from(random.below(from.len() as u64)).unwrap()]
}

fn value(random: &mut Stream, depth: u64) -> Value {
    match random.below(if depth == 0 { 6 } else { 11 }) {
        0 => Value::Null,
        1 => json!(random.chance(0.5)),
        2 => json!(i64::try_from(random.below(5)).unwrap() - 2),
        3 => json!(random.unit() * 1e19),
        4 | 5 => json!(pick(random, TEXTS)),
        6 | 7 => (0..random.below(4)).map(|_| value(random, depth - 1)).collect(),
        _ => {
            let count = random.below(6);
            Value::Object((0..count).map(|_| (pick(random, KEYS).to_owned(), value(random, depth - 1))).collect())
        }
    }
}

fn deployment() -> Value {
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i",
        "ports": [{ "containerPort": 1 }], "resources": { "limits": { "cpu": "1" } } }] } });
    json!({ "metadata": { "name": "d" }, "spec": { "replicas": 1, "selector": { "matchLabels": { "a": "b" } },
        "template": template, "strategy": { "rollingUpdate": { "maxSurge": 1 } } } })
}

/// A valid object with one value replaced by an invalid one.
fn spoiled(random: &mut Stream) -> Value {
    let mut object = match random.below(5) {
        0 => pod("p", &json!({ "a": "b" })),
        1 => config_map("a", &json!({})),
        2 => deployment(),
        3 => {
            json!({ "metadata": { "name": "p" }, "target": { "name": "n" }, "deleteOptions": { "gracePeriodSeconds": 0 } })
        }
        _ => {
            json!([{ "op": "copy", "from": "/spec", "path": "/spec/x" }, { "op": "add", "path": "/metadata/labels", "value": {} }])
        }
    };
    let mut place = &mut object;
    loop {
        let count = match &*place {
            Value::Object(map) => map.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        };
        if count == 0 || random.chance(0.3) {
            break;
        }
        let index = usize::try_from(random.below(count as u64)).unwrap();
        place = match place {
            Value::Object(map) => map.values_mut().nth(index).unwrap(),
            Value::Array(items) => &mut items[index],
            _ => unreachable!("it has parts"),
        };
    }
    *place = value(random, 3);
    object
}

fn body(random: &mut Stream) -> Vec<u8> {
    let mut bytes = match random.below(8) {
        0 => Vec::new(),
        1 => b"k8s\0".to_vec(),
        2 => ["[", "{\"a\":", "- "][usize::try_from(random.below(3)).unwrap()].repeat(20_000).into_bytes(),
        3 => (0..random.below(200)).map(|_| u8::try_from(random.below(256)).unwrap()).collect(),
        4 => value(random, 6).to_string().into_bytes(),
        _ => spoiled(random).to_string().into_bytes(),
    };
    if bytes.starts_with(b"k8s") {
        bytes.extend((0..random.below(100)).map(|_| u8::try_from(random.below(32)).unwrap()));
    }
    if random.chance(0.1) {
        bytes.truncate(usize::try_from(random.below(bytes.len() as u64 + 1)).unwrap());
    }
    bytes
}

#[tokio::test(start_paused = true)]
async fn every_request_is_answered() {
    let mut random = Seed(4).stream("hostile requests");
    let mut client = Client::new();
    let mut answers = std::collections::BTreeMap::new();
    let begin = Instant::now();
    for number in 0..REQUESTS {
        if number % 500 == 0 {
            client = Client::new();
            client.post("/api/v1/namespaces/default/pods", &pod("p", &json!({}))).await;
            client.post("/api/v1/namespaces/default/configmaps", &config_map("a", &json!({}))).await;
            client.post("/api/v1/nodes", &json!({ "metadata": { "name": "n" } })).await;
            client.post("/apis/apps/v1/namespaces/default/deployments", &deployment()).await;
        }
        let path = if random.chance(0.2) {
            let count = random.below(8);
            (0..count).map(|_| format!("/{}", pick(&mut random, SEGMENTS))).collect::<String>() + "/"
        } else {
            pick(&mut random, PATHS).to_owned()
        };
        let uri = format!("{path}?{}", pick(&mut random, QUERIES));
        // Mostly plausible requests, so that the invalid parts get past the first checks.
        let method = if random.chance(0.1) { pick(&mut random, METHODS) } else { pick(&mut random, USUAL_METHODS) };
        let content_type = match method {
            _ if random.chance(0.1) => pick(&mut random, CONTENT_TYPES),
            "PATCH" => pick(&mut random, PATCH_TYPES),
            _ => "application/json",
        };
        let accept = if random.chance(0.1) { pick(&mut random, ACCEPTS) } else { "*/*" };
        let request = Request::builder()
            .method(method)
            .uri(&uri)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::ACCEPT, accept)
            .body(Body::from(body(&mut random)));
        let Ok(request) = request else { continue };
        let shown = format!("{number}: {} {uri}", request.method());
        let before = Instant::now();
        // Virtual time: a watch that does not end by itself would reach this timeout immediately.
        let answer = tokio::time::timeout(Duration::from_secs(3600), client.raw(request)).await;
        let (status, text) = answer.unwrap_or_else(|_| panic!("no answer to {shown}"));
        assert!(status.as_u16() < 500, "{status} for {shown}: {}", String::from_utf8_lossy(&text));
        assert!(before.elapsed() < Duration::from_secs(5), "{:?} for {shown}", before.elapsed());
        *answers.entry(status.as_u16()).or_insert(0_usize) += 1;
    }
    for code in [200, 201, 400, 404, 405, 415, 422] {
        let count = answers.get(&code).copied().unwrap_or(0);
        assert!(count > REQUESTS / 500, "the requests are not hostile enough: {answers:?}");
    }
    assert!(begin.elapsed() < Duration::from_secs(300), "{:?}", begin.elapsed());
}
