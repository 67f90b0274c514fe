//! Does only what every scheduler must do: watches all nodes and pods as JSON, binds each pending pod to the next node
//! in turn, and posts the Scheduled event. Of each object it parses the few fields that this needs.

use std::collections::{HashSet, VecDeque};
use std::path::Path;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams, WatchEvent};
use kube::core::Request;
use real_peers::bench::light::{self, Listed};
use serde::Deserialize;
use serde_json::json;

use crate::contestant::SCHEDULER_NAME;

/// As many concurrent requests as `bridger scheduler` sends.
const BINDS_AT_ONCE: usize = 64;
const EVENTS_AT_ONCE: usize = 32;

enum Done {
    Bound(Waiting),
    EventPosted,
}

#[derive(Clone, Deserialize)]
struct NodeObject {
    metadata: NodeName,
}

#[derive(Clone, Deserialize)]
struct NodeName {
    name: String,
}

#[derive(Clone, Deserialize)]
struct PodObject {
    metadata: PodName,
    spec: PodSpec,
}

#[derive(Clone, Deserialize)]
struct PodName {
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    scheduler_name: Option<String>,
}

struct Waiting {
    namespace: String,
    name: String,
    uid: String,
    node: String,
}

pub async fn run(kubeconfig: &Path) -> Result<()> {
    let client = testkit::control_plane::client_from(kubeconfig).await?;
    let (node_requests, pod_requests) = (Request::new("/api/v1/nodes"), Request::new("/api/v1/pods"));
    // All nodes first, as a scheduler does.
    let listed: Listed<NodeObject> = light::list(&client, &node_requests, &ListParams::default()).await?;
    let mut nodes = light::watch::<NodeObject>(&client, &node_requests, "", &listed.metadata).await?;
    let names: Vec<String> = listed.items.into_iter().map(|node| node.metadata.name).collect();
    let listed: Listed<PodObject> = light::list(&client, &pod_requests, &ListParams::default()).await?;
    let mut pods = light::watch::<PodObject>(&client, &pod_requests, "", &listed.metadata).await?;
    let (mut seen, mut to_bind, mut to_post) = (HashSet::new(), VecDeque::new(), VecDeque::new());
    let mut turn = 0;
    let mut take = |pod: PodObject, to_bind: &mut VecDeque<Waiting>| {
        if let Some(waiting) = waiting(pod, &names[turn % names.len()])
            && seen.insert(waiting.uid.clone())
        {
            turn += 1;
            to_bind.push_back(waiting);
        }
    };
    listed.items.into_iter().for_each(|pod| take(pod, &mut to_bind));
    let (mut binding, mut posting) = (0, 0);
    let mut in_flight: FuturesUnordered<BoxFuture<'static, Result<Done>>> = FuturesUnordered::new();
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
            event = pods.next() => {
                if let WatchEvent::Added(pod) | WatchEvent::Modified(pod) = event.context("the watch of pods ended")?? {
                    take(pod, &mut to_bind);
                }
            }
            event = nodes.next() => drop(event.context("the watch of nodes ended")??),
        }
    }
}

fn waiting(pod: PodObject, node: &str) -> Option<Waiting> {
    let is_waiting = pod.spec.node_name.is_none() && pod.spec.scheduler_name.as_deref() == Some(SCHEDULER_NAME);
    let PodName { namespace, name, uid } = pod.metadata;
    is_waiting.then(|| Waiting { namespace, name, uid, node: node.to_owned() })
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
