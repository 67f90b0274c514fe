//! The errors of calls to a vCenter. A variant's name is its label in metrics.

use crate::ManagedObject;

#[derive(Debug, thiserror::Error)]
pub enum VsphereError {
    #[error("{url} is not a valid vCenter URL: {why}")]
    BadUrl { url: String, why: String },
    #[error("cannot reach {host}: {why}")]
    Unreachable { host: String, why: String },
    #[error("the certificate of {host} is not trusted ({why}); its SHA-256 thumbprint is {thumbprint}")]
    UntrustedCertificate { host: String, thumbprint: String, why: String },
    #[error("no trusted certificate could be read from {file}: {why}")]
    CaFile { file: String, why: String },
    #[error("{0:?} is not a SHA-256 thumbprint: expected 64 hexadecimal digits, with or without colons")]
    BadThumbprint(String),
    #[error("the {what} could not be read from {file}: {why}")]
    CredentialFile { what: &'static str, file: String, why: String },
    #[error("no answer from {host} within {seconds} s")]
    TimedOut { host: String, seconds: u64 },
    /// What was read is kept, so the next attempt needs less time.
    #[error("the tags of {host} could not be read within {seconds} s")]
    TagsUnread { host: String, seconds: u64 },
    #[error("{host} answered HTTP {status}")]
    Http { host: String, status: u16 },
    #[error("{host} sent an unexpected response: {what}")]
    Protocol { host: String, what: String },
    #[error("the user name or the password is wrong")]
    InvalidLogin,
    #[error(
        "login to {host} is paused for {seconds} s after {failures} refused attempts, so that the account is not locked"
    )]
    LoginPaused { host: String, failures: u32, seconds: u64 },
    #[error("the session has ended")]
    NotAuthenticated,
    #[error("the user lacks the privilege {privilege} on {object}")]
    NoPermission { privilege: String, object: String },
    #[error("{product} is not a vCenter: Bridger needs the vCenter that manages the hosts")]
    NotVcenter { product: String },
    #[error("{host} and {other} are the same vCenter: it is followed as {other}; specify it only once")]
    SameVcenter { host: String, other: String },
    #[error("{method}: {fault}")]
    Fault { method: &'static str, fault: Box<Fault> },
}

/// A fault of the vSphere API, with the name of its type, which may be unknown to this client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Fault {
    /// `DuplicateName`.
    pub kind: String,
    pub message: String,
    /// For NoPermission: the missing privilege and the object that requires it.
    pub privilege: Option<String>,
    pub object: Option<ManagedObject>,
    /// For InvalidArgument and InvalidProperty.
    pub property: Option<String>,
}

impl VsphereError {
    /// The error for a fault of `method`.
    pub(crate) fn from_fault(method: &'static str, fault: Fault) -> VsphereError {
        match fault.kind.as_str() {
            "NotAuthenticated" => VsphereError::NotAuthenticated,
            "InvalidLogin" => VsphereError::InvalidLogin,
            "NoPermission" => VsphereError::NoPermission {
                privilege: fault.privilege.unwrap_or_else(|| format!("required by {method}")),
                object: fault.object.map_or_else(|| "an unnamed object".to_owned(), |object| object.to_string()),
            },
            _ => VsphereError::Fault { method, fault: Box::new(fault) },
        }
    }

    /// Whether the error is transient: a later retry may succeed without any other change.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            VsphereError::Unreachable { .. }
            | VsphereError::TimedOut { .. }
            | VsphereError::TagsUnread { .. }
            | VsphereError::LoginPaused { .. }
            | VsphereError::NotAuthenticated
            | VsphereError::Protocol { .. } => true,
            VsphereError::Http { status, .. } => *status >= 500 || *status == 429,
            _ => false,
        }
    }

    /// Whether the session has ended, so that a new login is enough.
    #[must_use]
    pub fn is_session_end(&self) -> bool {
        matches!(self, VsphereError::NotAuthenticated)
    }
}
