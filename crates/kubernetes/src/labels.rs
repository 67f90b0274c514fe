//! Writes labels on nodes: the engine's `LabelStore`.
//!
//! In: a node's name and the keys to change. Out: one JSON merge patch with these keys under `metadata.labels` and
//! nothing else, so that it never changes a label, annotation or taint of another client, even after concurrent
//! changes.

use std::time::Duration;

use engine::ports::{LabelChanges, LabelStore, PortError};
use futures::future::BoxFuture;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde_json::json;

use crate::COMPONENT;
use crate::bounded::BoundedClient;
use crate::failure::port_error;

/// The time limit of one write.
pub const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Writes labels on nodes.
pub struct NodeLabelWriter {
    client: BoundedClient,
}

impl NodeLabelWriter {
    #[must_use]
    pub fn new(client: impl Into<BoundedClient>) -> NodeLabelWriter {
        NodeLabelWriter { client: client.into() }
    }

    async fn patch(&self, node: &str, changes: &LabelChanges) -> Result<(), PortError> {
        if changes.is_empty() {
            return Ok(());
        }
        let object = format!("node {node}");
        if !is_object_name(node) {
            return Err(PortError::Permanent(format!("{object:?}: not a valid node name")));
        }
        let patch = Patch::Merge(json!({ "metadata": { "labels": changes } }));
        let parameters = PatchParams { field_manager: Some(COMPONENT.to_owned()), ..PatchParams::default() };
        // The response is requested as metadata only and not decoded: only its success matters.
        let request = Request::new("/api/v1/nodes")
            .patch_metadata(node, &parameters, &patch)
            .map_err(|error| PortError::Permanent(format!("{object}: {error}")))?;
        within(WRITE_LIMIT, &object, self.client.client().request_text(request)).await
    }
}

impl LabelStore for NodeLabelWriter {
    fn change_labels<'a>(&'a self, node: &'a str, changes: &'a LabelChanges) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(self.patch(node, changes))
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
    match tokio::time::timeout(limit, request).await {
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

    #[tokio::test(start_paused = true)]
    async fn the_patch_contains_the_given_keys_and_nothing_else() {
        let (client, log) = scripted([("/api/v1/nodes/n1", ScriptedAnswer::Json(200, json!({ "kind": "Node" })))]);
        let given = changes(&[("example.com/host", Some("esx-1")), ("example.com/old", None)]);
        NodeLabelWriter::new(client).change_labels("n1", &given).await.expect("a success");
        let requests = log.requests();
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0].method, "PATCH");
        assert_eq!(requests[0].path_and_query, "/api/v1/nodes/n1?&fieldManager=bridger");
        assert_eq!(requests[0].content_type.as_deref(), Some("application/merge-patch+json"));
        let body: Value = serde_json::from_str(&requests[0].body).expect("JSON");
        assert_eq!(body, json!({ "metadata": { "labels": { "example.com/host": "esx-1", "example.com/old": null } } }));
    }

    #[tokio::test(start_paused = true)]
    async fn without_changes_no_request_is_sent() {
        let (client, log) = scripted([]);
        NodeLabelWriter::new(client).change_labels("n1", &LabelChanges::new()).await.expect("nothing to do");
        assert!(log.requests().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_distinguished() {
        let given = changes(&[("example.com/host", Some("esx-1"))]);
        let cases = [
            (ScriptedAnswer::Status(404, "no such node"), "NotFound(\"node n1\")"),
            (ScriptedAnswer::Status(403, "not allowed"), "Permanent(\"node n1: HTTP 403: not allowed\")"),
            (ScriptedAnswer::Status(422, "bad label"), "Permanent(\"node n1: HTTP 422: bad label\")"),
            (ScriptedAnswer::Status(500, "etcd"), "Transient(\"node n1: HTTP 500: etcd\")"),
            (ScriptedAnswer::Refuse, "Transient(\"node n1: connection refused\")"),
            (ScriptedAnswer::Silence, "Transient(\"node n1: no answer within 10 s\")"),
        ];
        for (answer, expected) in cases {
            let (client, _) = scripted([("/api/v1/nodes/n1", answer)]);
            let start = Instant::now();
            let outcome = NodeLabelWriter::new(client).change_labels("n1", &given).await.expect_err("a failure");
            assert_eq!(format!("{outcome:?}"), expected);
            assert!(start.elapsed() <= WRITE_LIMIT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_would_change_the_url_is_rejected() {
        let (client, log) = scripted([]);
        let given = changes(&[("example.com/host", Some("esx-1"))]);
        for name in ["", "..", "../pods/x", "n1/status", "n1?x=1", "N1"] {
            let outcome = NodeLabelWriter::new(client.clone()).change_labels(name, &given).await;
            assert!(matches!(outcome, Err(PortError::Permanent(_))), "{name}: {outcome:?}");
        }
        assert!(log.requests().is_empty());
    }
}
