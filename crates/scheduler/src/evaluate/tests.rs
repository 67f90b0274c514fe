//! Cached verdicts and scores that are refreshed after random events equal recomputed ones.

use model::event::Event;
use model::{LiftMode, LiftSettings, PodId, World};
use proptest::prelude::*;

use super::dry_run::DryRun;
use super::*;
use crate::config::Configuration;
use crate::evaluate::classes::Classes;
use crate::framework::points::NodeTrial;
use crate::plugins;
use crate::queue::Nominations;
use crate::scheduler::observe;
use crate::testing;
use crate::testing::history::{CLASSES, any_step, pod};
use crate::testing::volumes::{DRIVER, WAITS, applied, claim, claims, waits};

/// No node is kept free for other pods.
fn none(_: &Trial<'_>) -> Vec<(NodeId, ())> {
    Vec::new()
}

/// All verdicts and scores, as text.
fn described(profile: &Profile, answers: &Answers, world: &World) -> Vec<String> {
    let nodes = world.node_ids().map(|node| {
        let verdict = answers.filters.verdict(profile, node);
        match verdict {
            Some(verdict) => format!("{node:?} {:?} {:?}", names(profile, verdict.by), verdict.rejection),
            None => format!("{node:?} {} {:?}", answers.scores.total(node), answers.scores.of(profile, node)),
        }
    });
    nodes.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::testing::cases(5_000, 300)))]

    #[test]
    fn cached_answers_equal_new_ones(steps in proptest::collection::vec(any_step(), 1..60), relaxed in any::<bool>()) {
        let configuration = Configuration::with_name("bridger", &plugins::standard()).expect("the default profile works");
        let profile = &configuration.profiles()[0];
        let mode = if relaxed { LiftMode::Relaxed } else { LiftMode::Strict };
        let mut world = testing::world_with(LiftSettings { mode, ..LiftSettings::default() }, &["node-0", "node-1"]);
        for class in 0..CLASSES {
            world.apply(Event::PodApplied(pod(&format!("waits-{class}"), class)));
        }
        let (mut journal, mut classes, mut scratch) = (Journal::default(), Classes::default(), Scratch::default());
        journal.everything_changed(&world);
        for step in steps {
            let Some(event) = step.event() else {
                for class in 0..CLASSES {
                    let waiting = testing::id(&world, &format!("waits-{class}"));
                    let cycle = Cycle::of(&world, waiting).expect("it is known");
                    let cached = classes.answers(0, profile, &cycle);
                    cached.refresh(profile, &cycle, &journal, &mut scratch, Meter::off(), none).expect("no plugin fails");
                    let mut fresh = Answers::new(profile);
                    fresh.refresh(profile, &cycle, &journal, &mut Scratch::default(), Meter::off(), none).expect("no plugin fails");
                    let expected = described(profile, &fresh, &world);
                    prop_assert_eq!(described(profile, cached, &world), expected, "class {}", class);
                    prop_assert_eq!(cached.filters.feasible(), fresh.filters.feasible());
                }
                continue;
            };
            let changes = observe::apply(&mut world, event);
            crate::scheduler::note(&mut journal, &world, &changes);
        }
    }
}

/// The pods that leave a node, as a bit for each.
fn some_of(pods: &[PodId], bits: u16) -> Vec<PodId> {
    let chosen = pods.iter().enumerate().filter(|(at, _)| bits >> (at % 16) & 1 != 0);
    chosen.map(|(_, pod)| *pod).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::testing::cases(5_000, 300)))]

    #[test]
    fn a_dry_run_equals_a_run_of_all_filters(
        steps in proptest::collection::vec(any_step(), 1..60),
        first in any::<u16>(),
        second in any::<u16>(),
    ) {
        let configuration = Configuration::with_name("bridger", &plugins::standard()).expect("the default profile works");
        let profile = &configuration.profiles()[0];
        let mut world = testing::world_with(LiftSettings::default(), &["node-0", "node-1"]);
        for class in 0..CLASSES {
            world.apply(Event::PodApplied(pod(&format!("waits-{class}"), class)));
        }
        steps.iter().filter_map(|step| step.event()).for_each(|event| drop(world.apply(event)));
        let mut journal = Journal::default();
        journal.everything_changed(&world);
        let nominations = Nominations::default();
        for class in 0..CLASSES {
            let waiting = testing::id(&world, &format!("waits-{class}"));
            let cycle = Cycle::of(&world, waiting).expect("it is known");
            let mut answers = Answers::new(profile);
            answers.refresh(profile, &cycle, &journal, &mut Scratch::default(), Meter::off(), none).expect("no plugin fails");
            let trial = Trial { profile, cycle: &cycle, answers: &answers };
            let mut dry_run = DryRun::new(&trial, &nominations);
            for node in world.node_ids().filter(|node| answers.filters.is_filtered(*node)) {
                let there = world.pods_on(node);
                let (leave, return_) = (some_of(there, first), some_of(&some_of(there, first), second));
                dry_run.begin(node);
                leave.iter().for_each(|pod| dry_run.remove(*pod));
                return_.iter().for_each(|pod| dry_run.add(*pod));
                let gone = leave.iter().filter(|pod| !return_.contains(pod));
                let view = gone.fold(model::View::default(), |view, pod| view.without(*pod));
                let expected = trial.refuses(node, view).map(|refused| refused.rejection);
                prop_assert_eq!(dry_run.fits(), expected.is_none(), "class {} {:?}", class, node);
                prop_assert_eq!(dry_run.rejection(), expected, "class {} {:?}", class, node);
            }
        }
    }
}

#[test]
fn pods_of_one_class_share_a_cache_entry_and_others_do_not() {
    let configuration = Configuration::with_name("bridger", &plugins::standard()).expect("the default profile works");
    let profile = &configuration.profiles()[0];
    let mut world = testing::world(&["node-0"]);
    for (name, class) in [("a", 0), ("b", 0), ("c", 1)] {
        world.apply(Event::PodApplied(pod(name, class)));
    }
    let mut classes = Classes::default();
    let mut hits = |name: &str| {
        let cycle = Cycle::of(&world, testing::id(&world, name)).expect("it is known");
        classes.answers(0, profile, &cycle);
        classes.hits()
    };
    assert_eq!(["a", "b", "c", "a"].map(&mut hits), [0, 1, 1, 2]);
}

#[test]
fn pods_that_differ_only_in_their_claims_share_a_cache_entry_and_get_their_own_verdicts() {
    let configuration = Configuration::with_name("bridger", &plugins::standard()).expect("the default profile works");
    let profile = &configuration.profiles()[0];
    let mut world = testing::world(&["node-0"]);
    world.apply(applied(waits(DRIVER)));
    world.apply(applied(claim("there", WAITS)));
    for (name, claim) in [("a", Some("there")), ("b", Some("missing")), ("c", None), ("d", Some("there"))] {
        let volumes = claims(claim.as_slice());
        world.apply(Event::PodApplied(model::event::PodFacts { volumes, ..pod(name, 0) }));
    }
    let (mut journal, mut classes, mut scratch) = (Journal::default(), Classes::default(), Scratch::default());
    journal.everything_changed(&world);
    let mut feasible = |name: &str| {
        let cycle = Cycle::of(&world, testing::id(&world, name)).expect("it is known");
        let answers = classes.answers(0, profile, &cycle);
        answers.refresh(profile, &cycle, &journal, &mut scratch, Meter::off(), none).expect("no plugin fails");
        let feasible = answers.filters.feasible().len();
        (feasible, classes.hits())
    };
    assert_eq!(["a", "b", "c", "d"].map(&mut feasible), [(1, 0), (0, 1), (1, 2), (1, 3)]);
}
