//! The resource requests of a pod, computed like in kube-scheduler 1.36.
//!
//! In: containers, pod-level requests, overhead, and the kubelet's status of a resize. Out: [`PodRequests`].
//!
//! - The requests of containers and sidecars are added. An init container is added to the sidecars that started before
//!   it; if the largest such sum is larger, it counts instead. Overhead is added at the end.
//! - Pod-level requests replace the sum, for the resources that they may name.
//! - During a resize, the maximum of desired, allocated and actuated resources counts. The desired resources no longer
//!   count after the node has rejected them as infeasible. Plain init containers have ended by then, so their status is
//!   ignored.
//! - Missing is not 0: some sums count 100m and 200 MiB for a container that does not name cpu or memory.

use std::collections::BTreeMap;

use model::scheduling::{NonZeroSums, PodRequests, ResourceSums};
use serde::Deserialize;

use super::quantity::Quantity;

pub(crate) type Amounts = BTreeMap<String, Quantity>;

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
const PODS: &str = "pods";

const DEFAULT_CPU: Quantity = Quantity::milli(100);
const DEFAULT_MEMORY: Quantity = Quantity::units(200 << 20);

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Resources {
    pub(crate) requests: Option<Amounts>,
    pub(crate) limits: Option<Amounts>,
}

/// The kubelet's status of a container.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerStatus {
    name: String,
    resources: Option<Resources>,
    allocated_resources: Option<Amounts>,
}

/// The requests of a container.
#[derive(Clone, Copy)]
pub(crate) struct ContainerRequests<'a> {
    pub(crate) name: &'a str,
    pub(crate) requests: Option<&'a Amounts>,
    /// An init container that keeps running.
    pub(crate) is_sidecar: bool,
}

/// The input of the sums.
#[derive(Default)]
pub(crate) struct PodResources<'a> {
    pub(crate) containers: Vec<ContainerRequests<'a>>,
    pub(crate) init_containers: Vec<ContainerRequests<'a>>,
    pub(crate) pod_level: Option<&'a Amounts>,
    pub(crate) overhead: Option<&'a Amounts>,
    pub(crate) statuses: Vec<&'a ContainerStatus>,
    /// `status.resources`, `status.allocatedResources`.
    pub(crate) pod_level_actuated: Option<&'a Resources>,
    pub(crate) pod_level_allocated: Option<&'a Amounts>,
    /// The node rejected the resize as infeasible.
    pub(crate) resize_infeasible: bool,
}

/// The options of one sum.
struct Counting<'a> {
    with_status: bool,
    with_pod_level: bool,
    /// The amount for a container that does not name the resource.
    defaults: &'a [(&'static str, Quantity)],
}

impl PodResources<'_> {
    pub(crate) fn requests(&self) -> PodRequests {
        let both = [(CPU, DEFAULT_CPU), (MEMORY, DEFAULT_MEMORY)];
        let asked = self.count(&Counting { with_status: false, with_pod_level: true, defaults: &[] });
        let taken = self.count(&Counting { with_status: true, with_pod_level: true, defaults: &[] });
        let missing: Vec<_> = if self.pod_level().is_some() {
            both.into_iter().filter(|(name, _)| !taken.contains_key(*name)).collect()
        } else {
            both.to_vec()
        };
        let non_zero = self.count(&Counting { with_status: true, with_pod_level: true, defaults: &missing });
        let scored = self.count(&Counting { with_status: false, with_pod_level: false, defaults: &both });
        let amount = |name: &str| non_zero.get(name).copied().unwrap_or_default();
        PodRequests {
            asked: sums(&asked),
            taken: sums(&taken),
            taken_non_zero: NonZeroSums { cpu_milli: amount(CPU).as_milli(), memory_bytes: amount(MEMORY).as_units() },
            scored: sums(&scored),
        }
    }

    /// The sum of the containers' requests, by their specs.
    pub(crate) fn of_containers(&self) -> Amounts {
        self.count(&Counting { with_status: false, with_pod_level: false, defaults: &[] })
    }

    /// Pod-level requests, if they name a resource that is allowed there.
    fn pod_level(&self) -> Option<&Amounts> {
        self.pod_level.filter(|requests| requests.keys().any(|name| is_pod_level(name)))
    }

    fn count(&self, counting: &Counting<'_>) -> Amounts {
        let mut sum = Amounts::new();
        for container in &self.containers {
            add(&mut sum, &self.of_container(container, true, counting));
        }
        let (mut sidecars, mut largest) = (Amounts::new(), Amounts::new());
        for container in &self.init_containers {
            let mut own = self.of_container(container, container.is_sidecar, counting);
            if container.is_sidecar {
                add(&mut sum, &own);
                add(&mut sidecars, &own);
                raise(&mut largest, &sidecars);
            } else {
                add(&mut own, &sidecars);
                raise(&mut largest, &own);
            }
        }
        raise(&mut sum, &largest);
        if counting.with_pod_level
            && let Some(pod_level) = self.pod_level()
        {
            let actuated = self.pod_level_actuated.filter(|_| counting.with_status);
            let effective = actuated
                .map(|actuated| self.effective(Some(pod_level), actuated.requests.as_ref(), self.pod_level_allocated));
            for (name, amount) in pod_level.iter().filter(|(name, _)| is_pod_level(name)) {
                let effective = effective.as_ref().map(|amounts| amounts.get(name).copied().unwrap_or_default());
                sum.insert(name.clone(), effective.unwrap_or(*amount));
            }
        }
        if let Some(overhead) = self.overhead {
            add(&mut sum, overhead);
        }
        sum
    }

    fn of_container(&self, container: &ContainerRequests<'_>, has_status: bool, counting: &Counting<'_>) -> Amounts {
        let uses_status = counting.with_status && has_status;
        // A later status of the same name replaces an earlier one.
        let status = self.statuses.iter().rfind(|status| uses_status && status.name == container.name);
        let mut amounts = match status.and_then(|status| Some((status, status.resources.as_ref()?))) {
            Some((status, actuated)) => {
                self.effective(container.requests, actuated.requests.as_ref(), status.allocated_resources.as_ref())
            }
            None => container.requests.cloned().unwrap_or_default(),
        };
        for (name, amount) in counting.defaults {
            amounts.entry((*name).to_owned()).or_insert(*amount);
        }
        amounts
    }

    fn effective(&self, spec: Option<&Amounts>, actuated: Option<&Amounts>, allocated: Option<&Amounts>) -> Amounts {
        let spec = spec.filter(|_| !self.resize_infeasible);
        let mut largest = Amounts::new();
        for amounts in [spec, actuated, allocated].into_iter().flatten() {
            raise(&mut largest, amounts);
        }
        largest
    }
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_default();
        *entry = *entry + *amount;
    }
}

fn raise(largest: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let entry = largest.entry(name.clone()).or_insert(*amount);
        *entry = (*entry).max(*amount);
    }
}

/// The resources that pod-level requests may name.
pub(crate) fn is_pod_level(name: &str) -> bool {
    matches!(name, CPU | MEMORY) || is_huge_page(name)
}

pub(crate) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Rounded sums of the resources that a scheduler counts.
pub(crate) fn sums(amounts: &Amounts) -> ResourceSums {
    let mut sums = ResourceSums::default();
    for (name, amount) in amounts {
        match name.as_str() {
            CPU => sums.cpu_milli = amount.as_milli(),
            MEMORY => sums.memory_bytes = amount.as_units(),
            EPHEMERAL_STORAGE => sums.ephemeral_storage_bytes = amount.as_units(),
            scalar if is_scalar(scalar) && amount.as_units() != 0 => {
                sums.scalar.insert(name.clone(), amount.as_units());
            }
            _ => (),
        }
    }
    sums
}

/// The number of pods that a node allows.
pub(crate) fn pods(allocatable: &Amounts) -> i64 {
    allocatable.get(PODS).copied().unwrap_or_default().as_units()
}

/// Extended resources, huge pages, attachable volumes, and native resources with their prefix.
fn is_scalar(name: &str) -> bool {
    is_huge_page(name)
        || name.contains("kubernetes.io/")
        || name.starts_with("attachable-volumes-")
        || is_extended(name)
}

/// The name of an extended resource has a domain, and is short enough for a quota on it.
fn is_extended(name: &str) -> bool {
    const QUOTA_PREFIX: &str = "requests.";
    let Some((domain, rest)) = name.split_once('/') else { return false };
    let is_word = |text: &str, also: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || also.contains(c);
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(inner)
    };
    let is_domain = domain.len() + QUOTA_PREFIX.len() <= 253
        && domain.split('.').all(|part| is_word(part, "-") && !part.contains(|c: char| c.is_ascii_uppercase()));
    !name.starts_with(QUOTA_PREFIX) && is_domain && rest.len() <= 63 && is_word(rest, "-_.")
}
