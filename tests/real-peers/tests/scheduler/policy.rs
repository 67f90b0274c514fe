//! Checks the policy of pods.
//!
//! In: nodes and pods in API format. Out: a line for each violation, computed in the simplest way, pair by pair and sum
//! by sum.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::cluster::{HOST, HOSTNAME, ZONE, ZONES};

/// Milli-CPUs or MiB, from the few formats used here.
fn amount(text: &str) -> u64 {
    let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX / 1_000_000);
    match (text.strip_suffix('m'), text.strip_suffix("Gi"), text.strip_suffix("Mi")) {
        (Some(milli), ..) => number(milli),
        (_, Some(gi), _) => number(gi) * 1024,
        (.., Some(mi)) => number(mi),
        _ => number(text) * 1000,
    }
}

/// A placed pod with its node's labels.
struct Placed<'a> {
    name: &'a str,
    node: &'a str,
    group: &'a str,
    spec: &'a Value,
    labels: &'a Value,
}

pub fn violations(nodes: &[Value], pods: &[Value]) -> Vec<String> {
    let text =
        |value: &'static str| move |object: &Value| object.pointer(value).and_then(Value::as_str).map(str::to_owned);
    let by_name: BTreeMap<String, &Value> =
        nodes.iter().filter_map(|node| Some((text("/metadata/name")(node)?, node))).collect();
    let mut found = Vec::new();
    let mut placed = Vec::new();
    for pod in pods {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        match pod["spec"]["nodeName"].as_str().and_then(|node| by_name.get(node).map(|object| (node, *object))) {
            Some((node, object)) => placed.push(Placed {
                name,
                node,
                group: pod["metadata"]["labels"]["group"].as_str().unwrap_or_default(),
                spec: &pod["spec"],
                labels: &object["metadata"]["labels"],
            }),
            None => found.push(format!("{name} is on no node")),
        }
    }
    for (node, object) in &by_name {
        let here: Vec<&Placed<'_>> = placed.iter().filter(|pod| pod.node == node).collect();
        sums(node, object, &here, &mut found);
        ports(node, &here, &mut found);
    }
    for pod in &placed {
        alone(pod, by_name[pod.node], &mut found);
        for other in placed.iter().filter(|other| other.name != pod.name && other.group == pod.group) {
            pair(pod, other, &mut found);
        }
    }
    spread(&placed, &mut found);
    found
}

fn sums(node: &str, object: &Value, here: &[&Placed<'_>], found: &mut Vec<String>) {
    for resource in ["cpu", "memory"] {
        let requests = here.iter().map(|pod| &pod.spec["containers"][0]["resources"]["requests"][resource]);
        let sum: u64 = requests.map(|request| amount(request.as_str().unwrap_or("0"))).sum();
        let has = amount(object["status"]["allocatable"][resource].as_str().unwrap_or("0"));
        if sum > has {
            found.push(format!("{node}: {sum} {resource} of {has}"));
        }
    }
    if here.len() > 60 {
        found.push(format!("{node}: {} pods", here.len()));
    }
}

fn ports(node: &str, here: &[&Placed<'_>], found: &mut Vec<String>) {
    let mut taken = BTreeSet::new();
    for pod in here {
        if let Some(port) = pod.spec.pointer("/containers/0/ports/0/hostPort").and_then(Value::as_u64)
            && !taken.insert(port)
        {
            found.push(format!("{node}: port {port} twice, also by {}", pod.name));
        }
    }
}

fn alone(pod: &Placed<'_>, node: &Value, found: &mut Vec<String>) {
    for (key, value) in pod.spec["nodeSelector"].as_object().into_iter().flatten() {
        if &pod.labels[key] != value {
            found.push(format!("{} on {}: not {key}={value}", pod.name, pod.node));
        }
    }
    let is_tainted = node["spec"]["taints"].as_array().is_some_and(|taints| !taints.is_empty());
    let tolerates = pod.spec["tolerations"].as_array().into_iter().flatten().any(|one| one["key"] == "pool");
    if is_tainted && !tolerates {
        found.push(format!("{} on tainted {}", pod.name, pod.node));
    }
}

/// Two pods of one group.
fn pair(pod: &Placed<'_>, other: &Placed<'_>, found: &mut Vec<String>) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for term in pod.spec["affinity"]["podAntiAffinity"][required].as_array().into_iter().flatten() {
        // Bridger lifts anti-affinity by node to hosts.
        let key = if term["topologyKey"] == HOSTNAME { HOST } else { term["topologyKey"].as_str().unwrap_or_default() };
        if pod.labels[key] == other.labels[key] {
            found.push(format!("{} and {} share {key}={}", pod.name, other.name, pod.labels[key]));
        }
    }
    for term in pod.spec["affinity"]["podAffinity"][required].as_array().into_iter().flatten() {
        let key = term["topologyKey"].as_str().unwrap_or_default();
        if pod.labels[key] != other.labels[key] {
            found.push(format!("{} and {} differ in {key}", pod.name, other.name));
        }
    }
}

/// The pods are equal and none was deleted, so the final spread must also be within the skew.
fn spread(placed: &[Placed<'_>], found: &mut Vec<String>) {
    let mut groups: BTreeMap<&str, BTreeMap<String, usize>> = BTreeMap::new();
    for pod in placed.iter().filter(|pod| pod.spec["topologySpreadConstraints"].is_array()) {
        let zones =
            groups.entry(pod.group).or_insert_with(|| (0..ZONES).map(|zone| (format!("zone-{zone}"), 0)).collect());
        *zones.entry(pod.labels[ZONE].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    for (group, zones) in groups {
        let (least, most) = (zones.values().min().copied().unwrap_or(0), zones.values().max().copied().unwrap_or(0));
        if most - least > 1 {
            found.push(format!("group {group} is spread {zones:?}"));
        }
    }
}
