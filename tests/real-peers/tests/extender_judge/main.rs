//! Compares the extender with kube-scheduler's own InterPodAffinity, on random worlds of the run's seed.
//!
//! In: worlds as Kubernetes objects. Both sides return for every node whether the pod fits and whether evictions would
//! help, and scores for the feasible nodes. `extender` calls Bridger as kube-scheduler does; `opinion` is the result of
//! either side; `misreadings` checks that these worlds detect misreadings of the semantics.

mod extender;
mod misreadings;
mod opinion;

use judge::{Answer, Judge, Profile, Statistics, World, shrink};
use model::affinity::LiftSettings;
use testkit::worlds::how_to_replay;
use testkit::{Worlds, count};

use crate::extender::{ExtenderCaller, Observed};
use crate::opinion::Opinion;

const PLUGIN: &str = "InterPodAffinity";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// With a smaller share of worlds the comparison would prove little.
const SHARE_PERCENT_MIN: f64 = 5.0;

/// How the two sides are compared on a world.
struct Comparison {
    judge: Judge,
    caller: ExtenderCaller,
    /// The world that the plugin gets.
    for_plugin: fn(&World) -> World,
    /// Reduces both results to the compared parts.
    compared: fn(Opinion) -> Opinion,
}

impl Comparison {
    /// Without lifting.
    fn as_written() -> Comparison {
        Comparison {
            judge: Judge::start().unwrap(),
            caller: ExtenderCaller::new(LiftSettings { lifted_keys: [].into(), ..LiftSettings::default() }),
            for_plugin: World::clone,
            compared: |opinion| opinion,
        }
    }

    /// With lifting: anti-affinity between nodes applies between physical hosts, which the plugin sees as another
    /// label.
    fn lifting() -> Comparison {
        Comparison {
            judge: Judge::start().unwrap(),
            caller: ExtenderCaller::new(LiftSettings::default()),
            for_plugin: |world| world.lifted(HOSTNAME, &LiftSettings::default().host_key),
            // If several terms reject a node, the extender names a term that is not lifted before a lifted one.
            compared: Opinion::without_reasons,
        }
    }

    /// The judge's answer, and the opinion derived from it.
    fn plugin(&mut self, world: &World) -> Result<(Answer, Opinion), String> {
        let answer = self.judge.ask(&(self.for_plugin)(world)).map_err(|error| error.to_string())?;
        let opinion = (self.compared)(Opinion::of_plugin(&answer));
        Ok((answer, opinion))
    }

    /// The differences between the two sides.
    fn differences(&mut self, world: &World) -> Result<(Answer, Vec<String>), String> {
        let (answer, expected) = self.plugin(world)?;
        let mut differences = Vec::new();
        for observed in [Observed::Already, Observed::NotYet] {
            let found = (self.compared)(self.caller.ask(world, observed)?);
            let lines = found.differences_from(&expected).into_iter();
            differences.extend(lines.map(|line| format!("{observed:?}: {line}")));
        }
        Ok((answer, differences))
    }

    /// A small world in which the two sides still differ.
    fn smallest_with_differences(&mut self, world: &World) -> World {
        shrink(world, |world| self.differences(world).is_ok_and(|(_, found)| !found.is_empty()))
    }

    #[allow(clippy::print_stdout)]
    fn agree_on(&mut self, what: &str, worlds: &Worlds) -> Statistics {
        let mut statistics = Statistics::default();
        let started = std::time::Instant::now();
        for number in worlds.numbers() {
            let world = World::random(number, Profile::InterPodAffinity);
            let (answer, differences) =
                self.differences(&world).unwrap_or_else(|error| panic!("world {number}: {error}"));
            if !differences.is_empty() {
                let small = self.smallest_with_differences(&world);
                let of_small = self.differences(&small).map(|(_, found)| found);
                let small = serde_json::to_string_pretty(&small).unwrap_or_default();
                let how = how_to_replay(number, Profile::InterPodAffinity.name());
                panic!("{what}, world {number}: {differences:#?}\nin a small world: {of_small:#?}\n{small}\n{how}");
            }
            statistics.note(&answer);
        }
        println!("{what}: no difference in {worlds}, {:.1} s\n{statistics}", started.elapsed().as_secs_f64());
        statistics
    }
}

fn agree_on_enough_worlds(mut comparison: Comparison, what: &str) {
    let worlds = Worlds::drawn_or_replayed(count(200, 2000));
    let statistics = comparison.agree_on(what, &worlds);
    if worlds.are_a_sample() {
        let (rejected, differed) = (statistics.rejected_percent(PLUGIN), statistics.differed_percent(PLUGIN));
        assert!(rejected >= SHARE_PERCENT_MIN, "the plugin rarely rejects a node\n{statistics}");
        assert!(differed >= SHARE_PERCENT_MIN, "the plugin rarely prefers a node\n{statistics}");
    }
}

#[test]
fn the_extender_agrees_with_the_plugin_without_lifting() {
    agree_on_enough_worlds(Comparison::as_written(), "as written");
}

#[test]
fn the_extender_agrees_with_the_plugin_on_lifted_worlds() {
    agree_on_enough_worlds(Comparison::lifting(), "lifted");
}

/// A certain difference: the extender lifts, and the plugin gets the world without lifting.
#[test]
fn a_difference_is_found_and_shrunk() {
    let mut comparison = Comparison { for_plugin: World::clone, ..Comparison::lifting() };
    let differs = |comparison: &mut Comparison, world: &World| !comparison.differences(world).unwrap().1.is_empty();
    let numbers = Worlds::drawn(count(200, 2000)).numbers();
    let worlds = numbers.map(|number| World::random(number, Profile::InterPodAffinity));
    let differing: Vec<World> = worlds.filter(|world| differs(&mut comparison, world)).collect();
    assert!(differing.len() * 20 >= count(200, 2000), "lifting matters in only {} worlds", differing.len());
    let small = comparison.smallest_with_differences(&differing[0]);
    assert!(differs(&mut comparison, &small));
    // One or two nodes, an existing pod, the pod to place, and possibly a namespace.
    assert!(small.object_count() <= 5 && small.object_count() < differing[0].object_count(), "{small:#?}");
}
