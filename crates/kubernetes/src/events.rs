//! Posts Kubernetes Events: the engine's `EventSink`.
//!
//! In: a record about a node or a pod. Out: a core/v1 Event, the form that `kubectl describe` and `kubectl get events`
//! show, with the count and the first time of its series. An Event about a node is in the namespace `default`, as for
//! other components, because a node has no namespace.

use std::sync::Arc;

use engine::ports::{EventRecord, EventSink, Occurrence, PortError, Regarding, Severity};
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::api::PostParams;
use kube::core::Request;
use serde_json::{Value, json};

use crate::COMPONENT;
use crate::bounded::BoundedClient;
use crate::labels::{WRITE_LIMIT, is_object_name, within};

/// The server rejects longer messages.
const MESSAGE_BYTES_MAX: usize = 1024;

/// The same for the field `reportingInstance`.
const INSTANCE_BYTES_MAX: usize = 128;

/// Returns the current time.
pub type TimeOfDay = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Posts Events.
pub struct EventWriter {
    client: BoundedClient,
    now: TimeOfDay,
    /// The name of this machine, or empty.
    host_name: String,
}

impl EventWriter {
    #[must_use]
    pub fn new(client: impl Into<BoundedClient>, now: TimeOfDay) -> EventWriter {
        EventWriter { client: client.into(), now, host_name: String::new() }
    }

    /// Schedulers report under this host name, as kube-scheduler does under its own.
    #[must_use]
    pub fn on_host(self, host_name: String) -> EventWriter {
        EventWriter { host_name, ..self }
    }

    async fn create(&self, record: &EventRecord) -> Result<(), PortError> {
        let (namespace, event) = event_of(record, (self.now)(), &self.host_name);
        let object = format!("event in {namespace}");
        if !is_object_name(&namespace) {
            return Err(PortError::Permanent(format!("{object:?}: not a valid namespace name")));
        }
        let parameters = PostParams { field_manager: Some(COMPONENT.to_owned()), ..PostParams::default() };
        let request = Request::new(format!("/api/v1/namespaces/{namespace}/events"))
            .create(&parameters, event.to_string().into_bytes())
            .map_err(|error| PortError::Permanent(format!("{object}: {error}")))?;
        within(WRITE_LIMIT, &object, self.client.client().request_text(request)).await
    }
}

impl EventSink for EventWriter {
    fn post<'a>(&'a self, record: &'a EventRecord) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(self.create(record))
    }
}

/// The namespace of the Event, and the Event. The server generates the suffix of its name.
fn event_of(record: &EventRecord, now: Timestamp, host_name: &str) -> (String, Value) {
    let Occurrence { regarding, severity, reason, message, reporter } = &record.occurrence;
    let (component, instance) = match reporter {
        None => (COMPONENT, String::new()),
        Some(scheduler) => (scheduler.as_str(), format!("{scheduler}-{host_name}")),
    };
    let (namespace, name, subject) = match regarding {
        Regarding::Node { name, uid } => {
            ("default".to_owned(), name, json!({ "apiVersion": "v1", "kind": "Node", "name": name, "uid": uid }))
        }
        Regarding::Pod { namespace, name, uid } => (
            namespace.clone(),
            name,
            json!({ "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid }),
        ),
    };
    // The type of these fields has a precision of seconds.
    let seconds = |moment: Timestamp| Timestamp::from_second(moment.as_second()).unwrap_or(moment).to_string();
    let first = now.checked_sub(record.since).unwrap_or(now);
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "generateName": format!("{name}."), "namespace": namespace },
        "involvedObject": subject,
        "type": match severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        },
        "reason": reason,
        "message": cut(message, MESSAGE_BYTES_MAX),
        "source": { "component": component },
        "reportingComponent": component,
        "reportingInstance": cut(&instance, INSTANCE_BYTES_MAX),
        "firstTimestamp": seconds(first),
        "lastTimestamp": seconds(now),
        "count": record.count,
    });
    (namespace, event)
}

/// At most `bytes_max` bytes, cut at a character boundary.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scripted::{ScriptedAnswer, scripted};

    fn record(regarding: Regarding) -> EventRecord {
        let message = "moved from esx-1 to esx-2".to_owned();
        let severity = Severity::Normal;
        let occurrence = Occurrence { regarding, severity, reason: "HostChanged", message, reporter: None };
        EventRecord { occurrence, count: 3, since: Duration::from_secs(90) }
    }

    fn node() -> Regarding {
        Regarding::Node { name: "n1".to_owned(), uid: "u1".to_owned() }
    }

    fn noon() -> Timestamp {
        "2026-03-01T12:00:00.75Z".parse().expect("a time")
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_becomes_an_event_on_its_object() {
        let pod = Regarding::Pod { namespace: "web".to_owned(), name: "p1".to_owned(), uid: "u2".to_owned() };
        let cases = [
            (
                node(),
                "/api/v1/namespaces/default/events",
                json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1" }),
            ),
            (
                pod,
                "/api/v1/namespaces/web/events",
                json!({ "apiVersion": "v1", "kind": "Pod", "namespace": "web", "name": "p1", "uid": "u2" }),
            ),
        ];
        for (about, path, subject) in cases {
            let (client, log) = scripted([(path, ScriptedAnswer::Json(201, json!({})))]);
            EventWriter::new(client, Arc::new(noon)).post(&record(about)).await.expect("a success");
            let request = &log.requests()[0];
            assert_eq!(request.method, "POST");
            let event: Value = serde_json::from_str(&request.body).expect("JSON");
            assert_eq!(event["involvedObject"], subject);
            assert_eq!(event["reason"], "HostChanged");
            assert_eq!(event["message"], "moved from esx-1 to esx-2");
            assert_eq!(event["type"], "Normal");
            assert_eq!(event["source"]["component"], "bridger");
            assert_eq!(event["lastTimestamp"], "2026-03-01T12:00:00Z");
            assert_eq!(event["firstTimestamp"], "2026-03-01T11:58:30Z");
            assert_eq!(event["count"], 3);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn number_4_a_scheduler_reports_in_its_own_name() {
        let mut by_scheduler = record(node());
        by_scheduler.occurrence.reporter = Some("batch".to_owned());
        for (record, component, instance) in [(record(node()), "bridger", ""), (by_scheduler, "batch", "batch-host-1")]
        {
            let (_, event) = event_of(&record, noon(), "host-1");
            assert_eq!(event["reportingComponent"], component);
            assert_eq!(event["source"]["component"], component);
            assert_eq!(event["reportingInstance"], instance);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_distinguished() {
        let cases = [
            (ScriptedAnswer::Status(403, "no"), "Permanent(\"event in default: HTTP 403: no\")"),
            (ScriptedAnswer::Status(500, "no"), "Transient(\"event in default: HTTP 500: no\")"),
            (ScriptedAnswer::Silence, "Transient(\"event in default: no answer within 10 s\")"),
        ];
        for (answer, expected) in cases {
            let (client, _) = scripted([("/api/v1/namespaces/default/events", answer)]);
            let outcome = EventWriter::new(client, Arc::new(noon)).post(&record(node())).await;
            assert_eq!(format!("{:?}", outcome.expect_err("a failure")), expected);
        }
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let cases = [("short", 8, "short"), ("exactly8", 8, "exactly8"), ("ääää", 5, "ää"), ("äöü", 1, "")];
        for (text, bytes_max, expected) in cases {
            assert_eq!(cut(text, bytes_max), expected);
        }
    }
}
