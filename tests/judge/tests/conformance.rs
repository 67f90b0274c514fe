//! Compares the plugins of `scheduler` with kube-scheduler's own: every node's verdict, plugin and reasons, and every
//! plugin's normalised score. First on the worlds in `cases/`, where the two once differed or are likely to, and in
//! `malformed/`, which an API server would reject; then on random worlds of the run's seed. A world with a difference
//! is shrunk and saved in the target folder, to be moved to `cases/`.

mod bridger;
mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use bridger::decide;
use harness::{save, saved_in};
use judge::{Answer, Judge, Profile, World};
use scheduler::Explanation;
use testkit::{Worlds, count};

/// The compared fields of a node.
#[derive(Debug, PartialEq, Eq)]
struct NodeResult {
    verdict: String,
    plugin: String,
    reasons: Vec<String>,
    scores: BTreeMap<String, i64>,
}

fn sorted(reason: &str) -> Vec<String> {
    let mut reasons: Vec<String> = reason.split(", ").filter(|it| !it.is_empty()).map(str::to_owned).collect();
    reasons.sort();
    reasons
}

fn results_of_judge(answer: &Answer) -> BTreeMap<String, NodeResult> {
    let result = |node: &judge::NodeAnswer| NodeResult {
        verdict: format!("{:?}", node.verdict),
        plugin: node.plugin.clone(),
        reasons: sorted(&node.reason),
        scores: node.scores.clone(),
    };
    answer.nodes.iter().map(|node| (node.name.clone(), result(node))).collect()
}

fn own_results(explanation: &Explanation) -> BTreeMap<String, NodeResult> {
    let result = |node: &scheduler::NodeExplanation| NodeResult {
        verdict: format!("{:?}", node.verdict),
        plugin: node.plugin.clone().unwrap_or_default(),
        reasons: sorted(node.reason.as_deref().unwrap_or_default()),
        scores: node.scores.iter().flatten().map(|(plugin, score)| ((*plugin).to_owned(), *score)).collect(),
    };
    explanation.nodes.iter().map(|node| (node.name.clone(), result(node))).collect()
}

/// The differences between the judge and Bridger, one line each. `Err` if one of them has no answer.
fn differences(judge: &mut Judge, world: &World) -> Result<Vec<String>, String> {
    let mut answer = judge.ask(world).map_err(|error| format!("the judge: {error}"))?;
    // Bridger does not support device claims: pods with claims wait. For other pods the plugin scores every node 0.
    answer.forget_scores_of("DynamicResources");
    let theirs = results_of_judge(&answer);
    let own = own_results(&decide(world)?);
    let mut found = Vec::new();
    for (name, theirs) in &theirs {
        let Some(own) = own.get(name) else {
            found.push(format!("node missing: {name}"));
            continue;
        };
        if (&theirs.verdict, &theirs.plugin, &theirs.reasons) != (&own.verdict, &own.plugin, &own.reasons) {
            let of = |result: &NodeResult| format!("{} {} {:?}", result.verdict, result.plugin, result.reasons);
            found.push(format!("verdict {}/{}: {name} {}, here {}", theirs.plugin, own.plugin, of(theirs), of(own)));
            continue;
        }
        let plugins: BTreeSet<&String> = theirs.scores.keys().chain(own.scores.keys()).collect();
        for plugin in plugins {
            let (of_theirs, of_own) = (theirs.scores.get(plugin), own.scores.get(plugin));
            if of_theirs != of_own {
                found.push(format!("score {plugin}: {name} {of_theirs:?}, here {of_own:?}"));
            }
        }
    }
    Ok(found)
}

fn compare(profile: Profile, worlds: &Worlds) {
    harness::compare(profile, worlds, &mut differences);
}

#[test]
fn all_plugins_agree_with_upstream() {
    compare(Profile::All, &Worlds::drawn_or_replayed(count(500, 5000)));
}

#[test]
fn all_plugins_agree_with_upstream_when_there_are_nominated_pods() {
    compare(Profile::Nominated, &Worlds::drawn_or_replayed(count(500, 5000)));
}

#[test]
fn every_saved_case_is_valid_and_distinguishes_nodes() {
    let mut judge = Judge::start().unwrap();
    let cases = saved_in("cases");
    assert!(!cases.is_empty());
    for (name, world) in cases {
        let answer = judge.ask_and_validate(&world).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(answer.invalid, Vec::<String>::new(), "{name}");
        let mut nodes = answer.nodes.iter();
        let differs = |node: &judge::NodeAnswer| {
            (node.verdict, &node.scores) != (answer.nodes[0].verdict, &answer.nodes[0].scores)
        };
        assert!(answer.feasible == 0 || nodes.any(differs), "{name}: all nodes are alike");
    }
}

#[test]
fn a_saved_world_can_be_moved_to_the_cases() {
    let world = World::random(7, Profile::All);
    let path = save("for/a test", &world);
    let read: World = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!((read, path.file_name().and_then(|name| name.to_str())), (world, Some("for-a-test.json")));
    fs::remove_file(path).unwrap();
}
