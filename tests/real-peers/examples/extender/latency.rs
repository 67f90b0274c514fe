//! Measures a filter request in the server: routes, JSON, decision and answer, without a socket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use axum::body::Body;
use engine::extender::{Extender, ExtenderSettings};
use engine::runtime::WorldOwner;
use model::event::{Event, Labels, NodeFacts, PodFacts, SelectorFacts, Source, TermFacts};
use real_peers::bench::{HOST, HOSTNAME, term};
use serde_json::{Value, json};
use server::ExtenderRoutes;
use tower::ServiceExt;

const NODES: usize = 5000;
const HOSTS: usize = 500;
const FEW: usize = 1000;
/// Replicas of a service; they share namespace, labels and terms.
const GROUP: usize = 30;
const CALLS: usize = 2000;
/// The best pass counts, because other load on the machine only adds latency.
const PASSES: usize = 3;

fn labels(pairs: &[(&str, String)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

fn group(number: usize) -> String {
    format!("group-{}", number / GROUP)
}

fn namespace(number: usize) -> String {
    format!("ns-{}", number / GROUP % 100)
}

fn pod(number: usize) -> PodFacts {
    let own = labels(&[
        ("group", group(number)),
        ("tier", "backend".to_owned()),
        ("team", format!("t{}", number / GROUP % 60)),
    ]);
    PodFacts {
        namespace: namespace(number),
        name: format!("pod-{number}"),
        uid: format!("42030201-ab12-7d4c-9a00-{number:012x}"),
        labels: own,
        node: Some(format!("node-{:05}", number % NODES)),
        anti_affinity: vec![TermFacts {
            topology_key: HOSTNAME.to_owned(),
            selector: Some(SelectorFacts { labels: labels(&[("group", group(number))]), ..SelectorFacts::default() }),
            ..TermFacts::default()
        }],
        ..PodFacts::default()
    }
}

/// The world, and the bytes of memory per pod.
fn world(pods: usize) -> (WorldOwner, f64) {
    let owner = WorldOwner::new(model::World::default());
    let mut bytes = 0;
    {
        let mut world = owner.write();
        for source in [Source::Namespaces, Source::Nodes, Source::Pods] {
            world.apply(Event::RelistBegan(source));
            match source {
                Source::Nodes => (0..NODES).for_each(|number| {
                    let name = format!("node-{number:05}");
                    let labels = labels(&[(HOSTNAME, name.clone()), (HOST, format!("esx-{}", number % HOSTS))]);
                    world.apply(Event::NodeApplied(NodeFacts { name, labels, ready: true, ..NodeFacts::default() }));
                }),
                Source::Pods => {
                    let before = resident_bytes();
                    (0..pods).for_each(|number| {
                        world.apply(Event::PodApplied(pod(number)));
                    });
                    bytes = resident_bytes().saturating_sub(before);
                }
                _ => (),
            }
            world.apply(Event::RelistEnded(source));
        }
    }
    (owner, bytes as f64 / pods as f64)
}

/// A request as kube-scheduler sends it, for another replica of one of the groups.
fn request(number: usize) -> String {
    let group = group(number);
    let term = term(HOSTNAME, &group);
    let pod = json!({
        "metadata": { "name": format!("new-{number}"), "namespace": namespace(number), "uid": format!("new-{number}"),
            "labels": { "group": group, "tier": "backend", "team": format!("t{}", number / GROUP % 60) } },
        "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } },
            "containers": [{ "name": "main", "image": "registry.example.org/main:1", "resources": { "requests": { "cpu": "100m" } } }] },
    });
    let names: Vec<String> = (0..NODES).map(|number| format!("node-{number:05}")).collect();
    json!({ "Pod": pod, "Nodes": null, "NodeNames": names }).to_string()
}

async fn calls(pods: usize) -> Result<(f64, f64, f64)> {
    let (world, bytes_per_pod) = world(pods);
    let extender = Extender::answering(world.shared(), ExtenderSettings::default());
    let read_pod = |json: &str| kubernetes::pod_json::read_pod(json).map_err(|error| error.to_string());
    let router = server::extender::router(ExtenderRoutes::new(extender, Arc::new(read_pod)));
    let bodies: Vec<String> = (0..50).map(|number| request(number * pods.min(FEW) / 50)).collect();
    let mut best = (f64::INFINITY, f64::INFINITY);
    for _ in 0..PASSES {
        let mut took: Vec<Duration> = Vec::with_capacity(CALLS);
        for call in 0..CALLS {
            let body = bodies[call % bodies.len()].clone();
            let request = http::Request::post("/filter")
                .header("content-type", "application/json")
                .header("content-length", body.len())
                .body(Body::from(body))?;
            let started = Instant::now();
            let answer = router.clone().oneshot(request).await?;
            ensure!(answer.status() == 200, "{}", answer.status());
            took.push(started.elapsed());
        }
        took.sort_unstable();
        let ms = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
        best = (best.0.min(ms(0.5)), best.1.min(ms(0.99)));
    }
    Ok((best.0, best.1, bytes_per_pod))
}

/// Measures with few pods and with many.
pub async fn measure(many: usize) -> Result<Value> {
    // The large world first: memory that was freed and reused would not be counted.
    let lots = calls(many).await?;
    let few = calls(FEW).await?;
    let figures = |(p50, p99, _): (f64, f64, f64)| json!({ "p50_ms": p50, "p99_ms": p99 });
    Ok(
        json!({ "few": figures(few), "many": figures(lots), "pods_few": FEW, "pods_many": many, "bytes_per_pod": lots.2 }),
    )
}

/// Resident memory of this process.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
