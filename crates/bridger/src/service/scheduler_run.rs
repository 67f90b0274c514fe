//! The running scheduler: watches, the engine's driver and HTTP, wired and stopped together.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use engine::scheduling::{Driver, SchedulingPorts, SchedulingSettings};
use kubernetes::binder::PodBinder;
use kubernetes::conditions::PodConditions;
use kubernetes::notices::EventBoard;
use model::event::{Event, VcenterId};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use scheduler::Configuration;
use server::{ConnectionCounts, Shown};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use vsphere::inventory::{self, VcenterStatus};

use super::running::{entropy, health, is_true, say};
use super::scheduler_metrics::SchedulerMetrics;
use super::settings::RunSettings;
use super::startup::Found;
use crate::failure::Failure;

/// Events on their way to the scheduler; a full queue makes the watches wait.
const EVENTS_QUEUED_MAX: usize = 4096;
/// How long giving sessions back and ending requests may take.
const STOP_WITHIN: Duration = Duration::from_secs(6);

/// Runs until `stop` completes.
pub async fn run(
    settings: RunSettings,
    configuration: Configuration,
    found: Found,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let address = SocketAddr::new(settings.listen, settings.port);
    let listener = tokio::net::TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Failure::configuration(format!("{address} is in use"), "choose another with --port")
        }
        _ => Failure::run(format!("cannot listen on {address}: {error}")),
    })?;
    let address = listener.local_addr().context("the address listened on")?;

    let seed = entropy();
    let (events, received) = mpsc::channel::<Event>(EVENTS_QUEUED_MAX);
    let (stop_sender, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let mut statuses = Vec::new();
    for (number, config) in (0u16..).zip(settings.vcenters.iter().cloned()) {
        let id = VcenterId(number);
        let host = config.endpoint.host().to_owned();
        let (status, shown) = watch::channel(VcenterStatus::default());
        statuses.push((id, host, shown));
        let jitter = ChaCha8Rng::seed_from_u64(seed.wrapping_add(u64::from(number)));
        tasks.spawn(inventory::run(config, id, events.clone(), status, jitter, is_true(stopped.clone())));
    }

    let client = found.connection.client.clone();
    let metrics = Arc::<SchedulerMetrics>::default();
    let now = Arc::new(jiff::Timestamp::now);
    let ports = SchedulingPorts {
        binder: Arc::new(PodBinder::new(client.clone())),
        pods: Arc::new(PodConditions::new(client.clone(), now.clone())),
        notices: Arc::new(EventBoard::new(client.clone(), now)),
        recorder: metrics.clone(),
    };
    let names: Vec<String> = configuration.profiles().iter().map(|profile| profile.name().to_owned()).collect();
    let choice = SchedulingSettings { lifting: settings.lifting.clone(), seed, ..SchedulingSettings::default() };
    let driver = Driver::new(configuration, &choice, ports);
    let connections = Arc::<ConnectionCounts>::default();
    let shown = Shown {
        world: driver.world(),
        counters: Arc::default(),
        vcenters: health(&statuses),
        extender: None,
        more_metrics: Some(Arc::new(move |registry| metrics.register(registry))),
        connections: connections.clone(),
    };
    let mut background = JoinSet::new();
    background.spawn(driver.run(received));
    background.spawn(kubernetes::watch::watch_for_scheduling(client, events, seed));
    let limits = server::Limits::default();
    let router = server::router(shown);
    tasks.spawn(server::serve(listener, router, None, limits, connections, is_true(stopped.clone())));
    say(&format!(
        "{}Scheduling  pods with schedulerName {}\nListening   http://{address} (/livez, /readyz, /metrics)",
        found.describe(false),
        names.join(", ")
    ));
    let _ = std::io::stdout().flush();

    stop.await;
    tracing::info!("stopping");
    let _ = stop_sender.send(true);
    let _ = tokio::time::timeout(STOP_WITHIN, async {
        while tasks.join_next().await.is_some() {}
        background.shutdown().await;
    })
    .await;
    Ok(())
}
