//! What the real plugins say of changes: no pod is left waiting that could be placed, and few are tried in vain.

use std::cell::Cell;
use std::time::Duration;

use model::event::Event;
use model::{LiftMode, LiftSettings, PodId, World};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::config::Configuration;
use crate::explain::explain;
use crate::plugins;
use crate::testing::history::{CLASSES, Step, pod, step};
use crate::testing::{apply, cases, everything, world_with};

/// A cluster whose API server does what it is told.
struct Stage {
    world: World,
    scheduler: Scheduler,
    now: Duration,
}

impl Stage {
    fn new(mode: LiftMode) -> Self {
        let world = world_with(LiftSettings { mode, ..LiftSettings::default() }, &["node-0", "node-1"]);
        let configuration =
            Configuration::with_name("bridger", &plugins::standard()).expect("the default profile works");
        let mut scheduler = Scheduler::new(configuration, 1);
        scheduler.observe(Duration::ZERO, &world, &everything());
        Self { world, scheduler, now: Duration::ZERO }
    }

    fn event(&mut self, event: Event) {
        let changes = apply(&mut self.world, event);
        self.scheduler.observe(self.now, &self.world, &changes);
    }

    /// Lets back-offs end, and places whatever is tried.
    fn settle(&mut self) {
        // Longer than any back-off; some twenty of it are not so long that pods are tried for having waited.
        self.now += Duration::from_secs(11);
        self.scheduler.step(self.now, &mut self.world, Input::Time);
        while self.scheduler.has_work() {
            let effects = self.scheduler.step(self.now, &mut self.world, Input::Schedule { at_most: 1 });
            for effect in effects {
                if let Effect::Bind { pod, .. } = effect {
                    self.scheduler.step(self.now, &mut self.world, Input::Bound { pod });
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

/// How often pods that wait were looked at, were met by a change, and were woken by it.
#[derive(Clone, Copy, Default)]
struct Seen {
    looked_at: u64,
    met: u64,
    woken: u64,
}

/// Whether after each step no pod waits that could be placed.
fn run(steps: &[Step], mode: LiftMode) -> Result<Seen, TestCaseError> {
    let (mut stage, mut seen) = (Stage::new(mode), Seen::default());
    for class in 0..CLASSES {
        stage.event(Event::PodApplied(pod(&format!("waits-{class}"), class)));
    }
    stage.settle();
    for step in steps {
        let Some(event) = step.event() else { continue };
        let before = stage.scheduler.figures().queue;
        seen.met += stage.awaiting_change().len() as u64;
        stage.event(event);
        stage.settle();
        let after = stage.scheduler.figures().queue;
        seen.woken += after.woken - before.woken;
        prop_assert_eq!(before.flushed, after.flushed, "nothing waits so long here");
        for pod in stage.awaiting_change() {
            seen.looked_at += 1;
            let name = stage.world.pod(pod).map(|pod| pod.name.to_string());
            prop_assert_eq!(stage.feasible(pod), 0, "{:?} could be placed after {:?}", name, step);
        }
    }
    Ok(seen)
}

#[test]
#[allow(clippy::print_stdout)]
fn no_pod_waits_that_could_be_placed_and_few_are_tried_in_vain() {
    let total = Cell::new(Seen::default());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases(10_000, 600)));
    let histories = (proptest::collection::vec(step(), 1..26), any::<bool>());
    let outcome = runner.run(&histories, |(steps, relaxed)| {
        let seen = run(&steps, if relaxed { LiftMode::Relaxed } else { LiftMode::Strict })?;
        let Seen { looked_at, met, woken } = total.get();
        total.set(Seen { looked_at: looked_at + seen.looked_at, met: met + seen.met, woken: woken + seen.woken });
        Ok(())
    });
    if let Err(failed) = outcome {
        panic!("{failed}");
    }
    let Seen { looked_at, met, woken } = total.get();
    println!("{looked_at} times a waiting pod was looked at; {met} times a change met one, and woke it {woken} times");
    assert!(looked_at > 10_000, "hardly any pod waited: {looked_at}");
    assert!(woken * 4 < met, "{woken} of {met} were woken");
}

/// What was once not noticed.
#[test]
fn changes_that_are_easily_missed_wake() {
    let node = |node, zone, cordoned| Step::Node { node, zone, cpu: 3, tainted: false, cordoned };
    let placed = |pod, class, node| Step::Pod { pod, class, labelled: class, node, nominated: None };
    let labelled = |pod, labelled, node| Step::Pod { pod, class: 0, labelled, node: Some(node), nominated: None };
    let cases = [
        (
            "what kept it away has other labels",
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
            "another pod of its name, elsewhere",
            vec![node(0, 2, true), placed(3, 4, None), node(2, 1, false), placed(3, 0, None)],
        ),
        (
            "another pod of its name, on the same node",
            vec![node(0, 0, true), placed(7, 6, None), node(4, 0, false), placed(0, 6, None), placed(7, 0, Some(4))],
        ),
        (
            "a zone is gone that others are measured by",
            vec![placed(0, 4, None), node(0, 2, false), node(2, 1, false), Step::RemoveNode { node: 0 }],
        ),
    ];
    for (case, steps) in cases {
        if let Err(failed) = run(&steps, LiftMode::Strict) {
            panic!("{case}: {failed}");
        }
    }
}
