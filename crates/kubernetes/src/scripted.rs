//! An in-process server for tests. It responds to each path from a script, in order, and logs the requests.
//!
//! A request beyond the script gets no response.

use std::collections::{BTreeMap, VecDeque};
use std::convert::identity;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::BoxError;

#[derive(Clone, Debug)]
pub enum ScriptedAnswer {
    Json(u16, Value),
    /// A Kubernetes `Status` with this message.
    Status(u16, &'static str),
    /// 200, and a body in steps.
    Stream(Vec<ScriptStep>),
    /// Connection refused.
    Refuse,
    /// No response.
    Silence,
}

#[derive(Clone, Debug)]
pub enum ScriptStep {
    Text(String),
    Wait(Duration),
    /// The connection breaks.
    Break,
    /// The body stays open without more data.
    Hang,
}

#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub at: Instant,
    pub method: String,
    pub path_and_query: String,
    pub content_type: Option<String>,
    pub body: String,
}

#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<RecordedRequest>>>);

impl Log {
    pub fn requests(&self) -> Vec<RecordedRequest> {
        lock(&self.0).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Answers = BTreeMap<String, VecDeque<ScriptedAnswer>>;

/// A client of a server that follows the script; each entry is a path and a response.
pub fn scripted<'a>(script: impl IntoIterator<Item = (&'a str, ScriptedAnswer)>) -> (Client, Log) {
    let mut answers = Answers::new();
    for (path, answer) in script {
        answers.entry(path.to_owned()).or_default().push_back(answer);
    }
    let answers = Arc::new(Mutex::new(answers));
    let log = Log::default();
    let written = log.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (answers, log) = (answers.clone(), written.clone());
        async move {
            let (parts, body) = request.into_parts();
            let at = Instant::now();
            let body = String::from_utf8_lossy(&body.collect_bytes().await?).into_owned();
            lock(&log.0).push(RecordedRequest {
                at,
                method: parts.method.to_string(),
                path_and_query: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
                content_type: parts.headers.get("content-type").and_then(|v| v.to_str().ok()).map(str::to_owned),
                body,
            });
            let answer = lock(&answers).get_mut(parts.uri.path()).and_then(VecDeque::pop_front);
            respond(answer.unwrap_or(ScriptedAnswer::Silence)).await
        }
    });
    (Client::new(service, "default"), log)
}

type ScriptedBody = StreamBody<BoxStream<'static, Result<Frame<Bytes>, BoxError>>>;

async fn respond(answer: ScriptedAnswer) -> Result<Response<ScriptedBody>, BoxError> {
    let text = |value: &Value| vec![ScriptStep::Text(value.to_string())];
    let (code, steps) = match answer {
        ScriptedAnswer::Json(code, value) => (code, text(&value)),
        ScriptedAnswer::Status(code, message) => (
            code,
            text(&json!({ "kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "" })),
        ),
        ScriptedAnswer::Stream(steps) => (200, steps),
        ScriptedAnswer::Refuse => {
            return Err(std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused").into());
        }
        ScriptedAnswer::Silence => std::future::pending().await,
    };
    let frames = stream::iter(steps).then(|step| async move {
        match step {
            ScriptStep::Text(text) => Some(Ok(Frame::data(Bytes::from(text)))),
            ScriptStep::Wait(time) => {
                tokio::time::sleep(time).await;
                None
            }
            ScriptStep::Break => Some(Err(BoxError::from("the connection broke"))),
            ScriptStep::Hang => std::future::pending().await,
        }
    });
    let body = StreamBody::new(frames.filter_map(|frame| std::future::ready(identity(frame))).boxed());
    Ok(Response::builder().status(code).body(body)?)
}
