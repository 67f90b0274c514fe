//! The proxy of the API server. Bridger reaches it without TLS and without credentials; it uses an administrator's.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use kube::Client;
use serde_json::json;
use tokio::task::JoinHandle;

use super::watches::{self, WatchFaults};
use super::{Fate, Held, Points, When};
use crate::workdir::Workdir;

const BODY_BYTES_MAX: usize = 16 << 20;

pub struct KubernetesProxy {
    kubeconfig: PathBuf,
    _workdir: Workdir,
    serving: JoinHandle<()>,
}

impl KubernetesProxy {
    /// `steps`: a request is a step if its path contains this.
    pub async fn start(client: Client, steps: &'static str, points: Points) -> Result<KubernetesProxy> {
        KubernetesProxy::start_with(client, steps, points, WatchFaults::default()).await
    }

    /// The same, with faults of watches and lists.
    pub async fn start_with(
        client: Client,
        steps: &'static str,
        points: Points,
        faults: WatchFaults,
    ) -> Result<KubernetesProxy> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let server = format!("http://{}", listener.local_addr()?);
        let router = Router::new().fallback(pass).with_state((client, steps, points, faults));
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        let workdir = Workdir::create("proxy")?;
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: proxy\n\
             clusters: [{{ name: proxy, cluster: {{ server: \"{server}\" }} }}]\n\
             users: [{{ name: proxy, user: {{}} }}]\n\
             contexts: [{{ name: proxy, context: {{ cluster: proxy, user: proxy }} }}]\n"
        );
        let kubeconfig = workdir.write("kubeconfig", config)?;
        Ok(KubernetesProxy { kubeconfig, _workdir: workdir, serving })
    }

    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

impl Drop for KubernetesProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

type Passing = (Client, &'static str, Points, WatchFaults);

async fn pass(State((client, steps, points, faults)): State<Passing>, request: Request) -> Response {
    let path = request.uri().path();
    let path = path.to_owned();
    let watched = watches::is_watch(&request).then(|| path.clone());
    // A watch is no step: it has no end.
    let is_step = path.contains(steps) && watched.is_none();
    let when = match is_step.then(|| points.begin(format!("{} {path}", request.method()))) {
        Some(Fate::Stops(When::Before)) => return points.stop().await,
        Some(Fate::IsHeld(held)) => return hold(client, request, held).await,
        Some(Fate::IsRefused(status)) => return refuse(status),
        Some(Fate::Stops(When::After)) => Some(When::After),
        Some(Fate::Passes) | None => None,
    };
    if request.method() == Method::GET {
        faults.admit(&path, watched.is_some()).await;
    }
    let answer = forward(&client, request).await;
    let answer = answer.map(|answer| match watched {
        Some(path) => answer.map(|body| faults.apply(path, body)),
        None => answer,
    });
    if when == Some(When::After) {
        return points.stop().await;
    }
    answer.unwrap_or_else(|error| (StatusCode::BAD_GATEWAY, format!("{error:#}\n")).into_response())
}

/// As the API server refuses a request.
fn refuse(status: u16) -> Response {
    let body = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": status,
        "message": "refused by the proxy", "reason": "" });
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// In a task of its own, which a client that goes away does not end.
async fn hold(client: Client, request: Request, held: Held) -> Response {
    let waiting = held.client();
    // The whole request must be here before its client goes away.
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, BODY_BYTES_MAX).await.unwrap_or_default();
    held.has_arrived();
    let delivered = tokio::spawn(async move {
        held.until_forwarded().await;
        let (status, body) = match forward(&client, Request::from_parts(parts, Body::from(bytes))).await {
            Ok(answer) => {
                let status = answer.status();
                let body = axum::body::to_bytes(answer.into_body(), BODY_BYTES_MAX).await.unwrap_or_default();
                (status, String::from_utf8_lossy(&body).into_owned())
            }
            Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}\n")),
        };
        held.answered(status.as_u16(), body.clone());
        (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    });
    let answer = delivered.await.unwrap_or_else(|error| (StatusCode::BAD_GATEWAY, error.to_string()).into_response());
    drop(waiting);
    answer
}

async fn forward(client: &Client, request: Request) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, BODY_BYTES_MAX).await?;
    let target = parts.uri.path_and_query().context("a path")?.as_str();
    let mut forwarded = http::Request::builder().method(parts.method).uri(target);
    for name in [header::ACCEPT, header::CONTENT_TYPE, header::USER_AGENT] {
        if let Some(value) = parts.headers.get(&name) {
            forwarded = forwarded.header(name, value);
        }
    }
    let answer = client.send(forwarded.body(kube::client::Body::from(bytes.to_vec()))?).await?;
    let (mut parts, body) = answer.into_parts();
    for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONTENT_ENCODING] {
        parts.headers.remove(name);
    }
    // Streamed: a watch has no end.
    Ok(Response::from_parts(parts, Body::new(body)))
}
