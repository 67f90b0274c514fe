//! The plugins of `scheduler` against kube-scheduler's own, on random worlds: every node's verdict, plugin and reasons, and
//! every plugin's normalised score.

use std::collections::{BTreeMap, BTreeSet};

use judge::{Answer, Judge, Profile, World, shrink};
use model::event::Event;
use scheduler::{Configuration, Explanation, explain, plugins};
use testkit::count;

/// What is compared of a node.
#[derive(Debug, PartialEq, Eq)]
struct Said {
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

fn said_by_judge(answer: &Answer) -> BTreeMap<String, Said> {
    let said = |node: &judge::NodeAnswer| Said {
        verdict: format!("{:?}", node.verdict),
        plugin: node.plugin.clone(),
        reasons: sorted(&node.reason),
        scores: node.scores.clone(),
    };
    answer.nodes.iter().map(|node| (node.name.clone(), said(node))).collect()
}

fn said_here(explanation: &Explanation) -> BTreeMap<String, Said> {
    let said = |node: &scheduler::NodeExplanation| Said {
        verdict: format!("{:?}", node.verdict),
        plugin: node.plugin.clone().unwrap_or_default(),
        reasons: sorted(node.reason.as_deref().unwrap_or_default()),
        scores: node.scores.iter().flatten().map(|(plugin, score)| ((*plugin).to_owned(), *score)).collect(),
    };
    explanation.nodes.iter().map(|node| (node.name.clone(), said(node))).collect()
}

fn decide(world: &World) -> Result<Explanation, String> {
    // Lifting adds to what upstream says; here only that is compared.
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

/// How the two differ, a line each; empty where they agree. `Err` where one of them can't tell.
fn differences(judge: &mut Judge, world: &World) -> Result<Vec<String>, String> {
    let mut answer = judge.ask(world).map_err(|error| format!("the judge: {error}"))?;
    // Device claims are not supported here: such pods wait. For all others the plugin's score is 0 everywhere.
    answer.forget_scores_of("DynamicResources");
    let theirs = said_by_judge(&answer);
    let own = said_here(&decide(world)?);
    let mut found = Vec::new();
    for (name, theirs) in &theirs {
        let Some(own) = own.get(name) else {
            found.push(format!("node missing: {name}"));
            continue;
        };
        if (&theirs.verdict, &theirs.plugin, &theirs.reasons) != (&own.verdict, &own.plugin, &own.reasons) {
            let of = |said: &Said| format!("{} {} {:?}", said.verdict, said.plugin, said.reasons);
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

#[allow(clippy::print_stdout)]
fn compare(profile: Profile, worlds: usize) {
    let mut judge = Judge::start().unwrap();
    let mut kinds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for seed in 0..worlds as u64 {
        let found = differences(&mut judge, &World::random(seed, profile));
        let found = found.unwrap_or_else(|error| vec![format!("unanswered: {error}")]);
        let found: BTreeSet<String> =
            found.iter().map(|line| line.split(": ").next().unwrap_or_default().to_owned()).collect();
        found.into_iter().for_each(|kind| kinds.entry(kind).or_default().push(seed));
    }
    for (kind, seeds) in &kinds {
        let is_kind = |line: &String| line.starts_with(kind.as_str());
        let small = shrink(&World::random(seeds[0], profile), |world| {
            differences(&mut judge, world).is_ok_and(|found| found.iter().any(is_kind))
        });
        println!(
            "{kind}: {} worlds, the first of seed {}:\n{}",
            seeds.len(),
            seeds[0],
            serde_json::to_string(&small).unwrap()
        );
        println!("{}\n", differences(&mut judge, &small).unwrap_or_else(|error| vec![error]).join("\n"));
    }
    assert!(kinds.is_empty(), "{profile:?}: {worlds} worlds, and these differences: {:?}", kinds.keys());
}

#[test]
fn all_plugins_say_what_upstream_says() {
    compare(Profile::All, count(500, 5000));
}
