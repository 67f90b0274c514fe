//! An embedded world: a Kubernetes API and a vCenter with a working DRS, in one process.
//!
//! Purpose: newcomers have no vSphere, and tests need faults that no real server produces on demand. Both sides speak
//! the real wire protocols, so the very clients that talk to production talk to them.
//!
//! Shape: each side is a plain, synchronous state machine ([`kubernetes::Kubernetes`], [`vcenter::Vcenter`]) that
//! moves only when it is called: by a request, or by [`world::World`] when something on its timeline falls due. The
//! HTTP layers are thin skins over them. What happens in the vCenter (a VM is created, loses power, is destroyed) is
//! carried to the Kubernetes side by [`link`], never the other way round.
//!
//! Invariants:
//! - No code is shared with Bridger's clients, engine or scheduler, so that both sides can't be wrong together.
//! - A state machine does no I/O, reads no clock and draws no randomness of its own: `now` and the seed are given.
//! - The same seed and the same requests at the same moments give the same [`chronicle`], byte for byte.

pub mod chronicle;
pub mod clock;
pub mod control;
pub mod fault;
pub mod fault_http;
pub mod kubernetes;
pub mod link;
pub mod seed;
pub mod timeline;
pub mod vcenter;
pub mod world;

pub use clock::{Clock, SimTime};
pub use world::World;
