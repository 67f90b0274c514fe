//! The status that a kubelet writes to a pod.

use serde_json::{Value, json};

use crate::clock::SimTime;
use crate::kubernetes::condition::{self, State};
use crate::kubernetes::json::{array, entry, items, put, text};
use crate::seed::Stream;

/// The containers are being created.
pub(super) fn creating(pod: &mut Value, host_address: &str, now: SimTime) {
    put(pod, &["status", "phase"], json!("Pending"));
    hosted(pod, host_address, now);
    let statuses = container_statuses(pod, "containers", |container| {
        json!({
            "name": container["name"], "image": container["image"], "imageID": "", "lastState": {},
            "ready": false, "restartCount": 0, "started": false,
            "state": { "waiting": { "reason": "ContainerCreating" } },
        })
    });
    put(pod, &["status", "containerStatuses"], statuses);
    scheduled(pod, now);
    condition::set(pod, "Initialized", State::new("True", "", ""), now);
    not_ready(pod, "ContainersNotReady", now);
}

/// All containers run, for the first time or again after an outage of their machine.
pub(super) fn running(pod: &mut Value, host_address: &str, address: &str, ids: &mut Stream, now: SimTime) {
    let again = pod["status"]["phase"] == "Running";
    let before = pod["status"]["containerStatuses"].clone();
    hosted(pod, host_address, now);
    put(pod, &["status", "phase"], json!("Running"));
    put(pod, &["status", "podIP"], json!(address));
    put(pod, &["status", "podIPs"], json!([{ "ip": address }]));
    let started = now.rfc3339_seconds();
    let statuses = container_statuses(pod, "containers", |container| {
        let known = items(&before).iter().find(|status| status["name"] == container["name"]);
        let known_restarts = known.map_or(0, |status| status["restartCount"].as_u64().unwrap_or(0));
        let restarts = known_restarts.saturating_add(u64::from(again));
        let last = match known {
            Some(known) if again => json!({ "terminated": {
                "exitCode": 255, "reason": "Unknown", "containerID": known["containerID"],
                "startedAt": known["state"]["running"]["startedAt"], "finishedAt": started } }),
            _ => json!({}),
        };
        running_container(container, ids, restarts, &last, &started)
    });
    put(pod, &["status", "containerStatuses"], statuses);
    if !items(&pod["spec"]["initContainers"]).is_empty() {
        let statuses = container_statuses(pod, "initContainers", |container| {
            if container["restartPolicy"] == "Always" {
                return running_container(container, ids, u64::from(again), &json!({}), &started);
            }
            let mut status = running_container(container, ids, u64::from(again), &json!({}), &started);
            let ended = json!({ "terminated": { "exitCode": 0, "reason": "Completed", "startedAt": started,
                "finishedAt": started, "containerID": status["containerID"] } });
            put(&mut status, &["state"], ended);
            put(&mut status, &["started"], json!(false));
            status
        });
        put(pod, &["status", "initContainerStatuses"], statuses);
    }
    scheduled(pod, now);
    condition::set(pod, "PodReadyToStartContainers", State::new("True", "", ""), now);
    for condition_type in ["Initialized", "ContainersReady", "Ready"] {
        condition::set(pod, condition_type, State::new("True", "", ""), now);
    }
}

/// All containers have succeeded.
pub(super) fn succeeded(pod: &mut Value, now: SimTime) {
    put(pod, &["status", "phase"], json!("Succeeded"));
    let finished = now.rfc3339_seconds();
    for status in array(pod, &["status", "containerStatuses"]) {
        let terminated = json!({ "terminated": {
            "exitCode": 0, "reason": "Completed", "finishedAt": finished, "containerID": status["containerID"],
            "startedAt": status["state"]["running"]["startedAt"] } });
        put(status, &["state"], terminated);
        put(status, &["ready"], json!(false));
        put(status, &["started"], json!(false));
    }
    condition::set(pod, "Initialized", State::new("True", "PodCompleted", ""), now);
    for condition_type in ["Ready", "ContainersReady"] {
        condition::set(pod, condition_type, State::new("False", "PodCompleted", ""), now);
    }
}

pub(super) fn not_ready(pod: &mut Value, reason: &str, now: SimTime) {
    let names: Vec<&str> = items(&pod["spec"]["containers"]).iter().map(|container| text(&container["name"])).collect();
    let message = format!("containers with unready status: [{}]", names.join(" "));
    for condition_type in ["Ready", "ContainersReady"] {
        condition::set(pod, condition_type, State::new("False", reason, &message), now);
    }
}

fn hosted(pod: &mut Value, host_address: &str, now: SimTime) {
    put(pod, &["status", "hostIP"], json!(host_address));
    put(pod, &["status", "hostIPs"], json!([{ "ip": host_address }]));
    if entry(pod, &["status", "startTime"]).is_null() {
        put(pod, &["status", "startTime"], json!(now.rfc3339_seconds()));
    }
}

fn scheduled(pod: &mut Value, now: SimTime) {
    if !condition::is_true(pod, "PodScheduled") {
        condition::set(pod, "PodScheduled", State::new("True", "", ""), now);
    }
}

fn container_statuses(pod: &Value, list: &str, status: impl FnMut(&Value) -> Value) -> Value {
    Value::Array(items(&pod["spec"][list]).iter().map(status).collect())
}

fn running_container(container: &Value, ids: &mut Stream, restarts: u64, last: &Value, started: &str) -> Value {
    let id = format!("{}{}", ids.uuid().simple(), ids.uuid().simple());
    let image = text(&container["image"]);
    json!({
        "name": container["name"], "image": image, "imageID": format!("sandbox.bridger.dev/{image}"),
        "containerID": format!("containerd://{id}"), "ready": true, "started": true, "restartCount": restarts,
        "state": { "running": { "startedAt": started } }, "lastState": last,
    })
}
