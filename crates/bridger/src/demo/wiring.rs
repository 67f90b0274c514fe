//! Bridger itself on the embedded world: the same adapters, engine and HTTP routes as `bridger run`, wired in process.
//!
//! Input: the world. Output: tasks that run for as long as the world does, and Bridger's routes, which the placer asks.
//! Everything it knows comes over the wire protocols of the two servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use drs::{DrsSettings, UnixMillis};
use engine::extender::{Extender, ExtenderPorts, ExtenderSettings};
use engine::scheduling::{Driver, SchedulingPorts, SchedulingSettings};
use engine::{Engine, Ports, RuleSettings, Settings, WallClock};
use kubernetes::binder::PodBinder;
use kubernetes::conditions::PodConditions;
use kubernetes::labels::NodeLabels;
use kubernetes::ledger::ConfigMapLedger;
use kubernetes::notices::EventBoard;
use model::event::VcenterId;
use scheduler::Configuration;
use server::Shown;
use simulator::{World, world};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use vsphere::config::VcenterConfig;
use vsphere::transport::Transport;
use vsphere::{Endpoint, Trust};

use crate::failure::Failure;
use crate::service::outside::{EVENTS_QUEUED_MAX, extender_routes, follow_vcenters, health};
use crate::service::scheduler_metrics::SchedulerMetrics;

const RECORD_NAMESPACE: &str = "kube-system";
/// The name that pods ask for when they ask for none.
const SCHEDULER_NAME: &str = "default-scheduler";
const VCENTER: VcenterId = VcenterId(0);

/// Starts Bridger with all its parts: labels, rules, extender.
pub async fn start(
    world: &Arc<World>,
    config: &world::Config,
    tasks: &mut JoinSet<()>,
) -> Result<axum::Router, Failure> {
    let seed = config.seed.0;
    let vcenter = vcenter_config(world, config)?;
    let (about, _) = vsphere::probe::connect_once(&vcenter)
        .await
        .map_err(|error| Failure::run(format!("the embedded vCenter does not answer: {error}")))?;
    let client = kubernetes::Client::new(simulator::kubernetes::api::router(world.clone()), "default");

    let (events, received) = mpsc::channel(EVENTS_QUEUED_MAX);
    let followed = follow_vcenters(std::slice::from_ref(&vcenter), &events, seed, std::future::pending, tasks);
    let rule_store = vsphere::Rules::new([(VCENTER, vcenter)]);
    tasks.spawn(kubernetes::watch::watch(client.clone(), events, seed));

    let clock = world.clock().clone();
    let notices = Arc::new(EventBoard::new(client.clone(), Arc::new(time_of_day(world))));
    let ports = Ports {
        labels: Arc::new(NodeLabels::new(client.clone())),
        notices: notices.clone(),
        rules: Some(Arc::new(rule_store)),
        ledger: Some(Arc::new(ConfigMapLedger::new(client.clone(), RECORD_NAMESPACE.to_owned()))),
    };
    let rules = RuleSettings::new(
        DrsSettings::default(),
        BTreeMap::from([(VCENTER, about.instance_uuid)]),
        WallClock(Arc::new(move || UnixMillis(clock.now().unix_ms))),
    );
    let engine = Engine::new(Settings { seed, rules: Some(rules), ..Settings::default() }, ports);
    let ports = ExtenderPorts { binder: Arc::new(PodBinder::new(client)), notices };
    let extender = Extender::new(engine.world(), ports, ExtenderSettings::default());
    let shown = Shown {
        world: engine.world(),
        counters: engine.counters(),
        vcenters: health(followed),
        extender: Some(extender_routes(extender)),
        connections: Arc::default(),
        parts: model::Parts::RUN,
        more_metrics: None,
    };
    tasks.spawn(engine.run(received));
    Ok(server::router(shown))
}

/// Starts Bridger's own scheduler, in place of the one that comes with the world.
pub fn start_scheduler(world: &Arc<World>, config: &world::Config, tasks: &mut JoinSet<()>) -> Result<(), Failure> {
    let seed = config.seed.0;
    let configuration = Configuration::with_name(SCHEDULER_NAME, &scheduler::plugins::standard())
        .map_err(|error| Failure::run(format!("the scheduler's default configuration: {error}")))?;
    let client = kubernetes::Client::new(simulator::kubernetes::api::router(world.clone()), "default");
    let (events, received) = mpsc::channel(EVENTS_QUEUED_MAX);
    follow_vcenters(&[vcenter_config(world, config)?], &events, seed, std::future::pending, tasks);
    let watching = Box::pin(kubernetes::watch::watch_for_scheduling(client.clone(), events, seed));
    tasks.spawn(async move {
        watching.await;
    });
    let now = Arc::new(time_of_day(world));
    let ports = SchedulingPorts {
        binder: Arc::new(PodBinder::new(client.clone())),
        pods: Arc::new(PodConditions::new(client.clone(), now.clone())),
        notices: Arc::new(EventBoard::new(client, now)),
        recorder: Arc::<SchedulerMetrics>::default(),
    };
    let driver = Driver::new(configuration, &SchedulingSettings { seed, ..SchedulingSettings::default() }, ports);
    tasks.spawn(driver.run(received));
    Ok(())
}

/// What the world's clock says.
fn time_of_day(world: &Arc<World>) -> impl Fn() -> jiff::Timestamp + Send + Sync + 'static {
    let clock = world.clock().clone();
    move || {
        let unix_ms = i64::try_from(clock.now().unix_ms).unwrap_or(i64::MAX);
        jiff::Timestamp::from_millisecond(unix_ms).unwrap_or(jiff::Timestamp::MAX)
    }
}

fn vcenter_config(world: &Arc<World>, config: &world::Config) -> Result<VcenterConfig, Failure> {
    let user = config.vcenter.username.replace('@', "%40");
    let url = format!("http://{user}:{}@embedded/sdk", config.vcenter.password);
    let (endpoint, credentials) =
        Endpoint::parse(&url).map_err(|error| Failure::run(format!("the embedded vCenter's address: {error}")))?;
    let credentials = credentials.ok_or_else(|| Failure::run("the embedded vCenter has no credentials"))?;
    let mut vcenter = VcenterConfig::new(endpoint, credentials.into(), Trust::System);
    vcenter.transport = Some(Transport::service(simulator::vcenter::wire::router(world.clone())));
    Ok(vcenter)
}
