//! Generates containers: requests that are set, missing, zero or given only as limits; sidecars, init containers,
//! overhead, pod-level resources, host ports, images, and the status of an in-place resize.

use serde_json::{Value, json};

use super::Focus;
use super::dice::Dice;
use super::node::IMAGES;
use super::words::set;

const CPU: &[&str] = &["0", "50m", "100m", "100m", "250m", "500m", "900m"];
const MEMORY: &[&str] = &["0", "64Mi", "128Mi", "200Mi", "300Mi", "512Mi", "1Gi"];
const CPU_SMALL: &[&str] = &["0", "20m", "50m"];
const MEMORY_SMALL: &[&str] = &["0", "16Mi", "32Mi"];

const PORTS: &[u16] = &[8080, 8443, 9090, 5353];
const HOST_IPS: &[&str] = &["", "", "0.0.0.0", "10.0.0.1", "10.0.0.2", "::"];
const PROTOCOLS: &[&str] = &["TCP", "TCP", "UDP", "SCTP"];

/// Fills a pod's spec. With `wants_much` it requests more than the other pods, so that the pod to place does not fit on
/// every node.
pub fn fill(dice: &mut Dice, focus: &Focus, spec: &mut Value, wants_much: bool) {
    // A pod-level request must not be less than the sum of the container requests.
    let whole = dice.chance(10);
    let mut ports = PORTS.to_vec();
    let mut containers = Vec::new();
    for number in 0..dice.pick(&[1, 1, 1, 2]) {
        containers.push(container(dice, focus, &format!("c{number}"), whole, wants_much, &mut ports));
    }
    let mut init_containers = Vec::new();
    if dice.chance(18) {
        for number in 0..dice.between(1, 2) {
            let mut init = container(dice, focus, &format!("i{number}"), whole, wants_much, &mut ports);
            if dice.chance(50) {
                init["restartPolicy"] = "Always".into();
            }
            init_containers.push(init);
        }
    }
    if focus.declared_features && wants_much && dice.chance(90) {
        containers[0]["restartPolicy"] = "Never".into();
        containers[0]["restartPolicyRules"] =
            json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [42] } }]);
    }
    if whole {
        spec["resources"] = whole_pod(dice, focus);
    }
    if focus.images && dice.chance(12) {
        // An image volume counts like a container image.
        spec["volumes"] = json!([{ "name": "content", "image": { "reference": dice.pick(IMAGES).0 } }]);
    }
    if dice.chance(8) {
        spec["overhead"] = json!({ "cpu": "150m", "memory": "120Mi" });
    }
    if focus.ports && dice.chance(6) {
        spec["hostNetwork"] = true.into();
        publish_on_host(&mut containers);
        publish_on_host(&mut init_containers);
    }
    spec["containers"] = containers.into();
    if !init_containers.is_empty() {
        spec["initContainers"] = init_containers.into();
    }
}

/// Pod-level resources: requests, or limits that the API server copies to requests.
fn whole_pod(dice: &mut Dice, focus: &Focus) -> Value {
    let mut resources = json!({ "requests": {} });
    for (resource, quantities) in [("cpu", ["400m", "700m", "1500m"]), ("memory", ["256Mi", "700Mi", "1500Mi"])] {
        match dice.below(10) {
            0 | 1 => {}
            2 => resources["limits"][resource] = dice.pick(&quantities).into(),
            _ => resources["requests"][resource] = dice.pick(&quantities).into(),
        }
    }
    if focus.extended_resources && dice.chance(20) {
        resources["requests"]["hugepages-2Mi"] = "64Mi".into();
        resources["limits"]["hugepages-2Mi"] = "64Mi".into();
    }
    resources
}

fn container(dice: &mut Dice, focus: &Focus, name: &str, small: bool, wants_much: bool, ports: &mut Vec<u16>) -> Value {
    let image = if focus.images { dice.pick(IMAGES).0 } else { "web:1" };
    let mut container = json!({ "name": name, "image": image });
    let resources = resources(dice, focus, small, wants_much);
    if resources != json!({}) {
        container["resources"] = resources;
    }
    let percent = if wants_much { 85 } else { 60 };
    if focus.ports && !ports.is_empty() && dice.chance(percent) {
        // Removed from the list: the containers of a pod must not use the same host port twice.
        let port = ports.remove(dice.below(ports.len()));
        let mut published = json!({ "containerPort": port, "protocol": dice.pick(PROTOCOLS) });
        if dice.chance(88) {
            published["hostPort"] = port.into();
        }
        let address = dice.pick(HOST_IPS);
        if !address.is_empty() {
            published["hostIP"] = address.into();
        }
        container["ports"] = json!([published]);
    }
    container
}

/// With `hostNetwork`, the host port is the container port.
fn publish_on_host(containers: &mut [Value]) {
    for port in containers.iter_mut().filter_map(|container| container["ports"].as_array_mut()).flatten() {
        port["hostPort"] = port["containerPort"].clone();
    }
    for container in containers {
        if container["ports"].is_null()
            && let Some(fields) = container.as_object_mut()
        {
            fields.remove("ports");
        }
    }
}

fn resources(dice: &mut Dice, focus: &Focus, small: bool, wants_much: bool) -> Value {
    let (cpu, memory) = match (small, wants_much && focus.tight) {
        (true, _) => (CPU_SMALL, MEMORY_SMALL),
        (false, false) => (CPU, MEMORY),
        (false, true) => (&["100m", "500m", "900m", "1500m", "3"][..], &["0", "128Mi", "1Gi", "2Gi"][..]),
    };
    let mut requests = json!({});
    let mut limits = json!({});
    for (resource, quantities) in [("cpu", cpu), ("memory", memory)] {
        match dice.below(100) {
            0..25 => {}
            // Only a limit: the API server copies it to the request.
            25..35 => limits[resource] = dice.pick(quantities).into(),
            _ => requests[resource] = dice.pick(quantities).into(),
        }
    }
    if dice.chance(12) {
        requests["ephemeral-storage"] = dice.pick(&["1Gi", "3Gi", "8Gi"]).into();
    }
    if focus.extended_resources && !small && dice.chance(if wants_much { 70 } else { 30 }) {
        // Extended resources cannot be overcommitted: request and limit are equal.
        let gpus = dice.pick(&["0", "1", "1", "2"]);
        requests["example.com/gpu"] = gpus.into();
        limits["example.com/gpu"] = gpus.into();
    }
    if focus.extended_resources && !small && dice.chance(20) && requests.get("memory").is_some() {
        requests["hugepages-2Mi"] = "32Mi".into();
        limits["hugepages-2Mi"] = "32Mi".into();
    }
    let mut resources = json!({});
    for (field, quantities) in [("requests", requests), ("limits", limits)] {
        if quantities != json!({}) {
            resources[field] = quantities;
        }
    }
    resources
}

/// The status that the kubelet reports during an in-place resize: allocated and actual resources that differ from the
/// spec.
pub fn resized_status(dice: &mut Dice, spec: &Value, status: &mut Value) {
    for (list, field) in [("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")] {
        let containers = spec.get(list).and_then(Value::as_array).into_iter().flatten();
        let statuses: Vec<Value> = containers
            .map(|container| {
                let mut of = json!({ "name": container["name"], "image": container["image"], "imageID": "", "ready": true,
                    "restartCount": 0 });
                set(&mut of, "allocatedResources", dice.maybe(75, quantities));
                set(&mut of, "resources", dice.maybe(75, |dice| json!({ "requests": quantities(dice) })));
                of
            })
            .collect();
        if !statuses.is_empty() {
            status[field] = statuses.into();
        }
    }
    if spec.get("resources").is_some() {
        set(status, "allocatedResources", dice.maybe(60, quantities));
        set(status, "resources", dice.maybe(60, |dice| json!({ "requests": quantities(dice) })));
    }
    if dice.chance(45) {
        let reason = dice.pick(&["Infeasible", "Infeasible", "Deferred"]);
        status["conditions"] = json!([{ "type": "PodResizePending", "status": "True", "reason": reason }]);
    }
}

fn quantities(dice: &mut Dice) -> Value {
    let mut quantities = json!({});
    set(&mut quantities, "cpu", dice.maybe(85, |dice| dice.pick(&["10m", "200m", "600m", "1200m"]).into()));
    set(&mut quantities, "memory", dice.maybe(85, |dice| dice.pick(&["32Mi", "256Mi", "800Mi", "1500Mi"]).into()));
    quantities
}
