//! An embedded world: a Kubernetes API and a vCenter with a working DRS, in one process.
//!
//! Purpose: new users have no vSphere, and tests need faults that real servers do not produce on demand. Both sides
//! speak the real wire protocols, so the production clients work with them unchanged.
//!
//! Shape: each side is a plain, synchronous state machine ([`kubernetes::Kubernetes`], [`vcenter::Vcenter`]). It
//! changes only when it is called: by a request, or by [`world::World`] when a step on its timeline is due. The HTTP
//! layers are thin wrappers around it. [`link`] forwards vCenter events (a VM is created, loses power, is destroyed) to
//! the Kubernetes side, never the other way round.
//!
//! Invariants:
//! - No code is shared with Bridger's clients, engine or scheduler, so that both sides cannot have the same bug.
//! - A state machine does no I/O, reads no clock and has no random source of its own: `now` and the seed are passed in.
//! - The same seed and the same requests at the same times produce the same [`chronicle`], byte for byte.

pub mod certificate;
pub mod chronicle;
pub mod clock;
pub mod control;
pub mod fault;
pub mod fault_http;
pub mod kubernetes;
pub mod link;
pub mod seed;
pub mod serve;
pub mod timeline;
pub mod vcenter;
pub mod world;

pub use clock::{Clock, SimTime};
pub use world::World;
