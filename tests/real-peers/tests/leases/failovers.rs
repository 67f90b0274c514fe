//! Fail-overs while pods arrive: the leader is killed, stopped cleanly, or suspended until another leads.
//!
//! The API server's audit log shows which instance sent which binding, and when it arrived.

use kube::api::DeleteParams;
use testkit::Audit;
use testkit::audit::Sent;

use super::*;

const FAILOVERS_QUICK: usize = 10;
const FAILOVERS_FULL: usize = 50;
const PAIRS_EACH: usize = 8;
/// Between two pods, so that some arrive before, during and after the fail-over.
const APART: Duration = Duration::from_millis(40);

#[derive(Clone, Copy, Debug)]
enum End {
    Kill,
    CleanStop,
    /// Continued when another instance leads.
    Suspend,
}

/// An instance with a user of its own, which the audit log names.
struct Instance {
    user: String,
    bridger: Bridger,
}

impl Instance {
    async fn start(stage: &Stage, number: usize) -> Result<Instance> {
        let user = format!("instance-{number}");
        let kubeconfig = stage.control_plane.kubeconfig_for(&user, &["system:masters"])?;
        Ok(Instance { bridger: stage.instance_of(&kubeconfig, &SHORT).await?, user })
    }

    async fn comes_to_lead(&self, expected: bool) -> Result<()> {
        eventually(SOON, || async {
            ensure!(leads(&self.bridger).await? == expected, "{}: {}", self.user, self.bridger.output());
            Ok(())
        })
        .await
    }
}

/// Creates pairs one after the other.
async fn create_pairs(stage: &Stage, round: usize) -> Result<()> {
    for pair in 0..PAIRS_EACH {
        for side in ["a", "b"] {
            stage.create(&format!("r{round}-{side}{pair}"), &format!("r{round}-{pair}")).await?;
            tokio::time::sleep(APART).await;
        }
    }
    Ok(())
}

fn share_no_host(nodes: &BTreeMap<String, String>, round: usize) -> Result<()> {
    for pair in 0..PAIRS_EACH {
        let host = |side: &str| nodes.get(&format!("r{round}-{side}{pair}")).map(|node| host_of(node));
        ensure!(host("a").is_some() && host("a") != host("b"), "round {round}, pair {pair}: {nodes:?}");
    }
    Ok(())
}

/// What the old leader sent after the new one had bound a pod must have been refused: bindings, status, its lease.
fn check_late_writes(sent: &[Sent], round: usize, old: &str, new: &str) -> Result<usize> {
    let prefix = format!("r{round}-");
    let of = |user: &str| {
        let user = user.to_owned();
        sent.iter().filter(move |it| it.user == user)
    };
    let is_first = |it: &&Sent| it.is_accepted() && it.resource == "pods/binding" && it.name.starts_with(&prefix);
    let first = of(new).filter(is_first).map(|it| it.at).min();
    let first = first.with_context(|| format!("round {round}: {new} bound nothing"))?;
    let late: Vec<&Sent> = of(old).filter(|it| it.at > first).collect();
    let accepted: Vec<&&Sent> = late.iter().filter(|it| it.is_accepted()).collect();
    ensure!(accepted.is_empty(), "round {round}: {old} wrote {accepted:?} after {new} led");
    Ok(late.len())
}

/// Whether the old leader had left some of the round's pods to the new one.
fn is_proof(sent: &[Sent], round: usize, new: &str) -> bool {
    let (prefix, last) = (format!("r{round}-"), format!("r{round}-last"));
    sent.iter().any(|it| it.user == new && it.name.starts_with(&prefix) && it.name != last && it.is_accepted())
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn number_6_across_fail_overs_no_pair_shares_a_host_and_late_bindings_are_refused() -> Result<()> {
    let audit = Audit::create()?;
    let flags = audit.flags();
    let stage = Stage::start_with(&flags.each_ref().map(String::as_str)).await?;
    let mut started = 2;
    let mut leader = Instance::start(&stage, 0).await?;
    leader.comes_to_lead(true).await?;
    let mut follower = Instance::start(&stage, 1).await?;
    let rounds = testkit::count(FAILOVERS_QUICK, FAILOVERS_FULL);
    let (mut late, mut proofs) = (0, 0);
    for round in 0..rounds {
        let end = [End::Kill, End::CleanStop, End::Suspend][round % 3];
        // At another moment each time.
        let pause = APART * u32::try_from(round * 7 % (2 * PAIRS_EACH))?;
        let fail_over = async {
            tokio::time::sleep(pause).await;
            let signal = match end {
                End::Kill => "-KILL",
                End::CleanStop => "-TERM",
                End::Suspend => "-STOP",
            };
            leader.bridger.signal(signal).await
        };
        let (created, failed) = tokio::join!(create_pairs(&stage, round), fail_over);
        created.and(failed)?;
        follower.comes_to_lead(true).await?;
        if let End::Suspend = end {
            leader.bridger.signal("-CONT").await?;
        }
        let nodes = stage.bound().await.with_context(|| format!("{end:?}: {}", follower.bridger.output()))?;
        share_no_host(&nodes, round)?;
        // Something for the new leader to bind, if the old one had bound all.
        stage.create(&format!("r{round}-last"), "last").await?;
        stage.is_bound(&format!("r{round}-last")).await?;
        if let End::Suspend = end {
            leader.comes_to_lead(false).await?;
        }
        let sent = audit.sent()?;
        late += check_late_writes(&sent, round, &leader.user, &follower.user)?;
        proofs += usize::from(is_proof(&sent, round, &follower.user));
        stage.pods.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await?;
        let next = match end {
            End::Suspend => leader,
            End::Kill | End::CleanStop => {
                started += 1;
                Instance::start(&stage, started).await?
            }
        };
        leader = std::mem::replace(&mut follower, next);
    }
    ensure!(2 * proofs >= rounds, "in only {proofs} of {rounds} rounds the new leader had pods of the old one to bind");
    println!("{rounds} fail-overs, {proofs} with work left over; {late} late writes, all refused");
    Ok(())
}
