//! The running scheduler: watches, the engine's driver and HTTP, wired and stopped together.

use std::sync::Arc;

use engine::scheduling::{Driver, SchedulingPorts, SchedulingSettings};
use kubernetes::binder::PodBinder;
use kubernetes::conditions::PodConditions;
use kubernetes::notices::EventBoard;
use model::event::Event;
use scheduler::Configuration;
use server::{ConnectionCounts, Shown};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::outside::{EVENTS_QUEUED_MAX, end, entropy, follow_vcenters, health, is_true, listen};
use super::scheduler_metrics::SchedulerMetrics;
use super::settings::RunSettings;
use super::startup::Found;
use crate::failure::Failure;
use crate::say::say;

/// Runs until `stop` completes.
pub async fn run(
    settings: RunSettings,
    configuration: Configuration,
    found: Found,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let (listener, address) = listen(&settings).await?;

    let seed = entropy();
    let (events, received) = mpsc::channel::<Event>(EVENTS_QUEUED_MAX);
    let (stop_sender, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let stop_now = || is_true(stopped.clone());
    let vcenters = follow_vcenters(&settings.vcenters, &events, seed, stop_now, &mut tasks);

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
        vcenters: health(vcenters),
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

    stop.await;
    tracing::info!("stopping");
    let _ = stop_sender.send(true);
    end(tasks, background, std::future::ready(())).await;
    Ok(())
}
