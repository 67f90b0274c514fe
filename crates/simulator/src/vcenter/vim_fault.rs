//! The faults of vCenter methods and tasks, by their names in the vSphere API.

use super::inventory::MoRef;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VimFault {
    #[error("The session is not authenticated.")]
    NotAuthenticated,
    #[error("Cannot complete login due to an incorrect user name or password.")]
    InvalidLogin,
    #[error("Permission to perform this operation was denied.")]
    NoPermission { object: MoRef, privilege: String },
    #[error("The object '{0}' has already been deleted or has not been completely created")]
    ManagedObjectNotFound(MoRef),
    /// As above, for a reference that is not part of the inventory.
    #[error("The object '{type_name}:{value}' has already been deleted or has not been completely created")]
    UnknownObject { type_name: String, value: String },
    #[error("A specified parameter was not correct: {property}")]
    InvalidArgument { property: String },
    #[error("The property '{0}' does not exist.")]
    InvalidProperty(String),
    #[error("The property collector has not issued this version.")]
    InvalidCollectorVersion,
    #[error("The name '{0}' is not valid.")]
    InvalidName(String),
    #[error("The request refers to an unexpected or unknown type or member: {0}")]
    InvalidRequest(String),
    #[error("The method {0} is not supported by this server.")]
    MethodNotFound(String),
    #[error("The operation is not supported on the object.")]
    NotSupported,
    #[error("The name '{name}' already exists.")]
    DuplicateName { name: String, object: MoRef },
    #[error("The object or item referred to could not be found.")]
    NotFound,
    #[error("The operation is not allowed in the current state.")]
    InvalidState,
    #[error("The attempted operation cannot be performed in the current state ({existing}).")]
    InvalidPowerState { requested: String, existing: String },
    #[error("Operation timed out.")]
    Timedout,
    #[error("The task was canceled by a user.")]
    RequestCanceled,
    #[error("The virtual machine cannot be placed on the host: {0}")]
    RuleViolation(String),
    #[error("There is no host that can run the virtual machine.")]
    NoCompatibleHost,
    #[error("The host is not connected.")]
    HostNotConnected,
    #[error("A general system error occurred: {0}")]
    SystemError(String),
}

impl VimFault {
    /// The type's name on the wire.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            VimFault::NotAuthenticated => "NotAuthenticated",
            VimFault::InvalidLogin => "InvalidLogin",
            VimFault::NoPermission { .. } => "NoPermission",
            VimFault::ManagedObjectNotFound(_) => "ManagedObjectNotFound",
            VimFault::UnknownObject { .. } => "ManagedObjectNotFound",
            VimFault::InvalidProperty(_) => "InvalidProperty",
            VimFault::InvalidCollectorVersion => "InvalidCollectorVersion",
            VimFault::InvalidName(_) => "InvalidName",
            VimFault::InvalidArgument { .. } => "InvalidArgument",
            VimFault::InvalidRequest(_) => "InvalidRequest",
            VimFault::MethodNotFound(_) => "MethodNotFound",
            VimFault::NotSupported => "NotSupported",
            VimFault::DuplicateName { .. } => "DuplicateName",
            VimFault::NotFound => "NotFound",
            VimFault::InvalidState => "InvalidState",
            VimFault::InvalidPowerState { .. } => "InvalidPowerState",
            VimFault::Timedout => "Timedout",
            VimFault::RequestCanceled => "RequestCanceled",
            VimFault::RuleViolation(_) => "VmHostAffinityRuleViolation",
            VimFault::NoCompatibleHost => "NoCompatibleHost",
            VimFault::HostNotConnected => "HostNotConnected",
            VimFault::SystemError(_) => "SystemError",
        }
    }
}
