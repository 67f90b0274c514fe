//! Bridger's decision for a world of the judge.

use std::collections::BTreeSet;

use judge::World;
use model::event::Event;
use scheduler::{Configuration, Explanation, explain, plugins};

pub fn decide(world: &World) -> Result<Explanation, String> {
    // Upstream has no lifting, so it is disabled here.
    let mut known =
        model::World::with_lifting(model::LiftSettings { lifted_keys: BTreeSet::new(), ..Default::default() });
    for object in world.to_list_json()["items"].as_array().ok_or("no list")? {
        let event: Option<Event> = kubernetes::objects::applied(object).map_err(|error| error.to_string())?;
        if let Some(event) = event {
            known.apply(event);
        }
    }
    let registry = plugins::standard();
    let configuration = match &world.config {
        Some(config) => Configuration::from_value(config, &registry).map_err(|error| error.to_string())?,
        None => Configuration::with_name("default-scheduler", &registry).map_err(|error| error.to_string())?,
    };
    let key = world.pod_key();
    let (namespace, name) = key.split_once('/').ok_or("no name")?;
    let pod = known.pod_id(namespace, name).ok_or("the pod is not known")?;
    explain(&known, pod, &configuration.profiles()[0])
}

/// Whether upstream's answer can be compared. Two kinds of worlds, which no API server and kubelet would lead to, cannot:
///
/// - Placed pods share a host port. kube-scheduler keeps ports as a set, so that removing one of the pods frees the port.
/// - A placed pod has an ephemeral volume whose claim belongs to something else. kube-scheduler then fails on the node;
///   Bridger does not count the volume.
#[allow(dead_code, reason = "not every test binary compares preemption")]
pub fn is_comparable(world: &World) -> bool {
    let placed = || world.pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string());
    let mut ports = BTreeSet::new();
    let ports_differ = placed().all(|pod| {
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let used = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
        let mut used = used.filter_map(|port| port["hostPort"].as_i64());
        used.all(|port| ports.insert((pod["spec"]["nodeName"].to_string(), port)))
    });
    let owns = |pod: &serde_json::Value, volume: &serde_json::Value| {
        let name = format!("{}-{}", text(&pod["metadata"]["name"]), text(&volume["name"]));
        let is_claim = |claim: &&serde_json::Value| {
            text(&claim["metadata"]["name"]) == name && claim["metadata"]["namespace"] == pod["metadata"]["namespace"]
        };
        let claim = world.persistent_volume_claims.iter().find(is_claim);
        claim.is_none_or(|claim| {
            let owners = claim["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let mut controllers = owners.filter(|owner| owner["controller"] == true);
            controllers.any(|owner| owner["uid"].is_string() && owner["uid"] == pod["metadata"]["uid"])
        })
    };
    let volumes = |pod: &serde_json::Value| pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    let ephemeral = |pod: &serde_json::Value| {
        volumes(pod).into_iter().filter(|volume| !volume["ephemeral"].is_null()).collect::<Vec<_>>()
    };
    ports_differ && placed().all(|pod| ephemeral(pod).iter().all(|volume| owns(pod, volume)))
}

fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}
