//! Bindings of a leader that arrive when another instance leads, and the end of its requests with its lease.

use testkit::proxy::kubernetes::KubernetesProxy;
use testkit::proxy::{Held, Points};

use super::*;

const BINDING: &str = "/pods/late/binding";

/// A leader behind a proxy that holds its binding of the pod `late`, and a follower with a way of its own.
struct Late {
    stage: Stage,
    leader: Bridger,
    follower: Bridger,
    binding: Held,
    points: Points,
    _proxy: KubernetesProxy,
}

impl Late {
    async fn start() -> Result<Late> {
        let stage = Stage::start().await?;
        let points = Points::default();
        let proxy = KubernetesProxy::start(stage.control_plane.client().await?, "", points.clone()).await?;
        let leader = stage.instance_of(proxy.kubeconfig(), &SHORT).await?;
        comes_to_lead(&leader, true).await?;
        let follower = stage.instance(&SHORT).await?;
        let binding = points.hold(BINDING);
        stage.create("late", "x").await?;
        let reached = tokio::time::timeout(SOON, binding.reached()).await;
        reached.with_context(|| leader.output())?;
        Ok(Late { stage, leader, follower, binding, points, _proxy: proxy })
    }

    /// The follower binds the pod, and one that must not be on its host. Then the late binding arrives.
    async fn arrives_late(&self) -> Result<()> {
        self.stage.is_bound("late").await?;
        self.stage.create("other", "x").await?;
        let before = self.stage.bound().await?;
        let answer = self.binding.forward().await?;
        ensure!(answer.status == 409, "{answer:?}");
        let after = self.stage.bound().await?;
        ensure!(before == after, "{before:?} {after:?}");
        let [late, other] = ["late", "other"].map(|name| after.get(name).map(|node| host_of(node)));
        ensure!(late.is_some() && other.is_some() && late != other, "{after:?}");
        Ok(())
    }
}

async fn comes_to_lead(bridger: &Bridger, expected: bool) -> Result<()> {
    eventually(SOON, || async {
        ensure!(leads(bridger).await? == expected, "{}", bridger.output());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn number_6_a_late_binding_of_a_suspended_leader_is_refused() -> Result<()> {
    let late = Late::start().await?;
    late.leader.signal("-STOP").await?;
    comes_to_lead(&late.follower, true).await?;
    late.arrives_late().await?;
    late.leader.signal("-CONT").await?;
    comes_to_lead(&late.leader, false).await?;
    let before = late.stage.bound().await?;
    late.stage.create("third", "x").await?;
    let nodes = late.stage.bound().await?;
    ensure!(before.iter().all(|(pod, node)| nodes.get(pod) == Some(node)), "{before:?} {nodes:?}");
    let hosts: std::collections::BTreeSet<usize> = nodes.values().map(|node| host_of(node)).collect();
    ensure!(hosts.len() == 3, "{nodes:?}");
    Ok(())
}

#[tokio::test]
async fn number_6_a_binding_is_given_up_with_the_lease_before_another_instance_leads() -> Result<()> {
    let late = Late::start().await?;
    // From now on no renewal gets through.
    let cut_off = async {
        loop {
            late.points.hold(&format!("/leases/{LEASE}")).reached().await;
        }
    };
    let given_up = async {
        late.binding.is_given_up().await;
        tokio::time::Instant::now()
    };
    let taken_over = async {
        while !leads(&late.follower).await? {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        anyhow::Ok(tokio::time::Instant::now())
    };
    let both = async { tokio::join!(given_up, taken_over) };
    let (given_up, taken_over) = tokio::select! {
        both = tokio::time::timeout(SOON, both) => both.context("the binding is not given up, or no one takes over")?,
        () = cut_off => unreachable!("it has no end"),
    };
    let taken_over = taken_over?;
    ensure!(given_up < taken_over, "given up {:?} after another instance led", given_up - taken_over);
    late.arrives_late().await
}
