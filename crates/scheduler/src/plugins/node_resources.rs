//! Shared by the two resource plugins: the resources that count, and how to look up an amount.

use model::NodeId;
use model::scheduling::{PodRequests, Resource, ResourceSums};
use model::storage::arena::DenseId;
use serde::Deserialize;

use crate::framework::cycle::Cycle;

/// A resource that counts in a score.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceSpec {
    pub name: String,
    /// 0, the default, means 1.
    #[serde(default)]
    pub weight: i64,
}

/// Cpu and memory with equal weight if the list is empty.
pub(super) fn or_default(mut resources: Vec<ResourceSpec>) -> Vec<ResourceSpec> {
    if resources.is_empty() {
        resources = ["cpu", "memory"].map(|name| ResourceSpec { name: name.to_owned(), weight: 1 }).into();
    }
    for resource in &mut resources {
        resource.weight = if resource.weight == 0 { 1 } else { resource.weight };
    }
    resources
}

/// The amount of a resource in the sums.
pub(super) fn amount(sums: &ResourceSums, name: &str) -> i64 {
    match name {
        "cpu" => sums.cpu_milli,
        "memory" => sums.memory_bytes,
        "ephemeral-storage" => sums.ephemeral_storage_bytes,
        _ => sums.scalar.get(name).copied().unwrap_or(0),
    }
}

/// Extended resources can be ignored by configuration. Names without a prefix, or with a Kubernetes prefix, are native.
pub(super) fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

/// A pod that a trial treats as placed on a node (1) or removed from it (-1).
#[derive(Clone, Copy)]
pub(super) struct Shift<'a> {
    pub(super) node: NodeId,
    pub(super) requests: &'a PodRequests,
    pub(super) sign: i64,
}

pub(super) fn shifts<'a>(cycle: &Cycle<'a>) -> Vec<Shift<'a>> {
    let shift = |node, pod, sign| {
        let requests = &cycle.world.pod(pod)?.scheduling.as_deref()?.requests;
        Some(Shift { node, requests, sign })
    };
    let added = cycle.view.added().iter().filter_map(|&(pod, node)| shift(node, pod, 1));
    let removed = cycle.view.removed().iter().filter_map(|&pod| shift(cycle.world.pod_node(pod)?, pod, -1));
    added.chain(removed).collect()
}

/// One resource over all nodes, and how much of it a pod adds.
pub(super) struct Weighed<'a> {
    pub(super) allocatable: &'a [i64],
    requested: &'a [i64],
    adds: i64,
    pub(super) weight: i64,
    /// By node index: what the pods of a trial add. Usually empty.
    shifts: Vec<(usize, i64)>,
}

impl<'a> Weighed<'a> {
    /// Resolves the resources that count for a pod that adds these amounts. A scalar resource that the pod does not
    /// request, and a resource that no node has, are omitted.
    pub(super) fn resolve(
        resources: &[ResourceSpec],
        cycle: &Cycle<'a>,
        adds: &ResourceSums,
        non_zero: bool,
    ) -> Vec<Self> {
        let columns = cycle.world.resources();
        let shifts = shifts(cycle);
        let weighed = resources.iter().filter_map(|spec| {
            let (resource, adds) = (columns.resource(&spec.name), amount(adds, &spec.name));
            let requested = match resource {
                Resource::Cpu if non_zero => columns.non_zero_cpu_milli(),
                Resource::Memory if non_zero => columns.non_zero_memory_bytes(),
                Resource::Scalar(_) if adds == 0 => return None,
                Resource::Unknown => return None,
                _ => columns.requested(resource),
            };
            let taken = |requests: &PodRequests| match resource {
                Resource::Cpu if non_zero => requests.taken_non_zero.cpu_milli,
                Resource::Memory if non_zero => requests.taken_non_zero.memory_bytes,
                _ => amount(&requests.taken, &spec.name),
            };
            let shifts =
                shifts.iter().map(|shift| (shift.node.index(), shift.sign.wrapping_mul(taken(shift.requests))));
            Some(Self {
                allocatable: columns.allocatable(resource),
                requested,
                adds,
                weight: spec.weight,
                shifts: shifts.collect(),
            })
        });
        weighed.collect()
    }

    /// The requested amount on the node with this index. It wraps, like the sums of all pods.
    pub(super) fn requested(&self, at: usize) -> i64 {
        let shifts = self.shifts.iter().filter(|(node, _)| *node == at);
        shifts.fold(self.requested[at], |sum, (_, amount)| sum.wrapping_add(*amount))
    }

    /// The same with the pod.
    pub(super) fn requested_with_pod(&self, at: usize) -> i64 {
        self.requested(at).wrapping_add(self.adds)
    }
}
