//! The plugins, one file each. [`standard`] is the registry of all of them: a new one is a line there.

mod default_binder;
mod inter_pod_affinity;
mod node_name;
mod node_unschedulable;
mod physical_host;
mod priority_sort;
mod scheduling_gates;
mod taint_toleration;
mod unsupported;

pub use default_binder::DefaultBinder;
pub use inter_pod_affinity::InterPodAffinity;
pub use node_name::NodeName;
pub use node_unschedulable::NodeUnschedulable;
pub use physical_host::PhysicalHost;
pub use priority_sort::PrioritySort;
pub use scheduling_gates::SchedulingGates;
pub use taint_toleration::TaintToleration;
pub use unsupported::Unsupported;

use crate::registry::Registry;

/// All plugins of this crate.
pub fn standard() -> Registry {
    Registry::default()
        .with::<DefaultBinder>()
        .with::<InterPodAffinity>()
        .with::<NodeName>()
        .with::<NodeUnschedulable>()
        .with::<PhysicalHost>()
        .with::<PrioritySort>()
        .with::<SchedulingGates>()
        .with::<TaintToleration>()
        .with::<Unsupported>()
}
