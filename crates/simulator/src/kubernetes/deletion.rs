//! Deletes objects as kube-apiserver does: immediately, or marked first and removed later.
//!
//! In: an object and the delete options. Out: the last state of the removed object ([`Deleted::Gone`]), or the current
//! state of a terminating object ([`Deleted::Terminating`]).
//!
//! Invariants:
//! - A pod that runs on a node gets its grace period. A later deletion can only shorten it.
//! - An object with finalizers stays, marked, until the last finalizer is removed ([`finish_if_ready`]).
//! - A namespace is only marked: its controller empties it first.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::error::ApiError;
use super::json::{array, items, moment, put, text};
use super::kinds::KindId;
use super::pod;
use super::store::{Store, resource_name};
use crate::clock::SimTime;

/// The finalizer that keeps an owner until its dependents are deleted.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// The finalizer that keeps an owner until its dependents are released.
pub const ORPHAN_FINALIZER: &str = "orphan";

/// A pod's grace period if neither the pod nor the request sets one.
const POD_GRACE_SECONDS_DEFAULT: u64 = 30;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub grace_seconds: Option<u64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub propagation: Propagation,
}

impl DeleteOptions {
    /// Immediate deletion, as when a kubelet confirms that a pod has stopped.
    #[must_use]
    pub fn at_once() -> DeleteOptions {
        DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() }
    }
}

/// What happens to the dependents of the deleted object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents are deleted after the owner.
    #[default]
    Background,
    /// The owner is deleted after its dependents.
    Foreground,
    /// Dependents stay and lose their owner reference.
    Orphan,
}

#[derive(Clone, Debug, PartialEq)]
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
    let Some(object) = store.get(kind, namespace, name).cloned() else {
        return Err(ApiError::NotFound { resource: resource_name(kind), name: name.to_owned() });
    };
    check_preconditions(kind, &object, options)?;
    if kind == KindId::POD && pod::is_terminating(&object) {
        return hasten(store, &object, options, now);
    }
    if pod::is_terminating(&object) {
        return Ok(Deleted::Terminating(object));
    }
    let finalizer = match options.propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND_FINALIZER),
        Propagation::Orphan => Some(ORPHAN_FINALIZER),
    };
    let object = match finalizer {
        None => object,
        Some(finalizer) => store.edit(kind, namespace, name, |object| {
            let finalizers = array(object, &["metadata", "finalizers"]);
            if !finalizers.iter().any(|known| known == finalizer) {
                finalizers.push(json!(finalizer));
            }
        })?,
    };
    let grace_seconds = if kind == KindId::POD { pod_grace_seconds(&object, options) } else { 0 };
    if kind == KindId::NAMESPACE {
        store.edit(kind, namespace, name, |object| put(object, &["status", "phase"], json!("Terminating")))?;
        return store.mark_deleted(kind, namespace, name, now, 0).map(Deleted::Terminating);
    }
    if grace_seconds == 0 && items(&object["metadata"]["finalizers"]).is_empty() {
        return store.remove(kind, namespace, name).map(Deleted::Gone);
    }
    let gone_at = now.after(Duration::from_secs(grace_seconds));
    store.mark_deleted(kind, namespace, name, gone_at, grace_seconds).map(Deleted::Terminating)
}

/// Removes a terminating object when no finalizer or grace period holds it. Called after a change of its finalizers.
pub fn finish_if_ready(store: &mut Store, kind: KindId, namespace: &str, name: &str) -> Option<Arc<Value>> {
    let object = store.get(kind, namespace, name)?;
    let ready = pod::is_terminating(object)
        && items(&object["metadata"]["finalizers"]).is_empty()
        && object["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0) == 0
        && (kind != KindId::NAMESPACE || items(&object["spec"]["finalizers"]).is_empty());
    if ready { store.remove(kind, namespace, name).ok() } else { None }
}

fn check_preconditions(kind: KindId, object: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    for (what, wanted, found) in [
        ("UID", &options.uid, text(&object["metadata"]["uid"])),
        ("ResourceVersion", &options.resource_version, text(&object["metadata"]["resourceVersion"])),
    ] {
        if let Some(wanted) = wanted
            && wanted != found
        {
            return Err(ApiError::Conflict {
                resource: resource_name(kind),
                name: text(&object["metadata"]["name"]).to_owned(),
                why: format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"),
            });
        }
    }
    Ok(())
}

/// A pod that does not run needs no grace period.
fn pod_grace_seconds(object: &Value, options: &DeleteOptions) -> u64 {
    if pod::node_name(object).is_empty() || pod::is_finished(object) {
        return 0;
    }
    options
        .grace_seconds
        .or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_u64())
        .unwrap_or(POD_GRACE_SECONDS_DEFAULT)
}

/// Handles a pod that is already terminating: the period can be shortened, never extended.
fn hasten(store: &mut Store, object: &Arc<Value>, options: &DeleteOptions, now: SimTime) -> Result<Deleted, ApiError> {
    let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    let known = object["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
    let Some(wanted) = options.grace_seconds.filter(|wanted| *wanted < known || *wanted == 0) else {
        return Ok(Deleted::Terminating(object.clone()));
    };
    if wanted == 0 && items(&object["metadata"]["finalizers"]).is_empty() {
        return store.remove(KindId::POD, namespace, name).map(Deleted::Gone);
    }
    let gone_at = moment(&object["metadata"]["deletionTimestamp"]).unwrap_or(now);
    let earlier =
        SimTime { unix_ms: gone_at.unix_ms.saturating_sub(known.saturating_sub(wanted).saturating_mul(1000)) };
    store.mark_deleted(KindId::POD, namespace, name, earlier, wanted).map(Deleted::Terminating)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    const NOW: SimTime = SimTime::VIRTUAL_START;

    fn with_pod(pod: &Value) -> Store {
        let mut store = Store::new(Seed(1));
        let mut pod = pod.clone();
        put(&mut pod, &["metadata", "name"], json!("p"));
        put(&mut pod, &["metadata", "namespace"], json!("default"));
        store.create(KindId::POD, pod, NOW).unwrap();
        store
    }

    fn delete_pod(store: &mut Store, options: &DeleteOptions) -> Result<Deleted, ApiError> {
        delete(store, KindId::POD, "default", "p", options, NOW)
    }

    fn grace(seconds: u64) -> DeleteOptions {
        DeleteOptions { grace_seconds: Some(seconds), ..DeleteOptions::default() }
    }

    #[test]
    fn a_pod_gets_a_grace_period_only_on_a_node() {
        let bound = json!({ "spec": { "nodeName": "n" } });
        for (pod, options, expected) in [
            (json!({}), DeleteOptions::default(), None),
            (bound.clone(), DeleteOptions::default(), Some(30)),
            (bound.clone(), grace(5), Some(5)),
            (bound, grace(0), None),
            (
                json!({ "spec": { "nodeName": "n", "terminationGracePeriodSeconds": 7 } }),
                DeleteOptions::default(),
                Some(7),
            ),
            (
                json!({ "spec": { "nodeName": "n" }, "status": { "phase": "Succeeded" } }),
                DeleteOptions::default(),
                None,
            ),
            (json!({ "metadata": { "finalizers": ["a/b"] } }), DeleteOptions::default(), Some(0)),
        ] {
            let mut store = with_pod(&pod);
            let seconds = match delete_pod(&mut store, &options).unwrap() {
                Deleted::Gone(_) => None,
                Deleted::Terminating(object) => object["metadata"]["deletionGracePeriodSeconds"].as_u64(),
            };
            assert_eq!(seconds, expected, "{pod} with {options:?}");
            assert_eq!(store.get(KindId::POD, "default", "p").is_some(), expected.is_some(), "{pod}");
        }
    }

    #[test]
    fn a_grace_period_can_only_be_shortened() {
        let mut store = with_pod(&json!({ "spec": { "nodeName": "n" } }));
        let seconds = |deleted: Deleted| match deleted {
            Deleted::Terminating(object) => (
                object["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap(),
                moment(&object["metadata"]["deletionTimestamp"]).unwrap().since(NOW).as_secs(),
            ),
            Deleted::Gone(_) => (0, 0),
        };
        assert_eq!(seconds(delete_pod(&mut store, &grace(20)).unwrap()), (20, 20));
        assert_eq!(seconds(delete_pod(&mut store, &DeleteOptions::default()).unwrap()), (20, 20));
        assert_eq!(seconds(delete_pod(&mut store, &grace(60)).unwrap()), (20, 20));
        assert_eq!(seconds(delete_pod(&mut store, &grace(5)).unwrap()), (5, 5));
        assert!(matches!(delete_pod(&mut store, &grace(0)).unwrap(), Deleted::Gone(_)));
        assert_eq!(delete_pod(&mut store, &grace(0)).unwrap_err().code(), 404);
    }

    #[test]
    fn an_object_with_finalizers_is_removed_with_its_last_finalizer() {
        let mut store = with_pod(&json!({ "metadata": { "finalizers": ["a/b"] } }));
        assert!(matches!(delete_pod(&mut store, &grace(0)).unwrap(), Deleted::Terminating(_)));
        assert!(finish_if_ready(&mut store, KindId::POD, "default", "p").is_none());
        store.edit(KindId::POD, "default", "p", |pod| put(pod, &["metadata", "finalizers"], json!([]))).unwrap();
        assert!(finish_if_ready(&mut store, KindId::POD, "default", "p").is_some());
        assert!(store.get(KindId::POD, "default", "p").is_none());
    }

    #[test]
    fn failed_preconditions_are_conflicts() {
        let mut store = with_pod(&json!({}));
        let options = DeleteOptions { uid: Some("another".to_owned()), ..DeleteOptions::default() };
        assert_eq!(delete_pod(&mut store, &options).unwrap_err().code(), 409);
        let options = DeleteOptions { resource_version: Some("999".to_owned()), ..DeleteOptions::default() };
        assert_eq!(delete_pod(&mut store, &options).unwrap_err().code(), 409);
        assert!(store.get(KindId::POD, "default", "p").is_some());
    }
}
