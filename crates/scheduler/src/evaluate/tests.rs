//! Cached verdicts and scores that are refreshed after random events equal recomputed ones.

use model::event::Event;
use model::{LiftMode, LiftSettings, World};
use proptest::prelude::*;

use super::*;
use crate::config::Configuration;
use crate::evaluate::classes::Classes;
use crate::plugins;
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
