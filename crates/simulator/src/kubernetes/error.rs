//! The API's errors, each with the HTTP code and reason that a kube-apiserver gives it in a `Status`.

use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApiError {
    #[error("{resource} \"{name}\" not found")]
    NotFound { resource: String, name: String },
    #[error("the server could not find the requested resource")]
    NoSuchResource,
    #[error("{resource} \"{name}\" already exists")]
    AlreadyExists { resource: String, name: String },
    #[error("Operation cannot be fulfilled on {resource} \"{name}\": {why}")]
    Conflict { resource: String, name: String, why: String },
    #[error("{kind} \"{name}\" is invalid: {why}")]
    Invalid { kind: String, name: String, why: String },
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    MethodNotAllowed(String),
    #[error("{0}")]
    NotAcceptable(String),
    #[error("{0}")]
    UnsupportedMediaType(String),
    #[error("{0}")]
    TooLarge(String),
    /// The continue token or resource version is too old.
    #[error("{0}")]
    Expired(String),
    /// An eviction that a PodDisruptionBudget forbids.
    #[error("Cannot evict pod as it would violate the pod's disruption budget.")]
    TooManyDisruptions { budget: String, why: String },
    #[error("{0}")]
    Internal(String),
}

impl ApiError {
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            ApiError::BadRequest(_) => 400,
            ApiError::NotFound { .. } | ApiError::NoSuchResource => 404,
            ApiError::MethodNotAllowed(_) => 405,
            ApiError::NotAcceptable(_) => 406,
            ApiError::AlreadyExists { .. } | ApiError::Conflict { .. } => 409,
            ApiError::Expired(_) => 410,
            ApiError::TooLarge(_) => 413,
            ApiError::UnsupportedMediaType(_) => 415,
            ApiError::Invalid { .. } => 422,
            ApiError::TooManyDisruptions { .. } => 429,
            ApiError::Internal(_) => 500,
        }
    }

    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            ApiError::BadRequest(_) => "BadRequest",
            ApiError::NotFound { .. } | ApiError::NoSuchResource => "NotFound",
            ApiError::MethodNotAllowed(_) => "MethodNotAllowed",
            ApiError::NotAcceptable(_) => "NotAcceptable",
            ApiError::AlreadyExists { .. } => "AlreadyExists",
            ApiError::Conflict { .. } => "Conflict",
            ApiError::Expired(_) => "Expired",
            ApiError::TooLarge(_) => "RequestEntityTooLarge",
            ApiError::UnsupportedMediaType(_) => "UnsupportedMediaType",
            ApiError::Invalid { .. } => "Invalid",
            ApiError::TooManyDisruptions { .. } => "TooManyRequests",
            ApiError::Internal(_) => "InternalError",
        }
    }

    /// The `Status` object that answers the request.
    #[must_use]
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.to_string(), "reason": self.reason(), "code": self.code(),
        });
        match self {
            ApiError::NotFound { resource, name }
            | ApiError::AlreadyExists { resource, name }
            | ApiError::Conflict { resource, name, .. } => {
                let (kind, group) = resource.split_once('.').unwrap_or((resource, ""));
                status["details"] = json!({ "name": name, "kind": kind });
                if !group.is_empty() {
                    status["details"]["group"] = json!(group);
                }
            }
            ApiError::Invalid { kind, name, .. } => status["details"] = json!({ "name": name, "kind": kind }),
            ApiError::TooManyDisruptions { budget, why } => {
                status["details"] = json!({ "causes": [{
                    "reason": "DisruptionBudget",
                    "message": format!("The disruption budget {budget} {why}"),
                }] });
            }
            _ => (),
        }
        status
    }
}
