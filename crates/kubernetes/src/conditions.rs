//! What a scheduler reads and writes on pods besides binding them: the engine's `PodLookup` and `PodStatusWriter`.
//!
//! In: a pod by name and UID. Out: its facts; a patch of its status; its deletion. A patch carries the UID, and the
//! server rejects it for another pod of the same name.

use engine::ports::{PodLookup, PodName, PodStatusWriter, PortError};
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::Request;
use model::event::{Event, PodFacts};
use serde_json::{Value, json};

use crate::COMPONENT;
use crate::bounded::BoundedClient;
use crate::events::TimeOfDay;
use crate::facts::{Facts, Schedulable, Watched};
use crate::failure::{describe_status, port_error};
use crate::labels::{WRITE_LIMIT, is_object_name};

/// Reads pods and writes their status through the API.
pub struct PodConditions {
    client: BoundedClient,
    now: TimeOfDay,
}

impl PodConditions {
    #[must_use]
    pub fn new(client: impl Into<BoundedClient>, now: TimeOfDay) -> PodConditions {
        PodConditions { client: client.into(), now }
    }

    async fn send(&self, object: &str, request: kube::Result<http::Request<Vec<u8>>>) -> Result<String, PortError> {
        let request = request.map_err(|error| PortError::Permanent(format!("{object}: {error}")))?;
        match tokio::time::timeout(WRITE_LIMIT, self.client.client().request_text(request)).await {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                // Another pod has this name.
                Err(PortError::Invalid(format!("{object}: {}", describe_status(&status))))
            }
            Ok(Err(error)) => Err(port_error(object, &error)),
            Err(_) => Err(PortError::Transient(format!("{object}: no answer within {} s", WRITE_LIMIT.as_secs()))),
        }
    }

    async fn read(&self, namespace: &str, name: &str) -> Result<Option<PodFacts>, PortError> {
        let (object, request) = on(namespace, name)?;
        match self.send(&object, request.get(name, &kube::api::GetParams::default()).map_err(into_kube)).await {
            Ok(text) => {
                let pod = serde_json::from_str::<Watched<Schedulable<PodFacts>>>(&text);
                let pod = pod.map_err(|error| PortError::Permanent(format!("{object}: {error}")))?;
                match pod.facts.applied() {
                    Event::PodApplied(facts) => Ok(Some(facts)),
                    _ => Err(PortError::Permanent(format!("{object}: not a pod"))),
                }
            }
            Err(PortError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn patch_status(&self, pod: &PodName, status: Value) -> Result<(), PortError> {
        let (object, request) = on(&pod.namespace, &pod.name)?;
        let patch = Patch::Strategic(json!({ "metadata": { "uid": pod.uid }, "status": status }));
        let parameters = PatchParams { field_manager: Some(COMPONENT.to_owned()), ..PatchParams::default() };
        let request = request.patch_subresource("status", &pod.name, &parameters, &patch).map_err(into_kube);
        self.send(&object, request).await.map(drop)
    }

    /// The server merges conditions by their type, so all others stay.
    fn condition(&self, kind: &str, status: &str, reason: &str, message: &str) -> Value {
        let now = (self.now)();
        // The type of this field has a precision of seconds.
        let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": seconds,
            "lastProbeTime": null })
    }

    async fn remove(&self, pod: &PodName) -> Result<(), PortError> {
        let (object, request) = on(&pod.namespace, &pod.name)?;
        let only = Preconditions { uid: Some(pod.uid.clone()), ..Preconditions::default() };
        let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        self.send(&object, request.delete(&pod.name, &parameters).map_err(into_kube)).await.map(drop)
    }
}

fn into_kube(error: kube::core::request::Error) -> kube::Error {
    kube::Error::BuildRequest(error)
}

/// The object's name for messages, and a builder for requests on it.
fn on(namespace: &str, name: &str) -> Result<(String, Request), PortError> {
    let object = format!("pod {namespace}/{name}");
    if ![namespace, name].into_iter().all(is_object_name) {
        return Err(PortError::Permanent(format!("{object:?}: not a valid object name")));
    }
    Ok((object, Request::new(format!("/api/v1/namespaces/{namespace}/pods"))))
}

impl PodLookup for PodConditions {
    fn read<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<PodFacts>, PortError>> {
        Box::pin(self.read(namespace, name))
    }
}

impl PodStatusWriter for PodConditions {
    fn not_scheduled<'a>(
        &'a self,
        pod: &'a PodName,
        reason: &'a str,
        message: &'a str,
        nominated: Option<Option<&'a str>>,
    ) -> BoxFuture<'a, Result<(), PortError>> {
        let condition = self.condition("PodScheduled", "False", reason, message);
        let mut status = json!({ "conditions": [condition] });
        if let Some(node) = nominated {
            status["nominatedNodeName"] = json!(node);
        }
        Box::pin(self.patch_status(pod, status))
    }

    fn nominate<'a>(&'a self, pod: &'a PodName, node: Option<&'a str>) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(self.patch_status(pod, json!({ "nominatedNodeName": node })))
    }

    fn disrupt<'a>(&'a self, pod: &'a PodName, message: &'a str) -> BoxFuture<'a, Result<(), PortError>> {
        let condition = self.condition("DisruptionTarget", "True", "PreemptionByScheduler", message);
        Box::pin(self.patch_status(pod, json!({ "conditions": [condition] })))
    }

    fn delete<'a>(&'a self, pod: &'a PodName) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(self.remove(pod))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::scripted::{ScriptedAnswer, scripted};

    const PATH: &str = "/api/v1/namespaces/ns/pods/p";
    const STATUS: &str = "/api/v1/namespaces/ns/pods/p/status";

    fn pod() -> PodName {
        PodName { namespace: "ns".to_owned(), name: "p".to_owned(), uid: "u".to_owned() }
    }

    fn writer(client: kube::Client) -> PodConditions {
        let noon = || "2026-03-01T12:00:00.5Z".parse().expect("a time");
        PodConditions::new(client, Arc::new(noon))
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_read_with_all_fields_that_a_scheduler_needs() {
        let object = json!({ "metadata": { "name": "p", "namespace": "ns", "uid": "u" },
            "spec": { "nodeName": "n", "schedulerName": "bridger", "containers": [] } });
        let (client, _) = scripted([(PATH, ScriptedAnswer::Json(200, object))]);
        let facts = writer(client).read("ns", "p").await.expect("an answer").expect("a pod");
        assert_eq!((facts.uid.as_str(), facts.node.as_deref()), ("u", Some("n")));
        assert!(facts.scheduling.is_some_and(|facts| facts.scheduler_name == "bridger"));
        let (client, _) = scripted([(PATH, ScriptedAnswer::Status(404, "not found"))]);
        assert_eq!(writer(client).read("ns", "p").await, Ok(None));
        let (client, _) = scripted([(PATH, ScriptedAnswer::Silence)]);
        assert!(matches!(writer(client).read("ns", "p").await, Err(PortError::Transient(_))));
        let (client, _) = scripted([]);
        assert!(matches!(writer(client).read("ns", "../x").await, Err(PortError::Permanent(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn writes_carry_the_uid_of_the_pod() {
        let fine = || ScriptedAnswer::Json(200, json!({}));
        let (client, log) = scripted([(STATUS, fine()), (STATUS, fine()), (PATH, fine())]);
        let writer = writer(client);
        writer
            .not_scheduled(&pod(), "Unschedulable", "0/1 nodes are available", Some(Some("n")))
            .await
            .expect("written");
        writer.nominate(&pod(), None).await.expect("written");
        writer.delete(&pod()).await.expect("deleted");
        let requests = log.requests();
        let methods: Vec<&str> = requests.iter().map(|request| request.method.as_str()).collect();
        assert_eq!(methods, ["PATCH", "PATCH", "DELETE"]);
        let body = |index: usize| serde_json::from_str::<Value>(&requests[index].body).expect("JSON");
        assert_eq!(requests[0].content_type.as_deref(), Some("application/strategic-merge-patch+json"));
        assert_eq!(body(0)["metadata"]["uid"], "u");
        let condition = &body(0)["status"]["conditions"][0];
        assert_eq!((&condition["type"], &condition["status"]), (&json!("PodScheduled"), &json!("False")));
        assert_eq!(condition["lastTransitionTime"], "2026-03-01T12:00:00Z");
        assert_eq!(body(0)["status"]["nominatedNodeName"], "n");
        assert_eq!(body(1)["status"], json!({ "nominatedNodeName": null }));
        assert_eq!(body(2)["preconditions"]["uid"], "u");
    }

    #[tokio::test(start_paused = true)]
    async fn another_pod_of_the_same_name_is_not_changed() {
        let (client, _) = scripted([(STATUS, ScriptedAnswer::Status(409, "the UID in the precondition differs"))]);
        assert!(matches!(writer(client).nominate(&pod(), Some("n")).await, Err(PortError::Invalid(_))));
    }
}
