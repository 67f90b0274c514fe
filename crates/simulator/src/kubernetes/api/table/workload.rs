//! The table rows of nodes, workloads, Services and events.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{age, or_empty};
use crate::clock::SimTime;
use crate::kubernetes::label_selector::LabelSelector;

pub(super) fn node(node: &Value, now: SimTime) -> Value {
    let ready = items(&node["status"]["conditions"]).iter().find(|condition| condition["type"] == "Ready");
    let mut status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    let roles: BTreeSet<&str> = node["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => value.as_str().filter(|_| key == "kubernetes.io/role"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    let roles = if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") };
    let info = &node["status"]["nodeInfo"];
    let known = |field: &str| match or_empty(&info[field]) {
        "" => "<unknown>".to_owned(),
        text => text.to_owned(),
    };
    let mut kernel = known("kernelVersion");
    let architecture = or_empty(&info["architecture"]);
    if !architecture.is_empty() {
        kernel.push_str(&format!(" ({architecture})"));
    }
    let address = |address_type: &str| {
        items(&node["status"]["addresses"])
            .iter()
            .find(|address| address["type"] == address_type)
            .and_then(|address| address["address"].as_str())
            .unwrap_or("<none>")
    };
    json!([
        node["metadata"]["name"],
        status,
        roles,
        age_of(node, now),
        or_empty(&info["kubeletVersion"]),
        address("InternalIP"),
        address("ExternalIP"),
        known("osImage"),
        kernel,
        known("containerRuntimeVersion"),
    ])
}

pub(super) fn deployment(deployment: &Value, now: SimTime) -> Value {
    let (status, spec) = (&deployment["status"], &deployment["spec"]);
    let selector = LabelSelector::from_object(&spec["selector"]).map_or_else(String::new, |s| s.to_string());
    let (names, images) = containers(spec);
    json!([
        deployment["metadata"]["name"],
        format!("{}/{}", whole(&status["readyReplicas"]), whole(&spec["replicas"])),
        whole(&status["updatedReplicas"]),
        whole(&status["availableReplicas"]),
        age_of(deployment, now),
        names,
        images,
        selector,
    ])
}

pub(super) fn replica_set(replica_set: &Value, now: SimTime) -> Value {
    let (status, spec) = (&replica_set["status"], &replica_set["spec"]);
    let selector = LabelSelector::from_object(&spec["selector"])
        .filter(|selector| !selector.is_empty())
        .map_or_else(|| "<none>".to_owned(), |selector| selector.to_string());
    let (names, images) = containers(spec);
    json!([
        replica_set["metadata"]["name"],
        whole(&spec["replicas"]),
        whole(&status["replicas"]),
        whole(&status["readyReplicas"]),
        age_of(replica_set, now),
        names,
        images,
        selector,
    ])
}

pub(super) fn stateful_set(stateful_set: &Value, now: SimTime) -> Value {
    let (status, spec) = (&stateful_set["status"], &stateful_set["spec"]);
    let (names, images) = containers(spec);
    json!([
        stateful_set["metadata"]["name"],
        format!("{}/{}", whole(&status["readyReplicas"]), whole(&spec["replicas"])),
        age_of(stateful_set, now),
        names,
        images,
    ])
}

pub(super) fn service(service: &Value, now: SimTime) -> Value {
    let spec = &service["spec"];
    let ports: Vec<String> = items(&spec["ports"])
        .iter()
        .map(|port| {
            let node_port = match whole(&port["nodePort"]) {
                0 => String::new(),
                number => format!(":{number}"),
            };
            format!("{}{node_port}/{}", whole(&port["port"]), or_empty(&port["protocol"]))
        })
        .collect();
    let ports = if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") };
    let selector: Vec<String> = spec["selector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", or_empty(value)))
        .collect();
    let selector = if selector.is_empty() { "<none>".to_owned() } else { selector.join(",") };
    json!([
        service["metadata"]["name"],
        or_empty(&spec["type"]),
        spec["clusterIPs"][0].as_str().or(spec["clusterIP"].as_str()).unwrap_or("<none>"),
        external_addresses(service),
        ports,
        age_of(service, now),
        selector,
    ])
}

fn external_addresses(service: &Value) -> String {
    let spec = &service["spec"];
    let mut addresses: Vec<&str> = Vec::new();
    if spec["type"] == "ExternalName" {
        return or_empty(&spec["externalName"]).to_owned();
    }
    if spec["type"] == "LoadBalancer" {
        let ingress: BTreeSet<&str> = items(&service["status"]["loadBalancer"]["ingress"])
            .iter()
            .filter_map(|ingress| ingress["ip"].as_str().or(ingress["hostname"].as_str()))
            .collect();
        addresses.extend(ingress);
    }
    addresses.extend(items(&spec["externalIPs"]).iter().filter_map(Value::as_str));
    match (addresses.is_empty(), or_empty(&spec["type"])) {
        (false, _) => addresses.join(","),
        (true, "LoadBalancer") => "<pending>".to_owned(),
        (true, "ClusterIP" | "NodePort") => "<none>".to_owned(),
        (true, _) => "<unknown>".to_owned(),
    }
}

pub(super) fn event(event: &Value, now: SimTime) -> Value {
    let first = if event["firstTimestamp"].is_null() { &event["eventTime"] } else { &event["firstTimestamp"] };
    let mut last = if event["lastTimestamp"].is_null() { first } else { &event["lastTimestamp"] };
    let mut count = whole(&event["count"]).max(1);
    if event["series"].is_object() {
        last = &event["series"]["lastObservedTime"];
        count = whole(&event["series"]["count"]);
    }
    let involved = &event["involvedObject"];
    let mut object = or_empty(&involved["kind"]).to_ascii_lowercase();
    if let Some(name) = involved["name"].as_str().filter(|name| !name.is_empty()) {
        object = format!("{object}/{name}");
    }
    let first_of = |a: &Value, b: &Value| {
        let (a, b) = (or_empty(a).to_owned(), or_empty(b).to_owned());
        if a.is_empty() { b } else { a }
    };
    let mut source = first_of(&event["source"]["component"], &event["reportingComponent"]);
    let instance = first_of(&event["source"]["host"], &event["reportingInstance"]);
    if !instance.is_empty() {
        source = format!("{source}, {instance}");
    }
    json!([
        age::since(last, now),
        or_empty(&event["type"]),
        or_empty(&event["reason"]),
        object,
        or_empty(&involved["fieldPath"]),
        source,
        or_empty(&event["message"]).trim(),
        age::since(first, now),
        count,
        event["metadata"]["name"],
    ])
}

fn containers(spec: &Value) -> (String, String) {
    let list = items(&spec["template"]["spec"]["containers"]);
    let joined = |field: &str| list.iter().map(|c| or_empty(&c[field])).collect::<Vec<_>>().join(",");
    (joined("name"), joined("image"))
}

fn age_of(object: &Value, now: SimTime) -> String {
    age::since(&object["metadata"]["creationTimestamp"], now)
}

fn whole(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let now = SimTime::VIRTUAL_START;
        let metadata = json!({ "name": "x", "creationTimestamp": "2025-12-31T23:59:00Z", "labels": {
            "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "" } });
        let object = json!({ "metadata": metadata, "spec": { "unschedulable": true }, "status": {
            "conditions": [{ "type": "Ready", "status": "True" }],
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.7" }],
            "nodeInfo": { "kubeletVersion": "v1.36.4", "kernelVersion": "6.1", "architecture": "amd64" } } });
        assert_eq!(
            node(&object, now),
            json!([
                "x",
                "Ready,SchedulingDisabled",
                "control-plane,worker",
                "60s",
                "v1.36.4",
                "10.0.0.7",
                "<none>",
                "<unknown>",
                "6.1 (amd64)",
                "<unknown>"
            ])
        );
        let object = json!({ "metadata": metadata, "spec": { "type": "NodePort", "clusterIPs": ["10.96.0.9"],
            "ports": [{ "port": 80, "nodePort": 30001, "protocol": "TCP" }], "selector": { "a": "b" } } });
        assert_eq!(
            service(&object, now),
            json!(["x", "NodePort", "10.96.0.9", "<none>", "80:30001/TCP", "60s", "a=b"])
        );
        let object = json!({ "metadata": metadata, "reason": "R", "type": "Normal", "message": " m ",
            "involvedObject": { "kind": "Pod", "name": "p" }, "lastTimestamp": "2025-12-31T23:59:50Z",
            "reportingComponent": "bridger" });
        assert_eq!(
            event(&object, now),
            json!(["10s", "Normal", "R", "pod/p", "", "bridger", "m", "<unknown>", 1, "x"])
        );
    }
}
