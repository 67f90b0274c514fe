//! Bridger on the embedded servers: the composition of `bridger run`, in process.
//!
//! In: the embedded world. Out: both sides as [`compose`](crate::compose) takes them, as tower services instead of
//! sockets, so that time can be virtual. Bridger reads everything through the wire protocols of the two servers.

use std::sync::Arc;

use drs::DrsSettings;
use engine::extender::ExtenderSettings;
use model::labels::LabelSettings;
use scheduler::Configuration;
use simulator::{World, world};
use vsphere::config::VcenterConfig;
use vsphere::transport::Transport;
use vsphere::{Endpoint, Trust};

use crate::compose::{Outside, PartSettings, RuleParts};
use crate::failure::Failure;

const RECORD_NAMESPACE: &str = "kube-system";
/// The scheduler name of pods that do not set one.
const SCHEDULER_NAME: &str = "default-scheduler";

/// Labels, rules and the extender, with the default settings of `run`.
pub fn parts() -> PartSettings {
    PartSettings {
        labels: Some(LabelSettings::default()),
        rules: Some(RuleParts { drs: DrsSettings::default(), record_namespace: RECORD_NAMESPACE.to_owned() }),
        extender: Some(ExtenderSettings::default()),
        ..PartSettings::default()
    }
}

/// The same, with Bridger's own scheduler instead of the embedded one.
pub fn parts_with_scheduler() -> Result<PartSettings, Failure> {
    let configuration = Configuration::with_name(SCHEDULER_NAME, &scheduler::plugins::standard())
        .map_err(|error| Failure::run(format!("invalid default configuration of the scheduler: {error}")))?;
    Ok(PartSettings { scheduling: Some(configuration), ..parts() })
}

/// Both servers of an embedded world in virtual time.
pub fn outside(world: &Arc<World>, config: &world::Config) -> Result<Outside, Failure> {
    let vcenter = vcenter_config(world, config)?;
    let client = kubernetes::Client::new(simulator::kubernetes::api::router(world.clone()), "default");
    Ok(Outside {
        kubernetes: client.into(),
        vcenters: vec![vcenter],
        time_of_day: Arc::new(time_of_day(world)),
        seed: config.seed.0,
        is_virtual: true,
        elections: crate::service::leading::Elections::new(),
    })
}

/// The time of the world's clock.
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
        Endpoint::parse(&url).map_err(|error| Failure::run(format!("invalid embedded vCenter address: {error}")))?;
    let credentials = credentials.ok_or_else(|| Failure::run("the embedded vCenter has no credentials"))?;
    let mut vcenter = VcenterConfig::new(endpoint, credentials.into(), Trust::System);
    vcenter.transport = Some(Transport::service(simulator::vcenter::wire::router(world.clone())));
    Ok(vcenter)
}
