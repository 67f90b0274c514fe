//! What the executors of First and Second do: they record the call, answer as the scenario says, and bind.

use bridger::scheduler::{BoxFuture, Client, Executes, PodName, WorkEnd, WorkError};
use http::Request;
use serde_json::json;

use crate::records::{Record, Records};
use crate::scenarios::{Answer, Point};

/// A call of PreBind or Bind, and its answer. Executors do not know the plugin, so the work contains it.
#[derive(Debug)]
pub struct Call {
    pub plugin: &'static str,
    pub answer: Answer,
    /// `None`: the call is not recorded.
    pub records: Option<Records>,
}

impl Call {
    fn record(&self, point: Point, pod: &PodName, node: &str, status: &str) {
        if let Some(records) = &self.records {
            records.write(&Record { point, plugin: self.plugin, pod: &pod.name, node, status });
        }
    }

    fn end(&self, at: Point) -> Result<WorkEnd, WorkError> {
        let reason = || self.answer.reason(self.plugin, at);
        match self.answer {
            Answer::Skip => Ok(WorkEnd::Declined),
            Answer::Error => Err(WorkError::Failed(reason())),
            Answer::Unschedulable => Err(WorkError::Rejected(reason())),
            Answer::Success | Answer::Wait(_) | Answer::Nominate | Answer::Score(_) => Ok(WorkEnd::Done),
        }
    }
}

pub struct Preparer;

impl Executes<Preparation> for Preparer {
    fn execute<'a>(
        &'a self,
        pod: &'a PodName,
        node: &'a str,
        Preparation(call): &'a Preparation,
    ) -> BoxFuture<'a, Result<WorkEnd, WorkError>> {
        Box::pin(async move {
            call.record(Point::PreBind, pod, node, call.answer.as_str());
            call.end(Point::PreBind)
        })
    }
}

/// Work of PreBind.
#[derive(Debug)]
pub struct Preparation(pub Call);

pub struct Binder {
    client: Client,
}

impl Binder {
    pub fn new(client: Client) -> Binder {
        Binder { client }
    }
}

/// Work of Bind.
#[derive(Debug)]
pub struct Attachment(pub Call);

impl Executes<Attachment> for Binder {
    fn execute<'a>(
        &'a self,
        pod: &'a PodName,
        node: &'a str,
        Attachment(call): &'a Attachment,
    ) -> BoxFuture<'a, Result<WorkEnd, WorkError>> {
        Box::pin(async move {
            let mut end = call.end(Point::Bind);
            let mut status = call.answer.as_str();
            if end == Ok(WorkEnd::Done)
                && let Err(error) = self.bind(pod, node).await
            {
                (end, status) = (Err(error), Answer::Error.as_str());
            }
            // As in scheduler-recorder, only Bind is recorded when the API server has answered.
            call.record(Point::Bind, pod, node, status);
            end
        })
    }
}

impl Binder {
    async fn bind(&self, pod: &PodName, node: &str) -> Result<(), WorkError> {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "namespace": pod.namespace, "name": pod.name, "uid": pod.uid },
            "target": { "kind": "Node", "name": node },
        });
        let path = format!("/api/v1/namespaces/{}/pods/{}/binding", pod.namespace, pod.name);
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(binding.to_string().into_bytes()).map_err(failed)?;
        self.client.request_text(request).await.map_err(failed)?;
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is passed to `map_err`")]
fn failed(error: impl ToString) -> WorkError {
    WorkError::Failed(error.to_string())
}
