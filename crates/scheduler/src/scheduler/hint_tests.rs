//! The queueing hints of the real plugins: no pod waits that could be placed, and few pods are woken needlessly.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use model::event::{Event, PodFacts};
use model::{LiftMode, LiftSettings, PodId, World};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::effect::Victim;
use super::*;
use crate::config::Configuration;
use crate::explain::explain;
use crate::plugins;
use crate::testing::history::{CLASSES, Step, pod, step};
use crate::testing::{apply, cases, everything, nomination, world_with};

/// A cluster whose API server accepts every binding, nomination and eviction.
struct Stage {
    world: World,
    scheduler: Scheduler,
    now: Duration,
    /// By name.
    pods: BTreeMap<String, PodFacts>,
}

impl Stage {
    fn new(mode: LiftMode) -> Self {
        let world = world_with(LiftSettings { mode, ..LiftSettings::default() }, &["node-0", "node-1"]);
        let configuration =
            Configuration::with_name("bridger", &plugins::standard()).expect("the default profile works");
        let mut scheduler = Scheduler::new(configuration, 1);
        scheduler.observe(Duration::ZERO, &world, &everything());
        Self { world, scheduler, now: Duration::ZERO, pods: BTreeMap::new() }
    }

    fn event(&mut self, event: Event) {
        match &event {
            Event::PodApplied(facts) => drop(self.pods.insert(facts.name.clone(), facts.clone())),
            Event::PodDeleted { name, .. } => drop(self.pods.remove(name)),
            _ => (),
        }
        let changes = apply(&mut self.world, event);
        self.scheduler.observe(self.now, &self.world, &changes);
    }

    /// Lets all back-offs end and schedules all active pods.
    fn settle(&mut self) {
        // Longer than any back-off. A history of some twenty steps stays below the five-minute flush of the queue.
        self.now += Duration::from_secs(11);
        self.scheduler.step(self.now, &mut self.world, Input::Time);
        while self.scheduler.has_work() {
            let effects = self.scheduler.step(self.now, &mut self.world, Input::Schedule { at_most: 1 });
            for effect in effects {
                if let Some((name, node)) = nomination(&effect)
                    && let Some(facts) = self.pods.get(name)
                {
                    let nominated_node = node.map(str::to_owned);
                    self.event(Event::PodApplied(PodFacts { nominated_node, ..facts.clone() }));
                }
                match effect {
                    Effect::Bind { pod, .. } => {
                        self.scheduler.step(self.now, &mut self.world, Input::Bound { pod });
                    }
                    Effect::Preempt { pod, node, victims, .. } => {
                        for Victim { pod: PodRef { namespace, name, .. }, .. } in victims.clone() {
                            self.event(Event::PodDeleted { namespace, name });
                        }
                        let evicted = Input::Evicted { pod, node, victims, error: None };
                        self.scheduler.step(self.now, &mut self.world, evicted);
                    }
                    _ => {}
                }
            }
        }
    }

    fn awaiting_change(&self) -> Vec<PodId> {
        self.scheduler.queue.awaiting_change().collect()
    }

    fn feasible(&self, pod: PodId) -> usize {
        let profile = &self.scheduler.profiles()[0];
        explain(&self.world, pod, profile).map_or(0, |explanation| explanation.feasible)
    }
}

/// How often a waiting pod was checked, how often a change happened while one waited, and how often a change woke one.
#[derive(Clone, Copy, Default)]
struct Totals {
    checked: u64,
    changes: u64,
    woken: u64,
}

/// Checks after each step that no pod waits that could be placed.
fn run(steps: &[Step], mode: LiftMode) -> Result<Totals, TestCaseError> {
    let (mut stage, mut totals) = (Stage::new(mode), Totals::default());
    for class in 0..CLASSES {
        stage.event(Event::PodApplied(pod(&format!("waits-{class}"), class)));
    }
    stage.settle();
    for step in steps {
        let Some(event) = step.event() else { continue };
        let before = stage.scheduler.figures().queue;
        totals.changes += stage.awaiting_change().len() as u64;
        stage.event(event);
        stage.settle();
        let after = stage.scheduler.figures().queue;
        totals.woken += after.woken - before.woken;
        prop_assert_eq!(before.flushed, after.flushed, "no pod waits long enough to be flushed");
        for pod in stage.awaiting_change() {
            totals.checked += 1;
            let name = stage.world.pod(pod).map(|pod| pod.name.to_string());
            prop_assert_eq!(stage.feasible(pod), 0, "{:?} could be placed after {:?}", name, step);
        }
    }
    Ok(totals)
}

#[test]
#[allow(clippy::print_stdout)]
fn no_pod_waits_that_could_be_placed_and_few_are_woken_needlessly() {
    let total = Cell::new(Totals::default());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases(10_000, 600)));
    let histories = (proptest::collection::vec(step(), 1..26), any::<bool>());
    let outcome = runner.run(&histories, |(steps, relaxed)| {
        let more = run(&steps, if relaxed { LiftMode::Relaxed } else { LiftMode::Strict })?;
        let Totals { checked, changes, woken } = total.get();
        let (checked, changes) = (checked + more.checked, changes + more.changes);
        total.set(Totals { checked, changes, woken: woken + more.woken });
        Ok(())
    });
    if let Err(failed) = outcome {
        panic!("{failed}");
    }
    let Totals { checked, changes, woken } = total.get();
    println!("waiting pods checked: {checked}; changes while a pod waited: {changes}; pods woken: {woken}");
    assert!(checked > 10_000, "hardly any pod waited: {checked}");
    assert!(woken * 4 < changes, "{woken} of {changes} were woken");
}

/// Regressions.
#[test]
fn changes_that_are_easily_missed_wake_pods() {
    let node = |node, zone, cordoned| Step::Node { node, zone, cpu: 3, tainted: false, cordoned };
    let placed = |pod, class, node| Step::Pod { pod, class, labelled: class, node, nominated: None };
    let labelled = |pod, labelled, node| Step::Pod { pod, class: 0, labelled, node: Some(node), nominated: None };
    let cases = [
        (
            "the blocking pod gets other labels",
            vec![
                node(0, 0, true),
                node(1, 0, true),
                node(2, 0, false),
                labelled(5, 1, 2),
                placed(1, 1, None),
                labelled(5, 0, 2),
            ],
        ),
        (
            "another pod with the same name, elsewhere",
            vec![node(0, 2, true), placed(3, 4, None), node(2, 1, false), placed(3, 0, None)],
        ),
        (
            "another pod with the same name, on the same node",
            vec![node(0, 0, true), placed(7, 6, None), node(4, 0, false), placed(0, 6, None), placed(7, 0, Some(4))],
        ),
        (
            "a zone that others are compared with is gone",
            vec![placed(0, 4, None), node(0, 2, false), node(2, 1, false), Step::RemoveNode { node: 0 }],
        ),
    ];
    for (case, steps) in cases {
        if let Err(failed) = run(&steps, LiftMode::Strict) {
            panic!("{case}: {failed}");
        }
    }
}
