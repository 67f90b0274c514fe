//! Tests pods with anti-affinity in a world where DRS moves their VMs for a day, with and without Bridger.
//!
//! The checks read only the state of the two simulated servers. Every run has a seed, which a failure prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bridger::compose::{PartSettings, compose};
use bridger::in_process;
use bridger::service::outside::Service;
use engine::runtime::{RuntimeStats, Step};
use serde_json::{Value, json};
use simulated::in_virtual_time;
use simulator::kubernetes::defaults;
use simulator::kubernetes::kinds::KindId;
use simulator::kubernetes::placer::{self, PlacerConfig};
use simulator::kubernetes::sample;
use simulator::seed::Seed;
use simulator::vcenter::physics::Actor;
use simulator::{Clock, World, world};

const DAY_SECONDS: u64 = 86_400;
/// The interval of the checks.
const STEP_SECONDS: u64 = 5;
/// Name and replicas; 4 hosts, one of them in reserve.
const SERVICES: [(&str, u32); 4] = [("web", 3), ("cart", 3), ("search", 2), ("queue", 2)];

struct Run {
    world: Arc<World>,
    counters: Option<Arc<engine::counters::Counters>>,
    // Dropping it stops Bridger.
    _service: Option<Service>,
}

impl Run {
    async fn start(seed: u64, with_bridger: bool) -> Run {
        let config = world::Config { seed: Seed(seed), ..world::Config::default() };
        let world = World::new(&config, Clock::virtual_time());
        tokio::spawn(world.clone().run());
        tokio::spawn(placer::run(world.clone(), PlacerConfig { seed: Seed(seed), ..PlacerConfig::default() }));
        deploy(&world);
        let (counters, service) = match with_bridger {
            true => bridger(&world, &config).await,
            false => return Run { world, counters: None, _service: None },
        };
        Run { world, counters: Some(counters), _service: Some(service) }
    }

    /// Pairs of running replicas of one service whose VMs share a physical host.
    fn colocations(&self) -> Vec<String> {
        self.world.with(|core, _| {
            let inventory = core.vcenter.inventory();
            let host_of_node: BTreeMap<&str, String> =
                inventory.vms().map(|(_, vm)| (vm.guest_host_name.as_str(), format!("{:?}", vm.host))).collect();
            let mut seen: BTreeMap<(String, String), String> = BTreeMap::new();
            let mut colocations = Vec::new();
            for pod in core.kubernetes.store().list(KindId::POD, None) {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let (app, node) = (text(&pod["metadata"]["labels"]["app"]), text(&pod["spec"]["nodeName"]));
                if app.is_empty() || text(&pod["status"]["phase"]) != "Running" {
                    continue;
                }
                let Some(host) = host_of_node.get(node.as_str()) else { continue };
                if let Some(other) = seen.insert((app.clone(), host.clone()), node.clone()) {
                    colocations.push(format!("{app} on {node} and {other}"));
                }
            }
            colocations
        })
    }

    fn running(&self) -> usize {
        self.world.with(|core, _| {
            let pods = core.kubernetes.store().list(KindId::POD, None);
            pods.filter(|pod| pod["status"]["phase"] == "Running" && pod["metadata"]["labels"]["app"].is_string())
                .count()
        })
    }

    fn moves(&self) -> usize {
        self.world
            .with(|core, _| core.chronicle.since(0).filter(|entry| entry.to_string().contains(" moved from ")).count())
    }

    /// The members of each rule, by its name.
    fn rules(&self) -> BTreeMap<String, String> {
        self.world.with(|core, _| {
            let inventory = core.vcenter.inventory();
            let clusters = inventory.clusters().flat_map(|(_, cluster)| &cluster.rules);
            clusters.map(|rule| (rule.name.clone(), format!("{:?}", rule.kind))).collect()
        })
    }
}

fn deploy(world: &World) {
    world.with(|core, now| {
        for (name, replicas) in SERVICES {
            let mut object = sample::apart_by_node(name, replicas, name, &json!({}));
            defaults::apply(KindId::DEPLOYMENT, &mut object, core.kubernetes.store());
            core.kubernetes.store_mut().create(KindId::DEPLOYMENT, object, now).expect("a deployment");
        }
    });
}

/// Runs Bridger on the world through the real wire protocols, in process.
async fn bridger(world: &Arc<World>, config: &world::Config) -> (Arc<engine::counters::Counters>, Service) {
    let outside = in_process::outside(world, config).expect("the embedded servers");
    let parts = PartSettings { extender: None, ..in_process::parts() };
    let mut service = Service::new();
    (compose(parts, outside, &mut service).counters, service)
}

/// The result of a day.
#[derive(Debug, Default, PartialEq, Eq)]
struct Day {
    /// When, after all replicas ran, no two of them shared a host for the first time.
    separated_after_seconds: Option<u64>,
    /// Counted with Bridger from then on; without Bridger from when all replicas ran.
    shared_seconds: u64,
    moves: usize,
    changes: u64,
    first_colocation: Option<String>,
}

async fn day(seed: u64, with_bridger: bool) -> Day {
    let run = Run::start(seed, with_bridger).await;
    let replicas: u32 = SERVICES.iter().map(|(_, replicas)| replicas).sum();
    let mut day = Day::default();
    let mut all_ran = false;
    for passed in (STEP_SECONDS..=DAY_SECONDS).step_by(STEP_SECONDS as usize) {
        tokio::time::sleep(Duration::from_secs(STEP_SECONDS)).await;
        all_ran |= run.running() == replicas as usize;
        let colocations = run.colocations();
        if with_bridger && day.separated_after_seconds.is_none() {
            // Before a rule exists, the separation is a coincidence.
            let is_separated = all_ran && !run.rules().is_empty() && colocations.is_empty();
            day.separated_after_seconds = is_separated.then_some(passed);
        } else if !all_ran {
            // A day without Bridger begins when all replicas run.
        } else if let Some(colocation) = colocations.first() {
            day.shared_seconds += STEP_SECONDS;
            day.first_colocation.get_or_insert_with(|| format!("{colocation} after {passed} s"));
        }
    }
    day.moves = run.moves();
    if let Some(counters) = &run.counters {
        let rules = &counters.rules;
        day.changes = rules.created.get() + rules.edited.get() + rules.deleted.get();
        assert_eq!(rules.problem_text(), None, "seed {seed}");
    }
    day
}

#[test]
fn replicas_never_share_a_host_again_once_the_rules_exist() {
    let seeds = u64::try_from(testkit::count(2, 20)).expect("a count");
    let mut table = String::from("seed | with: separated, shared, moves, rule changes | without: shared, moves\n");
    let mut failures = Vec::new();
    for seed in 1..=seeds {
        let with = in_virtual_time(day(seed, true));
        let without = in_virtual_time(day(seed, false));
        let separated = with.separated_after_seconds.map_or("never".to_owned(), |seconds| format!("{seconds} s"));
        let _ = writeln!(
            table,
            "{seed:4} | {separated:>8}, {:>6} s, {:>4}, {:>4} | {:>6} s, {:>4}",
            with.shared_seconds, with.moves, with.changes, without.shared_seconds, without.moves
        );
        if with.separated_after_seconds.is_none_or(|seconds| seconds > 900) || with.shared_seconds > 0 {
            failures.push(format!("seed {seed}: {with:?}"));
        }
        if without.shared_seconds < 3600 {
            failures.push(format!("seed {seed}: without Bridger replicas rarely shared a host: {without:?}"));
        }
    }
    show(&table);
    assert!(failures.is_empty(), "{}\n{table}", failures.join("\n"));
}

/// Printed with `--nocapture`, and by the test runner on failure.
#[allow(clippy::print_stdout)]
fn show(table: &str) {
    println!("{table}");
}

#[test]
fn an_hour_of_host_maintenance_does_not_change_the_rules() {
    in_virtual_time(async {
        let run = Run::start(2, true).await;
        tokio::time::sleep(Duration::from_secs(1200)).await;
        let (before, colocations) = (run.rules(), run.colocations());
        assert!(!before.is_empty() && colocations.is_empty(), "{before:?} {colocations:?}");
        let host = run.world.with(|core, now| {
            let host = core.vcenter.inventory().hosts().next().map(|(id, _)| id).expect("a host");
            core.vcenter.enter_maintenance(host, 0, &Actor::system(), now).expect("it begins");
            host
        });
        for _ in 0..360 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(run.rules(), before);
            assert_eq!(run.colocations(), Vec::<String>::new());
        }
        run.world.with(|core, now| core.vcenter.exit_maintenance(host, &Actor::system(), now).expect("it ends"));
        tokio::time::sleep(Duration::from_secs(1800)).await;
        assert_eq!((run.rules(), run.colocations()), (before, Vec::new()));
    });
}

#[test]
fn the_same_seed_gives_the_same_day() {
    let history = |seed| {
        in_virtual_time(async move {
            let run = Run::start(seed, true).await;
            tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
            run.world.with(|core, _| core.chronicle.since(0).map(|entry| format!("{entry}\n")).collect::<String>())
        })
    };
    let first = history(5);
    assert!(first.contains("moved from"));
    assert_eq!(first, history(5));
}

/// A histogram shows how long steps block the loop. It must count every step of every controller.
#[test]
fn every_step_of_every_controller_is_measured() {
    in_virtual_time(async {
        let config = world::Config { seed: Seed(1), ..world::Config::default() };
        let world = World::new(&config, Clock::virtual_time());
        tokio::spawn(world.clone().run());
        deploy(&world);
        let outside = in_process::outside(&world, &config).expect("the embedded servers");
        let mut service = Service::new();
        let parts = in_process::parts_with_scheduler().expect("the default profile");
        let stats: Arc<RuntimeStats> = compose(parts, outside, &mut service).shown.runtime;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let steps = stats.steps();
        for controller in ["events", "node-labels", "drs-rules", "extender", "scheduling"] {
            // No scheduler calls the extender's bind here.
            let completes = controller != "extender";
            for (step, happens) in [(Step::Observe, true), (Step::Advance, true), (Step::Completed, completes)] {
                let times = steps.get(&(controller, step)).copied().unwrap_or_default();
                assert_eq!(times.count > 0, happens, "{controller} {step:?}: {times:?}");
                assert_eq!(times.buckets.iter().sum::<u64>(), times.count, "{controller} {step:?}: {times:?}");
            }
        }
        let controllers: BTreeSet<&str> = steps.keys().map(|(controller, _)| *controller).collect();
        assert_eq!(controllers.len(), 5, "{controllers:?}");
        // All controllers advanced equally often.
        let turns: BTreeSet<u64> =
            steps.iter().filter(|((_, step), _)| *step == Step::Advance).map(|(_, times)| times.count).collect();
        assert_eq!(turns.len(), 1, "{turns:?}");
    });
}
