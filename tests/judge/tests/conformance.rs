//! Compares the plugins of `scheduler` with kube-scheduler's own: every node's verdict, plugin and reasons, and every
//! plugin's normalised score. First on the worlds in `cases/`, where the two once differed or are likely to, and in
//! `malformed/`, which an API server would reject; then on random worlds of the run's seed. A world with a difference
//! is shrunk and saved in the target folder, to be moved to `cases/`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use judge::{Answer, Judge, Profile, World, shrink};
use model::event::Event;
use scheduler::{Configuration, Explanation, explain, plugins};
use testkit::worlds::how_to_replay;
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

fn decide(world: &World) -> Result<Explanation, String> {
    // Upstream has no lifting, so it is disabled here.
    let mut known =
        model::World::with_lifting(model::LiftSettings { lifted_keys: BTreeSet::new(), ..Default::default() });
    for object in world.to_list_json()["items"].as_array().ok_or("no list")? {
        let event: Option<Event> = kubernetes::objects::applied(object).map_err(|error| error.to_string())?;
        if let Some(event) = event {
            known.apply(event);
        }
    }
    let registry = plugins::standard();
    let configuration = match &world.config {
        Some(config) => Configuration::from_value(config, &registry).map_err(|error| error.to_string())?,
        None => Configuration::with_name("default-scheduler", &registry).map_err(|error| error.to_string())?,
    };
    let key = world.pod_key();
    let (namespace, name) = key.split_once('/').ok_or("no name")?;
    let pod = known.pod_id(namespace, name).ok_or("the pod is not known")?;
    explain(&known, pod, &configuration.profiles()[0])
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

/// The worlds saved in a folder, by name.
fn saved_in(folder: &str) -> Vec<(String, World)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let world = serde_json::from_str(&fs::read_to_string(&path).unwrap());
        (name, world.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    paths.into_iter().map(read).collect()
}

/// Saves a world in the target folder and returns its path.
fn save(name: &str, world: &World) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("judge-cases");
    fs::create_dir_all(&folder).unwrap();
    let name: String = name.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).collect();
    let path = folder.join(format!("{name}.json"));
    fs::write(&path, serde_json::to_string_pretty(world).unwrap() + "\n").unwrap();
    path
}

/// Compares the saved worlds, before any random world.
fn replay(judge: &mut Judge) {
    for (name, world) in saved_in("cases").into_iter().chain(saved_in("malformed")) {
        let found = differences(judge, &world).unwrap_or_else(|error| vec![error]);
        assert!(found.is_empty(), "the saved case {name}:\n{}", found.join("\n"));
    }
}

#[allow(clippy::print_stdout)]
fn compare(profile: Profile, worlds: &Worlds) {
    println!("{profile:?}: {worlds}");
    let mut judge = Judge::start().unwrap();
    replay(&mut judge);
    let mut kinds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for number in worlds.numbers() {
        let found = differences(&mut judge, &World::random(number, profile));
        let found = found.unwrap_or_else(|error| vec![format!("unanswered: {error}")]);
        let found: BTreeSet<String> =
            found.iter().map(|line| line.split(": ").next().unwrap_or_default().to_owned()).collect();
        found.into_iter().for_each(|kind| kinds.entry(kind).or_default().push(number));
    }
    for (kind, numbers) in &kinds {
        let is_kind = |line: &String| line.starts_with(kind.as_str());
        let small = shrink(&World::random(numbers[0], profile), |world| {
            differences(&mut judge, world).is_ok_and(|found| found.iter().any(is_kind))
        });
        let path = save(&format!("{profile:?} {} {kind}", numbers[0]), &small);
        println!("{kind}: {} worlds, the first is {}", numbers.len(), numbers[0]);
        println!("{}", differences(&mut judge, &small).unwrap_or_else(|error| vec![error]).join("\n"));
        println!("{}", how_to_replay(numbers[0], profile.name()));
        println!("shrunk: {}\nmove it to tests/judge/cases/ to replay it in every run\n", path.display());
    }
    let first: BTreeMap<&String, u64> = kinds.iter().map(|(kind, numbers)| (kind, numbers[0])).collect();
    assert!(first.is_empty(), "{profile:?}: {worlds}; differences, each with its first world: {first:?}");
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
