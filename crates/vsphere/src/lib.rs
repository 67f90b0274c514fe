//! The only client of the vSphere API: a thin SOAP client, hand-typed for the methods and types that Bridger needs.
//!
//! - `xml`, `soap`: reading and writing the wire.
//! - `tls`, [`transport`]: HTTPS with a CA file, a SHA-256 thumbprint, or, asked for in so many words, no check.
//! - `client`: sessions and methods. [`property`]: the property collector.
//! - [`config`]: how to reach a vCenter, from what govc users already have. [`probe`]: one look at it, for the start.
//! - [`inventory`]: what it holds, followed and told in the model's words.
//! - [`rules`]: DRS rules and groups, read and changed for the engine.
//!
//! SOAP rather than the newer JSON wire, because it serves every vCenter from 6.5 to 9.x.
//!
//! Invariants: every call has a time limit; answers are bounded in size and depth; a password is in no error and no
//! debug output; unknown elements are skipped and unknown faults kept by name, so that a newer vCenter does no harm.

mod client;
pub mod config;
mod error;
pub mod inventory;
pub mod probe;
pub mod property;
pub mod rules;
mod soap;
mod tls;
pub mod transport;
mod xml;

pub use client::{About, Client, Credentials, Endpoint};
pub use config::{ConfigError, CredentialSource, Settings, Timing, VcenterConfig};
pub use error::{Fault, VsphereError};
pub use inventory::VcenterStatus;
pub use probe::{InventoryCounts, connect_once};
pub use rules::Rules;
pub use tls::Trust;

use std::fmt;

/// A reference to a managed object, as the wire has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ManagedObject {
    /// `VirtualMachine`.
    pub kind: String,
    /// `vm-42`.
    pub id: String,
}

impl ManagedObject {
    #[must_use]
    pub fn new(kind: &str, id: &str) -> ManagedObject {
        ManagedObject { kind: kind.to_owned(), id: id.to_owned() }
    }
}

impl fmt::Display for ManagedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)
    }
}
