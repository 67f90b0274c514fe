//! Writes labels on nodes: the engine's `LabelStore`.
//!
//! In: a node's name and the keys to change. Out: one JSON patch with these keys under `metadata.labels` and nothing
//! else, so that it never changes a label, annotation or taint of another client, even after concurrent changes.
//!
//! The patch tests the node's UID and the present value of each key. So a write that arrives after a later one, of the
//! next leader, changes nothing. It does not test the resourceVersion, because other clients change nodes all the time,
//! and labels are corrected also while the watch is interrupted.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::ports::{LabelChanges, LabelStore, NodeBefore, PortError};
use futures::future::BoxFuture;
use http::Request;
use serde_json::{Value, json};

use crate::COMPONENT;
use crate::bounded::BoundedClient;
use crate::failure::port_error;

/// The time limit of one write.
pub const WRITE_LIMIT: Duration = Duration::from_secs(10);
const LABELS: &str = "/metadata/labels";

/// Writes labels on nodes.
pub struct NodeLabelWriter {
    client: BoundedClient,
}

impl NodeLabelWriter {
    #[must_use]
    pub fn new(client: impl Into<BoundedClient>) -> NodeLabelWriter {
        NodeLabelWriter { client: client.into() }
    }

    async fn patch(&self, node: &str, before: &NodeBefore, changes: &LabelChanges) -> Result<(), PortError> {
        if changes.is_empty() {
            return Ok(());
        }
        let object = format!("node {node}");
        if !is_object_name(node) {
            return Err(PortError::Permanent(format!("{object:?}: not a valid node name")));
        }
        // The response is requested as metadata only and not decoded: only its success matters.
        let request = Request::patch(format!("/api/v1/nodes/{node}?fieldManager={COMPONENT}"))
            .header("content-type", "application/json-patch+json")
            .header("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
            .body(Value::Array(operations(before, changes)).to_string().into_bytes())
            .map_err(|error| PortError::Permanent(format!("{object}: {error}")))?;
        let answer = tokio::time::timeout(WRITE_LIMIT, self.client.client().request_text(request)).await;
        match answer {
            Ok(Err(kube::Error::Api(status))) if is_failed_test(&status) => {
                Err(PortError::Transient(format!("{object}: another client has changed it meanwhile")))
            }
            answer => outcome(answer, WRITE_LIMIT, &object),
        }
    }
}

/// The tests, then the changes. All take effect, or none.
fn operations(before: &NodeBefore, changes: &LabelChanges) -> Vec<Value> {
    let mut operations = Vec::new();
    if !before.uid.is_empty() {
        operations.push(json!({ "op": "test", "path": "/metadata/uid", "value": before.uid }));
    }
    if !before.has_labels {
        // There is nothing yet to which a label could be added.
        let labels: BTreeMap<&String, &String> =
            changes.iter().filter_map(|(key, value)| Some((key, value.as_ref()?))).collect();
        operations.push(json!({ "op": "test", "path": LABELS, "value": null }));
        operations.push(json!({ "op": "add", "path": LABELS, "value": labels }));
        return operations;
    }
    for (key, value) in changes {
        let (path, present) = (label_path(key), before.labels.get(key).cloned().flatten());
        operations.push(json!({ "op": "test", "path": path, "value": present }));
        match value {
            Some(value) => operations.push(json!({ "op": "add", "path": path, "value": value })),
            None if present.is_some() => operations.push(json!({ "op": "remove", "path": path })),
            None => (),
        }
    }
    operations
}

/// The JSON pointer of a label.
pub(crate) fn label_path(key: &str) -> String {
    format!("{LABELS}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// A JSON patch that does not apply. A node that would be invalid has causes.
fn is_failed_test(status: &kube::core::Status) -> bool {
    status.code == 422 && status.details.as_ref().is_none_or(|details| details.causes.is_empty())
}

impl LabelStore for NodeLabelWriter {
    fn change_labels<'a>(
        &'a self,
        node: &'a str,
        before: &'a NodeBefore,
        changes: &'a LabelChanges,
    ) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(self.patch(node, before, changes))
    }
}

/// Lower-case letters, digits, dots and dashes, as in Kubernetes. Other characters could change the URL that contains
/// the name.
pub(crate) fn is_object_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= 253 && bytes.iter().copied().all(inner) && edge(bytes.first()) && edge(bytes.last())
}

/// Waits for a request no longer than the limit and drops the response.
pub(crate) async fn within(
    limit: Duration,
    object: &str,
    request: impl Future<Output = kube::Result<String>>,
) -> Result<(), PortError> {
    outcome(tokio::time::timeout(limit, request).await, limit, object)
}

fn outcome(
    answer: Result<kube::Result<String>, tokio::time::error::Elapsed>,
    limit: Duration,
    object: &str,
) -> Result<(), PortError> {
    match answer {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(port_error(object, &error)),
        Err(_) => Err(PortError::Transient(format!("{object}: no answer within {} s", limit.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::time::Instant;

    use super::*;
    use crate::scripted::{ScriptedAnswer, scripted};

    fn changes(pairs: &[(&str, Option<&str>)]) -> LabelChanges {
        pairs.iter().map(|&(key, value)| (key.to_owned(), value.map(str::to_owned))).collect()
    }

    fn before(pairs: &[(&str, Option<&str>)]) -> NodeBefore {
        NodeBefore { uid: "u1".to_owned(), labels: changes(pairs), has_labels: true }
    }

    #[tokio::test(start_paused = true)]
    async fn the_patch_tests_the_given_keys_and_changes_nothing_else() {
        let (client, log) = scripted([("/api/v1/nodes/n1", ScriptedAnswer::Json(200, json!({ "kind": "Node" })))]);
        let given = changes(&[("example.com/host", Some("esx-1")), ("old", None)]);
        let node = before(&[("example.com/host", None), ("old", Some("x"))]);
        NodeLabelWriter::new(client).change_labels("n1", &node, &given).await.expect("a success");
        let requests = log.requests();
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0].method, "PATCH");
        assert_eq!(requests[0].path_and_query, "/api/v1/nodes/n1?fieldManager=bridger");
        assert_eq!(requests[0].content_type.as_deref(), Some("application/json-patch+json"));
        let body: Value = serde_json::from_str(&requests[0].body).expect("JSON");
        let expected = json!([
            { "op": "test", "path": "/metadata/uid", "value": "u1" },
            { "op": "test", "path": "/metadata/labels/example.com~1host", "value": null },
            { "op": "add", "path": "/metadata/labels/example.com~1host", "value": "esx-1" },
            { "op": "test", "path": "/metadata/labels/old", "value": "x" },
            { "op": "remove", "path": "/metadata/labels/old" },
        ]);
        assert_eq!(body, expected);
    }

    #[test]
    fn a_node_without_labels_gets_the_first() {
        let node = NodeBefore { has_labels: false, ..before(&[("host", None)]) };
        let expected = json!([
            { "op": "test", "path": "/metadata/uid", "value": "u1" },
            { "op": "test", "path": "/metadata/labels", "value": null },
            { "op": "add", "path": "/metadata/labels", "value": { "host": "esx-1" } },
        ]);
        assert_eq!(Value::Array(operations(&node, &changes(&[("host", Some("esx-1"))]))), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn without_changes_no_request_is_sent() {
        let (client, log) = scripted([]);
        NodeLabelWriter::new(client)
            .change_labels("n1", &before(&[]), &LabelChanges::new())
            .await
            .expect("nothing to do");
        assert!(log.requests().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_distinguished() {
        let given = changes(&[("example.com/host", Some("esx-1"))]);
        let details =
            json!({ "kind": "Node", "causes": [{ "reason": "FieldValueInvalid", "field": "metadata.labels" }] });
        let invalid = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 422,
            "reason": "Invalid", "message": "bad label", "details": details });
        let cases = [
            (ScriptedAnswer::Status(404, "no such node"), "NotFound(\"node n1\")"),
            (ScriptedAnswer::Status(403, "not allowed"), "Permanent(\"node n1: HTTP 403: not allowed\")"),
            (
                ScriptedAnswer::Status(422, "a test failed"),
                "Transient(\"node n1: another client has changed it meanwhile\")",
            ),
            (ScriptedAnswer::Json(422, invalid), "Permanent(\"node n1: HTTP 422: bad label\")"),
            (ScriptedAnswer::Status(500, "etcd"), "Transient(\"node n1: HTTP 500: etcd\")"),
            (ScriptedAnswer::Refuse, "Transient(\"node n1: connection refused\")"),
            (ScriptedAnswer::Silence, "Transient(\"node n1: no answer within 10 s\")"),
        ];
        for (answer, expected) in cases {
            let (client, _) = scripted([("/api/v1/nodes/n1", answer)]);
            let start = Instant::now();
            let outcome =
                NodeLabelWriter::new(client).change_labels("n1", &before(&[]), &given).await.expect_err("a failure");
            assert_eq!(format!("{outcome:?}"), expected);
            assert!(start.elapsed() <= WRITE_LIMIT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_would_change_the_url_is_rejected() {
        let (client, log) = scripted([]);
        let given = changes(&[("example.com/host", Some("esx-1"))]);
        for name in ["", "..", "../pods/x", "n1/status", "n1?x=1", "N1"] {
            let outcome = NodeLabelWriter::new(client.clone()).change_labels(name, &before(&[]), &given).await;
            assert!(matches!(outcome, Err(PortError::Permanent(_))), "{name}: {outcome:?}");
        }
        assert!(log.requests().is_empty());
    }
}
