//! The same two plugins, at every point, in kube-scheduler and in Bridger: the same scenarios give the same calls in the
//! same order, the same conditions and the same ends, up to the differences in `recorder/differences.rs`.

mod recorder {
    pub mod calls;
    pub mod differences;
    pub mod stage;
    pub mod watched;
}

use std::time::Duration;

use anyhow::{Result, ensure};
use recorder::differences::{AMONG_MANY, DIFFERENCES, Difference, EQUAL, NOMINATED, unexplained};
use recorder::stage::{AT_ONCE, EXECUTORS, Profile, SHARING, Scene, Stage, UPSTREAM};
use testkit::eventually;

/// The profiles in which the scenarios run.
const PROFILES: &[Profile] = &[UPSTREAM, EXECUTORS, AT_ONCE];

const fn always(scenario: &'static str) -> Scene {
    Scene { pod: scenario, scenario, times: None }
}

/// The plugins deviate in the first attempt alone, so that the second one succeeds.
const fn once(scenario: &'static str) -> Scene {
    Scene { pod: scenario, scenario, times: Some(1) }
}

/// These need nobody else: the pod is bound, at once or after a back-off.
const ALONE: &[Scene] = &[
    always("success"),
    once("pre-filter-error"),
    once("filter-error"),
    always("pre-score-skips"),
    once("score-out-of-range"),
    always("pre-flight-skips"),
    always("bind-declined-then-taken"),
];

/// These are rejected, and wait for a change of a node.
const REJECTED: &[Scene] =
    &[once("filter-refuses-all"), once("post-filter-error"), once("reserve-fails-in-second"), once("permit-denied")];

/// These fail when their nominated node has been written. For a moment after it is cleared, Bridger may still see it, and
/// would filter that node twice for other pods: so one after the other.
const NOMINATED_AND_REJECTED: &[Scene] = &[once("permit-times-out"), once("permit-waits-not-at-all")];
const NOMINATED_AND_FAILED: &[Scene] = &[once("pre-bind-fails"), once("pre-bind-rejects"), once("bind-fails")];

/// Created while another pod of the same priority is nominated to n1.
const BESIDE_NOMINATED: Scene = Scene { pod: "beside-nominated", scenario: "success", times: None };

/// Rejected again after the change.
const NEVER: Scene = Scene { pod: "never", scenario: "filter-refuses-all", times: None };

/// These wait until another pod, or the test, ends it.
const WAITING: &[Scene] = &[
    always("permit-waits-then-allowed"),
    once("permit-waits-then-rejected"),
    always("permit-waits-for-both"),
    always("deleted-while-waiting"),
];

const OTHERS: &[Scene] = &[always("allower"), always("rejecter")];

const ALL_SCENARIOS: usize = 23;

fn names(scenes: &[Scene]) -> Vec<&'static str> {
    scenes.iter().map(|scene| scene.pod).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_are_called_as_in_kube_scheduler() -> Result<()> {
    let stage = Stage::start().await?;
    stage.create(PROFILES, &[once(NOMINATED)]).await?;
    stage.unschedulable(PROFILES, &[NOMINATED]).await?;
    stage.nominated(PROFILES, NOMINATED).await?;
    stage.create(PROFILES, &[BESIDE_NOMINATED]).await?;
    stage.bound(PROFILES, &[BESIDE_NOMINATED.pod]).await?;
    stage.touch_node().await?;
    stage.bound(PROFILES, &[NOMINATED]).await?;

    stage.create(PROFILES, ALONE).await?;
    stage.create(PROFILES, REJECTED).await?;
    stage.create(PROFILES, &[NEVER]).await?;
    stage.unschedulable(PROFILES, &names(REJECTED)).await?;
    stage.unschedulable(PROFILES, &[NEVER.pod]).await?;
    stage.touch_node().await?;
    stage.bound(PROFILES, &names(ALONE)).await?;
    stage.bound(PROFILES, &names(REJECTED)).await?;
    stage.called(PROFILES, &[NEVER.pod], "PostFilter", 2).await?;
    stage.delete(PROFILES, NEVER.pod).await?;

    for scene in NOMINATED_AND_REJECTED {
        stage.create(PROFILES, &[*scene]).await?;
        stage.unschedulable(PROFILES, &[scene.pod]).await?;
        stage.touch_node().await?;
        stage.bound(PROFILES, &[scene.pod]).await?;
    }
    for scene in NOMINATED_AND_FAILED {
        stage.create(PROFILES, &[*scene]).await?;
        stage.bound(PROFILES, &[scene.pod]).await?;
    }

    stage.create(PROFILES, WAITING).await?;
    // The last call before the wait.
    stage.called(PROFILES, &names(WAITING), "PreBindPreFlight", 1).await?;
    stage.delete(PROFILES, "deleted-while-waiting").await?;
    stage.create(PROFILES, OTHERS).await?;
    stage.bound(PROFILES, &["allower", "rejecter", "permit-waits-then-allowed", "permit-waits-for-both"]).await?;
    stage.unschedulable(PROFILES, &["permit-waits-then-rejected"]).await?;
    stage.touch_node().await?;
    stage.bound(PROFILES, &["permit-waits-then-rejected"]).await?;

    let equal = [Scene { pod: "equal-1", ..always("success") }, Scene { pod: EQUAL, ..always("success") }];
    for scene in equal {
        stage.create(&[UPSTREAM, SHARING], &[scene]).await?;
        stage.bound(&[UPSTREAM, SHARING], &[scene.pod]).await?;
    }

    let scenes = [
        &[once(NOMINATED), BESIDE_NOMINATED, NEVER],
        ALONE,
        REJECTED,
        NOMINATED_AND_REJECTED,
        NOMINATED_AND_FAILED,
        WAITING,
        OTHERS,
    ]
    .concat();
    let scenarios: std::collections::BTreeSet<&str> = scenes.iter().map(|scene| scene.scenario).collect();
    ensure!(scenarios.len() == ALL_SCENARIOS, "{} scenarios ran", scenarios.len());
    let scenes = names(&scenes);
    let bound: Vec<&str> =
        scenes.iter().copied().filter(|pod| ![NEVER.pod, "deleted-while-waiting"].contains(pod)).collect();
    stage.called(PROFILES, &bound, "PostBind", 1).await?;
    stage.called(PROFILES, &["deleted-while-waiting"], "Unreserve", 1).await?;

    among_many(&stage).await?;

    let compared: [(Profile, &[&str]); 4] =
        [(EXECUTORS, &scenes), (AT_ONCE, &scenes), (SHARING, &["equal-1", EQUAL]), (EXECUTORS, &[AMONG_MANY])];
    calls_agree(&stage, &compared)?;
    // The watch may be late.
    eventually(Duration::from_secs(10), || async { ends_agree(&stage, &compared) }).await
}

/// Places a pod among more nodes than kube-scheduler looks at.
async fn among_many(stage: &Stage) -> Result<()> {
    stage.add_nodes(120).await?;
    stage.create(&[UPSTREAM, EXECUTORS], &[Scene { pod: AMONG_MANY, ..always("success") }]).await?;
    stage.called(&[UPSTREAM, EXECUTORS], &[AMONG_MANY], "PostBind", 1).await
}

fn calls_agree(stage: &Stage, compared: &[(Profile, &[&str])]) -> Result<()> {
    let upstream = stage.calls(UPSTREAM)?;
    let without = |differences: &[&Difference]| {
        let mut found = Vec::new();
        for &(profile, pods) in compared {
            let differing = unexplained(&upstream, &stage.calls(profile)?, pods.iter().copied(), differences);
            found.extend(differing.into_iter().map(|difference| format!("{profile}/{difference}")));
        }
        anyhow::Ok(found)
    };
    let all: Vec<&Difference> = DIFFERENCES.iter().collect();
    let unexplained = without(&all)?;
    ensure!(unexplained.is_empty(), "calls differ:\n{}", unexplained.join("\n"));
    for left_out in DIFFERENCES {
        let others: Vec<_> = all.iter().copied().filter(|other| other.name != left_out.name).collect();
        ensure!(!without(&others)?.is_empty(), "{} ({}) does not occur any more", left_out.name, left_out.reason);
    }
    Ok(())
}

/// Conditions, nodes and nominations.
fn ends_agree(stage: &Stage, compared: &[(Profile, &[&str])]) -> Result<()> {
    let mut wrong = Vec::new();
    for (profile, pods) in compared {
        for pod in *pods {
            let (expected, found) = (stage.shown(UPSTREAM, pod)?, stage.shown(profile, pod)?);
            if expected != found {
                wrong
                    .push(format!("{profile}/{pod}:\n    kube-scheduler: {expected:?}\n    Bridger:        {found:?}"));
            }
        }
    }
    ensure!(wrong.is_empty(), "what the API shows differs:\n{}", wrong.join("\n"));
    Ok(())
}
