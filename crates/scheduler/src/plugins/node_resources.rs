//! What the two plugins that look at resources share: which resources they weigh, and how an amount is found.

use model::scheduling::{Resource, ResourceColumns, ResourceSums};
use serde::Deserialize;

/// A resource that counts in a score.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceSpec {
    pub name: String,
    /// 0 stands for 1, as when it is not given.
    #[serde(default)]
    pub weight: i64,
}

/// Cpu and memory, equally, where nothing is given.
pub(super) fn or_default(mut resources: Vec<ResourceSpec>) -> Vec<ResourceSpec> {
    if resources.is_empty() {
        resources = ["cpu", "memory"].map(|name| ResourceSpec { name: name.to_owned(), weight: 1 }).into();
    }
    for resource in &mut resources {
        resource.weight = if resource.weight == 0 { 1 } else { resource.weight };
    }
    resources
}

/// How much of a resource there is in sums.
pub(super) fn amount(sums: &ResourceSums, name: &str) -> i64 {
    match name {
        "cpu" => sums.cpu_milli,
        "memory" => sums.memory_bytes,
        "ephemeral-storage" => sums.ephemeral_storage_bytes,
        _ => sums.scalar.get(name).copied().unwrap_or(0),
    }
}

/// Extended resources can be told to be ignored; what has the Kubernetes prefix or none at all is native.
pub(super) fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

/// One resource over all nodes, and how much of it a pod adds.
pub(super) struct Weighed<'a> {
    pub(super) allocatable: &'a [i64],
    pub(super) requested: &'a [i64],
    pub(super) adds: i64,
    pub(super) weight: i64,
}

impl<'a> Weighed<'a> {
    /// Resolves the resources that count for a pod that adds these amounts. One by name that the pod does not ask for, or that
    /// no node has, counts nowhere.
    pub(super) fn resolve(
        resources: &[ResourceSpec],
        columns: &'a ResourceColumns,
        adds: &ResourceSums,
        non_zero: bool,
    ) -> Vec<Self> {
        let weighed = resources.iter().filter_map(|spec| {
            let (resource, adds) = (columns.resource(&spec.name), amount(adds, &spec.name));
            let requested = match resource {
                Resource::Cpu if non_zero => columns.non_zero_cpu_milli(),
                Resource::Memory if non_zero => columns.non_zero_memory_bytes(),
                Resource::Scalar(_) if adds == 0 => return None,
                Resource::Unknown => return None,
                _ => columns.requested(resource),
            };
            Some(Self { allocatable: columns.allocatable(resource), requested, adds, weight: spec.weight })
        });
        weighed.collect()
    }
}
