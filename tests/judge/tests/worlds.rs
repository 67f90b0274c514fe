//! Random worlds are valid, reproducible from their number, and exercise every plugin for every seed.

use judge::{Judge, Profile, Statistics, World};
use testkit::{Worlds, count};

/// Plugins that can reject a node.
const FILTERS: &[&str] = &[
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeDeclaredFeatures",
];

/// Plugins that can prefer one node to another.
const SCORERS: &[&str] = &[
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "PodTopologySpread",
    "InterPodAffinity",
];

/// The smallest share is about 11 %. With 600 worlds, a share below 5 % is more than four standard deviations away.
const SHARE_PERCENT_MIN: f64 = 5.0;

#[allow(clippy::print_stdout)]
fn judge_many(profile: Profile, filters: &[&str], scorers: &[&str]) {
    let mut judge = Judge::start().unwrap();
    let mut statistics = Statistics::default();
    let worlds = Worlds::drawn(count(600, 4000));
    let started = std::time::Instant::now();
    for number in worlds.numbers() {
        let answer = judge.ask(&World::random(number, profile)).unwrap_or_else(|error| panic!("{number}: {error}"));
        statistics.note(&answer);
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{profile:?}: {worlds}, in {seconds:.1} s\n{statistics}");
    for plugin in filters {
        assert!(statistics.rejected_percent(plugin) >= SHARE_PERCENT_MIN, "{plugin} rarely rejects\n{statistics}");
    }
    for plugin in scorers {
        assert!(statistics.differed_percent(plugin) >= SHARE_PERCENT_MIN, "{plugin} rarely prefers\n{statistics}");
    }
}

#[test]
fn every_plugin_rejects_and_prefers_nodes_in_enough_worlds() {
    judge_many(Profile::All, FILTERS, SCORERS);
}

#[test]
fn every_plugin_rejects_and_prefers_nodes_in_enough_worlds_with_nominated_pods() {
    judge_many(Profile::Nominated, FILTERS, SCORERS);
}

#[test]
fn inter_pod_affinity_alone_rejects_and_prefers_nodes_in_enough_worlds() {
    judge_many(Profile::InterPodAffinity, &["InterPodAffinity"], &["InterPodAffinity"]);
}

/// Tests compare the extender and the scheduler with the judge on lifted worlds when physical hosts are known.
#[test]
#[allow(clippy::print_stdout)]
fn lifting_changes_verdicts_and_scores_in_enough_worlds() {
    let mut judge = Judge::start().unwrap();
    let worlds = count(400, 2000);
    let (mut verdicts, mut scores) = (0, 0);
    for number in Worlds::drawn(worlds).numbers() {
        let world = World::random(number, Profile::InterPodAffinity);
        let plain = judge.ask(&world).unwrap();
        let lifted =
            judge.ask_and_validate(&world.lifted("kubernetes.io/hostname", "alpha.cna.vmware.com/host")).unwrap();
        assert!(lifted.invalid.is_empty(), "{number}: {:#?}", lifted.invalid);
        let pairs = || plain.nodes.iter().zip(&lifted.nodes);
        verdicts += usize::from(pairs().any(|(plain, lifted)| plain.verdict != lifted.verdict));
        scores += usize::from(pairs().any(|(plain, lifted)| plain.scores != lifted.scores));
    }
    println!("lifting: of {worlds} worlds, {verdicts} have different verdicts and {scores} different scores");
    assert!(verdicts * 20 >= worlds && scores * 20 >= worlds);
}

#[test]
fn the_api_server_would_accept_every_world() {
    let mut judge = Judge::start().unwrap();
    for profile in Profile::ALL {
        for number in Worlds::drawn(count(150, 1500)).numbers() {
            let world = World::random(number, profile);
            let answer = judge.ask_and_validate(&world).unwrap_or_else(|error| panic!("{profile:?} {number}: {error}"));
            assert!(answer.invalid.is_empty(), "{profile:?} {number}: {:#?}", answer.invalid);
        }
    }
}

#[test]
fn a_number_gives_the_same_world_and_the_same_answer() {
    let (mut first, mut second) = (Judge::start().unwrap(), Judge::start().unwrap());
    // The second judge has answered other worlds before; they must not affect its answers.
    for number in 1000..1020 {
        second.ask(&World::random(number, Profile::All)).unwrap();
    }
    for number in 0..40 {
        for profile in Profile::ALL {
            let world = World::random(number, profile);
            assert_eq!(world, World::random(number, profile));
            assert_ne!(world, World::random(number + 1, profile));
            assert_eq!(first.ask(&world).unwrap(), second.ask(&world).unwrap(), "{profile:?} {number}");
        }
    }
}
