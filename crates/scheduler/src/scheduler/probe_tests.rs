//! What is measured: which cycles, which points, and how long the work of executors takes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::World;
use model::event::{Event, PodFacts};
use serde_json::json;

use super::*;
use crate::config::Configuration;
use crate::framework::probe::Run;
use crate::plugins;
use crate::testing::{apply, everything, id, node, pod, pod_with, world};

/// Counts how often the clock is read, and records what ran.
#[derive(Default)]
struct Counting {
    reads: AtomicU64,
    seconds: AtomicU64,
    /// Point, status, plugin or nothing, and the duration in seconds.
    ran: Mutex<Vec<(&'static str, &'static str, &'static str, u64)>>,
}

impl Counting {
    fn reads(&self) -> u64 {
        self.reads.swap(0, Ordering::Relaxed)
    }

    fn ran(&self) -> Vec<(&'static str, &'static str, &'static str, u64)> {
        std::mem::take(&mut self.ran.lock().expect("a lock"))
    }

    fn record(&self, run: &Run<'_>, plugin: &'static str) {
        assert_eq!(run.profile, "bridger");
        self.ran.lock().expect("a lock").push((run.point.as_str(), run.status, plugin, run.took.as_secs()));
    }
}

impl Probe for Counting {
    fn now(&self) -> Duration {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Duration::from_secs(self.seconds.load(Ordering::Relaxed))
    }

    fn plugin_ran(&self, run: &Run<'_>, plugin: &'static str) {
        self.record(run, plugin);
    }

    fn point_ran(&self, run: &Run<'_>) {
        self.record(run, "");
    }

    fn permit_waited(&self, _: &'static str, _: Duration) {}
}

struct Stage {
    world: World,
    scheduler: Scheduler,
    probe: Arc<Counting>,
}

impl Stage {
    fn new(configuration: Configuration) -> Self {
        let mut world = world(&[]);
        let mut big = node("n1");
        Arc::make_mut(big.scheduling.as_mut().expect("facts")).allowed_pods = 100_000;
        world.apply(Event::NodeApplied(big));
        let probe = Arc::<Counting>::default();
        let mut scheduler = Scheduler::new(configuration, 1).measured_by(probe.clone());
        scheduler.observe(Duration::ZERO, &world, &everything());
        Self { world, scheduler, probe }
    }

    fn standard() -> Self {
        Self::new(Configuration::with_name("bridger", &plugins::standard()).expect("a profile"))
    }

    fn apply(&mut self, facts: PodFacts) {
        let changes = apply(&mut self.world, Event::PodApplied(facts));
        self.scheduler.observe(Duration::ZERO, &self.world, &changes);
    }

    fn input(&mut self, input: Input) -> Vec<Effect> {
        self.scheduler.step(Duration::ZERO, &mut self.world, input)
    }

    fn reference(&self, name: &str) -> PodRef {
        Scheduler::pod_ref(&self.world, id(&self.world, name)).expect("the pod is known")
    }

    /// Applies, places and binds a pod. Returns how often the clock was read in each of the three steps.
    fn go_through(&mut self, name: &str) -> [u64; 3] {
        self.apply(pod(name));
        let arrival = self.probe.reads();
        self.input(Input::Schedule { at_most: 1 });
        let cycle = self.probe.reads();
        self.input(Input::Bound { pod: self.reference(name) });
        [arrival, cycle, self.probe.reads()]
    }
}

#[test]
fn one_of_ten_cycles_reads_the_clock_and_the_others_measure_nothing() {
    const PODS: usize = 2000;
    let mut stage = Stage::standard();
    let (mut arrivals, mut cycles) = (0, 0);
    for number in 0..PODS {
        let [arrival, cycle, binding] = stage.go_through(&format!("web-{number}"));
        assert_eq!(cycle > 0, binding > 0, "a cycle is measured as a whole");
        if arrival + cycle + binding == 0 {
            assert_eq!(stage.probe.ran(), [], "nothing is reported of a cycle that is not measured");
        } else {
            stage.probe.ran();
        }
        arrivals += usize::from(arrival > 0);
        cycles += usize::from(cycle > 0);
    }
    // 200 expected, with a standard deviation of 13.4.
    for measured in [arrivals, cycles] {
        assert!((140..=260).contains(&measured), "{measured} of {PODS}");
    }
}

/// The points of the first measured cycle of a pod, with their statuses.
fn points_of(stage: &mut Stage, mut step: impl FnMut(&mut Stage, usize)) -> Vec<(&'static str, &'static str)> {
    for number in 0..200 {
        step(stage, number);
        let ran = stage.probe.ran();
        let points: Vec<_> = ran.iter().filter(|ran| ran.2.is_empty()).map(|ran| (ran.0, ran.1)).collect();
        if points.iter().any(|(point, _)| *point == "PreFilter") {
            return points.into_iter().filter(|(point, _)| *point != "PreEnqueue").collect();
        }
    }
    panic!("200 cycles, and none was measured");
}

#[test]
fn every_point_of_a_measured_cycle_is_measured_even_without_a_plugin() {
    let mut stage = Stage::standard();
    let points = points_of(&mut stage, |stage, number| {
        stage.go_through(&format!("web-{number}"));
    });
    let success = |point| (point, "Success");
    let expected = ["PreFilter", "Filter", "PreScore", "Score", "Reserve", "Permit"].map(success);
    assert_eq!(points[..6], expected);
    assert_eq!(points[6], ("PreBindPreFlight", "Skip"), "no plugin has work");
    assert_eq!(points[7..], ["PreBind", "Bind", "PostBind"].map(success));

    let mut stage = Stage::standard();
    let points = points_of(&mut stage, |stage, number| {
        stage.apply(pod_with(&format!("huge-{number}"), |facts| facts.requests.asked.cpu_milli = 9000));
        stage.input(Input::Schedule { at_most: 1 });
    });
    assert_eq!(points, [success("PreFilter"), success("Filter"), ("PostFilter", "Unschedulable")]);
}

#[test]
fn pre_enqueue_is_measured_with_its_verdict() {
    let mut stage = Stage::standard();
    let mut seen = BTreeSet::new();
    for number in 0..200 {
        let gated = pod_with(&format!("gated-{number}"), |facts| facts.gates = vec!["later".to_owned()]);
        stage.apply(gated);
        stage.apply(pod(&format!("free-{number}")));
        seen.extend(stage.probe.ran());
    }
    let ran = |status, plugin| ("PreEnqueue", status, plugin, 0);
    let gated = "UnschedulableAndUnresolvable";
    let expected = [("Success", ""), ("Success", "SchedulingGates"), (gated, ""), (gated, "SchedulingGates")];
    assert_eq!(seen, expected.map(|(status, plugin)| ran(status, plugin)).into());
}

#[test]
fn work_counts_for_its_point() {
    // Worker has work at PreBind, and takes the pod at Bind; DefaultBinder follows.
    let document = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {
            "multiPoint": {"enabled": [{"name": "Worker"}]},
            "bind": {"enabled": [{"name": "Worker"}, {"name": "DefaultBinder"}]},
        }}],
    });
    let registry = plugins::standard().with::<super::handle_tests::Worker>();
    let mut stage = Stage::new(Configuration::from_value(&document, &registry).expect("a valid configuration"));
    let pass = |stage: &Stage, seconds| stage.probe.seconds.fetch_add(seconds, Ordering::Relaxed);
    let mut measured = 0;
    for number in 0..300 {
        let name = format!("web-{number}");
        stage.apply(pod(&name));
        stage.input(Input::Schedule { at_most: 1 });
        stage.probe.ran();
        pass(&stage, 5);
        stage.input(Input::PreBound { pod: stage.reference(&name), plugin: "Worker" });
        pass(&stage, 2);
        stage.input(Input::Declined { pod: stage.reference(&name), plugin: "Worker" });
        pass(&stage, 1);
        let (end, status) = match number % 3 {
            0 => (Input::Bound { pod: stage.reference(&name) }, "Success"),
            1 => (Input::Failed { pod: stage.reference(&name), error: "no".to_owned() }, "Error"),
            _ => {
                let (pod, reason) = (stage.reference(&name), "no".to_owned());
                (Input::Rejected { pod, plugin: "DefaultBinder", reason }, "Unschedulable")
            }
        };
        stage.input(end);
        let ran = stage.probe.ran();
        if ran.is_empty() {
            continue;
        }
        measured += 1;
        let expected = [
            ("PreBind", "Success", "Worker", 5),
            ("PreBind", "Success", "", 5),
            ("Bind", "Skip", "Worker", 2),
            ("Bind", status, "DefaultBinder", 1),
            ("Bind", status, "", 3),
        ];
        assert_eq!(ran[..5], expected, "{name}");
        let last = if status == "Success" { "PostBind" } else { "Unreserve" };
        // Each plugin at Reserve takes back its reservation.
        let mut points: Vec<_> = ran[5..].iter().map(|ran| ran.0).collect();
        points.dedup();
        assert_eq!(points, [last], "{name}");
    }
    assert!(measured >= 10, "{measured} of 300 cycles were measured");
}
