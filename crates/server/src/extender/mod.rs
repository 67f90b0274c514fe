//! The scheduler extender over HTTP: `POST /filter`, `/prioritize`, `/bind`, `/preempt`, also under `/v1/`.
//!
//! In: kube-scheduler's requests. Out: the responses. A thin layer: it parses a request, calls the engine and writes
//! the response.
//!
//! Invariants: kube-scheduler treats only status 200 as a response. 4xx means a malformed request; an `Error` member,
//! which the pod's events show, means a well-formed request that failed; 503 means that Kubernetes is not in sync. The
//! size of bodies is bounded, and for large bodies also their number, until their responses are ready. The work for
//! preempt, which a client can make large, runs on other threads, few at a time, and ends when kube-scheduler no longer
//! waits. No client input causes a panic.

pub mod answer;
pub mod stats;
pub mod wire;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use engine::extender::{BindError, Candidate, Extender, NotInSync, PreemptError};
use engine::ports::Binding;
use http_body_util::{BodyExt, Limited};
use model::event::PodFacts;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use self::answer::PreemptionNode;
use self::stats::{ExtenderStats, Outcome, Verb};
use self::wire::{BindingArgs, ExtenderArgs, Nodes, PreemptionArgs};
use crate::connection::ClientCertificate;

/// 5000 whole nodes, each with the 50 images that a kubelet lists, are 50 to 60 MB; this allows twice that.
pub const BODY_BYTES_MAX: usize = 128 << 20;
/// 5000 names and a pod are well below. A larger body needs one of a few permits, so that memory stays bounded.
const BODY_BYTES_SMALL: usize = 2 << 20;
const LARGE_BODIES_MAX: usize = 2;
/// How long one preempt request may take, with the wait for others. Shorter than kube-scheduler's default timeout for an extender.
const PREEMPT_WITHIN: Duration = Duration::from_secs(4);
/// How many of them may run at a time.
const PREEMPTIONS_MAX: usize = 2;

/// Reads the facts of a pod from its JSON: only the adapter knows the format of a pod.
pub type PodReader = Arc<dyn Fn(&str) -> Result<PodFacts, String> + Send + Sync>;

/// The state of the routes. Cheap to clone.
#[derive(Clone)]
pub struct ExtenderRoutes {
    extender: Arc<Extender>,
    read_pod: PodReader,
    stats: Arc<ExtenderStats>,
    large_bodies: Arc<Semaphore>,
    preemptions: Arc<Semaphore>,
}

impl ExtenderRoutes {
    #[must_use]
    pub fn new(extender: Arc<Extender>, read_pod: PodReader) -> ExtenderRoutes {
        ExtenderRoutes {
            extender,
            read_pod,
            stats: Arc::default(),
            large_bodies: Arc::new(Semaphore::new(LARGE_BODIES_MAX)),
            preemptions: Arc::new(Semaphore::new(PREEMPTIONS_MAX)),
        }
    }

    #[must_use]
    pub fn extender(&self) -> &Arc<Extender> {
        &self.extender
    }

    #[must_use]
    pub fn stats(&self) -> &Arc<ExtenderStats> {
        &self.stats
    }
}

pub fn router(routes: ExtenderRoutes) -> Router {
    let mut router = Router::new();
    for verb in Verb::ALL {
        let handler = post(async move |State(routes): State<ExtenderRoutes>, request: Request| {
            answer_one(&routes, verb, request).await
        });
        for prefix in ["", "/v1"] {
            router = router.route(&format!("{prefix}/{}", verb.name()), handler.clone());
        }
    }
    router.with_state(routes)
}

/// Why there is no normal response.
enum Rejection {
    Status(StatusCode, String),
    /// Reported in the `Error` member.
    Reported(String),
    NotInSync(NotInSync),
}

impl From<NotInSync> for Rejection {
    fn from(error: NotInSync) -> Rejection {
        Rejection::NotInSync(error)
    }
}

async fn answer_one(routes: &ExtenderRoutes, verb: Verb, request: Request) -> Response {
    let _in_flight = routes.stats.begin();
    let body = match admit(routes, request).await {
        Ok(admitted) => admitted,
        Err((status, text)) => {
            routes.stats.rejected(verb, Outcome::Bad);
            return (status, format!("{text}\n")).into_response();
        }
    };
    let started = Instant::now();
    let answered = match verb {
        Verb::Filter => filter(routes, &body.bytes),
        Verb::Prioritize => prioritize(routes, &body.bytes),
        Verb::Preempt => preempt_elsewhere(routes, body).await,
        Verb::Bind => bind(routes, &body.bytes).await,
    };
    let took = started.elapsed();
    let (outcome, response) = match answered {
        Ok(answer) => (Outcome::Ok, json(answer)),
        Err(Rejection::Reported(text)) => (Outcome::Error, error_answer(verb, &text)),
        Err(Rejection::Status(status, text)) => (Outcome::Bad, (status, format!("{text}\n")).into_response()),
        Err(Rejection::NotInSync(error)) => {
            (Outcome::NotReady, (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response())
        }
    };
    routes.stats.finished(verb, outcome, took);
    response
}

fn json(body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// An error in the verb's response type; two of these types have no member for errors.
fn error_answer(verb: Verb, text: &str) -> Response {
    match verb {
        Verb::Filter => json(answer::filter_error(text)),
        Verb::Bind => json(answer::binding(text)),
        Verb::Prioritize | Verb::Preempt => (StatusCode::UNPROCESSABLE_ENTITY, format!("{text}\n")).into_response(),
    }
}

/// The body of a request, in memory. A large one has its permit for as long: also while a preemption works on it whose
/// client is gone.
struct AdmittedBody {
    bytes: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Checks the client certificate and the headers, and reads the body.
async fn admit(routes: &ExtenderRoutes, request: Request) -> Result<AdmittedBody, (StatusCode, String)> {
    match request.extensions().get::<ClientCertificate>() {
        Some(ClientCertificate::Missing) => {
            return Err((StatusCode::FORBIDDEN, "a client certificate is required".to_owned()));
        }
        Some(ClientCertificate::OtherName) => {
            let text = "the name in the client certificate is not allowed; see --client-allowed-names";
            return Err((StatusCode::FORBIDDEN, text.to_owned()));
        }
        Some(ClientCertificate::Verified | ClientCertificate::NotRequested) | None => (),
    }
    if !is_json(request.headers()) {
        let text = "the content type must be application/json".to_owned();
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let too_large = || (StatusCode::PAYLOAD_TOO_LARGE, format!("more than {BODY_BYTES_MAX} bytes"));
    let length: Option<usize> = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok())
        .and_then(|length| length.parse().ok());
    if length.is_some_and(|length| length > BODY_BYTES_MAX) {
        return Err(too_large());
    }
    let small = length.is_some_and(|length| length <= BODY_BYTES_SMALL);
    let permit = match small {
        true => None,
        // Waits for a permit; the time limit of the whole request bounds the wait.
        false => routes.large_bodies.clone().acquire_owned().await.ok(),
    };
    let limited = Limited::new(Body::new(request.into_body()), BODY_BYTES_MAX);
    match limited.collect().await {
        Ok(collected) => Ok(AdmittedBody { bytes: collected.to_bytes(), _permit: permit }),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Err(_) => Err((StatusCode::BAD_REQUEST, "the body ended too early".to_owned())),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Rejection> {
    serde_json::from_slice(body).map_err(|error| malformed(&error))
}

fn malformed(error: &serde_json::Error) -> Rejection {
    Rejection::Status(StatusCode::BAD_REQUEST, format!("not an extender request: {error}"))
}

impl ExtenderRoutes {
    fn pod(&self, pod: Option<&RawValue>) -> Result<PodFacts, Rejection> {
        let pod = pod.ok_or_else(|| Rejection::Reported("the request has no pod".to_owned()))?;
        (self.read_pod)(pod.get()).map_err(|error| Rejection::Reported(format!("the pod can't be read: {error}")))
    }
}

fn filter(routes: &ExtenderRoutes, body: &[u8]) -> Result<Vec<u8>, Rejection> {
    let args: ExtenderArgs<'_> = parse(body)?;
    let pod = routes.pod(args.pod)?;
    let nodes = Nodes::of(args).map_err(|error| malformed(&error))?;
    let verdicts = routes.extender.filter(&pod, &nodes.names())?;
    Ok(answer::filter(&nodes, &verdicts))
}

fn prioritize(routes: &ExtenderRoutes, body: &[u8]) -> Result<Vec<u8>, Rejection> {
    let args: ExtenderArgs<'_> = parse(body)?;
    let pod = routes.pod(args.pod)?;
    let nodes = Nodes::of(args).map_err(|error| malformed(&error))?;
    let names = nodes.names();
    let scores = routes.extender.prioritize(&pod, &names)?;
    Ok(answer::priorities(&names, &scores))
}

async fn preempt_elsewhere(routes: &ExtenderRoutes, body: AdmittedBody) -> Result<Vec<u8>, Rejection> {
    // The wait for others counts, too: kube-scheduler waits no longer for that.
    let until = Instant::now() + PREEMPT_WITHIN;
    // The time limit of the whole request bounds the wait.
    let permit = routes.preemptions.clone().acquire_owned().await;
    let routes = routes.clone();
    let work = tokio::task::spawn_blocking(move || {
        let answer = preempt(&routes, &body.bytes, until);
        // Not before the work has ended, even if no one waits for it any more.
        drop((permit, body));
        answer
    });
    work.await.unwrap_or_else(|_| Err(Rejection::Reported("the computation ended early".to_owned())))
}

fn preempt(routes: &ExtenderRoutes, body: &[u8], until: Instant) -> Result<Vec<u8>, Rejection> {
    let args: PreemptionArgs<'_> = parse(body)?;
    let pod = routes.pod(args.pod)?;
    let mut nodes = Vec::new();
    for (name, victims) in args.meta_victims.map(|victims| victims.0).unwrap_or_default() {
        let uids = victims.pods.unwrap_or_default().into_iter().filter_map(|pod| pod.uid).collect();
        nodes.push(PreemptionNode { name, victims: uids, pdb_violations: victims.pdb_violations.unwrap_or(0) });
    }
    for (name, victims) in args.victims.map(|victims| victims.0).unwrap_or_default() {
        let pods = victims.pods.unwrap_or_default();
        let uids = pods.into_iter().map(wire::uid_of).collect::<Result<_, _>>().map_err(|error| malformed(&error))?;
        nodes.push(PreemptionNode { name, victims: uids, pdb_violations: victims.pdb_violations.unwrap_or(0) });
    }
    // kube-scheduler names each node once. Go's parser takes the last of several members with one name.
    let mut seen = HashSet::new();
    nodes.reverse();
    nodes.retain(|node| seen.insert(node.name.0.clone()));
    nodes.reverse();
    let candidates: Vec<Candidate<'_>> = nodes
        .iter()
        .map(|node| Candidate { node: &node.name, victims: node.victims.iter().map(|uid| &**uid).collect() })
        .collect();
    let accepted = routes.extender.preempt(&pod, &candidates, until).map_err(|error| match error {
        PreemptError::NotInSync(error) => error.into(),
        PreemptError::TooSlow { .. } => Rejection::Reported(error.to_string()),
    })?;
    let accepted = nodes.iter().zip(accepted).filter(|(_, accepted)| *accepted).map(|(node, _)| node);
    Ok(answer::preemption(accepted))
}

async fn bind(routes: &ExtenderRoutes, body: &[u8]) -> Result<Vec<u8>, Rejection> {
    let args: BindingArgs<'_> = parse(body)?;
    let text = |text: Option<wire::Text<'_>>| text.unwrap_or_default().0.into_owned();
    let binding = Binding {
        namespace: text(args.pod_namespace),
        pod: text(args.pod_name),
        uid: text(args.pod_uid),
        node: text(args.node),
    };
    match routes.extender.bind(binding).await {
        Ok(()) => Ok(answer::binding("")),
        Err(BindError::NotInSync(error)) => Err(error.into()),
        Err(error) => Err(Rejection::Reported(error.to_string())),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
