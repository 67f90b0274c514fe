//! Measures the DRS planner. `cargo xtask bench plan` runs this and reads the JSON that it prints.
//!
//! The world has nodes and services with anti-affinity, ten replicas each. It is planned from scratch, then after each
//! of many events, and after the changes of each plan are applied, as the service does it. There is one run with ten
//! vSphere clusters, one with all hosts in one cluster, and one with a tenth of the pods to measure growth. After an
//! event, only plans for which exactly one cluster has changed are measured: a wait that ends or a rule that was read
//! back may change other clusters at the same time.

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

use drs::{ChangeKind, DrsSettings, Plan, Record, UnixMillis};
use engine::controllers::drs_rules::planner::{Planned, Planner};
use engine::runtime::WorldOwner;
use model::event::*;
use model::{World, testing};
use serde_json::{Value, json};

/// The same allocator as the `bridger` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VCENTER: VcenterId = VcenterId(0);
const NODES: usize = 5_000;
const NODES_PER_HOST: usize = 10;
const PODS: usize = 100_000;
const REPLICAS: usize = 10;
const CHECKED_EVERY: usize = 50;

/// The size of a world.
#[derive(Clone, Copy)]
struct Size {
    clusters: usize,
    pods: usize,
    events: usize,
}

/// A linear congruential generator: the same numbers on every machine.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

struct Bench {
    world: WorldOwner,
    clusters: Vec<ClusterFacts>,
    size: Size,
    numbers: Numbers,
    /// By service and replica.
    pods: Vec<PodFacts>,
}

fn pod(service: usize, replica: usize, node: usize) -> PodFacts {
    let app = format!("service-{service}");
    PodFacts {
        namespace: format!("team-{}", service % 100),
        name: format!("{app}-{replica}"),
        uid: uuid::Uuid::from_u128((service * REPLICAS + replica) as u128).to_string(),
        labels: testing::labels(&[("app", &app)]),
        node: Some(format!("node-{node}")),
        anti_affinity: vec![testing::term(testing::HOSTNAME, &app)],
        ..PodFacts::default()
    }
}

fn vm(node: usize, host: usize) -> VmFacts {
    VmFacts {
        id: format!("vm-{node}"),
        name: format!("machine-{node}"),
        host: Some(format!("host-{host}")),
        bios_uuid: Some(uuid::Uuid::from_u128(node as u128 + 1)),
        powered_on: true,
        ..VmFacts::default()
    }
}

impl Bench {
    fn new(size: Size) -> Bench {
        let (world, numbers, pods) = (WorldOwner::new(World::default()), Numbers(7), Vec::with_capacity(size.pods));
        let mut bench = Bench { world, clusters: Vec::new(), size, numbers, pods };
        let system =
            NamespaceFacts { name: "kube-system".to_owned(), uid: "a-cluster".to_owned(), ..NamespaceFacts::default() };
        bench.apply(Event::NamespaceApplied(system));
        for number in 0..size.clusters {
            let (id, name) = (format!("domain-c{number}"), format!("C{number}"));
            let cluster = ClusterFacts { id, name, drs_enabled: true, ..ClusterFacts::default() };
            bench.apply(Event::ClusterApplied { vcenter: VCENTER, cluster: cluster.clone() });
            bench.clusters.push(cluster);
        }
        for host in 0..NODES / NODES_PER_HOST {
            let cluster = Some(format!("domain-c{}", host * NODES_PER_HOST / bench.nodes_per_cluster()));
            let (id, name) = (format!("host-{host}"), format!("esx-{host}"));
            let host = HostFacts { id, name, cluster, ..HostFacts::default() };
            bench.apply(Event::HostApplied { vcenter: VCENTER, host });
        }
        for node in 0..NODES {
            bench.apply(Event::VmApplied { vcenter: VCENTER, vm: vm(node, node / NODES_PER_HOST) });
            let system_uuid = Some(uuid::Uuid::from_u128(node as u128 + 1));
            let name = format!("node-{node}");
            bench.apply(Event::NodeApplied(NodeFacts { name, system_uuid, ..NodeFacts::default() }));
        }
        for service in 0..size.pods / REPLICAS {
            for (replica, node) in bench.nodes_for(service).into_iter().enumerate() {
                let pod = pod(service, replica, node);
                bench.apply(Event::PodApplied(pod.clone()));
                bench.pods.push(pod);
            }
        }
        bench
    }

    fn apply(&self, event: Event) {
        self.world.write().apply(event);
    }

    /// A plan from scratch.
    fn plan(&self, record: &Record, now: UnixMillis, settings: &DrsSettings) -> Plan {
        drs::plan(&self.world.shared().read(), record, now, settings)
    }

    fn nodes_per_cluster(&self) -> usize {
        NODES / self.size.clusters
    }

    /// A random node of the service's vSphere cluster.
    fn node_for(&mut self, service: usize) -> usize {
        let of_cluster = self.nodes_per_cluster();
        service % self.size.clusters * of_cluster + self.numbers.below(of_cluster)
    }

    /// Distinct nodes, as a scheduler would choose them.
    fn nodes_for(&mut self, service: usize) -> Vec<usize> {
        let mut nodes = Vec::with_capacity(REPLICAS);
        while nodes.len() < REPLICAS {
            let node = self.node_for(service);
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        nodes
    }

    /// A pod moves, is deleted, is created again or is terminating, or a VM moves.
    fn event(&mut self, number: usize) -> Event {
        let index = self.numbers.below(self.pods.len());
        let (service, replica) = (index / REPLICAS, index % REPLICAS);
        let node = self.node_for(service);
        match number % 5 {
            0 => {
                self.pods[index] = pod(service, replica, node);
                Event::PodApplied(self.pods[index].clone())
            }
            1 => {
                let PodFacts { namespace, name, .. } = self.pods[index].clone();
                Event::PodDeleted { namespace, name }
            }
            2 => Event::PodApplied(self.pods[index].clone()),
            3 => {
                self.pods[index].terminating ^= true;
                Event::PodApplied(self.pods[index].clone())
            }
            _ => {
                let host = self.node_for(service) / NODES_PER_HOST;
                Event::VmApplied { vcenter: VCENTER, vm: vm(node, host) }
            }
        }
    }

    /// Applies the plan, as a vCenter would.
    fn execute(&mut self, planned: &Planned, owned: &mut Record) {
        for (cluster, planned) in &planned.clusters {
            owned.set(cluster, Arc::clone(&planned.rules));
            if planned.changes.is_empty() {
                continue;
            }
            let Some(facts) = self.clusters.iter_mut().find(|facts| facts.id == cluster.id) else { continue };
            let mut last = facts.rules.iter().map(|rule| rule.key).max().unwrap_or(0);
            for action in &planned.changes {
                match &action.kind {
                    ChangeKind::Create => {
                        last += 1;
                        let uuid = uuid::Uuid::from_u128(last as u128).to_string();
                        owned.created(cluster, &action.rule, uuid.clone());
                        facts.rules.push(RuleFacts {
                            key: last,
                            uuid: Some(uuid),
                            name: action.rule.clone(),
                            enabled: true,
                            mandatory: action.mandatory,
                            user_created: true,
                            kind: action.rule_kind(),
                        });
                    }
                    ChangeKind::Edit { key, .. } => {
                        if let Some(rule) = facts.rules.iter_mut().find(|rule| rule.key == *key) {
                            rule.kind = action.rule_kind();
                        }
                    }
                    ChangeKind::Delete { key, .. } => {
                        facts.rules.retain(|rule| rule.key != *key);
                        owned.deleted(cluster, &action.rule);
                    }
                    ChangeKind::DeleteGroups => owned.deleted(cluster, &action.rule),
                }
            }
            let event = Event::ClusterApplied { vcenter: VCENTER, cluster: facts.clone() };
            self.world.write().apply(event);
        }
    }
}

/// The resident memory of this process.
fn memory_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap_or_default() / 1024.0
}

fn milliseconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let started = Instant::now();
    let result = work();
    (started.elapsed().as_secs_f64() * 1000.0, result)
}

fn quantiles(mut of: Vec<f64>) -> Value {
    of.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (of.len() as f64 * share) as usize;
        of.get(index.min(of.len().saturating_sub(1))).copied().unwrap_or_default()
    };
    json!({ "p50": at(0.5), "p99": at(0.99), "max": at(1.0) })
}

/// The number of changes in a plan.
fn change_count(planned: &Planned) -> usize {
    planned.clusters.values().map(|cluster| cluster.changes.len()).sum()
}

fn measure(size: Size) -> Value {
    let before = memory_mib();
    let mut bench = Bench::new(size);
    let with_world = memory_mib();
    let (rules_max, rules_per_namespace_max) = (usize::MAX, usize::MAX);
    let settings = DrsSettings { rules_max, rules_per_namespace_max, ..DrsSettings::default() };
    let mut planner = Planner::new(settings.clone());
    let mut now = UnixMillis(1_000_000);
    let shared = bench.world.shared();
    let (first_ms, planned) = milliseconds(|| planner.plan(&shared, &Record::default(), now));
    let with_planner = memory_mib();
    let plan = bench.plan(&Record::default(), now, &settings);
    assert_eq!(plan.actions().count(), change_count(&planned));
    let (rules, uncovered) = (plan.actions().count(), plan.clusters.iter().map(|of| of.uncovered.len()).sum::<usize>());
    let mut owned = Record::default();
    bench.execute(&planned, &mut owned);
    let (read_back_ms, planned) = milliseconds(|| planner.plan(&shared, &owned, now));
    let left_to_do = change_count(&planned);
    bench.execute(&planned, &mut owned);
    let (unchanged_ms, _) = milliseconds(|| planner.plan(&shared, &owned, now));
    let (mut event_ms, mut held_ms) = (Vec::new(), Vec::new());
    let mut actions = 0;
    for number in 0..size.events {
        now.0 += 100;
        let event = bench.event(number);
        bench.apply(event);
        let mut plan = |owned: &Record| {
            let (ms, planned) = milliseconds(|| planner.plan(&shared, owned, now));
            if planned.changed_clusters == 1 {
                event_ms.push(ms);
                held_ms.push(planned.locked_max.as_secs_f64() * 1000.0);
            }
            planned
        };
        let planned = plan(&owned);
        actions += change_count(&planned);
        if number % CHECKED_EVERY == 0 {
            let plan = bench.plan(&owned, now, &settings);
            assert_eq!(plan.actions().count(), change_count(&planned), "incremental and from scratch are equal");
        }
        bench.execute(&planned, &mut owned);
        if change_count(&planned) > 0 {
            plan(&owned);
        }
    }
    json!({
        "clusters": size.clusters,
        "pods": size.pods,
        "first_ms": first_ms,
        "read_back_ms": read_back_ms,
        "unchanged_ms": unchanged_ms,
        "measured": event_ms.len(),
        "event_ms": quantiles(event_ms),
        "held_ms": quantiles(held_ms),
        "actions": actions,
        "left_to_do": left_to_do,
        "uncovered": uncovered,
        "world_mib": with_world - before,
        "planner_mib": with_planner - with_world,
        "rules": rules,
        "rules_per_pod": size.pods,
        "rules_per_pair": size.pods * (REPLICAS - 1) / 2,
    })
}

fn main() {
    let only = std::env::args().nth(1);
    let size = |clusters, pods, events| Size { clusters, pods, events };
    let sizes = [("many", size(10, PODS, 1_000)), ("one", size(1, PODS, 200)), ("tenth", size(10, PODS / 10, 100))];
    let measured: serde_json::Map<String, Value> = sizes
        .into_iter()
        .filter(|(name, _)| only.as_ref().is_none_or(|only| only == name))
        .map(|(name, size)| (name.to_owned(), measure(size)))
        .collect();
    println!("{}", Value::Object(measured));
}
