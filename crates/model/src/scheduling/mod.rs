//! What schedulers ask of pods and nodes.
//!
//! - [`facts`]: what adapters tell for it.
//! - `selecting`: services and controllers, which tell what pods belong together.

pub mod facts;
mod selecting;

pub use facts::{
    HostPort, NodeImage, NodeSchedulingFacts, NonZeroSums, PodRequests, PodSchedulingFacts, PreemptionPolicy,
    ResourceSums, SelectingFacts, SelectingKind, SpreadFacts, Taint, TaintEffect, Toleration, Unsupported,
    WeightedNodeTerm,
};
pub(crate) use selecting::Selecting;
