//! What schedulers ask of pods and nodes.
//!
//! - `facts`: what adapters tell for it.
//! - `resources`, `node_labels`, `distinct`, `images`, `ports`: nodes in columns, kept up to date.
//! - `workloads`: services and controllers, which tell what pods belong together. `groups`: pods that are spread.
//! - `update`: how all of it follows the world. `questions`: what can be asked.
//!
//! Invariants: nothing here walks all pods or all nodes when an event comes; what is answered equals a count of all pods. Pods
//! and nodes that were told of without facts for schedulers do not exist here.

mod distinct;
mod facts;
mod groups;
mod images;
mod node_labels;
mod ports;
mod questions;
mod resources;
mod update;
mod workloads;

pub use distinct::Distinct;
pub use facts::{
    HostPort, NodeImage, NodeSchedulingFacts, NonZeroSums, PodRequests, PodSchedulingFacts, PreemptionPolicy,
    ResourceSums, SpreadFacts, Taint, TaintEffect, Toleration, Unsupported, WeightedNodeTerm, WorkloadFacts,
    WorkloadKind,
};
pub use groups::NodeTally;
pub use images::Image;
pub use node_labels::{LabelColumn, ValueId};
pub use questions::SpreadGroup;
pub use resources::{Resource, ResourceColumns, ScalarId};
pub(crate) use update::Scheduling;
