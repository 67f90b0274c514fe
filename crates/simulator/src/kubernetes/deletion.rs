//! Deletion: at once, or with a grace period and finalizers.
//!
//! Input: what to delete and the client's `DeleteOptions`. Output: whether the object is gone or only terminating.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::error::ApiError;
use super::kinds::KindId;
use super::store::{Store, resource_name};
use crate::clock::SimTime;

/// What becomes of the objects that the deleted one owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    #[default]
    Background,
    Foreground,
    Orphan,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub grace_seconds: Option<u64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub propagation: Propagation,
}

#[derive(Clone, Debug)]
pub enum Deleted {
    Gone(Arc<Value>),
    Terminating(Arc<Value>),
}

pub fn delete(
    store: &mut Store,
    kind: KindId,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
    now: SimTime,
) -> Result<Deleted, ApiError> {
    let not_found = || ApiError::NotFound { resource: resource_name(kind), name: name.to_owned() };
    let object = store.get(kind, namespace, name).cloned().ok_or_else(not_found)?;
    for (wanted, field) in [(&options.uid, "uid"), (&options.resource_version, "resourceVersion")] {
        if wanted.as_deref().is_some_and(|wanted| object["metadata"][field] != *wanted) {
            return Err(ApiError::Conflict {
                resource: resource_name(kind),
                name: name.to_owned(),
                why: format!("the {field} in the precondition does not match the {field} in record"),
            });
        }
    }
    let bound_pod = kind == KindId::POD && object["spec"]["nodeName"].is_string();
    let default_grace =
        if bound_pod { object["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30) } else { 0 };
    let grace_seconds = if bound_pod { options.grace_seconds.unwrap_or(default_grace) } else { 0 };
    if grace_seconds > 0 || object["metadata"]["finalizers"].is_array() {
        let gone_at = now.after(Duration::from_secs(grace_seconds));
        return store.mark_deleted(kind, namespace, name, gone_at, grace_seconds).map(Deleted::Terminating);
    }
    store.remove(kind, namespace, name).map(Deleted::Gone)
}
