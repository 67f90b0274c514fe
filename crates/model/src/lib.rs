//! Bridger's in-memory model of Kubernetes and vSphere. Pure: no I/O, no clock, no randomness, no async.
//!
//! - [`event`]: what adapters report, in Bridger's own types. [`sources`]: the table of watched Kubernetes resources
//!   and the parts of Bridger that need each of them.
//! - [`world`]: the current state, changed by events only; what an event changed; the state of sources.
//! - `identity`: which VM a node is. `placement`: where nodes run. [`labels`]: the labels nodes should have.
//! - [`affinity`]: what terms mean, which pods carry them and which they match; verdicts and scores for an incoming
//!   pod.
//! - [`scheduling`]: the pod and node data that schedulers need. [`volumes`]: claims, volumes and their classes.
//! - [`report`]: counts and explanations for users.
//! - [`storage`]: compact storage with fast lookups. [`testing`]: ready-made facts for tests and benchmarks.
//!
//! Invariants: state changes only through [`event::Event`]; the same events give the same world.

pub mod affinity;
pub mod event;
mod identity;
pub mod labels;
mod placement;
pub mod report;
pub mod scheduling;
pub mod sources;
pub mod storage;
pub mod testing;
pub mod volumes;
pub mod world;

pub use affinity::{Incoming, LiftMode, LiftSettings, Reading, Role, ScoreSettings, Scores, Verdicts, View};
pub use identity::{Evidence, Match};
pub use labels::value::label_value;
pub use labels::{LabelDifference, LabelSettings, WantedLabels, differences, wanted};
pub use placement::host_idle::HostIdle;
pub use placement::{HostView, Placement};
pub use sources::{KUBERNETES_SOURCES, Part, Parts, SourceRow, sources_for};
pub use storage::arena::{ClusterId, HostId, NodeId, PodId, ProfileId, TermId, VmId};
pub use storage::digest::digest;
pub use storage::node_set::NodeSet;
pub use world::World;
pub use world::change::{NodeState, PodState, Subject, WorldChange};
pub use world::nodes::{Namespace, Node};
pub use world::pods::Pod;
pub use world::revisions::Revision;
pub use world::sync::SourceState;
pub use world::touched::Touched;

#[cfg(test)]
mod tests;
