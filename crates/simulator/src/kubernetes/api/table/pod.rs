//! The table row of a pod. Its status column depends on its phase, its containers and its deletion.

use serde_json::{Value, json};

use super::{age, or_empty};
use crate::clock::SimTime;

pub(super) fn pod(pod: &Value, now: SimTime) -> Value {
    let view = View::of(pod);
    let restarts = match view.last_restart.filter(|_| view.restarts != 0) {
        Some(moment) => format!("{} ({} ago)", view.restarts, age::since(moment, now)),
        None => view.restarts.to_string(),
    };
    let or_none = |value: &Value| value.as_str().filter(|text| !text.is_empty()).unwrap_or("<none>").to_owned();
    let address = &pod["status"]["podIPs"][0]["ip"];
    let address = if address.is_string() { address } else { &pod["status"]["podIP"] };
    json!([
        pod["metadata"]["name"],
        format!("{}/{}", view.ready, view.total),
        view.status,
        restarts,
        age::since(&pod["metadata"]["creationTimestamp"], now),
        or_none(address),
        or_none(&pod["spec"]["nodeName"]),
        or_none(&pod["status"]["nominatedNodeName"]),
        readiness_gates(pod),
    ])
}

struct View<'a> {
    status: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<&'a Value>,
}

impl<'a> View<'a> {
    fn of(pod: &'a Value) -> View<'a> {
        let status = &pod["status"];
        let phase = or_empty(&status["phase"]);
        let own_reason = or_empty(&status["reason"]);
        let mut view = View {
            status: if own_reason.is_empty() { phase } else { own_reason }.to_owned(),
            ready: 0,
            total: list(&pod["spec"]["containers"]).len(),
            restarts: 0,
            last_restart: None,
        };
        if condition(pod, "PodScheduled").is_some_and(|condition| condition["reason"] == "SchedulingGated") {
            "SchedulingGated".clone_into(&mut view.status);
        }
        let initializing = view.read_init_containers(pod);
        let initialized = condition(pod, "Initialized").is_some_and(|condition| condition["status"] == "True");
        if !initializing || initialized {
            view.read_containers(pod);
        }
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            if own_reason == "NodeLost" {
                "Unknown".clone_into(&mut view.status);
            } else if phase != "Succeeded" && phase != "Failed" {
                "Terminating".clone_into(&mut view.status);
            }
        }
        view
    }

    /// Returns whether the pod still runs its init containers.
    fn read_init_containers(&mut self, pod: &'a Value) -> bool {
        let specs = list(&pod["spec"]["initContainers"]);
        let is_sidecar =
            |name: &Value| specs.iter().any(|spec| spec["name"] == *name && spec["restartPolicy"] == "Always");
        self.total += specs.iter().filter(|spec| spec["restartPolicy"] == "Always").count();
        let mut sidecar_restarts = 0;
        let mut initializing = false;
        for (index, container) in list(&pod["status"]["initContainerStatuses"]).iter().enumerate() {
            self.restarts += container["restartCount"].as_i64().unwrap_or(0);
            self.note_restart(container);
            let sidecar = is_sidecar(&container["name"]);
            if sidecar {
                sidecar_restarts += container["restartCount"].as_i64().unwrap_or(0);
            }
            let terminated = &container["state"]["terminated"];
            if terminated["exitCode"] == 0 {
                continue;
            }
            if sidecar && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            let waiting = or_empty(&container["state"]["waiting"]["reason"]);
            self.status = if !terminated.is_null() {
                format!("Init:{}", end_reason(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", specs.len())
            };
            initializing = true;
            break;
        }
        if !initializing {
            // When they have finished, only the sidecars' restarts count.
            self.restarts = sidecar_restarts;
        }
        initializing
    }

    fn read_containers(&mut self, pod: &'a Value) {
        let mut has_running = false;
        let mut error = None;
        for container in list(&pod["status"]["containerStatuses"]).iter().rev() {
            self.restarts += container["restartCount"].as_i64().unwrap_or(0);
            self.note_restart(container);
            let state = &container["state"];
            let waiting = or_empty(&state["waiting"]["reason"]);
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.status);
            } else if !state["terminated"].is_null() {
                self.status = end_reason(&state["terminated"]);
                if state["terminated"]["exitCode"] != 0 {
                    error = Some(self.status.clone());
                }
            } else if container["ready"] == true && !state["running"].is_null() {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" {
            let pod_ready = condition(pod, "Ready").is_some_and(|condition| condition["status"] == "True");
            if has_running && pod_ready {
                "Running".clone_into(&mut self.status);
            } else if let Some(error) = error {
                self.status = error;
            } else if has_running {
                "NotReady".clone_into(&mut self.status);
            }
        }
    }

    fn note_restart(&mut self, container: &'a Value) {
        let finished = &container["lastState"]["terminated"]["finishedAt"];
        // RFC 3339 in UTC sorts as text.
        if finished.is_string() && self.last_restart.and_then(Value::as_str) < finished.as_str() {
            self.last_restart = Some(finished);
        }
    }
}

fn end_reason(terminated: &Value) -> String {
    let reason = or_empty(&terminated["reason"]);
    if !reason.is_empty() {
        return reason.to_owned();
    }
    match terminated["signal"].as_i64() {
        Some(signal) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(&pod["spec"]["readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates
        .iter()
        .filter(|gate| condition(pod, or_empty(&gate["conditionType"])).is_some_and(|c| c["status"] == "True"))
        .count();
    format!("{open}/{}", gates.len())
}

fn condition<'a>(pod: &'a Value, condition_type: &str) -> Option<&'a Value> {
    list(&pod["status"]["conditions"]).iter().find(|condition| condition["type"] == condition_type)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        let running = json!([{ "name": "c", "ready": true, "restartCount": 0, "state": { "running": {} } }]);
        let crashed = json!([{ "name": "c", "ready": false, "restartCount": 2,
            "state": { "waiting": { "reason": "CrashLoopBackOff" } },
            "lastState": { "terminated": { "finishedAt": "2025-12-31T23:59:30Z" } } }]);
        for (status, deleted, expected) in [
            (json!({ "phase": "Pending" }), false, ["0/1", "Pending", "0"]),
            (json!({ "phase": "Running", "containerStatuses": running }), false, ["1/1", "Running", "0"]),
            (json!({ "phase": "Running", "containerStatuses": running }), true, ["1/1", "Terminating", "0"]),
            (
                json!({ "phase": "Running", "containerStatuses": crashed }),
                false,
                ["0/1", "CrashLoopBackOff", "2 (30s ago)"],
            ),
            (json!({ "phase": "Failed", "reason": "Evicted" }), true, ["0/1", "Evicted", "0"]),
            (
                json!({ "phase": "Succeeded", "containerStatuses": [{ "state": { "terminated": { "exitCode": 0, "reason": "Completed" } } }] }),
                false,
                ["0/1", "Completed", "0"],
            ),
            (
                json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "reason": "SchedulingGated" }] }),
                false,
                ["0/1", "SchedulingGated", "0"],
            ),
            (
                json!({ "phase": "Pending", "initContainerStatuses": [{ "name": "i", "state": { "running": {} } }] }),
                false,
                ["0/1", "Init:0/0", "0"],
            ),
        ] {
            let mut object =
                json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c" }] }, "status": status });
            if deleted {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let row = pod(&object, SimTime::VIRTUAL_START);
            assert_eq!([&row[1], &row[2], &row[3]], expected.map(Value::from).each_ref(), "{status}");
        }
    }
}
