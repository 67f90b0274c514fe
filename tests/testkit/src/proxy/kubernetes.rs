//! The proxy of the API server. Bridger reaches it without TLS and without credentials; it uses an administrator's.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use kube::Client;
use tokio::task::JoinHandle;

use super::watches::{self, WatchFaults};
use super::{Points, When};
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
    let step = path.contains(steps).then(|| format!("{} {path}", request.method()));
    let when = step.and_then(|step| points.begin(step));
    if when == Some(When::Before) {
        return points.stop().await;
    }
    let path = path.to_owned();
    let watched = watches::is_watch(&request).then(|| path.clone());
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
