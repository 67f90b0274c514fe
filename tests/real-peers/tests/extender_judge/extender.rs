//! Calls Bridger's extender for a world, with the same data flow as in a cluster.
//!
//! The objects are served as the lists of a Kubernetes API, and the adapter's watch turns them into events for a world.
//! Then the extender's routes get the requests that kube-scheduler sends. Only sockets are left out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use engine::extender::{Extender, ExtenderSettings};
use engine::runtime::WorldOwner;
use http::{Request, Response};
use judge::{Verdict, World};
use kube::client::Body;
use model::affinity::LiftSettings;
use model::event::Event;
use serde::Deserialize;
use serde_json::{Value, json};
use server::ExtenderRoutes;
use tokio::sync::mpsc;
use tower::{BoxError, ServiceExt};

use crate::opinion::Opinion;

/// Whether the watch has shown the pod before kube-scheduler's request for it; either order is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    Already,
    NotYet,
}

/// Lists are served from memory. The limit leaves room for a loaded machine.
const LISTED_WITHIN: Duration = Duration::from_secs(30);
const SOURCES: usize = 3;
const ANSWER_BYTES_MAX: usize = 1 << 20;

pub struct ExtenderCaller {
    runtime: tokio::runtime::Runtime,
    lifting: LiftSettings,
}

impl ExtenderCaller {
    pub fn new(lifting: LiftSettings) -> ExtenderCaller {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        ExtenderCaller { runtime, lifting }
    }

    /// The extender's answer for the world's pod and all nodes. An error for a world that no cluster could have.
    pub fn ask(&self, world: &World, observed: Observed) -> Result<Opinion, String> {
        self.runtime.block_on(async {
            let routes = self.routes(world, observed).await?;
            ask(routes, world).await
        })
    }

    async fn routes(&self, world: &World, observed: Observed) -> Result<Router, String> {
        let mut known = model::World::with_lifting(self.lifting.clone());
        for event in listed(world, observed).await? {
            known.apply(event);
        }
        let extender = Extender::answering(WorldOwner::new(known).shared(), ExtenderSettings::default());
        let read_pod = Arc::new(|json: &str| kubernetes::pod_json::read_pod(json).map_err(|error| error.to_string()));
        Ok(server::extender::router(ExtenderRoutes::new(extender, read_pod)))
    }
}

/// All events of the adapter's watch for the world until it is in sync.
async fn listed(world: &World, observed: Observed) -> Result<Vec<Event>, String> {
    let (sender, mut events) = mpsc::channel(64);
    let mut watch = Box::pin(kubernetes::watch(serving(world, observed), sender, 1, model::Parts::RUN));
    let collect = async {
        let (mut received, mut ended) = (Vec::new(), 0);
        while ended < SOURCES {
            let Some(event) = events.recv().await else { return Err("the watch has ended".to_owned()) };
            ended += usize::from(matches!(event, Event::RelistEnded(_)));
            if let Event::Lost(source) = event {
                return Err(format!("{source:?} cannot be listed"));
            }
            received.push(event);
        }
        Ok(received)
    };
    let both = async {
        tokio::select! {
            biased;
            received = collect => received,
            () = &mut watch => Err("the watch has ended".to_owned()),
        }
    };
    tokio::time::timeout(LISTED_WITHIN, both).await.map_err(|_| "nothing was listed in time".to_owned())?
}

/// A client of an API that lists the world's objects and then sends no watch events. Finished pods are listed, too,
/// although the adapter asks a real server to exclude them, because the tests check whether they count.
fn serving(world: &World, observed: Observed) -> kube::Client {
    let mut pods = world.pods.clone();
    if observed == Observed::Already {
        pods.push(world.pod.clone());
    }
    let list = |kind: &str, items: &[Value]| {
        json!({ "apiVersion": "v1", "kind": kind, "metadata": { "resourceVersion": "1" }, "items": items })
            .to_string()
            .into_bytes()
    };
    let lists: Arc<BTreeMap<&str, Vec<u8>>> = Arc::new(BTreeMap::from([
        ("/api/v1/nodes", list("NodeList", &world.nodes)),
        ("/api/v1/pods", list("PodList", &pods)),
        ("/api/v1/namespaces", list("NamespaceList", &world.namespaces)),
    ]));
    let service = tower::service_fn(move |request: Request<Body>| {
        let lists = Arc::clone(&lists);
        async move {
            if request.uri().query().is_some_and(|query| query.contains("watch=")) {
                std::future::pending::<()>().await;
            }
            let list = lists.get(request.uri().path()).cloned();
            let status = if list.is_some() { 200 } else { 404 };
            Ok::<_, BoxError>(Response::builder().status(status).body(Body::from(list.unwrap_or_default()))?)
        }
    });
    kube::Client::new(service, "default")
}

/// kube-scheduler's ExtenderFilterResult.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Filtered {
    node_names: Option<Vec<String>>,
    failed_nodes: Option<BTreeMap<String, String>>,
    failed_and_unresolvable_nodes: Option<BTreeMap<String, String>>,
    error: String,
}

/// One entry of kube-scheduler's HostPriorityList.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Priority {
    host: String,
    score: i64,
}

/// Like kube-scheduler: filters all nodes, then prioritizes the feasible ones.
async fn ask(routes: Router, world: &World) -> Result<Opinion, String> {
    let names: Vec<&str> = world.nodes.iter().filter_map(|node| node["metadata"]["name"].as_str()).collect();
    let filtered: Filtered = post(routes.clone(), "/v1/filter", &world.pod, &names).await?;
    if !filtered.error.is_empty() {
        return Err(filtered.error);
    }
    let feasible = filtered.node_names.unwrap_or_default();
    let of = |verdict: Verdict, nodes: Option<BTreeMap<String, String>>| {
        nodes.unwrap_or_default().into_iter().map(move |(name, reason)| (name, (verdict, reason)))
    };
    let fitting = feasible.iter().map(|name| (name.clone(), (Verdict::Feasible, String::new())));
    let rejected = of(Verdict::Unschedulable, filtered.failed_nodes);
    let unresolvable = of(Verdict::UnschedulableAndUnresolvable, filtered.failed_and_unresolvable_nodes);
    let verdicts = fitting.chain(rejected).chain(unresolvable).collect();

    let names: Vec<&str> = feasible.iter().map(String::as_str).collect();
    let priorities: Vec<Priority> = post(routes, "/v1/prioritize", &world.pod, &names).await?;
    let scores = priorities.into_iter().map(|priority| (priority.host, priority.score)).collect();
    Ok(Opinion { verdicts, scores })
}

async fn post<T: for<'de> Deserialize<'de>>(
    routes: Router,
    path: &str,
    pod: &Value,
    names: &[&str],
) -> Result<T, String> {
    let body = json!({ "Pod": pod, "Nodes": null, "NodeNames": names }).to_string();
    let request = Request::post(path)
        .header("content-type", "application/json")
        .header("content-length", body.len())
        .body(axum::body::Body::from(body))
        .map_err(|error| error.to_string())?;
    let Ok(response) = routes.oneshot(request).await;
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await.map_err(|error| error.to_string())?;
    if !status.is_success() {
        return Err(format!("{path}: {status}: {}", String::from_utf8_lossy(&body)));
    }
    serde_json::from_slice(&body).map_err(|error| format!("{path}: {error}: {}", String::from_utf8_lossy(&body)))
}
