//! The running whole: adapters, engine and HTTP, wired and stopped together.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use drs::UnixMillis;
use engine::extender::{Extender, ExtenderPorts, ExtenderSettings};
use engine::ports::{Ledger, RuleStore};
use engine::rules::{RuleSettings, WallClock};
use engine::{Engine, Ports, SharedWorld};
use kubernetes::binder::PodBinder;
use kubernetes::labels::NodeLabels;
use kubernetes::ledger::ConfigMapLedger;
use kubernetes::notices::EventBoard;
use model::event::{Event, Source, VcenterId};
use server::{Shown, Tls};
use tokio::sync::mpsc;

use super::outside::{EVENTS_QUEUED_MAX, Service, entropy, extender_routes, health, listen};
use super::settings::RunSettings;
use super::startup::Found;
use crate::failure::Failure;
use crate::say::say;

/// How long the first picture may take before what is missing is named.
const FIRST_PICTURE_WITHIN: Duration = Duration::from_secs(60);

/// Runs until `stop` completes.
pub async fn run(settings: RunSettings, found: Found, stop: impl Future<Output = ()>) -> Result<(), Failure> {
    let tls = settings.extender.tls.clone().map(Tls::load).transpose().map_err(|error| {
        Failure::configuration(error.to_string(), "check --tls-cert-file, --tls-key-file and --client-ca-file")
    })?;
    let (listener, address) = listen(&settings).await?;

    let seed = entropy();
    let (events, received) = mpsc::channel::<Event>(EVENTS_QUEUED_MAX);
    let mut service = Service::new();
    let vcenters = service.follow_vcenters(&settings.vcenters, &events, seed);

    let client = found.connection.client.clone();
    let notices = Arc::new(EventBoard::new(client.clone(), Arc::new(jiff::Timestamp::now)));
    let rules = settings.writes_rules().then(|| {
        let vcenters = (0u16..).map(VcenterId).zip(settings.vcenters.iter().cloned());
        Arc::new(vsphere::Rules::new(vcenters))
    });
    let ports = Ports {
        labels: Arc::new(NodeLabels::new(client.clone())),
        notices: notices.clone(),
        rules: rules.clone().map(|rules| rules as Arc<dyn RuleStore>),
        ledger: rules.is_some().then(|| {
            let namespace = settings.record_namespace.clone();
            Arc::new(ConfigMapLedger::new(client.clone(), namespace)) as Arc<dyn Ledger>
        }),
    };
    let engine = Engine::new(engine_settings(&settings, &found, seed), ports);
    let world = engine.world();
    let extender = settings.extender.on.then(|| {
        let ports = ExtenderPorts { binder: Arc::new(PodBinder::new(client.clone())), notices };
        let choice = ExtenderSettings {
            host_load_percent: settings.extender.host_load_percent,
            dry_run: settings.dry_run,
            ..ExtenderSettings::default()
        };
        extender_routes(Extender::new(world.clone(), ports, choice))
    });
    let shown = Shown {
        world: world.clone(),
        counters: engine.counters(),
        vcenters: health(vcenters),
        extender,
        more_metrics: None,
        connections: Arc::default(),
        parts: settings.parts(),
    };
    service.background.spawn(engine.run(received));
    service.background.spawn(kubernetes::watch::watch_for(client, events, seed, settings.parts()));
    let scheme = if tls.is_some() { "https" } else { "http" };
    let paths = if settings.extender.on { "/filter, /prioritize, /bind, /preempt, " } else { "" };
    service.serve(listener, shown, tls);
    say(&format!(
        "{}Listening   {scheme}://{address} ({paths}/livez, /readyz, /metrics)",
        found.describe(settings.dry_run)
    ));
    service.background.spawn(tell_first_picture(world, settings.vcenters.len()));

    let give_back = async {
        // A vCenter has only so many sessions.
        if let Some(rules) = rules {
            rules.close().await;
        }
    };
    service.run_until(stop, give_back).await;
    Ok(())
}

fn engine_settings(settings: &RunSettings, found: &Found, seed: u64) -> engine::Settings {
    let defaults = engine::Settings::default();
    let writes_per_second = settings.writes_per_second.unwrap_or(defaults.writes_per_second);
    engine::Settings {
        labels: settings.labels.clone(),
        lifting: settings.lifting.clone(),
        vcenters: (0u16..).zip(&settings.vcenters).map(|(number, _)| VcenterId(number)).collect(),
        rules: settings.writes_rules().then(|| {
            let uuids = (0u16..).map(VcenterId).zip(found.instance_uuids()).filter(|(_, uuid)| !uuid.is_empty());
            RuleSettings::new(settings.policy.clone(), uuids.collect(), WallClock(Arc::new(unix_now)))
        }),
        dry_run: settings.dry_run,
        writes_per_second,
        writes_burst: writes_per_second,
        seed,
        ..defaults
    }
}

fn unix_now() -> UnixMillis {
    UnixMillis(u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0))
}

/// Says what was found once everything has been seen, or what is still missing.
async fn tell_first_picture(world: SharedWorld, vcenters: usize) {
    let wanted: Vec<Source> = model::sources_for(model::Parts::RUN)
        .map(|row| row.source)
        .chain((0u16..).take(vcenters).map(|number| Source::Vcenter(VcenterId(number))))
        .collect();
    let deadline = tokio::time::Instant::now() + FIRST_PICTURE_WITHIN;
    loop {
        let missing: Vec<Source> = {
            let world = world.read().unwrap_or_else(PoisonError::into_inner);
            wanted.iter().copied().filter(|source| !world.in_sync(*source)).collect()
        };
        if missing.is_empty() {
            break;
        }
        if tokio::time::Instant::now() > deadline {
            tracing::warn!(?missing, "not everything has been seen yet");
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let world = world.read().unwrap_or_else(PoisonError::into_inner);
    let summary = world.summary();
    let mut text =
        format!("Nodes       {} of {} matched to a VM, {} pods", summary.nodes_matched, summary.nodes, summary.pods);
    if vcenters > 0 {
        for problem in world.matches().problems.iter().take(10) {
            text.push_str(&format!("\n            {}: {}", problem.node_name, problem.explanation));
        }
    }
    say(&text);
}
