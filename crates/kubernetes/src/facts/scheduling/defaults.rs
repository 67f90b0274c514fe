//! What the API server fills into a pod before it stores it, as far as a scheduler looks at it.
//!
//! In: a pod as somebody wrote it. Out: the same pod as the API server would show it. On one that it has shown, nothing
//! changes; objects from files may never have been there.

use super::requests::{Amounts, Asking, PodResources, Resources, is_huge_page, is_pod_level};
use super::{Container, PodSpec, Scheduling};

/// Requests that are not given default to limits; those of the pod, also to what its containers ask for.
pub(super) fn fill_in(spec: &mut PodSpec<Scheduling>) {
    let uses_host_network = spec.host_network.0 == Some(true);
    for container in spec.containers.0.iter_mut().chain(&mut spec.init_containers.0).flatten() {
        if let Some(Resources { requests, limits: Some(limits) }) = &mut container.resources {
            add_missing(requests.get_or_insert_default(), limits);
        }
        for port in container.ports.iter_mut().flatten().filter(|_| uses_host_network) {
            if port.host_port.is_none_or(|number| number == 0) {
                port.host_port = port.container_port;
            }
        }
    }
    let of_containers = |asking: fn(&Container) -> Asking<'_>| {
        let resources = PodResources {
            containers: spec.containers.0.iter().flatten().map(asking).collect(),
            init_containers: spec.init_containers.0.iter().flatten().map(asking).collect(),
            ..PodResources::default()
        };
        resources.of_containers()
    };
    let (requested, limited) = (of_containers(Container::asking), of_containers(Container::limited));
    if let Some(Resources { requests, limits }) = &mut spec.resources.0 {
        fill_in_pod_level(requests, limits, &requested, limited);
    }
}

fn fill_in_pod_level(
    requests: &mut Option<Amounts>,
    limits: &mut Option<Amounts>,
    requested: &Amounts,
    mut limited: Amounts,
) {
    let (mut asked, mut bounds) = (requests.take().unwrap_or_default(), limits.take().unwrap_or_default());
    if !asked.is_empty() || !bounds.is_empty() {
        limited.retain(|name, _| is_huge_page(name) && !asked.contains_key(name));
        add_missing(&mut bounds, &limited);
    }
    if !bounds.is_empty() {
        // Huge pages can't be shared out beyond what there is, so their requests follow their limits.
        let of_containers = requested.iter().filter(|(name, _)| is_pod_level(name) && !is_huge_page(name));
        add_missing(&mut asked, &of_containers.map(|(name, amount)| (name.clone(), *amount)).collect());
        let of_limits = bounds.iter().filter(|(name, _)| is_pod_level(name));
        add_missing(&mut asked, &of_limits.map(|(name, amount)| (name.clone(), *amount)).collect());
    }
    (*requests, *limits) = (Some(asked), Some(bounds));
}

fn add_missing(amounts: &mut Amounts, defaults: &Amounts) {
    for (name, amount) in defaults {
        amounts.entry(name.clone()).or_insert(*amount);
    }
}
