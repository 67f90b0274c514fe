//! What the old leader sent arrives when another instance leads and has written: a record, a rule, a label. And commands
//! that lose the lease.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testkit::proxy::kubernetes::KubernetesProxy;
use testkit::proxy::vcenter::VcenterProxy;
use testkit::proxy::{Held, Points};
use testkit::{Bridger, eventually};

use crate::kill_points::{Stage, pair};
use crate::stage::{SOON, metric};

const RECORD: &str = "PUT /api/v1/namespaces/kube-system/configmaps/";
const CHANGE: &str = "ReconfigureComputeResource_Task";
const LABEL: &str = "PATCH /api/v1/nodes/";
/// A command renews its lease every 2 s.
const NOTICED_WITHIN: Duration = Duration::from_secs(6);

/// Proxies in front of the API server and vcsim.
struct Proxies {
    points: Points,
    api: KubernetesProxy,
    vcenter: VcenterProxy,
}

impl Proxies {
    async fn start(stage: &Stage) -> Result<Proxies> {
        let points = Points::default();
        let api = KubernetesProxy::start(stage.cluster.client.clone(), "", points.clone()).await?;
        let vcenter = VcenterProxy::start(stage.site.address()?, points.clone()).await?;
        Ok(Proxies { points, api, vcenter })
    }

    fn kubeconfig(&self) -> String {
        self.api.kubeconfig().display().to_string()
    }
}

/// A leader behind proxies, and a follower with a way of its own.
struct Late {
    stage: Stage,
    proxies: Proxies,
    leader: Bridger,
    follower: Bridger,
}

async fn leads(bridger: &Bridger, expected: bool) -> Result<()> {
    eventually(SOON, || async {
        let leads = metric(bridger, "leader_election_master_status{name=\"bridger\"}").await?;
        ensure!(leads == Some(u64::from(expected)), "{leads:?}: {}", bridger.output());
        Ok(())
    })
    .await
}

impl Late {
    /// There is one rule.
    async fn start() -> Result<Late> {
        let stage = Stage::start().await?;
        let proxies = Proxies::start(&stage).await?;
        let leader = stage.cluster.run_through(&proxies.kubeconfig(), &proxies.vcenter.address).await?;
        leads(&leader, true).await?;
        let follower = stage.cluster.run(&[]).await?;
        stage.place("app-0", &pair(0)).await?;
        stage.is_settled(&leader, &pair(0), 1).await?;
        // The labels of the start, too.
        for machine in 0..6 {
            let host = stage.site.host_of(machine).await?;
            stage.has_label(machine, &host, &leader).await?;
        }
        Ok(Late { stage, proxies, leader, follower })
    }

    /// The leader is suspended with this request on its way; the follower leads.
    async fn fails_over(&self, held: &Held) -> Result<()> {
        let reached = tokio::time::timeout(SOON, held.reached()).await;
        reached.with_context(|| self.leader.output())?;
        self.leader.signal("-STOP").await?;
        leads(&self.follower, true).await
    }

    /// The old leader continues, and stays a follower.
    async fn continues(&self) -> Result<()> {
        self.leader.signal("-CONT").await?;
        leads(&self.leader, false).await
    }
}

#[tokio::test]
async fn number_6_a_late_write_of_the_record_is_refused() -> Result<()> {
    let late = Late::start().await?;
    let held = late.proxies.points.hold(RECORD);
    late.stage.place("app-1", &pair(1)).await?;
    late.fails_over(&held).await?;
    late.stage.is_settled(&late.follower, &pair(1), 2).await?;
    let before = (late.stage.site.witness().await?, late.stage.cluster.record_version().await?);
    let answer = held.forward().await?;
    ensure!(answer.status == 409, "{answer:?}");
    late.continues().await?;
    late.stage.is_settled(&late.follower, &pair(1), 2).await?;
    ensure!(before == (late.stage.site.witness().await?, late.stage.cluster.record_version().await?));
    Ok(())
}

#[tokio::test]
async fn number_6_a_late_creation_of_a_rule_that_exists_changes_nothing() -> Result<()> {
    let late = Late::start().await?;
    let held = late.proxies.points.hold(CHANGE);
    late.stage.place("app-1", &pair(1)).await?;
    late.fails_over(&held).await?;
    late.stage.is_settled(&late.follower, &pair(1), 2).await?;
    let before = late.stage.site.witness().await?;
    held.forward().await?;
    // Rules have the same keys and UUIDs as before.
    ensure!(late.stage.site.witness().await? == before);
    late.continues().await?;
    late.stage.is_settled(&late.follower, &pair(1), 2).await?;
    ensure!(late.stage.site.witness().await? == before);
    Ok(())
}

#[tokio::test]
async fn number_6_after_a_late_edit_of_a_rule_it_becomes_what_the_new_leader_wants() -> Result<()> {
    let late = Late::start().await?;
    let [one, two] = pair(0);
    let [three, four] = [2, 3];
    let held = late.proxies.points.hold(CHANGE);
    late.stage.place("app-0", &[three]).await?;
    late.fails_over(&held).await?;
    late.stage.is_settled(&late.follower, &[one, two, three], 1).await?;
    late.stage.place("app-0", &[four]).await?;
    let wanted = [one, two, three, four];
    late.stage.is_settled(&late.follower, &wanted, 1).await?;
    // It has three members.
    let answer = held.forward().await?;
    ensure!(answer.status == 200, "{answer:?}");
    late.stage.is_settled(&late.follower, &wanted, 1).await?;
    late.continues().await?;
    late.stage.is_settled(&late.follower, &wanted, 1).await
}

#[tokio::test]
async fn number_6_a_late_label_is_refused() -> Result<()> {
    let late = Late::start().await?;
    let machine = 5;
    let node = &late.stage.site.machines[machine];
    let held = late.proxies.points.hold(&format!("{LABEL}{}", node.node));
    let [_, wanted] = late.stage.moves(machine).await?;
    late.fails_over(&held).await?;
    late.stage.has_label(machine, &wanted, &late.follower).await?;
    let before = late.stage.cluster.host_label(node).await?;
    let answer = held.forward().await?;
    ensure!(answer.status == 422, "{answer:?}");
    ensure!(late.stage.cluster.host_label(node).await? == before);
    late.continues().await
}

/// The node has again the label for which the late write was made.
#[tokio::test]
async fn number_6_a_late_label_that_is_accepted_is_corrected() -> Result<()> {
    let late = Late::start().await?;
    let machine = 5;
    let node = &late.stage.site.machines[machine];
    let held = late.proxies.points.hold(&format!("{LABEL}{}", node.node));
    let [first, second] = late.stage.moves(machine).await?;
    late.fails_over(&held).await?;
    late.stage.has_label(machine, &second, &late.follower).await?;
    // Back to the host from which the late write starts.
    let host = late.stage.site.hosts.iter().position(|host| *host == first).context("the host")?;
    late.stage.site.migrate(machine, host).await?;
    late.stage.has_label(machine, &first, &late.follower).await?;
    let answer = held.forward().await?;
    ensure!(answer.status == 200, "{answer:?}");
    late.stage.has_label(machine, &first, &late.follower).await?;
    let corrected = metric(&late.follower, "bridger_labels_changed_by_others_total").await?;
    ensure!(corrected == Some(1), "{corrected:?}");
    late.continues().await
}

/// Another process takes the lease while the command waits for this request.
async fn loses_the_lease(stage: &Stage, proxies: &Proxies, held: &Held) -> Result<()> {
    tokio::time::timeout(SOON, held.reached()).await.context("the request")?;
    let leases: Api<Lease> = Api::namespaced(stage.cluster.client.clone(), "kube-system");
    let taken = json!({ "spec": { "holderIdentity": "another", "leaseDurationSeconds": 60 } });
    leases.patch("bridger", &PatchParams::default(), &Patch::Merge(taken)).await?;
    let seen = proxies.points.hold("GET /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/bridger");
    tokio::time::timeout(NOTICED_WITHIN, seen.reached()).await.context("a renewal")?;
    seen.forward().await?;
    // Its answer is on the way.
    tokio::time::sleep(Duration::from_millis(200)).await;
    held.forward().await?;
    Ok(())
}

/// Runs a command that loses the lease at this request.
async fn fails_without_lease(stage: &Stage, proxies: &Proxies, arguments: &[&str], request: &str) -> Result<()> {
    let held = proxies.points.hold(request);
    let kubeconfig = proxies.kubeconfig();
    let command = stage.cluster.command_through(&kubeconfig, &proxies.vcenter.address, arguments);
    let (finished, lost) = tokio::join!(command, loses_the_lease(stage, proxies, &held));
    let finished = finished?;
    lost.with_context(|| format!("{finished:?}"))?;
    ensure!(finished.code == Some(1), "{finished:?}");
    ensure!(finished.stderr.contains("the lease was lost"), "{finished:?}");
    let leases: Api<Lease> = Api::namespaced(stage.cluster.client.clone(), "kube-system");
    let free = json!({ "spec": { "holderIdentity": "", "leaseDurationSeconds": 1 } });
    leases.patch("bridger", &PatchParams::default(), &Patch::Merge(free)).await?;
    Ok(())
}

#[tokio::test]
async fn number_6_a_command_that_loses_the_lease_writes_nothing_more() -> Result<()> {
    let stage = Stage::start().await?;
    let proxies = Proxies::start(&stage).await?;
    let mut bridger = stage.cluster.run(&[]).await?;
    stage.place("app-0", &pair(0)).await?;
    stage.is_settled(&bridger, &pair(0), 1).await?;
    for machine in 0..6 {
        let host = stage.site.host_of(machine).await?;
        stage.has_label(machine, &host, &bridger).await?;
    }
    bridger.stop();
    let state = async || anyhow::Ok((stage.site.witness().await?, stage.cluster.record_version().await?));

    let before = state().await?;
    fails_without_lease(&stage, &proxies, &["cleanup", "--yes"], "RetrievePropertiesEx of the cluster").await?;
    ensure!(state().await? == before);

    // Something to adopt.
    let (name, vms) = (format!("{}lost", stage.cluster.prefix), &stage.site.machines);
    let rule = ["-name", &name, "-enable", "-anti-affinity", &vms[2].vm, &vms[3].vm];
    stage.site.administer("cluster.rule.create", &rule).await?;
    let before = state().await?;
    let records = "GET /api/v1/namespaces/kube-system/configmaps";
    fails_without_lease(&stage, &proxies, &["adopt", "--yes"], records).await?;
    ensure!(state().await? == before);
    stage.site.administer("cluster.rule.remove", &["-name", &name]).await?;

    // The first label was on its way.
    fails_without_lease(&stage, &proxies, &["cleanup", "--labels", "--yes"], LABEL).await?;
    let mut labelled = 0;
    for machine in &stage.site.machines[..6] {
        labelled += usize::from(stage.cluster.host_label(machine).await?.0.is_some());
    }
    ensure!(labelled == 5, "{labelled} nodes have their label");
    Ok(())
}
