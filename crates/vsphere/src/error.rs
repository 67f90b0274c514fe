//! What can go wrong between us and a vCenter. A variant's name is its label in metrics.

use crate::ManagedObject;

#[derive(Debug, thiserror::Error)]
pub enum VsphereError {
    #[error("{url} is not an address of a vCenter: {why}")]
    BadUrl { url: String, why: String },
    #[error("cannot reach {host}: {why}")]
    Unreachable { host: String, why: String },
    #[error("{host} shows a certificate that is not trusted ({why}); its SHA-256 thumbprint is {thumbprint}")]
    UntrustedCertificate { host: String, thumbprint: String, why: String },
    #[error("no trusted certificate could be read from {file}: {why}")]
    CaFile { file: String, why: String },
    #[error("{0:?} is not a SHA-256 thumbprint: 64 hexadecimal digits, with or without colons, are expected")]
    BadThumbprint(String),
    #[error("the {what} could not be read from {file}: {why}")]
    CredentialFile { what: &'static str, file: String, why: String },
    #[error("no answer from {host} within {seconds} s")]
    TimedOut { host: String, seconds: u64 },
    #[error("{host} answered HTTP {status}")]
    Http { host: String, status: u16 },
    #[error("{host} answered something that is not understood: {what}")]
    Protocol { host: String, what: String },
    #[error("the user name or the password is wrong")]
    InvalidLogin,
    #[error("the session has ended")]
    NotAuthenticated,
    #[error("the user lacks the privilege {privilege} on {object}")]
    NoPermission { privilege: String, object: String },
    #[error("{product} is not a vCenter: Bridger needs the vCenter that manages the hosts")]
    NotVcenter { product: String },
    #[error("{method}: {fault}")]
    Fault { method: &'static str, fault: Box<Fault> },
}

/// A fault of the vSphere API, by the name of its type: also one that this client has never heard of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Fault {
    /// `DuplicateName`.
    pub kind: String,
    pub message: String,
    /// For NoPermission: what is lacking, and where.
    pub privilege: Option<String>,
    pub object: Option<ManagedObject>,
    /// For InvalidArgument and InvalidProperty.
    pub property: Option<String>,
}

impl VsphereError {
    /// What a fault means to a caller of `method`.
    pub(crate) fn from_fault(method: &'static str, fault: Fault) -> VsphereError {
        match fault.kind.as_str() {
            "NotAuthenticated" => VsphereError::NotAuthenticated,
            "InvalidLogin" => VsphereError::InvalidLogin,
            "NoPermission" => VsphereError::NoPermission {
                privilege: fault.privilege.unwrap_or_else(|| format!("that {method} needs")),
                object: fault
                    .object
                    .map_or_else(|| "an object it does not name".to_owned(), |object| object.to_string()),
            },
            _ => VsphereError::Fault { method, fault: Box::new(fault) },
        }
    }

    /// Whether trying again later may succeed without anybody changing anything.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            VsphereError::Unreachable { .. }
            | VsphereError::TimedOut { .. }
            | VsphereError::NotAuthenticated
            | VsphereError::Protocol { .. } => true,
            VsphereError::Http { status, .. } => *status >= 500 || *status == 429,
            _ => false,
        }
    }

    /// The session is over, and a new login is all it takes.
    #[must_use]
    pub fn is_session_end(&self) -> bool {
        matches!(self, VsphereError::NotAuthenticated)
    }
}
