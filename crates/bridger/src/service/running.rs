//! The running service: the composition of `run` and `scheduler`, served and stopped together.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use engine::SharedWorld;
use engine::counters::Counters;
use engine::extender::ExtenderSettings;
use model::event::{Source, VcenterId};
use scheduler::{Configuration, Profile};
use server::Tls;

use super::audit;
use super::extender::{self, ExtenderAddress};
use super::leading::{Elections, elections};
use super::outside::{Service, end_process_on_panic, entropy, listen};
use super::scheduler::ProfileArguments;
use super::settings::RunSettings;
use super::startup::{self, Found, Purpose};
use crate::compose::{Outside, PartSettings, RuleParts, compose};
use crate::embedded;
use crate::failure::Failure;
use crate::say::say;
use crate::scheduler::PluginRegistry;
use crate::signals;

/// Time limit for the first sync. After it, the log names the missing sources.
const FIRST_SYNC_WITHIN: Duration = Duration::from_secs(60);
/// How often the nodes are searched for the lifted keys. Cheap: a key that is in use is found on the first node.
const LIFTED_KEYS_EVERY: Duration = Duration::from_secs(5);

/// Runs the startup checks, then the service until Ctrl-C or SIGTERM.
pub fn until_interrupted(
    settings: &RunSettings,
    purpose: Purpose,
    registry: &PluginRegistry,
) -> Result<ExitCode, Failure> {
    let configure = |profiles: &ProfileArguments| profiles.configuration(registry);
    let configuration = settings.scheduling.as_ref().map(configure).transpose()?;
    if let (Some(profiles), Some(configuration)) = (&settings.scheduling, &configuration) {
        profiles.log_without_effect(configuration);
    }
    let profiles = configuration.iter().flat_map(|configuration| configuration.profiles());
    settings.extender.leaves_pods_to(profiles.map(Profile::name))?;
    end_process_on_panic();
    let runtime = embedded::runtime()?;
    let result = runtime.block_on(async {
        let elections = elections(settings, configuration.as_ref())?;
        let on = purpose.parts(settings.parts());
        let leases = elections.iter().filter(|(part, _)| on.contains(**part));
        let lease_namespaces = leases.map(|(_, lease)| lease.namespace.as_str()).collect();
        let found = startup::check_with(settings, purpose, &lease_namespaces).await?;
        run(settings, configuration, registry, elections, &found, signals::interrupted()).await?;
        Ok(ExitCode::SUCCESS)
    });
    // A computation that does not end must not keep the process.
    runtime.shutdown_background();
    result
}

async fn run(
    settings: &RunSettings,
    configuration: Option<Configuration>,
    registry: &PluginRegistry,
    elections: Elections,
    found: &Found,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let names = configuration.iter().flat_map(|configuration| configuration.profiles()).map(Profile::name);
    let names = names.collect::<Vec<_>>().join(", ");
    let scheduling = match names.as_str() {
        "" => String::new(),
        names => format!("Scheduling  pods with schedulerName {names}\n"),
    };
    let tls = settings.extender.tls.clone().map(Tls::load).transpose().map_err(|error| {
        Failure::configuration(error.to_string(), "check --tls-cert-file, --tls-key-file and --client-ca-file")
    })?;
    let (health, address) = listen(SocketAddr::new(settings.listen, settings.port), "--port").await?;
    let extender = match settings.extender.address {
        ExtenderAddress::Own(address) => Some(listen(address, "--extender-port").await?),
        ExtenderAddress::Off | ExtenderAddress::Shared => None,
    };
    let is_shared = settings.extender.address == ExtenderAddress::Shared;

    let audit = settings.audit_log.as_deref().map(audit::open).transpose()?;
    let parts = PartSettings { audit, plugins: registry.clone(), ..parts(settings, configuration) };
    let outside = Outside { elections, ..outside(settings, found) };
    let mut service = Service::new();
    let bridger = compose(parts, outside, &mut service);
    let scheme = if tls.is_some() { "https" } else { "http" };
    let (extender, serving) = match extender {
        Some((listener, address)) => {
            let names = settings.extender.scheduler_names.join(", ");
            (Some(listener), format!("Extender    {scheme}://{address} (for pods with schedulerName {names})\n"))
        }
        None => (None, String::new()),
    };
    let paths = if is_shared { "/filter, /prioritize, /bind, /preempt, " } else { "" };
    service.serve(health, extender, &bridger.shown, tls);
    say(&format!(
        "{}{scheduling}{serving}Listening   {scheme}://{address} ({paths}/livez, /readyz, /metrics)",
        found.describe(settings)
    ));
    if settings.labels.is_some() || settings.rules || settings.extender.is_on() {
        service.passing.spawn(report_first_sync(bridger.world.clone(), settings.vcenters.len()));
    }

    if !settings.lifting.lifted_keys.is_empty() {
        let following = follow_lifted_keys(bridger.world.clone(), bridger.counters.clone());
        service.background.spawn("check of lifted keys", following);
    }

    let stopped = service.run_until(stop, bridger.close()).await;
    stopped
        .map_err(|ended| Failure::run(ended.to_string()).with_hint("this is a defect; restart Bridger, and report it"))
}

/// The enabled parts.
fn parts(settings: &RunSettings, scheduling: Option<Configuration>) -> PartSettings {
    PartSettings {
        labels: settings.labels.clone(),
        rules: settings
            .writes_rules()
            .then(|| RuleParts { drs: settings.policy.clone(), record_namespace: settings.record_namespace.clone() }),
        extender: settings.extender.is_on().then(|| ExtenderSettings {
            host_load_percent: settings.extender.host_load_percent,
            dry_run: settings.dry_run,
            scheduler_names: settings.extender.scheduler_names.clone(),
            ..ExtenderSettings::default()
        }),
        scheduling,
        lifting: settings.lifting.clone(),
        dry_run: settings.dry_run,
        writes_per_second: settings.writes_per_second,
        audit: None,
        plugins: PluginRegistry::default(),
    }
}

fn outside(settings: &RunSettings, found: &Found) -> Outside {
    Outside {
        kubernetes: found.connection.client.clone(),
        vcenters: settings.vcenters.clone(),
        time_of_day: Arc::new(jiff::Timestamp::now),
        seed: entropy(),
        is_virtual: false,
        elections: Elections::new(),
    }
}

/// Reports the lifted keys that no node has: in the log, in `/readyz` and as a metric. Not an error, because the nodes may
/// get the label later.
async fn follow_lifted_keys(world: SharedWorld, counters: Arc<Counters>) {
    loop {
        let unknown = {
            let world = world.read();
            world.in_sync(Source::Nodes).then(|| extender::unknown_lifted_keys(&world))
        };
        if let Some(unknown) = unknown {
            counters.rules.note(extender::UNKNOWN_LIFTED_KEY, unknown);
        }
        tokio::time::sleep(LIFTED_KEYS_EVERY).await;
    }
}

/// Prints the matched nodes once all sources are in sync, or logs the sources that are missing.
async fn report_first_sync(world: SharedWorld, vcenters: usize) {
    let required: Vec<Source> = model::sources_for(model::Parts::RUN)
        .map(|row| row.source)
        .chain((0u16..).take(vcenters).map(|number| Source::Vcenter(VcenterId(number))))
        .collect();
    let deadline = tokio::time::Instant::now() + FIRST_SYNC_WITHIN;
    loop {
        let missing: Vec<Source> = {
            let world = world.read();
            required.iter().copied().filter(|source| !world.in_sync(*source)).collect()
        };
        if missing.is_empty() {
            break;
        }
        if tokio::time::Instant::now() > deadline {
            tracing::warn!(?missing, "some sources are not in sync yet");
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let world = world.read();
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
