//! Binds pods to nodes: the engine's `Binder`.
//!
//! In: a pod, by name and UID, and a node. Out: one POST to the pod's `binding`, which the server accepts only if the
//! pod still has this UID and is not bound yet.

use engine::ports::{Binder, Binding, PortError};
use futures::future::BoxFuture;
use kube::api::PostParams;
use kube::core::Request;
use serde_json::json;

use crate::COMPONENT;
use crate::bounded::BoundedClient;
use crate::labels::{WRITE_LIMIT, is_object_name};

/// Binds pods through the API.
pub struct PodBinder {
    client: BoundedClient,
}

impl PodBinder {
    #[must_use]
    pub fn new(client: impl Into<BoundedClient>) -> PodBinder {
        PodBinder { client: client.into() }
    }

    async fn post(&self, binding: &Binding) -> Result<(), PortError> {
        let Binding { namespace, pod, uid, node } = binding;
        let object = format!("pod {namespace}/{pod}");
        if ![namespace, pod, node].into_iter().all(|name| is_object_name(name)) {
            return Err(PortError::Permanent(format!("{object:?} on {node:?}: not a valid object name")));
        }
        let body = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "namespace": namespace, "name": pod, "uid": uid },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        let parameters = PostParams { field_manager: Some(COMPONENT.to_owned()), ..PostParams::default() };
        let request = Request::new(format!("/api/v1/namespaces/{namespace}/pods"))
            .create_subresource("binding", pod, &parameters, body.to_string().into_bytes())
            .map_err(|error| PortError::Permanent(format!("{object}: {error}")))?;
        let answer = tokio::time::timeout(WRITE_LIMIT, self.client.client().request_text(request)).await;
        match answer {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                // The pod is already bound, or another pod has this name: a retry cannot help.
                Err(PortError::Invalid(format!("{object}: {}", crate::failure::describe_status(&status))))
            }
            Ok(Err(error)) => Err(crate::failure::port_error(&object, &error)),
            Err(_) => Err(PortError::Transient(format!("{object}: no answer within {} s", WRITE_LIMIT.as_secs()))),
        }
    }
}

impl Binder for PodBinder {
    fn bind<'a>(&'a self, binding: &'a Binding) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(self.post(binding))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::scripted::{ScriptedAnswer, scripted};

    const PATH: &str = "/api/v1/namespaces/shop/pods/web-1/binding";

    fn binding(pod: &str) -> Binding {
        let text = str::to_owned;
        Binding { namespace: text("shop"), pod: text(pod), uid: text("u1"), node: text("n1") }
    }

    #[tokio::test(start_paused = true)]
    async fn the_binding_carries_the_uid_of_the_pod() {
        let (client, log) =
            scripted([(PATH, ScriptedAnswer::Json(201, json!({ "kind": "Status", "status": "Success" })))]);
        PodBinder::new(client).bind(&binding("web-1")).await.expect("bound");
        let request = &log.requests()[0];
        assert_eq!(request.method, "POST");
        let body: Value = serde_json::from_str(&request.body).expect("JSON");
        assert_eq!(body["metadata"], json!({ "namespace": "shop", "name": "web-1", "uid": "u1" }));
        assert_eq!(body["target"], json!({ "apiVersion": "v1", "kind": "Node", "name": "n1" }));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_distinguished() {
        let cases = [
            (
                ScriptedAnswer::Status(409, "already assigned"),
                "Invalid(\"pod shop/web-1: HTTP 409: already assigned\")",
            ),
            (ScriptedAnswer::Status(404, "no such pod"), "NotFound(\"pod shop/web-1\")"),
            (ScriptedAnswer::Status(403, "no"), "Permanent(\"pod shop/web-1: HTTP 403: no\")"),
            (ScriptedAnswer::Status(500, "etcd"), "Transient(\"pod shop/web-1: HTTP 500: etcd\")"),
            (ScriptedAnswer::Silence, "Transient(\"pod shop/web-1: no answer within 10 s\")"),
        ];
        for (answer, expected) in cases {
            let (client, _) = scripted([(PATH, answer)]);
            let outcome = PodBinder::new(client).bind(&binding("web-1")).await;
            assert_eq!(format!("{:?}", outcome.expect_err("a failure")), expected);
        }
        let (client, log) = scripted([]);
        assert!(matches!(PodBinder::new(client).bind(&binding("a/b")).await, Err(PortError::Permanent(_))));
        assert!(log.requests().is_empty());
    }
}
