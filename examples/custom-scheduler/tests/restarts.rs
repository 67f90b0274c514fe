//! A process ends while pods wait at Permit or their executor works at PreBind: nothing leaks, and the next process decides
//! about each pod again. A second process that does not lead changes nothing.

mod stage;

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::{Bridger, eventually};

use stage::{SOON, Stage, arguments};

/// Longer than any test.
const LONG_MS: u32 = 600_000;
/// Each pod, and the licences that it needs: together more than there are.
const PODS: [(&str, u32); 3] = [("a", 2), ("b", 2), ("c", 1)];

/// Creates the pods. `a` and `b` get a place and go on slowly; `c` finds no licence.
async fn fill(stage: &Stage) -> Result<()> {
    for (name, licences) in PODS {
        stage.create(name, Some(&licences.to_string())).await?;
        if name == "c" {
            stage.waits_because("c", "4 held by pods that are being bound").await?;
        } else {
            stage.is_announced(name).await?;
        }
    }
    Ok(())
}

/// Each pod is bound, or was rejected by a process that does not hold four licences; no more licences are in use than there
/// are; and a pending pod has no nomination, which would keep room for it.
async fn each_pod_is_decided_again(stage: &Stage, licences: u32) -> Result<()> {
    eventually(SOON, || async {
        let mut in_use = 0;
        for (name, needed) in PODS {
            let pod = stage.pod(name).await?;
            let status = &pod["status"];
            if pod["spec"]["nodeName"].is_string() {
                let marked = &pod["metadata"]["annotations"]["example.com/licences-checked-out"];
                ensure!(
                    marked.as_str() == Some(needed.to_string().as_str()),
                    "{name} was bound without the work before it: {marked}"
                );
                in_use += needed;
            } else {
                // Not what the first process said of `c`.
                let text = status.to_string();
                let is_new = text.contains(&format!("licences: {needed} needed, ")) && !text.contains("4 held");
                ensure!(is_new, "{name} is not decided again: {status}");
            }
            // The API server clears it when a pod is bound.
            ensure!(status["nominatedNodeName"].as_str().unwrap_or_default().is_empty(), "{name}: {status}");
        }
        ensure!((1..=licences).contains(&in_use), "{in_use} of {licences} licences are in use");
        Ok(())
    })
    .await
}

async fn a_kill_leaves_nothing_behind(slow: Value) -> Result<()> {
    let stage = Stage::start().await?;
    let mut first = stage.scheduler(&arguments(&slow))?;
    first.prints("Listening", SOON).await?;
    fill(&stage).await?;
    first.kill_hard();
    for (name, _) in PODS {
        ensure!(stage.pod(name).await?["spec"]["nodeName"].is_null(), "{name} is bound");
    }
    // Fewer licences than before: at least one of the pods that had a place gets none.
    let mut second = stage.scheduler(&arguments(&json!({ "licences": 2 })))?;
    second.prints("Listening", SOON).await?;
    each_pod_is_decided_again(&stage, 2).await
}

#[tokio::test]
async fn a_kill_while_pods_wait_at_permit_leaves_nothing_behind() -> Result<()> {
    a_kill_leaves_nothing_behind(json!({ "licences": 4, "approvalWithinMs": LONG_MS })).await
}

#[tokio::test]
async fn a_kill_while_executors_work_at_pre_bind_leaves_nothing_behind() -> Result<()> {
    a_kill_leaves_nothing_behind(json!({ "licences": 4, "checkoutTakesMs": LONG_MS })).await
}

/// Whether the process leads; `None` before it says so.
async fn leads(process: &Bridger) -> Result<Option<bool>> {
    let metrics = process.get("/metrics").await?;
    let lines: Vec<&str> = metrics.lines().filter(|line| line.starts_with("leader_election_master_status{")).collect();
    Ok(lines.first().map(|line| line.ends_with(" 1")))
}

async fn attempts(process: &Bridger) -> Result<usize> {
    let metrics = process.get("/metrics").await?;
    Ok(metrics.lines().filter(|line| line.starts_with("scheduler_schedule_attempts_total{")).count())
}

#[tokio::test]
async fn a_second_instance_changes_nothing_until_it_leads() -> Result<()> {
    let stage = Stage::start().await?;
    let election = json!({
        "leaderElect": true, "leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms",
    });
    let slow = json!({ "licences": 4, "approvalWithinMs": LONG_MS });
    let mut leader = stage.scheduler_with(&arguments(&slow), &election)?;
    leader.prints("Listening", SOON).await?;
    fill(&stage).await?;
    ensure!(leads(&leader).await? == Some(true));
    // This one would bind at once.
    let mut follower = stage.scheduler_with(&arguments(&json!({ "licences": 2 })), &election)?;
    follower.prints("Listening", SOON).await?;
    // More than the lease lasts.
    let until = tokio::time::Instant::now() + Duration::from_secs(8);
    while tokio::time::Instant::now() < until {
        ensure!(leads(&follower).await? != Some(true), "two leaders");
        ensure!(attempts(&follower).await? == 0, "the follower tries pods");
        for (name, _) in PODS {
            let pod = stage.pod(name).await?;
            ensure!(pod["spec"]["nodeName"].is_null(), "{name} is bound");
            let is_nominated = pod["status"]["nominatedNodeName"].is_string();
            ensure!(is_nominated == (name != "c"), "{name}: {}", pod["status"]);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    leader.kill_hard();
    each_pod_is_decided_again(&stage, 2).await?;
    ensure!(leads(&follower).await? == Some(true));
    Ok(())
}
