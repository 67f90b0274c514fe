//! A proxy between a client and the API server that can delay requests.
//!
//! In: plain HTTP from any local client. Out: the API server's answers to the administrator's identity. A delayed
//! request has not reached the API server, so no watch can have shown it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use testkit::workdir::Workdir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Clone)]
struct Gate {
    client: kube::Client,
    /// A POST whose path contains this is delayed. If empty, nothing is delayed.
    pattern: watch::Sender<String>,
    held: Arc<Mutex<usize>>,
}

pub struct Gatekeeper {
    gate: Gate,
    kubeconfig: PathBuf,
    serving: JoinHandle<()>,
    _workdir: Workdir,
}

impl Gatekeeper {
    pub async fn start(client: kube::Client) -> Result<Gatekeeper> {
        let gate = Gate { client, pattern: watch::Sender::default(), held: Arc::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = axum::Router::new().fallback(pass).with_state(gate.clone());
        let serving = tokio::spawn(async move { drop(axum::serve(listener, router).await) });
        let workdir = Workdir::create("gatekeeper")?;
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": url } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        });
        let kubeconfig = workdir.write("kubeconfig", kubeconfig.to_string())?;
        Ok(Gatekeeper { gate, kubeconfig, serving, _workdir: workdir })
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Delays every POST whose path contains this.
    pub fn hold(&self, pattern: &str) {
        *self.lock() = 0;
        self.gate.pattern.send_replace(pattern.to_owned());
    }

    /// How many requests were delayed since then.
    pub fn held(&self) -> usize {
        *self.lock()
    }

    pub fn release(&self) {
        self.gate.pattern.send_replace(String::new());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, usize> {
        self.gate.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Gatekeeper {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn pass(State(gate): State<Gate>, request: Request) -> Response {
    let mut pattern = gate.pattern.subscribe();
    let is_held = {
        let pattern = pattern.borrow_and_update();
        request.method() == "POST" && !pattern.is_empty() && request.uri().path().contains(pattern.as_str())
    };
    if is_held {
        *gate.held.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let _ = pattern.wait_for(String::is_empty).await;
    }
    forward(&gate.client, request)
        .await
        .unwrap_or_else(|error| (StatusCode::BAD_GATEWAY, error.to_string()).into_response())
}

async fn forward(client: &kube::Client, request: Request) -> Result<Response> {
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await?.to_vec();
    // These headers belong to this connection only.
    for name in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    let answer = client.send(axum::http::Request::from_parts(parts, kube::client::Body::from(body))).await?;
    let (mut parts, body) = answer.into_parts();
    for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    Ok(Response::from_parts(parts, Body::new(body)))
}
