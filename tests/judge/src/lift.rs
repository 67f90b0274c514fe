//! Rewrites a world so that anti-affinity between nodes applies between physical hosts, for a scheduler without
//! lifting.
//!
//! Bridger lifts a topology key without changing any object. kube-scheduler reaches the same verdicts if the domains
//! are a separate label that the anti-affinity terms use. Affinity and topology spread stay unchanged.

use serde_json::Value;

use crate::World;

/// Only the nodes of lifted worlds have this label.
const LIFTED_KEY: &str = "lifted.bridger.dev/domain";

impl World {
    /// This world with `key` lifted to the physical host in the label `host_key`. A node without a host keeps its value
    /// of `key`, if it has one.
    #[must_use]
    pub fn lifted(&self, key: &str, host_key: &str) -> World {
        let mut lifted = self.clone();
        for node in &mut lifted.nodes {
            let Some(labels) = node["metadata"]["labels"].as_object_mut() else { continue };
            let domain = match (labels.get(host_key), labels.get(key)) {
                // Different prefixes: a host and a node with the same name are two domains.
                (Some(host), _) => Some(format!("host.{}", host.as_str().unwrap_or_default())),
                (None, Some(own)) => Some(format!("own.{}", own.as_str().unwrap_or_default())),
                (None, None) => None,
            };
            if let Some(domain) = domain {
                labels.insert(LIFTED_KEY.to_owned(), domain.into());
            }
        }
        for pod in lifted.pods.iter_mut().chain([&mut lifted.pod]) {
            for term in anti_affinity_terms(pod).filter(|term| term["topologyKey"] == key) {
                term["topologyKey"] = LIFTED_KEY.into();
            }
        }
        lifted
    }
}

fn anti_affinity_terms(pod: &mut Value) -> impl Iterator<Item = &mut Value> {
    let kinds = pod.pointer_mut("/spec/affinity/podAntiAffinity").and_then(Value::as_object_mut);
    kinds.into_iter().flat_map(|kinds| kinds.values_mut()).filter_map(Value::as_array_mut).flatten().map(|term| {
        // A preferred term is wrapped in an object with its weight.
        if term.get("podAffinityTerm").is_some() { &mut term["podAffinityTerm"] } else { term }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_anti_affinity_terms_on_the_key_are_lifted() {
        let node = |labels: Value| json!({ "metadata": { "name": "n", "labels": labels } });
        let term = |key: &str| json!({ "topologyKey": key });
        let pod = json!({ "spec": { "affinity": {
            "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term("name")] },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [term("name"), term("zone")],
                "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "podAffinityTerm": term("name") }] } } } });
        let world = World {
            nodes: vec![
                node(json!({ "name": "a", "host": "esx" })),
                node(json!({ "name": "esx" })),
                node(json!({ "host": "esx" })),
                node(json!({})),
            ],
            pods: vec![pod.clone()],
            pod,
            ..World::default()
        };
        let lifted = world.lifted("name", "host");
        let domains: Vec<&Value> = lifted.nodes.iter().map(|node| &node["metadata"]["labels"][LIFTED_KEY]).collect();
        assert_eq!(domains, [&json!("host.esx"), &json!("own.esx"), &json!("host.esx"), &Value::Null]);
        for pod in [&lifted.pods[0], &lifted.pod] {
            let key = |pointer: &str| pod["spec"]["affinity"].pointer(&format!("{pointer}/topologyKey")).unwrap();
            assert_eq!(key("/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0"), "name");
            assert_eq!(key("/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0"), LIFTED_KEY);
            assert_eq!(key("/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/1"), "zone");
            let preferred = "/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm";
            assert_eq!(key(preferred), LIFTED_KEY);
        }
    }
}
