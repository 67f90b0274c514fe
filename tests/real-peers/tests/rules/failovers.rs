//! Fail-overs of the process that writes rules and labels: the leader is killed, stopped cleanly, or suspended until
//! another leads.
//!
//! Each instance has a user of its own, which the API server's audit log names, and its own proxy in front of the
//! vCenter, which records when its changes arrive.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use testkit::audit::Sent;
use testkit::proxy::Points;
use testkit::proxy::vcenter::VcenterProxy;
use testkit::{Audit, Bridger, eventually};
use tokio::time::Instant;

use crate::kill_points::{Stage, pair_of};
use crate::stage::{SOON, metric};

const FAILOVERS_QUICK: usize = 10;
const FAILOVERS_FULL: usize = 50;
/// With 55 pairs: each fail-over needs another one.
const NODES: u32 = 11;
const CHANGE: &str = "ReconfigureComputeResource_Task";
/// From the signal until the other instance leads, with room for a busy machine. A clean stop releases the lease.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(3);
/// An attempt that sees the last renewal, the lease (3 s) from then on, an attempt that acquires it (0.5 s each), and a second for the rest.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(5);

struct Instance {
    user: String,
    bridger: Bridger,
    points: Points,
    _vcenter: VcenterProxy,
}

impl Instance {
    async fn start(stage: &Stage, number: usize) -> Result<Instance> {
        let user = format!("instance-{number}");
        let kubeconfig = stage.cluster.control_plane.kubeconfig_for(&user, &["system:masters"])?;
        let points = Points::default();
        let vcenter = VcenterProxy::start(stage.site.address()?, points.clone()).await?;
        let bridger = stage.cluster.run_through(&kubeconfig.display().to_string(), &vcenter.address).await?;
        // A follower is warm before its leader ends.
        eventually(SOON, || async {
            let ready = bridger.get("/readyz").await?;
            ensure!(ready.contains("200 OK"), "{ready}");
            Ok(())
        })
        .await?;
        Ok(Instance { user, bridger, points, _vcenter: vcenter })
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
    fn changes(&self) -> Vec<Timestamp> {
        let (now, time) = (Instant::now(), Timestamp::now());
        let arrived = self.points.arrived().into_iter().filter(|(_, step)| step == CHANGE);
        arrived.filter_map(|(at, _)| time.checked_sub(now.saturating_duration_since(at)).ok()).collect()
    }
}

/// What both instances wrote since a moment.
struct Evidence {
    sent: Vec<Sent>,
    old: String,
    new: String,
    old_changes: Vec<Timestamp>,
    new_changes: Vec<Timestamp>,
}

impl Evidence {
    fn of(audit: &Audit, began: Timestamp, old: &Instance, new: &Instance) -> Result<Evidence> {
        let since = |changes: Vec<Timestamp>| changes.into_iter().filter(|at| *at >= began).collect();
        Ok(Evidence {
            sent: audit.sent()?.into_iter().filter(|it| it.at >= began).collect(),
            old: old.user.clone(),
            new: new.user.clone(),
            old_changes: since(old.changes()),
            new_changes: since(new.changes()),
        })
    }

    /// Nothing of the old leader was accepted after the first write of the new one: no label, record, lease or rule.
    /// Returns how much was refused.
    fn check(&self) -> Result<usize> {
        let accepted = self.sent.iter().filter(|it| it.user == self.new && it.is_accepted() && !it.is_of_lease());
        let first = accepted.map(|it| it.at).chain(self.new_changes.iter().copied()).min();
        let first = first.context("the new leader wrote nothing")?;
        let (accepted, refused): (Vec<&Sent>, Vec<&Sent>) =
            self.sent.iter().filter(|it| it.user == self.old && it.at > first).partition(|it| it.is_accepted());
        ensure!(accepted.is_empty(), "{} wrote {accepted:?} after {} did at {first}", self.old, self.new);
        let late = self.old_changes.iter().filter(|at| **at > first).count();
        ensure!(late == 0, "{late} changes of rules after the new leader's first write");
        Ok(refused.len())
    }

    /// The old leader had left the rule to the new one.
    fn has_contest(&self) -> bool {
        !self.new_changes.is_empty()
    }

    fn has_label(&self) -> bool {
        self.sent.iter().any(|it| it.user == self.new && it.resource == "nodes" && it.is_accepted())
    }
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn number_6_across_fail_overs_each_rule_exists_once_and_no_write_comes_late() -> Result<()> {
    let audit = Audit::create()?;
    let flags = audit.flags();
    let stage = Stage::start_with(NODES, &flags.each_ref().map(String::as_str)).await?;
    let mut started = 1;
    let mut leader = Instance::start(&stage, 0).await?;
    leader.comes_to_lead(true).await?;
    let mut follower = Instance::start(&stage, 1).await?;
    let rounds = testkit::count(FAILOVERS_QUICK, FAILOVERS_FULL);
    let (mut refused, mut contests) = (0, 0);
    for round in 0..rounds {
        let signal = ["-KILL", "-TERM", "-STOP"][round % 3];
        let (began, pair) = (Timestamp::now(), pair_of(round, NODES as usize));
        stage.place(&format!("app-{round}"), &pair).await?;
        // A label, too.
        let moved = round % NODES as usize;
        let [_, host_of_moved] = stage.moves(moved).await?;
        // At another moment of the wait for more changes and of the pass each time.
        tokio::time::sleep(Duration::from_millis(400 + 97 * u64::try_from(round)? % 700)).await;
        leader.bridger.signal(signal).await?;
        let ended = Instant::now();
        follower.comes_to_lead(true).await?;
        let (took, limit) = (ended.elapsed(), if signal == "-TERM" { HANDED_OVER_WITHIN } else { TAKEN_OVER_WITHIN });
        ensure!(took < limit, "round {round}, {signal}: {took:?}");
        // At least this is left to the new leader.
        let last = (round + 5) % NODES as usize;
        let [_, host_of_last] = stage.moves(last).await?;
        if signal == "-STOP" {
            leader.bridger.signal("-CONT").await?;
        }
        let settled = stage.is_settled(&follower.bridger, &pair, round + 1).await;
        settled.with_context(|| format!("round {round}, {signal}"))?;
        for (machine, host) in [(moved, &host_of_moved), (last, &host_of_last)] {
            let labelled = stage.has_label(machine, host, &follower.bridger).await;
            labelled.with_context(|| format!("round {round}, {signal}"))?;
        }
        if signal == "-STOP" {
            leader.comes_to_lead(false).await?;
        }
        let evidence = Evidence::of(&audit, began, &leader, &follower)?;
        refused += evidence.check().with_context(|| format!("round {round}, {signal}"))?;
        contests += usize::from(evidence.has_contest());
        ensure!(evidence.has_label(), "round {round}: the new leader wrote no label: {:?}", evidence.sent);
        let next = if signal == "-STOP" {
            leader
        } else {
            started += 1;
            Instance::start(&stage, started).await?
        };
        leader = std::mem::replace(&mut follower, next);
    }
    ensure!(4 * contests >= rounds, "in only {contests} of {rounds} rounds the new leader had to make the rule");
    println!("{rounds} fail-overs, {contests} amid a pass; {refused} late writes, all refused");
    Ok(())
}
