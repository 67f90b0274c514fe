//! Tests labels in a world where DRS moves VMs, hosts fail, and the network is unreliable.
//!
//! The checks read only the state of the two simulated servers. Every run has a seed, which a failure prints.

use std::sync::Arc;
use std::time::Duration;

use bridger::compose::{PartSettings, compose};
use bridger::in_process;
use bridger::service::outside::Service;
use model::labels::LabelSettings;
use simulated::in_virtual_time;
use simulator::fault::{Fault, FaultRule, Frequency, Side};
use simulator::kubernetes::kinds::KindId;
use simulator::seed::Seed;
use simulator::{Clock, World, world};

const KEY: &str = "alpha.cna.vmware.com/host";
const HOUR: Duration = Duration::from_secs(3600);

/// A world with Bridger running on it through the real wire protocols, in process.
struct Run {
    world: Arc<World>,
    counters: Arc<engine::counters::Counters>,
    runtime: Arc<engine::runtime::RuntimeStats>,
    // Dropping it stops Bridger.
    _service: Service,
}

impl Run {
    async fn start(seed: u64) -> Run {
        let config = world::Config { seed: Seed(seed), ..world::Config::default() };
        let world = World::new(&config, Clock::virtual_time());
        tokio::spawn(world.clone().run());
        let outside = in_process::outside(&world, &config).expect("the embedded servers");
        let parts = PartSettings { labels: Some(LabelSettings::default()), ..PartSettings::default() };
        let mut service = Service::new();
        let bridger = compose(parts, outside, &mut service);
        Run { world, counters: bridger.counters, runtime: bridger.shown.runtime, _service: service }
    }

    /// Each node with its label and the host on which it actually runs.
    fn labels(&self) -> Vec<(String, Option<String>, String)> {
        self.world.with(|core, _| {
            let inventory = core.vcenter.inventory();
            let vms = inventory.vms().map(|(_, vm)| {
                let node = core.kubernetes.store().get(KindId::NODE, "", &vm.guest_host_name).cloned();
                let label = node.and_then(|node| node["metadata"]["labels"][KEY].as_str().map(str::to_owned));
                let host = inventory.host(vm.host).map(|host| host.name.clone()).unwrap_or_default();
                (vm.guest_host_name.clone(), label, host)
            });
            vms.collect()
        })
    }

    fn wrong(&self) -> Vec<String> {
        let labels = self.labels().into_iter().filter(|(_, label, host)| label.as_ref() != Some(host));
        labels.map(|(node, label, host)| format!("{node}: {label:?}, but runs on {host}")).collect()
    }

    fn history(&self) -> String {
        self.world.with(|core, _| core.chronicle.since(0).map(|entry| format!("{entry}\n")).collect())
    }

    fn moves(&self) -> usize {
        self.history().lines().filter(|line| line.contains(" moved from ")).count()
    }

    fn fault(&self, side: Side, methods: &str, fault: Fault, frequency: Frequency) {
        let rule = FaultRule::new(side, methods, fault, frequency);
        self.world.with(|core, _| core.faults.add(rule)).expect("a rule");
    }
}

#[test]
fn labels_are_correct_within_seconds_of_every_move_for_a_day() {
    in_virtual_time(async {
        let run = Run::start(1).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(run.wrong(), Vec::<String>::new());
        // Checked every ten seconds: a label that is wrong twice in a row was not updated.
        let mut wrong_before: Vec<String> = Vec::new();
        for _ in 0..(24 * 360) {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let wrong = run.wrong();
            let stuck: Vec<&String> = wrong.iter().filter(|line| wrong_before.contains(line)).collect();
            assert!(stuck.is_empty(), "{stuck:?}");
            wrong_before = wrong;
        }
        let moves = run.moves();
        assert!(moves > 20, "only {moves} moves in a day");
        // Twelve first labels and one write per move: nothing is written twice.
        assert_eq!(run.counters.label_writes.get(), 12 + moves as u64);
    });
}

#[test]
fn labels_become_correct_after_any_network_fault() {
    for seed in 1..=u64::try_from(testkit::count(10, 100)).expect("a count") {
        in_virtual_time(async {
            let run = Run::start(seed).await;
            let often = Frequency::Chance(0.05);
            for (side, methods, fault) in [
                (Side::Kubernetes, "watch *", Fault::WatchCut { after_events: 3 }),
                (Side::Kubernetes, "watch *", Fault::WatchGone),
                (Side::Kubernetes, "watch *", Fault::WatchStale { millis: 5_000 }),
                (Side::Kubernetes, "watch *", Fault::DuplicateEvents),
                (Side::Kubernetes, "*", Fault::HttpStatus { status: 503 }),
                (Side::Kubernetes, "patch nodes", Fault::DropConnection),
                (Side::Kubernetes, "patch nodes", Fault::HttpStatus { status: 429 }),
                (Side::Kubernetes, "*", Fault::Latency { millis: 700 }),
                (Side::Vcenter, "*", Fault::SessionExpired),
                (Side::Vcenter, "*", Fault::HttpStatus { status: 500 }),
                (Side::Vcenter, "*", Fault::DropConnection),
                (Side::Vcenter, "WaitForUpdatesEx", Fault::SlowCollector { millis: 3_000 }),
                (Side::Vcenter, "WaitForUpdatesEx", Fault::DuplicateEvents),
                (Side::Vcenter, "WaitForUpdatesEx", Fault::ReorderedEvents),
            ] {
                run.fault(side, methods, fault, often);
            }
            // Meanwhile no label is ever empty or names a host that does not exist.
            for _ in 0..180 {
                tokio::time::sleep(Duration::from_secs(60)).await;
                for (node, label, _) in run.labels() {
                    let real = label.as_ref().is_none_or(|label| label.starts_with("esx-"));
                    assert!(real, "seed {seed}: {node} is labelled {label:?}");
                }
            }
            let struck = run.world.with(|core, _| {
                let struck = core.faults.struck();
                core.faults.clear();
                struck
            });
            assert!(struck > 100, "seed {seed}: only {struck} faults struck");
            // Once the faults are cleared and the back-off has passed, all labels are correct.
            tokio::time::sleep(Duration::from_secs(180)).await;
            let mut wrong = run.wrong();
            if !wrong.is_empty() {
                // A move may just have ended.
                tokio::time::sleep(Duration::from_secs(10)).await;
                wrong = run.wrong();
            }
            assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
        });
    }
}

#[test]
fn labels_are_correct_after_a_host_failure_and_after_a_vcenter_outage() {
    in_virtual_time(async {
        let run = Run::start(3).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        run.world.with(|core, now| {
            let host = core.vcenter.inventory().hosts().next().map(|(id, _)| id).expect("a host");
            core.vcenter.fail_host(host, now).expect("it fails");
        });
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(run.wrong(), Vec::<String>::new());
        // The vCenter is unavailable for an hour in which DRS continues.
        run.fault(Side::Vcenter, "*", Fault::HttpStatus { status: 503 }, Frequency::Always);
        let before = run.labels();
        let writes = run.counters.label_writes.get();
        tokio::time::sleep(HOUR).await;
        assert_eq!(run.counters.label_writes.get(), writes, "labels were written without knowledge of VMs");
        for ((_, then, _), (_, now, _)) in before.iter().zip(run.labels()) {
            assert_eq!(*then, now);
        }
        run.world.with(|core, _| core.faults.clear());
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(run.wrong(), Vec::<String>::new());
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let history = |seed| {
        in_virtual_time(async move {
            let run = Run::start(seed).await;
            run.fault(Side::Kubernetes, "*", Fault::HttpStatus { status: 503 }, Frequency::Chance(0.1));
            run.fault(Side::Vcenter, "*", Fault::SessionExpired, Frequency::Chance(0.1));
            tokio::time::sleep(2 * HOUR).await;
            let labels = run.labels();
            format!("{}{labels:?} {}", run.history(), run.runtime.events_applied.get())
        })
    };
    let first = history(5);
    assert_eq!(first, history(5));
    assert_ne!(first, history(6));
}
