//! Volumes: claims, persistent volumes, storage classes, CSI drivers and nodes, storage capacities, attachments, and
//! which pods use what.
//!
//! - `facts`: what adapters report; `of_pod`: about pods. `table`: the objects of one kind. `store`: all of them with the indexes that
//!   schedulers query. `in_use`: the volumes of placed pods. `csi_nodes`: the CSI drivers of each node.
//!
//! A scheduler assumes changes of claims and volumes before it writes them, as it assumes pods: an assumed object
//! stands in for the observed one until the watch shows another version of it, or the pod for which it was assumed is
//! forgotten.
//!
//! Invariants: no event causes a walk over all pods or all objects; an assumption ends with its pod.

mod csi_nodes;
mod facts;
mod in_use;
mod of_pod;
mod store;
mod table;

pub(crate) use csi_nodes::CsiNodes;
pub use facts::{
    AccessMode, AttachmentFacts, BindingMode, ClaimFacts, ClaimRefFacts, CsiDriverFacts, CsiNodeDriverFacts,
    CsiNodeFacts, CsiVolume, InTreePlugin, InTreeVolume, MigratedVolume, StorageCapacityFacts, StorageClassFacts,
    VolumeFacts, VolumeKind, VolumeObject, VolumeSourceFacts,
};
pub(crate) use in_use::InUse;
pub use in_use::VolumesOnNode;
pub use of_pod::{Disk, PodVolume, PodVolumes};
pub use store::Volumes;
