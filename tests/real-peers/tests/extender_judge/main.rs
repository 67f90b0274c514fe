//! The extender against kube-scheduler's own InterPodAffinity, on random worlds of the run's seed.
//!
//! In: worlds as Kubernetes objects. Both sides say of every node whether the pod may go there and whether evictions would
//! help, and how good the nodes that are left are. `extender` asks Bridger as kube-scheduler does; `opinion` is what either
//! side says; `misreadings` shows that these worlds would give a wrong reading of the semantics away.

mod extender;
mod misreadings;
mod opinion;

use judge::{Answer, Judge, Profile, Statistics, World, shrink};
use model::affinity::LiftSettings;
use testkit::worlds::how_to_replay;
use testkit::{Worlds, count};

use crate::extender::{Asking, Seen};
use crate::opinion::Opinion;

const PLUGIN: &str = "InterPodAffinity";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// In fewer worlds than this the comparison would mean little.
const SHARE_PERCENT_MIN: f64 = 5.0;

/// How the two sides look at one world.
struct Comparison {
    judge: Judge,
    asking: Asking,
    /// The world that the plugin sees.
    for_plugin: fn(&World) -> World,
    /// What both are held to.
    wording: fn(Opinion) -> Opinion,
}

impl Comparison {
    /// Every term as it is written.
    fn as_written() -> Comparison {
        Comparison {
            judge: Judge::start().unwrap(),
            asking: Asking::new(LiftSettings { lifted_keys: [].into(), ..LiftSettings::default() }),
            for_plugin: World::clone,
            wording: |opinion| opinion,
        }
    }

    /// Anti-affinity between nodes holds between physical hosts, which the plugin sees as one more label.
    fn lifting() -> Comparison {
        Comparison {
            judge: Judge::start().unwrap(),
            asking: Asking::new(LiftSettings::default()),
            for_plugin: |world| world.lifted(HOSTNAME, &LiftSettings::default().host_key),
            // Where several terms refuse a node, the extender names the one that is written so before the lifted one.
            wording: Opinion::without_reasons,
        }
    }

    /// The judge's answer, and what it comes to.
    fn plugin(&mut self, world: &World) -> Result<(Answer, Opinion), String> {
        let answer = self.judge.ask(&(self.for_plugin)(world)).map_err(|error| error.to_string())?;
        let opinion = (self.wording)(Opinion::of_plugin(&answer));
        Ok((answer, opinion))
    }

    /// Where the two differ; empty where they agree.
    fn differences(&mut self, world: &World) -> Result<(Answer, Vec<String>), String> {
        let (answer, expected) = self.plugin(world)?;
        let mut differences = Vec::new();
        for seen in [Seen::Already, Seen::NotYet] {
            let found = (self.wording)(self.asking.about(world, seen)?);
            differences.extend(found.differences_from(&expected).into_iter().map(|line| format!("{seen:?}: {line}")));
        }
        Ok((answer, differences))
    }

    /// A small world in which the two still differ.
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

fn agree_and_ask_enough(mut comparison: Comparison, what: &str) {
    let worlds = Worlds::drawn_or_replayed(count(200, 2000));
    let statistics = comparison.agree_on(what, &worlds);
    if worlds.are_a_sample() {
        let (rejected, differed) = (statistics.rejected_percent(PLUGIN), statistics.differed_percent(PLUGIN));
        assert!(rejected >= SHARE_PERCENT_MIN, "the plugin hardly ever refuses a node\n{statistics}");
        assert!(differed >= SHARE_PERCENT_MIN, "the plugin hardly ever prefers a node\n{statistics}");
    }
}

#[test]
fn the_extender_agrees_with_the_plugin_on_terms_as_they_are_written() {
    agree_and_ask_enough(Comparison::as_written(), "as written");
}

#[test]
fn the_extender_agrees_with_the_plugin_on_the_same_world_lifted_to_hosts() {
    agree_and_ask_enough(Comparison::lifting(), "lifted");
}

/// A difference that is there for sure: the extender lifts, and the plugin sees the world as it is written.
#[test]
fn a_difference_is_found_and_made_small() {
    let mut comparison = Comparison { for_plugin: World::clone, ..Comparison::lifting() };
    let differs = |comparison: &mut Comparison, world: &World| !comparison.differences(world).unwrap().1.is_empty();
    let numbers = Worlds::drawn(count(200, 2000)).numbers();
    let worlds = numbers.map(|number| World::random(number, Profile::InterPodAffinity));
    let differing: Vec<World> = worlds.filter(|world| differs(&mut comparison, world)).collect();
    assert!(differing.len() * 20 >= count(200, 2000), "lifting matters in {} worlds only", differing.len());
    let small = comparison.smallest_with_differences(&differing[0]);
    assert!(differs(&mut comparison, &small));
    // Two nodes on a host, or one host among nodes; a pod that is there, the pod to place, and whatever they need.
    assert!(small.object_count() <= 5 && small.object_count() < differing[0].object_count(), "{small:#?}");
}
