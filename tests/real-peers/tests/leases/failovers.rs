//! Fail-overs while pods arrive: the leader is killed, stopped cleanly, or suspended until another leads.
//!
//! The API server's audit log shows which instance sent which binding, and when it arrived.

use kube::api::DeleteParams;
use testkit::workdir::Workdir;

use super::*;

const FAILOVERS_QUICK: usize = 10;
const FAILOVERS_FULL: usize = 50;
const PAIRS_EACH: usize = 8;
/// Between two pods, so that some arrive before, during and after the fail-over.
const APART: Duration = Duration::from_millis(40);

const POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  resources: [{ group: "", resources: [pods/binding] }]
- level: None
"#;

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

/// A binding as the API server received it.
struct Sent {
    user: String,
    pod: String,
    /// With microseconds, always six digits: sorted as text, it is sorted by time.
    at: String,
    is_accepted: bool,
}

fn read(audit: &Path) -> Result<Vec<Sent>> {
    let mut sent = Vec::new();
    for line in std::fs::read_to_string(audit)?.lines() {
        let entry: Value = serde_json::from_str(line)?;
        let text = |value: &Value| value.as_str().map(str::to_owned).with_context(|| line.to_owned());
        sent.push(Sent {
            user: text(&entry["user"]["username"])?,
            pod: text(&entry["objectRef"]["name"])?,
            at: text(&entry["requestReceivedTimestamp"])?,
            is_accepted: entry["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300),
        });
    }
    Ok(sent)
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

/// What the old leader sent after the new one had bound a pod must have been refused.
fn check_late_writes(sent: &[Sent], round: usize, old: &str, new: &str) -> Result<usize> {
    let prefix = format!("r{round}-");
    let of = |user: &str| {
        let user = user.to_owned();
        sent.iter().filter(move |it| it.user == user)
    };
    let first = of(new).filter(|it| it.is_accepted && it.pod.starts_with(&prefix)).map(|it| &it.at).min();
    let first = first.with_context(|| format!("round {round}: {new} bound nothing"))?;
    let late: Vec<&Sent> = of(old).filter(|it| it.at > *first).collect();
    let accepted: Vec<&str> = late.iter().filter(|it| it.is_accepted).map(|it| it.pod.as_str()).collect();
    ensure!(accepted.is_empty(), "round {round}: {old} bound {accepted:?} after {new} led");
    Ok(late.len())
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn number_6_across_fail_overs_no_pair_shares_a_host_and_late_bindings_are_refused() -> Result<()> {
    let workdir = Workdir::create("failovers")?;
    let policy = workdir.write("policy.yaml", POLICY)?;
    let audit = workdir.write("audit.log", "")?;
    let flags = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", audit.display()),
        "--audit-log-mode=blocking".to_owned(),
    ];
    let stage = Stage::start_with(&flags.each_ref().map(String::as_str)).await?;
    let mut started = 2;
    let mut leader = Instance::start(&stage, 0).await?;
    leader.comes_to_lead(true).await?;
    let mut follower = Instance::start(&stage, 1).await?;
    let rounds = testkit::count(FAILOVERS_QUICK, FAILOVERS_FULL);
    let mut late = 0;
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
        late += check_late_writes(&read(&audit)?, round, &leader.user, &follower.user)?;
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
    println!("{rounds} fail-overs, {late} late bindings, all refused");
    Ok(())
}
