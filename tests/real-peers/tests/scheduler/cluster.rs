//! A cluster, and pods of mixed policy.

use serde_json::{Value, json};

pub const HOST: &str = "alpha.cna.vmware.com/host";
pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Nodes for Bridger's pods. The nodes after them are tainted, for kube-scheduler's pods only.
const OWN_NODES: usize = 32;
const OTHER_NODES: usize = 8;
const HOSTS: usize = 16;
pub const ZONES: usize = 4;
/// Pods per group, with anti-affinity or affinity to each other.
const GROUP: usize = 8;

pub fn node_name(number: usize) -> String {
    format!("node-{number:02}")
}

pub fn nodes() -> Vec<Value> {
    (0..OWN_NODES + OTHER_NODES)
        .map(|number| {
            let name = node_name(number);
            let is_own = number < OWN_NODES;
            let capacity = json!({ "cpu": "16", "memory": "64Gi", "pods": "60" });
            let ready = json!([{ "type": "Ready", "status": "True", "reason": "Test", "message": "",
                "lastHeartbeatTime": null, "lastTransitionTime": null }]);
            let taints =
                if is_own { json!([]) } else { json!([{ "key": "pool", "value": "other", "effect": "NoSchedule" }]) };
            json!({
                "metadata": { "name": name, "labels": { HOSTNAME: name, HOST: format!("esx-{}", number % HOSTS),
                    ZONE: format!("zone-{}", number % ZONES), "pool": if is_own { "own" } else { "other" },
                    "disk": if number.is_multiple_of(2) { "fast" } else { "slow" } } },
                "spec": { "taints": taints },
                "status": { "capacity": capacity, "allocatable": capacity, "conditions": ready },
            })
        })
        .collect()
}

/// Bridger's pods, and kube-scheduler's, which are a fifth of the total.
pub fn pods(total: usize) -> (Vec<Value>, Vec<Value>) {
    let own = (0..total - total / 5).map(own_pod).collect();
    let other = (0..total / 5)
        .map(|number| {
            let mut pod = pod(&format!("other-{number}"), "other", "default-scheduler");
            pod["spec"]["nodeSelector"] = json!({ "pool": "other" });
            pod["spec"]["tolerations"] = json!([{ "key": "pool", "operator": "Exists" }]);
            pod
        })
        .collect();
    (own, other)
}

fn pod(name: &str, group: &str, scheduler: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "group": group } },
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": "none",
                "resources": { "requests": { "cpu": "300m", "memory": "500Mi" } } }],
        },
    })
}

/// Seven policies in turn, in groups.
fn own_pod(number: usize) -> Value {
    const KINDS: usize = 7;
    let (kind, index) = (number % KINDS, number / KINDS);
    let group = format!("{kind}-{}", index / GROUP);
    let mut pod = pod(&format!("pod-{number}"), &group, "bridger");
    let term = |key: &str| json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "group": group } } });
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let spec = &mut pod["spec"];
    match kind {
        0 => {}
        // Between nodes as written, and between physical hosts because of lifting.
        1 => spec["affinity"] = json!({ "podAntiAffinity": { required: [term(HOSTNAME)] } }),
        2 => spec["affinity"] = json!({ "podAntiAffinity": { required: [term(HOST)] } }),
        3 => spec["affinity"] = json!({ "podAffinity": { required: [term(ZONE)] } }),
        4 => {
            spec["topologySpreadConstraints"] = json!([{ "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "group": group } } }]);
        }
        5 => spec["nodeSelector"] = json!({ "disk": "fast" }),
        _ => {
            let port = 20_000 + index / GROUP;
            spec["containers"][0]["ports"] = json!([{ "containerPort": 80, "hostPort": port, "protocol": "TCP" }]);
        }
    }
    pod
}
