//! HTTP extenders: other programs that take part in placing a pod.
//!
//! In: a pod and the nodes that passed the placer's own filters. Out: the nodes that the extender accepts, scores, a
//! binding. The wire format is kube-scheduler's: capitalised names, parsed case-insensitively.
//!
//! The transport is HTTP over a socket, or a tower service in this process for virtual time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};

use super::pod_info::PodInfo;
use crate::kubernetes::json::{items, text};
use crate::kubernetes::pod;

/// A longer answer is rejected.
const ANSWER_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Debug)]
pub struct ExtenderConfig {
    /// `http://127.0.0.1:10262/scheduler`
    pub url_prefix: String,
    pub filter_verb: Option<String>,
    pub prioritize_verb: Option<String>,
    /// Set if the extender binds the pods that it handles.
    pub bind_verb: Option<String>,
    /// The factor for the extender's scores.
    pub weight: i64,
    /// The extender caches the nodes: names are enough.
    pub node_cache_capable: bool,
    /// If the extender fails, pods are placed without it.
    pub ignorable: bool,
    pub timeout: Duration,
    pub transport: Transport,
}

impl ExtenderConfig {
    /// An extender with kube-scheduler's defaults that filters and prioritizes.
    #[must_use]
    pub fn new(url_prefix: &str, transport: Transport) -> ExtenderConfig {
        ExtenderConfig {
            url_prefix: url_prefix.to_owned(),
            filter_verb: Some("filter".to_owned()),
            prioritize_verb: Some("prioritize".to_owned()),
            bind_verb: None,
            weight: 1,
            node_cache_capable: true,
            ignorable: false,
            timeout: Duration::from_secs(5),
            transport,
        }
    }
}

/// The transport to an extender.
#[derive(Clone)]
pub enum Transport {
    Http(Box<Client<HttpConnector, Body>>),
    InProcess(BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>),
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Http(_) => "Http",
            Transport::InProcess(_) => "InProcess",
        })
    }
}

impl Transport {
    /// Plain HTTP over a socket.
    #[must_use]
    pub fn http() -> Transport {
        Transport::Http(Box::new(Client::builder(TokioExecutor::new()).build_http()))
    }

    /// A service in this process, for example an axum router.
    pub fn in_process<S>(service: S) -> Transport
    where
        S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        Transport::InProcess(BoxCloneSyncService::new(service.map_err(Into::into)))
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        match self {
            Transport::Http(client) => Ok(client.request(request).await?.map(Body::new)),
            Transport::InProcess(service) => service.clone().oneshot(request).await,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExtenderError {
    #[error("extender {url}: {source}")]
    Unreachable { url: String, source: BoxError },
    #[error("extender {url}: no answer within {timeout:?}")]
    TimedOut { url: String, timeout: Duration },
    #[error("extender {url}: status {status}")]
    Status { url: String, status: StatusCode },
    #[error("extender {url}: unreadable answer: {why}")]
    Unreadable { url: String, why: String },
    #[error("{0}")]
    Refused(String),
}

/// The nodes that an extender accepts.
#[derive(Debug, Default)]
pub(crate) struct Filtered {
    pub nodes: Vec<String>,
    /// The reasons for the rejected nodes. A node that is in neither list is rejected without a reason.
    pub failed: BTreeMap<String, String>,
}

/// The candidate nodes of a call: their names and objects.
pub(crate) type NodeObjects = [(String, Arc<Value>)];

impl ExtenderConfig {
    pub(crate) async fn filter(
        &self,
        verb: &str,
        pod: &PodInfo,
        nodes: &NodeObjects,
    ) -> Result<Filtered, ExtenderError> {
        let answer = self.ask(verb, self.arguments(pod, nodes)).await?;
        let error = text(field(&answer, "Error"));
        if !error.is_empty() {
            return Err(ExtenderError::Refused(error.to_owned()));
        }
        let names = field(&answer, "NodeNames");
        let left: Vec<String> = if self.node_cache_capable && !names.is_null() {
            items(names).iter().map(|name| text(name).to_owned()).collect()
        } else {
            let list = field(field(&answer, "Nodes"), "items");
            items(list).iter().map(|node| text(&node["metadata"]["name"]).to_owned()).collect()
        };
        if let Some(stranger) = left.iter().find(|name| !nodes.iter().any(|(known, _)| known == *name)) {
            let why = format!("the answer names node \"{stranger}\", which was not in the request");
            return Err(ExtenderError::Unreadable { url: self.url_prefix.clone(), why });
        }
        let mut failed = BTreeMap::new();
        for list in ["FailedNodes", "FailedAndUnresolvableNodes"] {
            for (node, reason) in field(&answer, list).as_object().into_iter().flatten() {
                failed.insert(node.clone(), text(reason).to_owned());
            }
        }
        Ok(Filtered { nodes: left, failed })
    }

    /// Scores by node, from 0 to 10.
    pub(crate) async fn prioritize(
        &self,
        verb: &str,
        pod: &PodInfo,
        nodes: &NodeObjects,
    ) -> Result<BTreeMap<String, i64>, ExtenderError> {
        let answer = self.ask(verb, self.arguments(pod, nodes)).await?;
        Ok(items(&answer)
            .iter()
            .map(|entry| (text(field(entry, "Host")).to_owned(), field(entry, "Score").as_i64().unwrap_or(0)))
            .collect())
    }

    pub(crate) async fn bind(&self, verb: &str, pod: &PodInfo, node: &str) -> Result<(), ExtenderError> {
        let arguments = json!({ "PodName": pod.key.name, "PodNamespace": pod.key.namespace,
            "PodUID": pod::uid(&pod.object), "Node": node });
        let answer = self.ask(verb, arguments).await?;
        match text(field(&answer, "Error")) {
            "" => Ok(()),
            error => Err(ExtenderError::Refused(error.to_owned())),
        }
    }

    fn arguments(&self, pod: &PodInfo, nodes: &NodeObjects) -> Value {
        let pod = Value::clone(&pod.object);
        if self.node_cache_capable {
            let names: Vec<&str> = nodes.iter().map(|(name, _)| name.as_str()).collect();
            return json!({ "Pod": pod, "Nodes": null, "NodeNames": names });
        }
        let objects: Vec<Value> = nodes.iter().map(|(_, object)| Value::clone(object)).collect();
        json!({ "Pod": pod, "Nodes": { "metadata": {}, "items": objects }, "NodeNames": null })
    }

    async fn ask(&self, verb: &str, arguments: Value) -> Result<Value, ExtenderError> {
        let url = format!("{}/{verb}", self.url_prefix.trim_end_matches('/'));
        let exchange = async {
            let request = Request::post(&url)
                .header(header::CONTENT_TYPE, "application/json")
                .body(Body::from(arguments.to_string()))?;
            let response = self.transport.send(request).await?;
            let status = response.status();
            let body = http_body_util::Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await?;
            Ok::<_, BoxError>((status, body.to_bytes()))
        };
        // The extender's timeout is in connection time, not in simulated time.
        let (status, body) = match tokio::time::timeout(self.timeout, exchange).await {
            Err(_) => return Err(ExtenderError::TimedOut { url, timeout: self.timeout }),
            Ok(Err(source)) => return Err(ExtenderError::Unreachable { url, source }),
            Ok(Ok(answer)) => answer,
        };
        if status != StatusCode::OK {
            return Err(ExtenderError::Status { url, status });
        }
        serde_json::from_slice(&body).map_err(|why| ExtenderError::Unreadable { url, why: why.to_string() })
    }
}

/// A field by its case-insensitive name.
fn field<'a>(object: &'a Value, name: &str) -> &'a Value {
    object
        .as_object()
        .and_then(|fields| fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)))
        .map_or(&Value::Null, |(_, value)| value)
}
