//! The API server's defaults for a pod, as far as a scheduler needs them.
//!
//! In: a pod as its author wrote it. Out: the pod as the API server would return it. A pod from the API server does not
//! change; objects from files may never have been there.

use super::requests::{Amounts, ContainerRequests, PodResources, Resources, is_huge_page, is_pod_level};
use super::{Container, PodSpec, Scheduling};

/// Missing requests default to limits; missing pod-level requests default to the requests of the containers first.
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
    let of_containers = |select: fn(&Container) -> ContainerRequests<'_>| {
        let resources = PodResources {
            containers: spec.containers.0.iter().flatten().map(select).collect(),
            init_containers: spec.init_containers.0.iter().flatten().map(select).collect(),
            ..PodResources::default()
        };
        resources.of_containers()
    };
    let (requested, limited) = (of_containers(Container::container_requests), of_containers(Container::limited));
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
        // Huge pages cannot be overcommitted, so their requests follow their limits.
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
