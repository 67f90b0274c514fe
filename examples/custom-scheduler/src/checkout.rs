//! What the executors of Licences do: they mark the pod, and bind it. Both are repeatable.

use std::time::Duration;

use bridger::scheduler::{BoxFuture, Client, Executes, PodName, WorkEnd, WorkError};
use http::Request;
use serde_json::json;

/// The annotation that says how many licences the pod has.
const ANNOTATION: &str = "example.com/licences-checked-out";

/// Work before the binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkout {
    pub licences: u32,
    pub takes: Duration,
}

/// Bind the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindHere;

pub struct Annotate {
    client: Client,
}

impl Annotate {
    pub fn new(client: Client) -> Annotate {
        Annotate { client }
    }
}

impl Executes<Checkout> for Annotate {
    fn execute<'a>(
        &'a self,
        pod: &'a PodName,
        _: &'a str,
        work: &'a Checkout,
    ) -> BoxFuture<'a, Result<WorkEnd, WorkError>> {
        Box::pin(async move {
            tokio::time::sleep(work.takes).await;
            // The UID makes sure that a later pod of the same name is not marked.
            let patch = json!({ "metadata": {
                "uid": pod.uid,
                "annotations": { ANNOTATION: work.licences.to_string() },
            } });
            let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
            let request = Request::patch(path).header("content-type", "application/merge-patch+json");
            send(&self.client, request, patch.to_string()).await
        })
    }
}

pub struct BindLicensed {
    client: Client,
}

impl BindLicensed {
    pub fn new(client: Client) -> BindLicensed {
        BindLicensed { client }
    }
}

impl Executes<BindHere> for BindLicensed {
    fn execute<'a>(
        &'a self,
        pod: &'a PodName,
        node: &'a str,
        _: &'a BindHere,
    ) -> BoxFuture<'a, Result<WorkEnd, WorkError>> {
        Box::pin(async move {
            let binding = json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": { "namespace": pod.namespace, "name": pod.name, "uid": pod.uid },
                "target": { "kind": "Node", "name": node },
            });
            let path = format!("/api/v1/namespaces/{}/pods/{}/binding", pod.namespace, pod.name);
            let request = Request::post(path).header("content-type", "application/json");
            send(&self.client, request, binding.to_string()).await
        })
    }
}

async fn send(client: &Client, request: http::request::Builder, body: String) -> Result<WorkEnd, WorkError> {
    let request = request.body(body.into_bytes()).map_err(|error| WorkError::Failed(error.to_string()))?;
    match client.request_text(request).await {
        Ok(_) => Ok(WorkEnd::Done),
        // Whether it took effect is not known; the scheduler reads the pod before it decides again.
        Err(error) => Err(WorkError::Transient(error.to_string())),
    }
}
