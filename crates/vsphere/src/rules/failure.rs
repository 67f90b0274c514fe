//! Classifies failures for the engine: transient, permanent, not found, or invalid.
//!
//! Input: an error of the client about one cluster. Output: a `PortError` with a one-line message.
//!
//! An unknown fault counts as invalid, that is, caused by the content of the change: the engine can then still apply
//! parts of the change, whereas retrying the whole change would block these parts forever.

use engine::ports::PortError;

use crate::ManagedObject;
use crate::error::{Fault, VsphereError};

/// Longer texts are truncated: a fault may quote the whole request.
const CHARS_MAX: usize = 300;

/// Transient faults: another client is changing the object, or vCenter has a temporary problem.
const TRANSIENT: &[&str] = &[
    "ConcurrentAccess",
    "HostCommunication",
    "HostNotConnected",
    "HostNotReachable",
    "InvalidState",
    "NotAuthenticated",
    "RequestCanceled",
    "ResourceInUse",
    "SystemError",
    "TaskInProgress",
    "Timedout",
];

/// Permanent faults, which an administrator must fix.
const PERMANENT: &[&str] = &[
    "LicenseRestricted",
    "MethodDisabled",
    "MethodNotFound",
    "NotEnoughLicenses",
    "NotImplemented",
    "NotSupported",
    "RestrictedByAdministrator",
    "RestrictedVersion",
];

const NOT_FOUND: &str = "ManagedObjectNotFound";

pub(super) fn port_error(cluster: &ManagedObject, error: VsphereError) -> PortError {
    let text = format!("rules of {cluster}: {}", one_line(&error.to_string()));
    match error {
        VsphereError::Fault { method, fault } => fault_error(cluster, method, &fault),
        error if error.is_transient() => PortError::Transient(text),
        _ => PortError::Permanent(text),
    }
}

fn fault_error(cluster: &ManagedObject, method: &str, fault: &Fault) -> PortError {
    let text = format!("rules of {cluster}: {}", describe(fault));
    let about_the_cluster = match &fault.object {
        Some(object) => object == cluster,
        // A read call names only the cluster.
        None => method.starts_with("Retrieve"),
    };
    match fault.kind.as_str() {
        NOT_FOUND if about_the_cluster => PortError::NotFound(cluster.to_string()),
        // vCenter no longer knows the task. Only the cluster itself shows how it ended.
        NOT_FOUND if fault.object.as_ref().is_some_and(|object| object.kind == "Task") => PortError::Transient(text),
        kind if TRANSIENT.contains(&kind) => PortError::Transient(text),
        kind if PERMANENT.contains(&kind) => PortError::Permanent(text),
        _ => PortError::Invalid(text),
    }
}

/// The type of the fault, the property and object that it names, and vCenter's message.
fn describe(fault: &Fault) -> String {
    let property = fault.property.as_ref().map(|property| format!(" {property}"));
    let object = fault.object.as_ref().map(|object| format!(" {object}"));
    let message = Some(&fault.message).filter(|message| !message.is_empty()).map(|message| format!(": {message}"));
    let parts = [Some(fault.kind.clone()), property, object, message];
    one_line(&parts.into_iter().flatten().collect::<String>())
}

fn one_line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(CHARS_MAX) {
        line.truncate(end);
        line.push('…');
    }
    line
}
