//! Resource requests of pods and allocatable resources of nodes.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kubernetes::json::items;
use crate::kubernetes::quantity::{thousandths, units};

/// The scoring default for a container without a request, so that pods without requests are spread too.
const UNSTATED_MILLI_CPU: i64 = 100;
const UNSTATED_MEMORY: i64 = 200 * 1024 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    /// Extended resources, by name.
    pub extended: BTreeMap<String, i64>,
}

impl Resources {
    pub(crate) fn parse(list: &Value) -> Resources {
        let mut resources = Resources::default();
        for (name, quantity) in list.as_object().into_iter().flatten() {
            match name.as_str() {
                "cpu" => resources.milli_cpu = thousandths(quantity),
                "memory" => resources.memory = units(quantity),
                "ephemeral-storage" => resources.ephemeral_storage = units(quantity),
                "pods" => (),
                _ => {
                    resources.extended.insert(name.clone(), units(quantity));
                }
            }
        }
        resources
    }

    fn combine(&mut self, other: &Resources, how: fn(i64, i64) -> i64) {
        self.milli_cpu = how(self.milli_cpu, other.milli_cpu);
        self.memory = how(self.memory, other.memory);
        self.ephemeral_storage = how(self.ephemeral_storage, other.ephemeral_storage);
        for (name, amount) in &other.extended {
            let known = self.extended.entry(name.clone()).or_default();
            *known = how(*known, *amount);
        }
    }

    pub(crate) fn add(&mut self, other: &Resources) {
        self.combine(other, i64::saturating_add);
    }

    pub(crate) fn subtract(&mut self, other: &Resources) {
        self.combine(other, i64::saturating_sub);
        self.extended.retain(|_, amount| *amount != 0);
    }

    fn raise_to(&mut self, other: &Resources) {
        self.combine(other, i64::max);
    }
}

/// The resources that a pod uses on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodRequest {
    pub requested: Resources,
    /// Like `requested`, with a default for containers without requests.
    pub for_score: Resources,
}

impl PodRequest {
    pub(crate) fn of(pod: &Value) -> PodRequest {
        PodRequest { requested: total(pod, false), for_score: total(pod, true) }
    }
}

/// The sum of containers and sidecars, or the peak during initialization if that is higher; plus overhead.
fn total(pod: &Value, for_score: bool) -> Resources {
    let spec = &pod["spec"];
    let mut running = Resources::default();
    for container in items(&spec["containers"]) {
        running.add(&container_request(container, for_score));
    }
    let mut sidecars = Resources::default();
    let mut initialising = Resources::default();
    for container in items(&spec["initContainers"]) {
        let request = container_request(container, for_score);
        if container["restartPolicy"] == "Always" {
            sidecars.add(&request);
            initialising.raise_to(&sidecars);
        } else {
            let mut moment = request;
            moment.add(&sidecars);
            initialising.raise_to(&moment);
        }
    }
    running.add(&sidecars);
    running.raise_to(&initialising);
    // Requests on the pod level override the sums of its containers.
    let whole = &spec["resources"]["requests"];
    let stated = Resources::parse(whole);
    if !whole["cpu"].is_null() {
        running.milli_cpu = stated.milli_cpu;
    }
    if !whole["memory"].is_null() {
        running.memory = stated.memory;
    }
    running.add(&Resources::parse(&spec["overhead"]));
    running
}

fn container_request(container: &Value, for_score: bool) -> Resources {
    let requests = &container["resources"]["requests"];
    let mut resources = Resources::parse(requests);
    if for_score {
        if requests["cpu"].is_null() {
            resources.milli_cpu = UNSTATED_MILLI_CPU;
        }
        if requests["memory"].is_null() {
            resources.memory = UNSTATED_MEMORY;
        }
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn container(cpu: &str) -> Value {
        json!({ "resources": { "requests": { "cpu": cpu } } })
    }

    #[test]
    fn requests_of_a_pod() {
        let sidecar = |cpu: &str| {
            let mut sidecar = container(cpu);
            sidecar["restartPolicy"] = json!("Always");
            sidecar
        };
        for (spec, milli_cpu) in [
            (json!({ "containers": [container("100m"), container("1")] }), 1100),
            (json!({ "containers": [container("100m")], "initContainers": [container("1")] }), 1000),
            (json!({ "containers": [container("1")], "initContainers": [container("100m")] }), 1000),
            (json!({ "containers": [container("1")], "initContainers": [sidecar("1"), container("1500m")] }), 2500),
            (json!({ "containers": [container("1")], "initContainers": [sidecar("1"), container("500m")] }), 2000),
            (json!({ "containers": [container("1")], "overhead": { "cpu": "250m" } }), 1250),
            (json!({ "containers": [container("1")], "resources": { "requests": { "cpu": "3" } } }), 3000),
            (json!({ "containers": [{}] }), 0),
        ] {
            let request = PodRequest::of(&json!({ "spec": spec }));
            assert_eq!(request.requested.milli_cpu, milli_cpu, "{spec}");
        }
        let unstated = PodRequest::of(&json!({ "spec": { "containers": [{}, container("1")] } }));
        assert_eq!(unstated.for_score.milli_cpu, 1100);
    }
}
