//! Deployments as people write them, for the demo, examples and tests.

use serde_json::{Value, json};

/// A Deployment of one container, in namespace `default`. `requests` are those of the container.
#[must_use]
pub fn deployment(name: &str, replicas: u32, image: &str, requests: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "main", "image": image, "resources": { "requests": requests } }] },
            },
        },
    })
}

/// The same with replicas that must be apart; by node, for users know of nothing else.
#[must_use]
pub fn apart_by_node(name: &str, replicas: u32, image: &str, requests: &Value) -> Value {
    let mut object = deployment(name, replicas, image, requests);
    object["spec"]["template"]["spec"]["affinity"] = json!({
        "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": { "matchLabels": { "app": name } },
            "topologyKey": "kubernetes.io/hostname",
        }] }
    });
    object
}
