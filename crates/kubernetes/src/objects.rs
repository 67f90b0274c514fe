//! Objects from a file instead of a watch.
//!
//! In: one object as `kubectl get -o json` prints it. Out: the event that tells of it, with all that a scheduler must know;
//! `None` for a kind that is of no interest. A finished pod is told as finished, as it is in no watch.

use model::event::{Event, NamespaceFacts, NodeFacts, PodFacts};
use serde::Deserialize;
use serde_json::Value;

use crate::facts::{Facts, ReplicaSet, ReplicationController, Schedulable, Selecting, Service, StatefulSet, Watched};

/// Reads one object. Fails where the object is not what its kind says.
pub fn applied(object: &Value) -> Result<Option<Event>, serde_json::Error> {
    fn read<F: Facts>(object: &Value) -> Result<Option<Event>, serde_json::Error> {
        Watched::<F>::deserialize(object).map(|watched| Some(watched.facts.applied()))
    }
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("v1", "Node") => read::<Schedulable<NodeFacts>>(object),
        ("v1", "Pod") => read::<Schedulable<PodFacts>>(object),
        ("v1", "Namespace") => read::<NamespaceFacts>(object),
        ("v1", "Service") => read::<Selecting<Service>>(object),
        ("v1", "ReplicationController") => read::<Selecting<ReplicationController>>(object),
        ("apps/v1", "ReplicaSet") => read::<Selecting<ReplicaSet>>(object),
        ("apps/v1", "StatefulSet") => read::<Selecting<StatefulSet>>(object),
        _ => Ok(None),
    }
}
