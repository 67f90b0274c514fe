//! Does only what every scheduler must do: watches all nodes and pods as JSON, binds each pending pod to the next node
//! in turn, and posts the Scheduled event.

use std::collections::{HashSet, VecDeque};
use std::path::Path;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use kube::runtime::watcher::{self, watcher};
use serde_json::json;

use crate::contestant::SCHEDULER_NAME;

/// As many concurrent requests as `bridger scheduler` sends.
const BINDS_AT_ONCE: usize = 64;
const EVENTS_AT_ONCE: usize = 32;

enum Done {
    Bound(Waiting),
    EventPosted,
}

struct Waiting {
    namespace: String,
    name: String,
    uid: String,
    node: String,
}

pub async fn run(kubeconfig: &Path) -> Result<()> {
    let client = testkit::control_plane::client_from(kubeconfig).await?;
    let mut nodes = watcher(Api::<Node>::all(client.clone()), watcher::Config::default()).boxed();
    let mut pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).boxed();
    let (mut names, mut turn) = (Vec::<String>::new(), 0);
    let (mut seen, mut to_bind, mut to_post) = (HashSet::new(), VecDeque::new(), VecDeque::new());
    let (mut binding, mut posting) = (0, 0);
    let mut in_flight: FuturesUnordered<BoxFuture<'static, Result<Done>>> = FuturesUnordered::new();
    // All nodes first, as a scheduler does.
    loop {
        match nodes.next().await.context("the watch of nodes ended")?? {
            watcher::Event::InitApply(node) => names.extend(node.metadata.name),
            watcher::Event::InitDone => break,
            _ => (),
        }
    }
    loop {
        while binding < BINDS_AT_ONCE
            && let Some(pod) = to_bind.pop_front()
        {
            binding += 1;
            in_flight.push(Box::pin(bind(client.clone(), pod)));
        }
        while posting < EVENTS_AT_ONCE
            && let Some(pod) = to_post.pop_front()
        {
            posting += 1;
            in_flight.push(Box::pin(post_event(client.clone(), pod)));
        }
        tokio::select! {
            Some(done) = in_flight.next(), if !in_flight.is_empty() => match done? {
                Done::Bound(pod) => {
                    binding -= 1;
                    to_post.push_back(pod);
                }
                Done::EventPosted => posting -= 1,
            },
            Some(event) = pods.next() => {
                if let watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) = event?
                    && let Some(waiting) = waiting(pod, &names[turn % names.len()])
                    && seen.insert(waiting.uid.clone())
                {
                    turn += 1;
                    to_bind.push_back(waiting);
                }
            }
            Some(event) = nodes.next() => drop(event?),
        }
    }
}

fn waiting(pod: Pod, node: &str) -> Option<Waiting> {
    let spec = pod.spec?;
    if spec.node_name.is_some() || spec.scheduler_name.as_deref() != Some(SCHEDULER_NAME) {
        return None;
    }
    let metadata = pod.metadata;
    Some(Waiting { namespace: metadata.namespace?, name: metadata.name?, uid: metadata.uid?, node: node.to_owned() })
}

async fn bind(client: kube::Client, pod: Waiting) -> Result<Done> {
    let pods: Api<Pod> = Api::namespaced(client, &pod.namespace);
    let body = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": pod.name, "uid": pod.uid },
        "target": { "apiVersion": "v1", "kind": "Node", "name": pod.node } });
    let _: serde_json::Value = pods.create_subresource("binding", &pod.name, &PostParams::default(), &body).await?;
    Ok(Done::Bound(pod))
}

async fn post_event(client: kube::Client, pod: Waiting) -> Result<Done> {
    let Waiting { namespace, name, uid, node } = pod;
    let event = json!({ "apiVersion": "v1", "kind": "Event",
        "metadata": { "generateName": format!("{name}."), "namespace": namespace },
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid },
        "type": "Normal", "reason": "Scheduled", "count": 1, "source": { "component": SCHEDULER_NAME },
        "message": format!("Successfully assigned {namespace}/{name} to {node}") });
    let request = http::Request::post(format!("/api/v1/namespaces/{namespace}/events"))
        .header("content-type", "application/json")
        .body(event.to_string().into_bytes())?;
    client.request_text(request).await?;
    Ok(Done::EventPosted)
}
