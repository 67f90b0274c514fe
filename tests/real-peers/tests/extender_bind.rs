//! Who may bind what through the extender's port: a real kube-apiserver, `bridger run`, and requests as an attacker
//! would send them. No kube-scheduler runs, and no vCenter.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use testkit::{Bridger, ControlPlane, eventually};
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(30);

struct Stage {
    _control_plane: ControlPlane,
    bridger: Bridger,
    pods: Api<Pod>,
}

impl Stage {
    /// Nodes: `free`; `cordoned`; `tainted`; `full`, with room for one pod, which it has.
    async fn start() -> Result<Stage> {
        let control_plane = ControlPlane::start().await?;
        let client = control_plane.client().await?;
        let nodes: Api<Node> = Api::all(client.clone());
        for (name, pods) in [("free", "110"), ("cordoned", "110"), ("tainted", "110"), ("full", "1")] {
            let capacity = json!({ "cpu": "2", "memory": "4Gi", "pods": pods });
            let node: Node = serde_json::from_value(json!({
                "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
                "status": { "capacity": capacity, "allocatable": capacity },
            }))?;
            nodes.create(&PostParams::default(), &node).await?;
            control_plane.make_schedulable(name).await?;
        }
        let change = async |name: &str, spec: Value| {
            let patch = kube::api::Patch::Merge(json!({ "spec": spec }));
            nodes.patch(name, &kube::api::PatchParams::default(), &patch).await
        };
        change("cordoned", json!({ "unschedulable": true })).await?;
        change("tainted", json!({ "taints": [{ "key": "k", "value": "v", "effect": "NoSchedule" }] })).await?;
        let variables = [("KUBECONFIG", control_plane.kubeconfig().display().to_string())];
        let mut bridger = Bridger::start(&["run", "--port", "0", "--extender-port", "0"], &variables)?;
        bridger.prints("matched to a VM", SOON).await?;
        eventually(SOON, || async {
            let ready = bridger.get("/readyz").await?;
            ensure!(ready.contains("200 OK"), "{ready}");
            Ok(())
        })
        .await?;
        Ok(Stage { _control_plane: control_plane, bridger, pods: Api::default_namespaced(client) })
    }

    async fn create(&self, name: &str, change: Value) -> Result<Pod> {
        let mut spec = json!({ "containers": [{ "name": "main", "image": "none",
            "resources": { "requests": { "cpu": "100m" } } }] });
        if let (Some(spec), Value::Object(change)) = (spec.as_object_mut(), change) {
            spec.extend(change);
        }
        let pod = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec }))?;
        Ok(self.pods.create(&PostParams::default(), &pod).await?)
    }

    /// The error that Bridger reports, or an empty string. On a busy machine its watch may show a new pod later than a
    /// bind request waits for it: then it is asked again.
    async fn bind(&self, pod: &Pod, node: &str) -> Result<String> {
        let binding = json!({ "PodName": pod.metadata.name, "PodUID": pod.metadata.uid,
            "PodNamespace": pod.metadata.namespace, "Node": node });
        let deadline = Instant::now() + SOON;
        loop {
            let answer = self.bridger.post("/bind", &binding).await?;
            let error = answer["Error"].as_str().unwrap_or("no answer");
            // What it says of an unknown node ends with another word.
            if !error.ends_with("is not known to Bridger") || Instant::now() >= deadline {
                return Ok(error.to_owned());
            }
        }
    }

    async fn node_of(&self, name: &str) -> Result<Option<String>> {
        Ok(self.pods.get(name).await?.spec.and_then(|spec| spec.node_name))
    }
}

#[tokio::test]
async fn number_7_bind_refuses_what_kube_scheduler_would_not_bind() -> Result<()> {
    let stage = Stage::start().await?;
    let first = stage.create("first", json!({})).await?;
    assert_eq!(stage.bind(&first, "full").await?, "");
    assert_eq!(stage.node_of("first").await?.as_deref(), Some("full"));

    let plain = stage.create("plain", json!({})).await?;
    let gated = stage.create("gated", json!({ "schedulingGates": [{ "name": "example.org/wait" }] })).await?;
    let other = stage.create("other", json!({ "schedulerName": "another" })).await?;
    let selective = stage.create("selective", json!({ "nodeSelector": { "disk": "ssd" } })).await?;
    let large = json!({ "containers": [{ "name": "main", "image": "none",
        "resources": { "requests": { "cpu": "3" } } }] });
    let large = stage.create("large", large).await?;
    // What a request says about a pod does not count: this one claims that the pod needs nothing.
    let forged = json!({ "metadata": { "name": "large", "namespace": "default", "uid": large.metadata.uid },
        "spec": { "containers": [] } });
    stage.bridger.post("/filter", &json!({ "Pod": forged, "NodeNames": ["free"] })).await?;
    for (pod, node, expected) in [
        (&plain, "cordoned", "unschedulable"),
        (&plain, "tainted", "untolerated taint"),
        (&plain, "full", "Too many pods"),
        (&plain, "nowhere", "not known"),
        (&gated, "free", "scheduling gate"),
        (&other, "free", "does not serve"),
        (&selective, "free", "node affinity"),
        (&large, "free", "Insufficient cpu"),
    ] {
        let error = stage.bind(pod, node).await?;
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        ensure!(error.contains(expected), "{name} on {node}: {error:?}");
        assert_eq!(stage.node_of(name).await?, None, "{name}");
    }
    assert_eq!(stage.bind(&plain, "free").await?, "");
    assert_eq!(stage.node_of("plain").await?.as_deref(), Some("free"));
    let metrics = stage.bridger.get("/metrics").await?;
    for expected in [
        "bridger_extender_bindings_total{outcome=\"bound\"} 2",
        "bridger_extender_bindings_total{outcome=\"rejected\"} 7",
    ] {
        ensure!(metrics.contains(expected), "{expected} is missing:\n{metrics}");
    }
    // Health and metrics are open to more clients, so their port has no extender.
    let request = "POST /filter HTTP/1.1\r\nHost: bridger\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let answer = stage.bridger.send(&stage.bridger.address()?, request).await?;
    ensure!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn number_7_an_extender_that_everyone_could_reach_does_not_start() -> Result<()> {
    let folder = testkit::workdir::Workdir::create("extender-bind")?;
    // Refused before anything is read from it.
    let kubeconfig = folder.write("kubeconfig", "")?.display().to_string();
    for flags in [&["--listen", "0.0.0.0"][..], &["--extender-listen", "::"]] {
        let arguments = [&["run", "--port", "0", "--extender-port", "0", "--kubeconfig", &kubeconfig], flags].concat();
        let finished = testkit::bridger::run_to_end(&arguments, &[]).await?;
        ensure!(finished.code == Some(2), "{finished:?}");
        ensure!(finished.stderr.contains("--client-ca-file"), "{finished:?}");
    }
    Ok(())
}
