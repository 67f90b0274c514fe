//! Compact storage with fast lookups: dense ids, shared strings and values, sets of nodes.
//!
//! Nothing here depends on what the objects mean.

pub mod arena;
pub(crate) mod digest;
pub(crate) mod finder;
pub mod intern;
pub mod label_set;
pub(crate) mod node_names;
pub(crate) mod node_set;
pub(crate) mod shared;
pub mod uid;
