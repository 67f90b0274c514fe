//! What a failure means to the engine: try again later, give up, have somebody put it right, or leave a part out.
//!
//! Input: an error of the client about one cluster. Output: a `PortError` with one line for people.
//!
//! A fault that nobody here has heard of is taken to be about the content of the change: parts of it may then still go
//! through, whereas trying all of it again and again would block them for ever.

use engine::ports::PortError;

use crate::ManagedObject;
use crate::error::{Fault, VsphereError};

/// Longer texts are cut: a fault may quote the whole request.
const CHARS_MAX: usize = 300;

/// Faults of the moment: somebody else is at it, or vCenter is not well.
const PASSING: &[&str] = &[
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

/// Faults that an administrator must do something about.
const REFUSED: &[&str] = &[
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
        error if error.is_passing() => PortError::Transient(text),
        _ => PortError::Permanent(text),
    }
}

fn fault_error(cluster: &ManagedObject, method: &str, fault: &Fault) -> PortError {
    let text = format!("rules of {cluster}: {}", describe(fault));
    let about_the_cluster = match &fault.object {
        Some(object) => object == cluster,
        // Reading asks for the cluster and nothing else.
        None => method.starts_with("Retrieve"),
    };
    match fault.kind.as_str() {
        NOT_FOUND if about_the_cluster => PortError::NotFound(cluster.to_string()),
        // A task that vCenter has forgotten: how it ended shows only in the cluster itself.
        NOT_FOUND if fault.object.as_ref().is_some_and(|object| object.kind == "Task") => PortError::Transient(text),
        kind if PASSING.contains(&kind) => PortError::Transient(text),
        kind if REFUSED.contains(&kind) => PortError::Permanent(text),
        _ => PortError::Invalid(text),
    }
}

/// The type of the fault, what it names, and what vCenter says.
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
