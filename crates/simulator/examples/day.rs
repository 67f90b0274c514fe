//! A day in the simulated world, in virtual time: 12 nodes on 4 hosts, three services, DRS, a host failure and a host
//! maintenance.
//!
//! `cargo run --release --package simulator --example day -- [SEED]` prints the history. The determinism test runs the
//! same day.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use simulator::kubernetes::placer::{self, PlacerConfig};
use simulator::kubernetes::sample;
use simulator::seed::Seed;
use simulator::vcenter::physics::Actor;
use simulator::vcenter::{HostId, Vcenter};
use simulator::{Clock, SimTime, World, kubernetes, world};
use tower::ServiceExt;

const HOUR: Duration = Duration::from_secs(3600);
pub const DAY: Duration = Duration::from_secs(24 * 3600);

/// The history of a world over `duration`, one line per entry.
pub fn history(seed: u64, duration: Duration) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime on a paused clock");
    runtime.block_on(async {
        let config = world::Config { seed: Seed(seed), chronicle_entries_max: usize::MAX, ..world::Config::default() };
        let world = World::new(&config, Clock::virtual_time());
        let time = tokio::spawn(world.clone().run());
        let scheduler = tokio::spawn(placer::run(world.clone(), PlacerConfig::default()));
        let life = tokio::spawn(live(world.clone()));
        tokio::time::sleep(duration).await;
        life.abort();
        scheduler.abort();
        time.abort();
        world.with(|core, _| {
            core.chronicle.since(0).fold(String::new(), |mut lines, entry| {
                let _ = writeln!(lines, "{entry}");
                lines
            })
        })
    })
}

/// The operations of users and administrators on that day.
async fn live(world: Arc<World>) {
    let requests = json!({ "cpu": "500m", "memory": "1Gi" });
    for (name, replicas) in [("shop", 3), ("search", 4), ("queue", 3)] {
        let deployment = sample::apart_by_node(name, replicas, name, &requests);
        send(&world, "POST", "/apis/apps/v1/namespaces/default/deployments", deployment).await;
    }
    at(&world, 3 * HOUR).await;
    let scale = json!({ "spec": { "replicas": 6 } });
    send(&world, "PATCH", "/apis/apps/v1/namespaces/default/deployments/shop/scale", scale).await;
    at(&world, 6 * HOUR).await;
    on_host(&world, 0, |vcenter, host, now| drop(vcenter.fail_host(host, now)));
    at(&world, 8 * HOUR).await;
    on_host(&world, 0, |vcenter, host, now| drop(vcenter.recover_host(host, now)));
    at(&world, 12 * HOUR).await;
    let actor = Actor { user: "administrator".to_owned() };
    on_host(&world, 1, |vcenter, host, now| drop(vcenter.enter_maintenance(host, 0, &actor, now)));
    at(&world, 14 * HOUR).await;
    on_host(&world, 1, |vcenter, host, now| drop(vcenter.exit_maintenance(host, &actor, now)));
    at(&world, 18 * HOUR).await;
    let update = json!({ "spec": { "template": { "metadata": { "annotations": { "version": "2" } } } } });
    send(&world, "PATCH", "/apis/apps/v1/namespaces/default/deployments/search", update).await;
}

async fn at(world: &World, since_start: Duration) {
    world.clock().sleep_until(SimTime::VIRTUAL_START.after(since_start)).await;
}

fn on_host(world: &World, index: usize, act: impl FnOnce(&mut Vcenter, HostId, SimTime)) {
    world.with(|core, now| {
        let host = core.vcenter.inventory().hosts().nth(index).map(|(id, _)| id);
        if let Some(host) = host {
            act(&mut core.vcenter, host, now);
        }
    });
}

async fn send(world: &Arc<World>, method: &str, path: &str, body: Value) {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(Body::from(body.to_string()))
        .expect("a request");
    let response = kubernetes::api::router(world.clone()).oneshot(request).await.expect("an answer");
    assert!(response.status().is_success(), "{method} {path}: {}", response.status());
}

#[allow(dead_code, clippy::print_stdout)]
fn main() {
    let seed = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1);
    print!("{}", history(seed, DAY));
}
