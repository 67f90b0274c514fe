//! Pod objects. They are created already bound, because no scheduler runs here.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

pub const HOST_KEY: &str = "alpha.cna.vmware.com/host";
pub const HOSTNAME_KEY: &str = "kubernetes.io/hostname";
/// Each is in the pods, and must not be in any file or output of Bridger.
pub const SECRETS: [&str; 2] = ["annotated-secret", "secret-in-the-environment"];

/// A pod on a node, with an affinity in API format.
pub fn pod(name: &str, app: &str, node: &str, affinity: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": app }, "annotations": { "note": SECRETS[0] } },
        "spec": {
            "nodeName": node,
            "affinity": affinity,
            "containers": [{ "name": "main", "image": "none", "env": [{ "name": "PASSWORD", "value": SECRETS[1] }] }],
        },
    })
}

fn term(key: &str, app: &str) -> Value {
    json!([{ "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } }])
}

/// Anti-affinity by node to pods of this app, which Bridger lifts to hosts.
pub fn anti_affinity_to(app: &str) -> Value {
    json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": term(HOSTNAME_KEY, app) } })
}

/// Affinity by host to pods of this app.
pub fn affinity_to(app: &str) -> Value {
    json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": term(HOST_KEY, app) } })
}

/// Node affinity to these hosts.
pub fn node_affinity_to(hosts: &[&str]) -> Value {
    let expression = json!({ "key": HOST_KEY, "operator": "In", "values": hosts });
    let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": [expression] }] });
    json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } })
}

pub async fn create(client: &kube::Client, pod: Value) -> Result<()> {
    create_in(client, "default", pod).await
}

pub async fn create_in(client: &kube::Client, namespace: &str, pod: Value) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    Ok(())
}

/// Without a grace period, because no kubelet runs here that would terminate the pod.
pub async fn delete(client: &kube::Client, name: &str) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete(name, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await?;
    Ok(())
}
