//! The running scheduler: watches, the engine's driver and HTTP, wired and stopped together.

use std::sync::Arc;

use engine::scheduling::{Driver, SchedulingPorts, SchedulingSettings};
use kubernetes::binder::PodBinder;
use kubernetes::conditions::PodConditions;
use kubernetes::notices::EventBoard;
use model::event::Event;
use scheduler::Configuration;
use server::Shown;
use tokio::sync::mpsc;

use super::outside::{EVENTS_QUEUED_MAX, Service, entropy, health, listen};
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
    let mut service = Service::new();
    let vcenters = service.follow_vcenters(&settings.vcenters, &events, seed);

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
    let choice = SchedulingSettings {
        lifting: settings.lifting.clone(),
        vcenters: vcenters.iter().map(|vcenter| vcenter.id).collect(),
        seed,
        ..SchedulingSettings::default()
    };
    let driver = Driver::new(configuration, &choice, ports);
    let shown = Shown {
        world: driver.world(),
        counters: Arc::default(),
        vcenters: health(vcenters),
        extender: None,
        more_metrics: Some(Arc::new(move |registry| metrics.register(registry))),
        connections: Arc::default(),
        parts: model::Parts::SCHEDULING,
    };
    service.background.spawn(driver.run(received));
    service.background.spawn(kubernetes::watch::watch_for_scheduling(client, events, seed));
    service.serve(listener, shown, None);
    say(&format!(
        "{}Scheduling  pods with schedulerName {}\nListening   http://{address} (/livez, /readyz, /metrics)",
        found.describe(false),
        names.join(", ")
    ));

    service.run_until(stop, std::future::ready(())).await;
    Ok(())
}
