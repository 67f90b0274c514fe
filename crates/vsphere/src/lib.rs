//! The only client of the vSphere API: a thin SOAP client, hand-written for the methods and types that Bridger uses.
//!
//! - `xml`, `soap`: encoding and decoding of messages.
//! - `tls`, [`transport`]: HTTPS with a CA file, a SHA-256 thumbprint or, only if explicitly requested, no check.
//! - `client`: sessions and methods. [`property`]: the property collector.
//! - `login`: limits failed logins. [`config`]: how to reach a vCenter, from the settings that govc users already have. [`probe`]: a single check of a
//!   vCenter at the start.
//! - [`inventory`]: watches the inventory and emits it as events of the model.
//! - [`tagging`]: which objects have a tag; another protocol, REST with JSON.
//! - [`rules`]: reads and changes DRS rules and groups for the engine.
//!
//! SOAP instead of the newer JSON protocol, because every vCenter from 6.5 to 9.x supports it.
//!
//! Invariants: every call has a time limit; responses are bounded in size and depth; no error and no debug output
//! contains a password; unknown elements are skipped and unknown faults kept by name, so that a newer vCenter does no
//! harm.

mod client;
pub mod config;
mod error;
pub mod inventory;
mod login;
pub mod probe;
pub mod property;
pub mod rules;
mod soap;
pub mod tagging;
mod tls;
pub mod transport;
mod xml;

pub use client::{About, Client, Credentials, Endpoint};
pub use config::{CredentialSource, Settings, Timing, VcenterConfig, VcenterConfigError};
pub use error::{Fault, VsphereError};
pub use inventory::VcenterStatus;
pub use probe::{InventoryCounts, connect_once};
pub use rules::Rules;
pub use tls::Trust;

use std::fmt;

/// A reference to a managed object.
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
