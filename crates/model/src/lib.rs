//! The world both sides live in, as Bridger sees it. Pure: no I/O, no clock, no randomness, no async.
//!
//! - [`event`]: what adapters tell, in Bridger's own words.
//! - [`world`]: all that is known, changed by events alone; answers about Kubernetes and the state of sources.
//! - `identity`: which VM a node is. `placement`: where nodes run. [`labels`], `label_value`: what nodes shall carry.
//! - [`affinity`]: what terms mean, which pods carry them and which they match; verdicts and scores for a pod to be placed.
//! - [`change`]: what an event changed, with the facts before; [`Touched`]: what else an answer may have changed for;
//!   [`Revision`]: whether what rules follow from is as it was.
//! - [`sources`]: the one table of what is watched in Kubernetes, and which parts of Bridger need it.
//! - [`scheduling`]: what schedulers ask of pods and nodes.
//! - [`report`]: counts and explanations for people.
//! - `digest`: short names for what things say. [`arena`], [`intern`], [`label_set`], `node_set`, [`uid`]: how it is kept small and fast to look up.
//!
//! Invariants: [`event::Event`] is the only way state changes; the same events give the same world.

pub mod affinity;
pub mod arena;
pub mod change;
mod digest;
pub mod event;
mod finder;
mod host_idle;
mod identity;
pub mod intern;
mod inventory;
pub mod label_set;
mod label_value;
pub mod labels;
mod node_names;
mod node_set;
mod nodes;
mod placement;
mod placing;
mod pods;
pub mod report;
mod revisions;
pub mod scheduling;
mod shared;
pub mod sources;
mod sync;
mod touched;
pub mod uid;
pub mod world;

pub use affinity::{Incoming, LiftMode, LiftSettings, Reading, Role, ScoreSettings, Scores, Verdicts, View};
pub use arena::{ClusterId, HostId, NodeId, PodId, ProfileId, TermId, VmId};
pub use change::{NodeState, PodState, Subject, WorldChange};
pub use digest::digest;
pub use identity::{Evidence, Match};
pub use label_value::label_value;
pub use labels::{LabelDifference, LabelSettings, WantedLabels, differences, wanted};
pub use node_set::NodeSet;
pub use nodes::{Namespace, Node};
pub use placement::{HostView, Placement};
pub use pods::Pod;
pub use revisions::Revision;
pub use sources::{KUBERNETES_SOURCES, Part, Parts, SourceRow, sources_for};
pub use sync::SourceState;
pub use touched::Touched;
pub use world::World;

#[cfg(test)]
mod tests;
