//! API errors, with the HTTP code and reason that kube-apiserver puts into the `Status`.

use std::fmt;

use serde_json::{Value, json};

use super::kinds::KindId;

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
    /// Fields of a server-side apply that other managers own, as (manager, field).
    #[error("Apply failed with {}: {}", conflict_count(.0.len()), ConflictList(.0))]
    FieldConflict(Vec<(String, String)>),
    /// `kind` is qualified by its group: `Deployment.apps`.
    #[error("{kind} \"{name}\" is invalid: {}", FieldErrors(.errors))]
    Invalid { kind: String, name: String, errors: Vec<FieldError> },
    /// A JSON patch that does not apply.
    #[error("the server rejected our request due to an error in our request")]
    PatchRejected,
    #[error("{resource} \"{name}\" is forbidden: {why}")]
    Forbidden { resource: String, name: String, why: String, cause: Option<Box<Cause>> },
    #[error("{0}")]
    BadRequest(String),
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    #[error("{0}")]
    NotAcceptable(String),
    #[error("{0}")]
    UnsupportedMediaType(String),
    #[error("{0}")]
    TooLarge(String),
    /// The continue token or resource version is too old.
    #[error("{0}")]
    Expired(String),
    /// The resource version is in the future.
    #[error("Timeout: Too large resource version: {wanted}, current: {current}")]
    VersionAhead { wanted: u64, current: u64 },
    /// An eviction that a PodDisruptionBudget forbids. `why` is the text after the budget's name.
    #[error("Cannot evict pod as it would violate the pod's disruption budget.")]
    TooManyDisruptions { budget: String, why: String },
    #[error("{0}")]
    TooManyRequests(String),
    #[error("{0}")]
    Internal(String),
}

/// An additional detail of a `Status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub reason: &'static str,
    pub message: String,
    pub field: Option<&'static str>,
}

/// The error of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub field: String,
    reason: &'static str,
    message: String,
}

impl FieldError {
    #[must_use]
    pub fn required(field: impl Into<String>, detail: &str) -> FieldError {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        FieldError { field: field.into(), reason: "FieldValueRequired", message }
    }

    #[must_use]
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> FieldError {
        let message = format!("Invalid value: {value}: {detail}");
        FieldError { field: field.into(), reason: "FieldValueInvalid", message }
    }

    #[must_use]
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> FieldError {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        FieldError { field: field.into(), reason: "FieldValueNotSupported", message }
    }

    #[must_use]
    pub fn forbidden(field: impl Into<String>, detail: &str) -> FieldError {
        FieldError { field: field.into(), reason: "FieldValueForbidden", message: format!("Forbidden: {detail}") }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

struct FieldErrors<'a>(&'a [FieldError]);

impl fmt::Display for FieldErrors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0 {
            return only.fmt(f);
        }
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        write!(f, "[{}]", all.join(", "))
    }
}

struct ConflictList<'a>(&'a [(String, String)]);

impl fmt::Display for ConflictList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(manager, field)] = self.0 {
            return write!(f, "conflict with \"{manager}\": {field}");
        }
        let mut last_manager = None;
        for (manager, field) in self.0 {
            if last_manager != Some(manager) {
                let separator = if last_manager.is_some() { "\n" } else { "" };
                write!(f, "{separator}conflicts with \"{manager}\":")?;
                last_manager = Some(manager);
            }
            write!(f, "\n- {field}")?;
        }
        Ok(())
    }
}

fn conflict_count(count: usize) -> String {
    if count == 1 { "1 conflict".to_owned() } else { format!("{count} conflicts") }
}

impl ApiError {
    #[must_use]
    pub fn invalid(kind: KindId, name: &str, errors: Vec<FieldError>) -> ApiError {
        ApiError::Invalid { kind: kind.kind().qualified_kind(), name: name.to_owned(), errors }
    }

    /// Query options that contradict each other.
    #[must_use]
    pub fn invalid_options(options: &str, error: FieldError) -> ApiError {
        ApiError::Invalid { kind: format!("{options}.meta.k8s.io"), name: String::new(), errors: vec![error] }
    }

    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            ApiError::BadRequest(_) => 400,
            ApiError::Forbidden { .. } => 403,
            ApiError::NotFound { .. } | ApiError::NoSuchResource => 404,
            ApiError::MethodNotAllowed => 405,
            ApiError::NotAcceptable(_) => 406,
            ApiError::AlreadyExists { .. } | ApiError::Conflict { .. } | ApiError::FieldConflict(_) => 409,
            ApiError::Expired(_) => 410,
            ApiError::TooLarge(_) => 413,
            ApiError::UnsupportedMediaType(_) => 415,
            ApiError::Invalid { .. } | ApiError::PatchRejected => 422,
            ApiError::TooManyDisruptions { .. } | ApiError::TooManyRequests(_) => 429,
            ApiError::Internal(_) => 500,
            ApiError::VersionAhead { .. } => 504,
        }
    }

    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            ApiError::BadRequest(_) => "BadRequest",
            ApiError::Forbidden { .. } => "Forbidden",
            ApiError::NotFound { .. } | ApiError::NoSuchResource => "NotFound",
            ApiError::MethodNotAllowed => "MethodNotAllowed",
            ApiError::NotAcceptable(_) => "NotAcceptable",
            ApiError::AlreadyExists { .. } => "AlreadyExists",
            ApiError::Conflict { .. } | ApiError::FieldConflict(_) => "Conflict",
            ApiError::Expired(_) => "Expired",
            ApiError::TooLarge(_) => "RequestEntityTooLarge",
            ApiError::UnsupportedMediaType(_) => "UnsupportedMediaType",
            ApiError::Invalid { .. } | ApiError::PatchRejected => "Invalid",
            ApiError::TooManyDisruptions { .. } | ApiError::TooManyRequests(_) => "TooManyRequests",
            ApiError::Internal(_) => "InternalError",
            ApiError::VersionAhead { .. } => "Timeout",
        }
    }

    /// How long the client should wait before it retries.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u32> {
        match self {
            ApiError::TooManyRequests(_) | ApiError::VersionAhead { .. } => Some(1),
            // The budget controller should process it soon.
            ApiError::TooManyDisruptions { why, .. } if why.starts_with("is still being processed") => Some(10),
            _ => None,
        }
    }

    /// The `Status` object of the response.
    #[must_use]
    pub fn status(&self) -> Value {
        let mut details = json!({});
        match self {
            ApiError::NotFound { resource, name }
            | ApiError::AlreadyExists { resource, name }
            | ApiError::Conflict { resource, name, .. }
            | ApiError::Forbidden { resource, name, .. } => {
                details = named(resource, name);
                if let ApiError::Forbidden { cause: Some(cause), .. } = self {
                    let mut entry = json!({ "reason": cause.reason, "message": cause.message });
                    if let Some(field) = cause.field {
                        entry["field"] = json!(field);
                    }
                    details["causes"] = json!([entry]);
                }
            }
            ApiError::Invalid { kind, name, errors } => {
                details = named(kind, name);
                details["causes"] = errors
                    .iter()
                    .map(|error| json!({ "reason": error.reason, "message": error.message, "field": error.field }))
                    .collect();
            }
            ApiError::FieldConflict(conflicts) => {
                details["causes"] = conflicts
                    .iter()
                    .map(|(manager, field)| {
                        let message = format!("conflict with \"{manager}\"");
                        json!({ "reason": "FieldManagerConflict", "message": message, "field": field })
                    })
                    .collect();
            }
            ApiError::TooManyDisruptions { budget, why } => {
                let message = format!("The disruption budget {budget} {why}");
                details["causes"] = json!([{ "reason": "DisruptionBudget", "message": message }]);
            }
            ApiError::VersionAhead { .. } => {
                let message = "Too large resource version";
                details["causes"] = json!([{ "reason": "ResourceVersionTooLarge", "message": message }]);
            }
            _ => (),
        }
        if let Some(seconds) = self.retry_after_seconds() {
            details["retryAfterSeconds"] = json!(seconds);
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.to_string(), "reason": self.reason(), "details": details, "code": self.code(),
        });
        if matches!(self, ApiError::BadRequest(_) | ApiError::UnsupportedMediaType(_) | ApiError::Internal(_))
            && let Some(status) = status.as_object_mut()
        {
            status.remove("details");
        }
        status
    }
}

/// `deployments.apps` and a name, in the form of the details of a `Status`.
fn named(resource: &str, name: &str) -> Value {
    let (kind, group) = resource.split_once('.').unwrap_or((resource, ""));
    let mut details = json!({ "kind": kind });
    if !name.is_empty() {
        details["name"] = json!(name);
    }
    if !group.is_empty() {
        details["group"] = json!(group);
    }
    details
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_details_match_a_real_server() {
        let error = ApiError::invalid(
            KindId::DEPLOYMENT,
            "web",
            vec![FieldError::required("spec.selector", ""), FieldError::forbidden("spec", "no")],
        );
        assert_eq!(
            error.to_string(),
            "Deployment.apps \"web\" is invalid: [spec.selector: Required value, spec: Forbidden: no]"
        );
        let details = &error.status()["details"];
        assert_eq!(details["group"], "apps");
        assert_eq!(details["causes"][1]["reason"], "FieldValueForbidden");
        let conflict = ApiError::FieldConflict(vec![("m1".to_owned(), ".data.a".to_owned())]);
        assert_eq!(conflict.to_string(), "Apply failed with 1 conflict: conflict with \"m1\": .data.a");
    }
}
