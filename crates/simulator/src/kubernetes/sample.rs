//! Deployments as users write them, for the demo, examples and tests.

use serde_json::{Value, json};

/// A Deployment with one container, in namespace `default`. `requests` are the container's requests.
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

/// The same Deployment with required pod anti-affinity. The topology key is the node, because users do not know the
/// hosts.
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
