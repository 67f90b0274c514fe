//! The pod and node data that schedulers need.
//!
//! - `facts`: what adapters report.
//! - `resources`, `node_labels`, `distinct`, `images`, `ports`: node data in columns, kept up to date.
//! - `priorities`: the priorities of the pods on each node. `disruption`: PodDisruptionBudgets.
//! - `workloads`: Services and controllers, which identify sibling pods. `groups`: counts for topology spread.
//! - `update`: keeps all of it in sync with the world. `questions`: the queries.
//!
//! Invariants: no event causes a walk over all pods or all nodes; every answer equals a count over all pods. Pods and
//! nodes reported without scheduling facts do not exist here.

mod disruption;
mod distinct;
mod facts;
mod groups;
mod images;
mod node_labels;
mod ports;
mod priorities;
mod questions;
mod resources;
mod update;
mod workloads;

pub use disruption::{BudgetChanges, DisruptionBudget};
pub use distinct::Distinct;
pub use facts::{
    DisruptionBudgetFacts, HostPort, NodeImage, NodeSchedulingFacts, NonZeroSums, PodRequests, PodSchedulingFacts,
    PreemptionPolicy, ResourceSums, SpreadFacts, Taint, TaintEffect, Toleration, UnsupportedFeature, WeightedNodeTerm,
    WorkloadFacts, WorkloadKind,
};
pub use groups::NodeTally;
pub use images::Image;
pub use node_labels::{LabelColumn, ValueId};
pub use questions::SpreadGroup;
pub use resources::{Resource, ResourceColumns, ScalarId};
pub(crate) use update::Scheduling;
