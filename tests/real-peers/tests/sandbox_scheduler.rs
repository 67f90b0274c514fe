//! An unmodified kube-scheduler on `bridger sandbox --no-placer`.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use testkit::{Sandbox, Scheduler, eventually};

const SOON: Duration = Duration::from_secs(90);
const FLAGS: [&str; 6] = ["--hosts", "2", "--nodes", "3", "--no-placer", "--drs=off"];

async fn create(client: &Client, path: &str, object: &Value) -> Result<()> {
    let request =
        Request::post(path).header("content-type", "application/json").body(object.to_string().into_bytes())?;
    client.request::<Value>(request).await.with_context(|| format!("POST {path}"))?;
    Ok(())
}

async fn get(client: &Client, path: &str) -> Result<Value> {
    client.request(Request::get(path).body(Vec::new())?).await.with_context(|| format!("GET {path}"))
}

fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

/// A pod that takes most of a node.
fn large_pod(name: &str, priority_class: &str, labels: &Value) -> Value {
    json!({ "metadata": { "name": name, "labels": labels }, "spec": {
        "priorityClassName": priority_class, "terminationGracePeriodSeconds": 2,
        "containers": [{ "name": "main", "image": "none", "resources": { "requests": { "cpu": "5" } } }] } })
}

async fn until_running(client: &Client, name: &str, scheduler: &Scheduler) -> Result<Value> {
    let running = eventually(SOON, || async {
        let pod = get(client, &pod_path(name)).await?;
        ensure!(pod["status"]["phase"] == "Running", "{name}: {} {}", pod["spec"]["nodeName"], pod["status"]);
        Ok(pod)
    });
    running.await.with_context(|| scheduler.log_tail())
}

async fn events_of(client: &Client, pod: &str) -> Result<Vec<Value>> {
    let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{pod}");
    Ok(get(client, &path).await?["items"].as_array().cloned().unwrap_or_default())
}

#[tokio::test]
async fn kube_scheduler_places_pods_and_preempts_where_a_budget_allows_it() -> Result<()> {
    let sandbox = Sandbox::start(&FLAGS).await?;
    let client = sandbox.client().await?;
    for (name, value) in [("low", 1), ("high", 1000)] {
        let class = json!({ "metadata": { "name": name }, "value": value });
        create(&client, "/apis/scheduling.k8s.io/v1/priorityclasses", &class).await?;
    }
    let budget = json!({ "metadata": { "name": "guard" }, "spec": { "minAvailable": "100%",
        "selector": { "matchLabels": { "guarded": "yes" } } } });
    create(&client, "/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget).await?;
    let scheduler = Scheduler::start_on(&sandbox).await?;
    let pods = "/api/v1/namespaces/default/pods";
    // Nodes are full: two of three pods are guarded by a budget, which allows none of them to go.
    for (name, guarded) in [("low-0", "yes"), ("low-1", "no"), ("low-2", "yes")] {
        create(&client, pods, &large_pod(name, "low", &json!({ "guarded": guarded }))).await?;
    }
    let mut nodes = BTreeSet::new();
    for name in ["low-0", "low-1", "low-2"] {
        let pod = until_running(&client, name, &scheduler).await?;
        assert_eq!(
            (&pod["spec"]["priority"], &pod["spec"]["preemptionPolicy"]),
            (&json!(1), &json!("PreemptLowerPriority"))
        );
        nodes.insert(pod["spec"]["nodeName"].to_string());
    }
    assert_eq!(nodes.len(), 3, "one pod fills a node: {nodes:?}");
    let victim_node = get(&client, &pod_path("low-1")).await?["spec"]["nodeName"].clone();

    create(&client, pods, &large_pod("high-0", "high", &json!({}))).await?;
    eventually(SOON, || async {
        let waiting = get(&client, &pod_path("high-0")).await?;
        let nominated = &waiting["status"]["nominatedNodeName"];
        ensure!(*nominated == victim_node || waiting["spec"]["nodeName"] == victim_node, "{}", waiting["status"]);
        Ok(())
    })
    .await
    .with_context(|| scheduler.log_tail())?;
    let placed = until_running(&client, "high-0", &scheduler).await?;
    assert_eq!(placed["spec"]["nodeName"], victim_node, "the pod without a budget goes");
    assert!(placed["status"]["nominatedNodeName"].is_null(), "{}", placed["status"]);
    for name in ["low-0", "low-2"] {
        assert_eq!(get(&client, &pod_path(name)).await?["status"]["phase"], "Running", "{name}");
    }
    let events = events_of(&client, "low-1").await?;
    assert!(events.iter().any(|event| event["reason"] == "Preempted"), "{events:?}");
    Ok(())
}

/// The kube-scheduler selects a node, the provisioner creates the volume, and the pod is bound and runs there.
#[tokio::test]
async fn kube_scheduler_binds_volumes_with_their_first_pod() -> Result<()> {
    let sandbox = Sandbox::start(&FLAGS).await?;
    let client = sandbox.client().await?;
    let scheduler = Scheduler::start_on(&sandbox).await?;
    let claim = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    let set = json!({ "metadata": { "name": "db" }, "spec": { "replicas": 2, "serviceName": "db",
        "selector": { "matchLabels": { "app": "db" } },
        "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": claim }],
        "template": { "metadata": { "labels": { "app": "db" } }, "spec": {
            "containers": [{ "name": "main", "image": "none" }],
            "volumes": [{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": claim } } }] } } } });
    create(&client, "/apis/apps/v1/namespaces/default/statefulsets", &set).await?;
    for number in 0..2 {
        let pod = until_running(&client, &format!("db-{number}"), &scheduler).await?;
        for name in [format!("data-db-{number}"), format!("db-{number}-scratch")] {
            let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}");
            let claim = get(&client, &path).await?;
            assert_eq!(claim["status"]["phase"], "Bound", "{claim}");
            let selected = &claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
            assert_eq!(*selected, pod["spec"]["nodeName"], "{claim}");
        }
    }
    let kubectl = sandbox.kubectl();
    let claims = kubectl.run(&["get", "pvc"]).await?;
    let header: Vec<&str> = claims.lines().next().context("a header")?.split_whitespace().collect();
    assert_eq!(
        header,
        ["NAME", "STATUS", "VOLUME", "CAPACITY", "ACCESS", "MODES", "STORAGECLASS", "VOLUMEATTRIBUTESCLASS", "AGE"]
    );
    assert_eq!(claims.matches("Bound").count(), 4, "{claims}");
    let attached = kubectl.run(&["get", "volumeattachments", "--no-headers"]).await?;
    assert_eq!(attached.matches("true").count(), 4, "{attached}");
    let described = kubectl.run(&["describe", "pvc", "data-db-0"]).await?;
    for expected in ["Used By:", "db-0", "ProvisioningSucceeded"] {
        assert!(described.contains(expected), "{expected:?} is missing:\n{described}");
    }

    // A static volume: the scheduler chooses it and the volume controller completes the binding.
    let class = json!({ "metadata": { "name": "local" }, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer" });
    create(&client, "/apis/storage.k8s.io/v1/storageclasses", &class).await?;
    let hostname = json!([{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["node-2"] }]);
    let volume = json!({ "metadata": { "name": "disk" }, "spec": { "capacity": { "storage": "2Gi" },
        "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "local": { "path": "/disk" },
        "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": hostname }] } } } });
    create(&client, "/api/v1/persistentvolumes", &volume).await?;
    let mut spec = claim.clone();
    spec["storageClassName"] = json!("local");
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    create(&client, claims, &json!({ "metadata": { "name": "static" }, "spec": spec })).await?;
    let mut user = large_pod("user", "", &json!({}));
    user["spec"]["volumes"] = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "static" } }]);
    create(&client, "/api/v1/namespaces/default/pods", &user).await?;
    let pod = until_running(&client, "user", &scheduler).await?;
    assert_eq!(pod["spec"]["nodeName"], "node-2");
    let bound = get(&client, &format!("{claims}/static")).await?;
    assert_eq!((&bound["spec"]["volumeName"], &bound["status"]["phase"]), (&json!("disk"), &json!("Bound")));
    Ok(())
}
