//! Compares `bridger explain` with kube-scheduler's own plugins, on random worlds of the run's seed: the command's
//! output for a file equals upstream's result for the same objects: every verdict, plugin, normalised score and total,
//! and the best nodes.
//!
//! The tests also check that the worlds exercise every plugin and that misreadings are detected. `tests/judge` does
//! both for the plugins themselves; here the same worlds go through files, the command line and its JSON.

use anyhow::{Context, Result, bail, ensure};
use judge::{Answer, Judge, Profile, Statistics, World};
use testkit::worlds::how_to_replay;
use testkit::{Worlds, bridger::run_to_end, count};

/// Plugins that can reject nodes. Each must do so in at least [`SHARE_PERCENT_MIN`] of the worlds.
const REJECTING: &[&str] = &[
    "NodeName",
    "NodeUnschedulable",
    "NodeDeclaredFeatures",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
];
/// Plugins that score. Their scores must differ in at least [`SHARE_PERCENT_MIN`] of the worlds with several feasible
/// nodes.
const SCORING: &[&str] = &[
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "PodTopologySpread",
    "InterPodAffinity",
];
const SHARE_PERCENT_MIN: f64 = 5.0;
/// Concurrent commands.
const AT_ONCE: usize = 4;

/// The command's answer for a world, read from a file.
async fn explained(folder: &std::path::Path, number: u64, world: &World) -> Result<Answer> {
    let list = folder.join(format!("{number}.world"));
    // Every third world as YAML: kubectl prints both formats.
    let objects = world.to_list_json();
    let text = if number.is_multiple_of(3) { serde_saphyr::to_string(&objects)? } else { objects.to_string() };
    std::fs::write(&list, text)?;
    let (pod, list) = (world.pod_key(), list.display().to_string());
    // Upstream has no lifting.
    let mut arguments = vec!["explain", &pod, "--snapshot", &list, "-o", "json", "--lift", "none"];
    let config = folder.join(format!("{number}.config")).display().to_string();
    if let Some(text) = world.config_text() {
        std::fs::write(&config, text)?;
        arguments.extend(["--config", &config]);
    }
    let finished = run_to_end(&arguments, &[]).await?;
    ensure!(matches!(finished.code, Some(0 | 3)), "world {number}: {finished:?}");
    let answer: Answer = serde_json::from_str(&finished.stdout).with_context(|| finished.stdout.clone())?;
    ensure!((finished.code == Some(0)) == (answer.feasible > 0), "world {number}: {finished:?}");
    Ok(answer)
}

/// Ten misreadings of the semantics, as changes of the world. With each, the command answers as if it had that
/// misreading, and the comparison must detect it.
type Misreading = (&'static str, fn(&mut World));
const MISREADINGS: &[Misreading] = &[
    ("terminating pods do not count", |world| {
        world.pods.retain(|pod| pod["metadata"].get("deletionTimestamp").is_none());
    }),
    ("services do not spread", |world| world.services.clear()),
    ("namespaces have no labels", |world| {
        world.namespaces.iter_mut().for_each(|it| drop_field(it, "/metadata", "labels"));
    }),
    ("taints are ignored", |world| world.nodes.iter_mut().for_each(|it| drop_field(it, "/spec", "taints"))),
    ("cordons are ignored", |world| {
        world.nodes.iter_mut().for_each(|it| drop_field(it, "/spec", "unschedulable"));
    }),
    ("images are ignored", |world| world.nodes.iter_mut().for_each(|it| drop_field(it, "/status", "images"))),
    ("overhead is ignored", |world| {
        world.pods.iter_mut().chain([&mut world.pod]).for_each(|it| drop_field(it, "/spec", "overhead"));
    }),
    ("tolerations are ignored", |world| drop_field(&mut world.pod, "/spec", "tolerations")),
    ("existing pods' terms are ignored", |world| {
        world.pods.iter_mut().for_each(|it| drop_field(it, "/spec", "affinity"));
    }),
    ("spread constraints are ignored", |world| drop_field(&mut world.pod, "/spec", "topologySpreadConstraints")),
];

fn drop_field(object: &mut serde_json::Value, parent: &str, field: &str) {
    if let Some(fields) = object.pointer_mut(parent).and_then(serde_json::Value::as_object_mut) {
        fields.remove(field);
    }
}

/// The judge's answer without DynamicResources: Bridger does not support device claims, so pods with claims wait.
fn ask(judge: &mut Judge, world: &World) -> Result<Answer> {
    let mut answer = judge.ask(world)?;
    answer.forget_scores_of("DynamicResources");
    Ok(answer)
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn explain_agrees_with_upstream() -> Result<()> {
    use futures::{StreamExt, TryStreamExt};
    let workdir = testkit::workdir::Workdir::create("explain")?;
    let worlds = Worlds::drawn_or_replayed(count(500, 5000));
    println!("{worlds}");
    let mut answers: Vec<(u64, Answer)> = futures::stream::iter(worlds.numbers())
        .map(|number| {
            let folder = workdir.path().to_owned();
            async move { anyhow::Ok((number, explained(&folder, number, &World::random(number, Profile::All)).await?)) }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    answers.sort_by_key(|(number, _)| *number);
    let mut judge = Judge::start()?;
    let (mut statistics, mut wrong) = (Statistics::default(), Vec::new());
    for (number, answer) in &answers {
        let right = ask(&mut judge, &World::random(*number, Profile::All))?;
        statistics.note(&right);
        wrong.extend(right.differences_from(answer).into_iter().map(|line| (*number, line)));
    }
    println!("{statistics}");
    if let Some((number, _)) = wrong.first() {
        let how = how_to_replay(*number, Profile::All.name());
        bail!("{} differences, the first: {:#?}\n{how}", wrong.len(), &wrong[..wrong.len().min(10)]);
    }
    if !worlds.are_a_sample() {
        return Ok(());
    }
    let idle_filters = REJECTING.iter().filter(|plugin| statistics.rejected_percent(plugin) < SHARE_PERCENT_MIN);
    let idle_scores = SCORING.iter().filter(|plugin| statistics.differed_percent(plugin) < SHARE_PERCENT_MIN);
    let idle: Vec<_> = idle_filters.chain(idle_scores).collect();
    ensure!(idle.is_empty(), "the worlds rarely exercise {idle:?}");
    Ok(())
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn explain_misreadings_are_detected() -> Result<()> {
    let workdir = testkit::workdir::Workdir::create("explain-misread")?;
    let mut judge = Judge::start()?;
    // The first few worlds detect most misreadings; one world in twenty-five detects the rarest.
    let worlds = Worlds::drawn(400);
    println!("{worlds}");
    for (name, misread) in MISREADINGS {
        let (mut changed, mut caught) = (0, 0);
        for number in worlds.numbers() {
            let world = World::random(number, Profile::All);
            let mut other = world.clone();
            misread(&mut other);
            if other == world {
                continue;
            }
            changed += 1;
            let answer = explained(workdir.path(), number, &other).await?;
            if !ask(&mut judge, &world)?.differences_from(&answer).is_empty() {
                caught += 1;
                // Once is enough to fail the comparison.
                break;
            }
        }
        println!("{name:<36} detected in changed world number {changed}");
        ensure!(caught > 0, "{name}: {changed} worlds were misread, and the comparison did not detect it");
    }
    Ok(())
}
