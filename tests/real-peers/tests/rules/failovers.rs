//! Fail-overs of the process that writes rules: the leader is killed, stopped cleanly, or suspended until another leads.
//!
//! Each instance has its own proxy in front of the vCenter, which records when its changes arrive.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::proxy::Points;
use testkit::proxy::vcenter::VcenterProxy;
use testkit::{Bridger, eventually};
use tokio::time::Instant;

use crate::kill_points::{Stage, pair};
use crate::stage::{SOON, metric};

const FAILOVERS_QUICK: usize = 6;
/// The number of pairs of six machines: each fail-over needs another one.
const FAILOVERS_FULL: usize = 15;
const CHANGE: &str = "ReconfigureComputeResource_Task";

struct Instance {
    bridger: Bridger,
    points: Points,
    _vcenter: VcenterProxy,
}

impl Instance {
    async fn start(stage: &Stage) -> Result<Instance> {
        let points = Points::default();
        let vcenter = VcenterProxy::start(stage.site.address()?, points.clone()).await?;
        let bridger = stage.cluster.run_through(stage.cluster.kubeconfig(), &vcenter.address).await?;
        Ok(Instance { bridger, points, _vcenter: vcenter })
    }

    async fn comes_to_lead(&self, expected: bool) -> Result<()> {
        eventually(SOON, || async {
            let leads = metric(&self.bridger, "leader_election_master_status{name=\"bridger\"}").await?;
            ensure!(leads == Some(u64::from(expected)), "{leads:?}: {}", self.bridger.output());
            Ok(())
        })
        .await
    }

    /// When its changes of rules arrived at the vCenter.
    fn changes(&self) -> Vec<Instant> {
        let arrived = self.points.arrived().into_iter();
        arrived.filter(|(_, step)| step == CHANGE).map(|(at, _)| at).collect()
    }
}

#[tokio::test]
async fn number_6_across_fail_overs_each_rule_exists_once_and_no_change_comes_late() -> Result<()> {
    let stage = Stage::start().await?;
    let mut leader = Instance::start(&stage).await?;
    leader.comes_to_lead(true).await?;
    let mut follower = Instance::start(&stage).await?;
    for round in 0..testkit::count(FAILOVERS_QUICK, FAILOVERS_FULL) {
        let signal = ["-KILL", "-TERM", "-STOP"][round % 3];
        let began = Instant::now();
        stage.place(&format!("app-{round}"), pair(round)).await?;
        // At another moment of the wait for more changes and of the pass each time.
        tokio::time::sleep(Duration::from_millis(800 + 97 * u64::try_from(round)? % 700)).await;
        leader.bridger.signal(signal).await?;
        follower.comes_to_lead(true).await?;
        if signal == "-STOP" {
            leader.bridger.signal("-CONT").await?;
        }
        let settled = stage.is_settled(&follower.bridger, pair(round), round + 1).await;
        settled.with_context(|| format!("round {round}, {signal}"))?;
        if signal == "-STOP" {
            leader.comes_to_lead(false).await?;
        }
        let first = follower.changes().into_iter().filter(|at| *at >= began).min();
        let late = leader.changes().into_iter().filter(|at| first.is_some_and(|first| *at > first)).count();
        ensure!(late == 0, "round {round}, {signal}: {late} changes after the new leader's first");
        let next = if signal == "-STOP" { leader } else { Instance::start(&stage).await? };
        leader = std::mem::replace(&mut follower, next);
    }
    Ok(())
}
