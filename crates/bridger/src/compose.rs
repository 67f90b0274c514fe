//! The only composition: adapters, runtime and HTTP routes, wired for every mode in which Bridger runs.
//!
//! In: the enabled parts with their settings ([`PartSettings`]), and the connections to both sides ([`Outside`]).
//! Out: a running Bridger: its tasks in the caller's [`Service`], its routes, its world. `run`, `scheduler`, the demo
//! and the simulated tests differ only in what they pass in.
//!
//! Invariant: this module makes no decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use drs::{DrsSettings, UnixMillis};
use engine::changes::ChangeLog;
use engine::counters::Counters;
use engine::drs_rules::{DrsRules, RuleExecutor, RuleSettings, WallClock};
use engine::extender::{BindExecutor, Extender, ExtenderSettings};
use engine::fenced::Fenced;
use engine::node_labels::{LabelExecutor, NodeLabels, NodeLabelsSettings};
use engine::ports::ChangeSink;
use engine::runtime::{Rate, Runtime, RuntimeSettings, SharedWorld};
use engine::scheduling::{self, Messages, Scheduling, SchedulingExecutor, SchedulingPorts, SchedulingSettings};
use jiff::Timestamp;
use kubernetes::BoundedClient;
use kubernetes::binder::PodBinder;
use kubernetes::conditions::PodConditions;
use kubernetes::events::EventWriter;
use kubernetes::labels::NodeLabelWriter;
use kubernetes::record_store::ConfigMapRecordStore;
use kubernetes::watch::PodLists;
use model::affinity::LiftSettings;
use model::event::{Event, VcenterId};
use model::labels::LabelSettings;
use model::{Part, Parts};
use scheduler::{ClientConnection, Configuration};
use server::Shown;
use tokio::sync::mpsc;
use tokio::time::Instant;
use vsphere::config::VcenterConfig;

use crate::scheduler::PluginRegistry;
use crate::service::audit::{AuditFile, AuditLog};
use crate::service::leading::{Candidates, Elections, PodsListed, machine_name};
use crate::service::outside::{EVENTS_QUEUED_MAX, Service, extender_routes, health};
use crate::service::scheduler_metrics::SchedulerMetrics;

/// The enabled parts and their settings. All parts share one world and one set of watches.
#[derive(Default)]
pub struct PartSettings {
    pub labels: Option<LabelSettings>,
    pub rules: Option<RuleParts>,
    pub extender: Option<ExtenderSettings>,
    pub scheduling: Option<Configuration>,
    /// What plugins other than Bridger's bring along.
    pub plugins: PluginRegistry,
    /// Which anti-affinity terms between nodes also hold between physical hosts.
    pub lifting: LiftSettings,
    pub dry_run: bool,
    /// Limit for node labels; `None`: the default.
    pub writes_per_second: Option<u32>,
    /// The file of the audit log; `None`: no audit log.
    pub audit: Option<AuditFile>,
}

impl PartSettings {
    /// The enabled parts.
    #[must_use]
    pub fn on(&self) -> Parts {
        Parts::NONE
            .with(Part::NodeLabels, self.labels.is_some())
            .with(Part::DrsRules, self.rules.is_some())
            .with(Part::Extender, self.extender.is_some())
            .with(Part::Scheduling, self.scheduling.is_some())
    }
}

pub struct RuleParts {
    pub drs: DrsSettings,
    /// Namespace of the rule record.
    pub record_namespace: String,
}

/// The connections to both sides, and the sources of time and randomness.
pub struct Outside {
    pub kubernetes: BoundedClient,
    pub vcenters: Vec<VcenterConfig>,
    pub time_of_day: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    pub seed: u64,
    /// Time is virtual: computations run inside the loop, in a fixed order.
    pub is_virtual: bool,
    pub elections: Elections,
}

/// A running Bridger. It ends with the service that owns its tasks.
pub struct Bridger {
    pub world: SharedWorld,
    pub counters: Arc<Counters>,
    /// What its HTTP routes show.
    pub shown: Shown,
    rules: Option<Arc<vsphere::Rules>>,
    audit: Option<Arc<AuditLog>>,
}

impl Bridger {
    /// Writes the last lines of the audit log, and closes the sessions that write rules, because a vCenter limits the
    /// number of sessions.
    pub async fn close(self) {
        if let Some(audit) = self.audit {
            let _ = tokio::task::spawn_blocking(move || audit.flush()).await;
        }
        if let Some(rules) = self.rules {
            rules.close().await;
        }
    }
}

/// The limit of kube-scheduler's client, which also allows bursts of twice its rate by default. Without `qps` there is
/// none: the API server limits its clients itself.
fn rate_of(client: &ClientConnection) -> Option<Rate> {
    let per_second = client.qps.filter(|qps| *qps > 0.0)?.ceil() as u32;
    let burst = client.burst.and_then(|burst| u32::try_from(burst).ok()).filter(|burst| *burst > 0);
    Some(Rate { per_second, burst: burst.unwrap_or(per_second.saturating_mul(2)) })
}

fn scheduling_settings(configuration: &Configuration, vcenters: Vec<VcenterId>, seed: u64) -> SchedulingSettings {
    let writes = rate_of(configuration.client_connection());
    SchedulingSettings { vcenters, seed, writes, ..SchedulingSettings::default() }
}

/// Wires and starts everything, in tasks of the service.
pub fn compose(parts: PartSettings, outside: Outside, service: &mut Service) -> Bridger {
    let on = parts.on();
    let Outside { kubernetes: client, vcenters, time_of_day, seed, is_virtual, elections } = outside;
    let counters = Arc::<Counters>::default();
    let audit = parts.audit.map(|file| Arc::new(AuditLog::start(file, counters.clone(), time_of_day.clone())));
    let runtime_settings = RuntimeSettings {
        dry_run: parts.dry_run,
        computes_inline: is_virtual,
        changes: ChangeLog::new(audit.clone().map(|audit| audit as Arc<dyn ChangeSink>)),
        ..RuntimeSettings::default()
    };
    let mut world = model::World::with_lifting(parts.lifting);
    let ids: Vec<VcenterId> = (0u16..).zip(&vcenters).map(|(number, _)| VcenterId(number)).collect();
    world.expect_vcenters(ids.iter().copied());
    // The embedded servers are on no machine, and their history is the same everywhere.
    let host_name = if is_virtual { "embedded".to_owned() } else { machine_name() };
    let sink = Arc::new(EventWriter::new(client.clone(), time_of_day.clone()).on_host(host_name));
    let mut runtime = Runtime::new(world, &runtime_settings, sink);
    let now = time_of_day.clone();
    let wall_clock = WallClock(Arc::new(move || UnixMillis(u64::try_from(now().as_millisecond()).unwrap_or(0))));
    let (waker, standing, leases) = (runtime.waker(), Vec::new(), BTreeMap::new());
    let lists = PodLists::default();
    let mut candidates = Candidates {
        elections,
        client: client.clone(),
        waker,
        time_of_day: wall_clock.0.clone(),
        seed,
        on,
        pods: Arc::new(PodsListed { world: runtime.world(), lists: lists.clone() }),
        standing,
        leases,
    };
    // With labels off it still reports nodes without a unique VM; a scheduler alone does not need that.
    if on != Parts::SCHEDULING {
        let labels = parts.labels;
        let defaults = NodeLabelsSettings::default();
        let writes = parts.writes_per_second.map_or(defaults.writes, |count| Rate { per_second: count, burst: count });
        let settings = NodeLabelsSettings { labels, vcenters: ids.clone(), writes, seed, ..defaults };
        let lease = candidates.lease(Part::NodeLabels);
        let executor = LabelExecutor(Arc::new(Fenced::new(NodeLabelWriter::new(client.clone()), lease.clone())));
        runtime.add(NodeLabels::new(settings, counters.clone()), Arc::new(executor), lease);
    }
    let rules = parts.rules.map(|rules| {
        let store = Arc::new(vsphere::Rules::new(ids.iter().copied().zip(vcenters.iter().cloned())));
        let record_store = ConfigMapRecordStore::new(client.clone(), rules.record_namespace);
        let names = vcenters.iter().map(|vcenter| vcenter.endpoint.host().to_owned());
        let settings = RuleSettings::new(rules.drs, ids.iter().copied().zip(names).collect(), wall_clock);
        let controller = DrsRules::new(settings, runtime.world(), seed, counters.rules.clone(), Instant::now());
        let lease = candidates.lease(Part::DrsRules);
        let executor = RuleExecutor {
            store: Arc::new(Fenced::new(store.clone(), lease.clone())),
            record_store: Arc::new(Fenced::new(record_store, lease.clone())),
        };
        runtime.add(controller, Arc::new(executor), lease);
        store
    });
    let extender = parts.extender.map(|settings| {
        let lease = candidates.lease(Part::Extender);
        let executor = BindExecutor {
            binder: Arc::new(Fenced::new(PodBinder::new(client.clone()), lease.clone())),
            pods: Arc::new(PodConditions::new(client.clone(), time_of_day.clone())),
        };
        let (extender, controller) = Extender::new(runtime.world(), runtime.events(), runtime.waker(), settings);
        runtime.add(controller, Arc::new(executor), lease);
        extender_routes(extender)
    });
    let scheduler_metrics = parts.scheduling.map(|configuration| {
        let metrics = Arc::<SchedulerMetrics>::default();
        let lease = candidates.lease(Part::Scheduling);
        let ports = SchedulingPorts {
            binder: Arc::new(Fenced::new(PodBinder::new(client.clone()), lease.clone())),
            pods: Arc::new(Fenced::new(PodConditions::new(client.clone(), time_of_day), lease.clone())),
        };
        let settings = scheduling_settings(&configuration, ids, seed);
        let tools = parts.plugins.tools(client.clone(), Messages::new(runtime.waker()), runtime.world());
        let controller = Scheduling::new(configuration, settings, metrics.clone(), Instant::now()).with_tools(tools);
        runtime.add(controller, Arc::new(SchedulingExecutor(ports)), lease);
        metrics
    });

    let (events, received) = mpsc::channel::<Event>(EVENTS_QUEUED_MAX);
    let mut vcenters = vcenters;
    // Datastores cost a vCenter with many hosts and datastores something, and only the scheduler reads them.
    vcenters.iter_mut().for_each(|vcenter| vcenter.with_datastores = on.contains(Part::Scheduling));
    let followed = service.follow_vcenters(&vcenters, &events, seed);
    let shown = Shown {
        world: runtime.world(),
        counters: counters.clone(),
        events: runtime.events(),
        runtime: runtime.stats(),
        vcenters: health(followed),
        extender,
        more_metrics: scheduler_metrics.map(|metrics| {
            let events = runtime.events();
            let register = move |registry: &mut _| {
                metrics.count_events(events.counts(scheduling::controller::NAME));
                metrics.register(registry);
            };
            Arc::new(register) as server::MoreMetrics
        }),
        connections: Arc::default(),
        heartbeats: service.heartbeats(),
        parts: on,
        leads_extender: on.contains(Part::Extender).then(|| candidates.lease(Part::Extender)),
        leases: candidates.leases,
    };
    let world = runtime.world();
    service.lead(runtime, received, candidates.standing);
    // Boxed because its state is large, and most of it is used only once.
    let watching = Box::pin(kubernetes::watch::watch_and_relist(client, events, seed, on, lists));
    service.background.spawn("watches of Kubernetes", watching);
    Bridger { world, counters, shown, rules, audit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qps_and_burst_of_the_configuration_file_limit_writes() {
        let writes = |connection: &str| {
            let yaml = format!(
                "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nclientConnection: {connection}\n"
            );
            let configuration = PluginRegistry::standard().configuration(&yaml).expect("it is valid");
            scheduling_settings(&configuration, Vec::new(), 0).writes.map(|rate| (rate.per_second, rate.burst))
        };
        for (connection, expected) in [
            ("{}", None),
            ("{qps: 0, burst: 7}", None),
            ("{qps: -1, burst: 7}", None),
            ("{qps: 20, burst: 7}", Some((20, 7))),
            // Twice the rate, as kube-scheduler's defaults.
            ("{qps: 20}", Some((20, 40))),
            ("{qps: 20, burst: 0}", Some((20, 40))),
            // Rounded up to whole writes per second.
            ("{qps: 0.5, burst: 1}", Some((1, 1))),
        ] {
            assert_eq!(writes(connection), expected, "{connection}");
        }
    }
}
