//! Anti-affine pods in a world where DRS moves their machines for a day: with Bridger and without.
//!
//! The observer reads the state of the two simulated servers alone. Every run is from a seed, which a failure prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bridger::compose::{PartSettings, compose};
use bridger::in_process;
use bridger::service::outside::Service;
use engine::runtime::{RuntimeStats, Step};
use serde_json::{Value, json};
use simulator::kubernetes::defaults;
use simulator::kubernetes::kinds::KindId;
use simulator::kubernetes::placer::{self, PlacerConfig};
use simulator::kubernetes::sample;
use simulator::seed::Seed;
use simulator::vcenter::physics::Actor;
use simulator::{Clock, World, world};

const DAY_SECONDS: u64 = 86_400;
/// How often the observer looks.
const STEP_SECONDS: u64 = 5;
/// Name and replicas; 4 hosts, one of them in reserve.
const SERVICES: [(&str, u32); 4] = [("web", 3), ("cart", 3), ("search", 2), ("queue", 2)];

struct Run {
    world: Arc<World>,
    counters: Option<Arc<engine::counters::Counters>>,
    // Dropping it ends Bridger.
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

    /// Pairs of running replicas of one service whose machines share a physical host.
    fn meetings(&self) -> Vec<String> {
        self.world.with(|core, _| {
            let inventory = core.vcenter.inventory();
            let host_of_node: BTreeMap<&str, String> =
                inventory.vms().map(|(_, vm)| (vm.guest_host_name.as_str(), format!("{:?}", vm.host))).collect();
            let mut seen: BTreeMap<(String, String), String> = BTreeMap::new();
            let mut meetings = Vec::new();
            for pod in core.kubernetes.store().list(KindId::POD, None) {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let (app, node) = (text(&pod["metadata"]["labels"]["app"]), text(&pod["spec"]["nodeName"]));
                if app.is_empty() || text(&pod["status"]["phase"]) != "Running" {
                    continue;
                }
                let Some(host) = host_of_node.get(node.as_str()) else { continue };
                if let Some(other) = seen.insert((app.clone(), host.clone()), node.clone()) {
                    meetings.push(format!("{app} on {node} and {other}"));
                }
            }
            meetings
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

/// Bridger at work on the world through the real wire protocols, in process.
async fn bridger(world: &Arc<World>, config: &world::Config) -> (Arc<engine::counters::Counters>, Service) {
    let outside = in_process::outside(world, config).await.expect("the embedded servers");
    let parts = PartSettings { extender: None, ..in_process::parts() };
    let mut service = Service::new();
    (compose(parts, outside, &mut service).counters, service)
}

fn in_virtual_time<T>(body: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime on a paused clock")
        .block_on(body)
}

/// What the observer saw in a day.
#[derive(Debug, Default, PartialEq, Eq)]
struct Day {
    /// When no two replicas shared a host for the first time after all ran.
    mended_after_seconds: Option<u64>,
    /// With Bridger from then on; without, from when all ran.
    shared_seconds: u64,
    moves: usize,
    changes: u64,
    first_meeting: Option<String>,
}

async fn day(seed: u64, with_bridger: bool) -> Day {
    let run = Run::start(seed, with_bridger).await;
    let replicas: u32 = SERVICES.iter().map(|(_, replicas)| replicas).sum();
    let mut day = Day::default();
    let mut all_ran = false;
    for passed in (STEP_SECONDS..=DAY_SECONDS).step_by(STEP_SECONDS as usize) {
        tokio::time::sleep(Duration::from_secs(STEP_SECONDS)).await;
        all_ran |= run.running() == replicas as usize;
        let meetings = run.meetings();
        if with_bridger && day.mended_after_seconds.is_none() {
            // A rule must be there before it can have mended anything.
            let is_mended = all_ran && !run.rules().is_empty() && meetings.is_empty();
            day.mended_after_seconds = is_mended.then_some(passed);
        } else if !all_ran {
            // A day without Bridger begins when there is something to look at.
        } else if let Some(meeting) = meetings.first() {
            day.shared_seconds += STEP_SECONDS;
            day.first_meeting.get_or_insert_with(|| format!("{meeting} after {passed} s"));
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
fn replicas_never_share_a_host_again_once_drs_knows() {
    let seeds = u64::try_from(testkit::count(2, 20)).expect("a count");
    let mut table = String::from("seed | with: mended after, shared, moves, rule changes | without: shared, moves\n");
    let mut failures = Vec::new();
    for seed in 1..=seeds {
        let with = in_virtual_time(day(seed, true));
        let without = in_virtual_time(day(seed, false));
        let mended = with.mended_after_seconds.map_or("never".to_owned(), |seconds| format!("{seconds} s"));
        let _ = writeln!(
            table,
            "{seed:4} | {mended:>8}, {:>6} s, {:>4}, {:>4} | {:>6} s, {:>4}",
            with.shared_seconds, with.moves, with.changes, without.shared_seconds, without.moves
        );
        if with.mended_after_seconds.is_none_or(|seconds| seconds > 900) || with.shared_seconds > 0 {
            failures.push(format!("seed {seed}: {with:?}"));
        }
        if without.shared_seconds < 3600 {
            failures.push(format!("seed {seed}: without Bridger hardly anything happened: {without:?}"));
        }
    }
    show(&table);
    assert!(failures.is_empty(), "{}\n{table}", failures.join("\n"));
}

/// Shown with `--nocapture`, and by the test runner on failure.
#[allow(clippy::print_stdout)]
fn show(table: &str) {
    println!("{table}");
}

#[test]
fn a_host_in_maintenance_for_an_hour_does_not_cut_a_rule() {
    in_virtual_time(async {
        let run = Run::start(2, true).await;
        tokio::time::sleep(Duration::from_secs(1200)).await;
        let (before, meetings) = (run.rules(), run.meetings());
        assert!(!before.is_empty() && meetings.is_empty(), "{before:?} {meetings:?}");
        let host = run.world.with(|core, now| {
            let host = core.vcenter.inventory().hosts().next().map(|(id, _)| id).expect("a host");
            core.vcenter.enter_maintenance(host, 0, &Actor::system(), now).expect("it begins");
            host
        });
        for _ in 0..360 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(run.rules(), before);
            assert_eq!(run.meetings(), Vec::<String>::new());
        }
        run.world.with(|core, now| core.vcenter.exit_maintenance(host, &Actor::system(), now).expect("it ends"));
        tokio::time::sleep(Duration::from_secs(1800)).await;
        assert_eq!((run.rules(), run.meetings()), (before, Vec::new()));
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

/// How long a step may hold the loop is read off a histogram. It is worth only what it counts: every step of every controller.
#[test]
fn every_step_of_every_controller_is_measured() {
    in_virtual_time(async {
        let config = world::Config { seed: Seed(1), ..world::Config::default() };
        let world = World::new(&config, Clock::virtual_time());
        tokio::spawn(world.clone().run());
        deploy(&world);
        let outside = in_process::outside(&world, &config).await.expect("the embedded servers");
        let mut service = Service::new();
        let parts = in_process::parts_with_scheduler().expect("the default profile");
        let stats: Arc<RuntimeStats> = compose(parts, outside, &mut service).shown.runtime;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let steps = stats.steps();
        for controller in ["events", "node-labels", "drs-rules", "extender", "scheduling"] {
            // Nobody asks the extender to bind here.
            let completes = controller != "extender";
            for (step, happens) in [(Step::Observe, true), (Step::Advance, true), (Step::Completed, completes)] {
                let times = steps.get(&(controller, step)).copied().unwrap_or_default();
                assert_eq!(times.count > 0, happens, "{controller} {step:?}: {times:?}");
                assert_eq!(times.buckets.iter().sum::<u64>(), times.count, "{controller} {step:?}: {times:?}");
            }
        }
        let controllers: BTreeSet<&str> = steps.keys().map(|(controller, _)| *controller).collect();
        assert_eq!(controllers.len(), 5, "{controllers:?}");
        // All controllers have had the same turns.
        let turns: BTreeSet<u64> =
            steps.iter().filter(|((_, step), _)| *step == Step::Advance).map(|(_, times)| times.count).collect();
        assert_eq!(turns.len(), 1, "{turns:?}");
    });
}
