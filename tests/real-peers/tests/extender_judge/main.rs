//! The extender against kube-scheduler's own InterPodAffinity, on random worlds.
//!
//! In: worlds as Kubernetes objects. Both sides say of every node whether the pod may go there and whether evictions would
//! help, and how good the nodes that are left are: `extender` asks Bridger as kube-scheduler does, `plugin` the judge.
//! `misreadings` shows that these worlds would give a wrong reading of the semantics away.

mod extender;
mod misreadings;
mod opinion;

use judge::{Judge, Profile, Statistics, World, shrink};
use model::affinity::LiftSettings;
use testkit::count;

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

    /// Where the two differ; empty where they agree.
    fn differences(&mut self, world: &World) -> Result<(judge::Answer, Vec<String>), String> {
        let answer = self.judge.ask(&(self.for_plugin)(world)).map_err(|error| error.to_string())?;
        let expected = (self.wording)(Opinion::of_plugin(&answer));
        let mut differences = Vec::new();
        for seen in [Seen::Already, Seen::NotYet] {
            let found = (self.wording)(self.asking.about(world, seen)?);
            differences.extend(found.differences_from(&expected).into_iter().map(|line| format!("{seen:?}: {line}")));
        }
        Ok((answer, differences))
    }

    #[allow(clippy::print_stdout)]
    fn agree_on(&mut self, what: &str, worlds: usize) -> Statistics {
        let mut statistics = Statistics::default();
        let started = std::time::Instant::now();
        for seed in 0..worlds as u64 {
            let world = World::random(seed, Profile::InterPodAffinity);
            let (answer, differences) = self.differences(&world).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            if !differences.is_empty() {
                let small = shrink(&world, |world| self.differences(world).is_ok_and(|(_, found)| !found.is_empty()));
                let of_small = self.differences(&small).map(|(_, found)| found);
                let small = serde_json::to_string_pretty(&small).unwrap_or_default();
                panic!("{what}, seed {seed}: {differences:#?}\nin a small world: {of_small:#?}\n{small}");
            }
            statistics.note(&answer);
        }
        println!("{what}: no difference in {worlds} worlds, {:.1} s\n{statistics}", started.elapsed().as_secs_f64());
        statistics
    }
}

fn asks_enough(statistics: &Statistics) {
    let (rejected, differed) = (statistics.rejected_percent(PLUGIN), statistics.differed_percent(PLUGIN));
    assert!(rejected >= SHARE_PERCENT_MIN, "the plugin hardly ever refuses a node\n{statistics}");
    assert!(differed >= SHARE_PERCENT_MIN, "the plugin hardly ever prefers a node\n{statistics}");
}

#[test]
fn the_extender_agrees_with_the_plugin_on_terms_as_they_are_written() {
    asks_enough(&Comparison::as_written().agree_on("as written", count(200, 2000)));
}

#[test]
fn the_extender_agrees_with_the_plugin_on_the_same_world_lifted_to_hosts() {
    asks_enough(&Comparison::lifting().agree_on("lifted", count(200, 2000)));
}
