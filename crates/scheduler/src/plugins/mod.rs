//! The plugins, one file each. [`standard`] is the registry of all of them; a new plugin needs a line there.

mod default_binder;
pub(crate) mod default_preemption;
mod host_datastore;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_declared_features;
mod node_name;
mod node_ports;
mod node_resources;
mod node_resources_balanced_allocation;
mod node_resources_fit;
mod node_selection;
mod node_unschedulable;
mod node_volume_limits;
mod physical_host;
mod pod_topology_spread;
mod priority_sort;
mod scheduling_gates;
mod taint_toleration;
mod unsupported;
mod volume_binding;
mod volume_restrictions;
mod volume_zone;
mod volumes;

pub use default_binder::{ApiBinding, DefaultBinder};
pub use default_preemption::DefaultPreemption;
pub use host_datastore::HostDatastore;
pub use image_locality::ImageLocality;
pub use inter_pod_affinity::InterPodAffinity;
pub use node_affinity::NodeAffinity;
pub use node_declared_features::NodeDeclaredFeatures;
pub use node_name::NodeName;
pub use node_ports::NodePorts;
pub use node_resources_balanced_allocation::NodeResourcesBalancedAllocation;
pub use node_resources_fit::NodeResourcesFit;
pub use node_unschedulable::NodeUnschedulable;
pub use node_volume_limits::NodeVolumeLimits;
pub use physical_host::PhysicalHost;
pub use pod_topology_spread::PodTopologySpread;
pub use priority_sort::PrioritySort;
pub use scheduling_gates::SchedulingGates;
pub use taint_toleration::TaintToleration;
pub use unsupported::Unsupported;
pub use volume_binding::VolumeBinding;
pub use volume_binding::work::{ProvisionWork, VolumeBindingWork, VolumeWork, WaitingFor, WrittenVersions};
pub use volume_restrictions::VolumeRestrictions;
pub use volume_zone::VolumeZone;

use crate::framework::registry::Registry;

/// All plugins of this crate.
pub fn standard() -> Registry {
    Registry::default()
        .with::<DefaultBinder>()
        .with::<DefaultPreemption>()
        .with::<HostDatastore>()
        .with::<ImageLocality>()
        .with::<InterPodAffinity>()
        .with::<NodeAffinity>()
        .with::<NodeDeclaredFeatures>()
        .with::<NodeName>()
        .with::<NodePorts>()
        .with::<NodeResourcesBalancedAllocation>()
        .with::<NodeResourcesFit>()
        .with::<NodeUnschedulable>()
        .with::<NodeVolumeLimits>()
        .with::<PhysicalHost>()
        .with::<PodTopologySpread>()
        .with::<PrioritySort>()
        .with::<SchedulingGates>()
        .with::<TaintToleration>()
        .with::<Unsupported>()
        .with::<VolumeBinding>()
        .with::<VolumeRestrictions>()
        .with::<VolumeZone>()
}
