//! The world both sides live in, as Bridger sees it. Pure: no I/O, no clock, no randomness, no async.
//!
//! - [`event`]: what adapters report, in Bridger's own types. [`sources`]: the one table of what is watched in Kubernetes, and
//!   which parts of Bridger need it.
//! - [`world`]: all that is known, changed by events alone; what an event changed; the state of sources.
//! - `identity`: which VM a node is. `placement`: where nodes run. [`labels`]: what nodes shall carry.
//! - [`affinity`]: what terms mean, which pods carry them and which they match; verdicts and scores for a pod to be placed.
//! - [`scheduling`]: what schedulers ask of pods and nodes.
//! - [`report`]: counts and explanations for people.
//! - [`storage`]: how it is kept small and fast to look up.
//!
//! Invariants: [`event::Event`] is the only way state changes; the same events give the same world.

pub mod affinity;
pub mod event;
mod identity;
pub mod labels;
mod placement;
pub mod report;
pub mod scheduling;
pub mod sources;
pub mod storage;
pub mod world;

pub use affinity::{Incoming, LiftMode, LiftSettings, Reading, Role, ScoreSettings, Scores, Verdicts, View};
pub use identity::{Evidence, Match};
pub use labels::value::label_value;
pub use labels::{LabelDifference, LabelSettings, WantedLabels, differences, wanted};
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
