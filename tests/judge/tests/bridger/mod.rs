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
