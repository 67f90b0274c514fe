//! What rules must not depend on: a vCenter that is down at the start, copies of VMs, a record in another namespace, permissions on
//! ConfigMaps of others.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;
use testkit::{Bridger, eventually};

use crate::pods::{self, anti_affinity_to, pod};
use crate::stage::{Cluster, SOON, Site, counts, metric};
use crate::witness::{Witness, ids};

/// After a lost connection, because the back-off may have grown.
const LATER: Duration = Duration::from_secs(90);
const SHORT: [&str; 2] = ["--removal-grace", "1s"];

struct Stage {
    site: Site,
    cluster: Cluster,
}

impl Stage {
    async fn place(&self, app: &str, machines: &[usize]) -> Result<()> {
        for &machine in machines {
            let node = &self.site.machines[machine].node;
            let pod = pod(&format!("{app}-{machine}"), app, node, &anti_affinity_to(app));
            pods::create(&self.cluster.client, pod).await?;
        }
        Ok(())
    }

    async fn own(&self) -> Result<Witness> {
        Ok(self.site.witness().await?.own(&self.cluster.prefix))
    }

    /// Waits until Bridger has exactly these rules, by the machines in them.
    async fn rules(&self, expected: &[&[usize]], bridger: &Bridger) -> Result<Witness> {
        let expected: Vec<_> = expected.iter().map(|machines| self.site.ids(machines)).collect();
        eventually(LATER, || async {
            let own = self.own().await?;
            let found: Vec<_> = own.rules.values().map(|rule| ids(rule, "vm")).collect();
            let is_it = found.len() == expected.len() && expected.iter().all(|rule| found.contains(rule));
            ensure!(is_it, "{found:?}, not {expected:?}\n{}", bridger.output());
            Ok(own)
        })
        .await
    }

    async fn matched(&self, how: &str, nodes: u64, bridger: &Bridger) -> Result<()> {
        counts(bridger, &format!("bridger_nodes{{machine=\"{how}\"}}"), nodes).await
    }
}

async fn is_degraded_by(bridger: &Bridger, why: &str) -> Result<()> {
    eventually(SOON, || async {
        let ready = bridger.get("/readyz").await?;
        ensure!(ready.contains("ready, degraded") && ready.contains(why), "{ready}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn number_1_rules_wait_for_a_vcenter_that_is_down_at_the_start_and_no_longer() -> Result<()> {
    let site = Site::start(3, 3).await?;
    let cluster = Cluster::start(&site, 0..3).await?;
    let mut stage = Stage { site, cluster };
    stage.site.kill();
    let bridger = stage.cluster.run(&[]).await?;
    ensure!(bridger.output().contains("not connected"), "{}", bridger.output());
    stage.place("web", &[0, 1]).await?;
    is_degraded_by(&bridger, "cannot reach").await?;
    ensure!(stage.cluster.record().await?.is_empty(), "a rule of an unknown vCenter is recorded");
    stage.site.restart().await?;
    let own = stage.rules(&[&[0, 1]], &bridger).await?;
    eventually(SOON, || async {
        let record = stage.cluster.record().await?;
        ensure!(record.keys().eq(own.rules.keys()), "{record:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn number_4_while_a_node_is_ambiguous_its_rules_stay_beyond_the_grace() -> Result<()> {
    let site = Site::start(4, 4).await?;
    let cluster = Cluster::start(&site, 0..3).await?;
    let stage = Stage { site, cluster };
    stage.place("web", &[0, 1, 2]).await?;
    let bridger = stage.cluster.run(&SHORT).await?;
    let before = stage.rules(&[&[0, 1, 2]], &bridger).await?;
    stage.matched("found", 3, &bridger).await?;

    // A copy of the first node's VM: while it is off it does not count, while it runs either could be the node.
    stage.site.power(3, "-off").await?;
    stage.site.copy(0, 3).await?;
    stage.site.power(3, "-on").await?;
    stage.matched("ambiguous", 1, &bridger).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let during = stage.own().await?;
    ensure!(during == before, "{during:?}, not {before:?}\n{}", bridger.output());
    stage.site.power(3, "-off").await?;
    stage.matched("found", 3, &bridger).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = stage.own().await?;
    ensure!(after == before, "{after:?}, not {before:?}\n{}", bridger.output());
    let edits = metric(&bridger, "bridger_rules_changes_total{kind=\"edit\"}").await?;
    ensure!(edits.unwrap_or(0) == 0, "{edits:?}\n{}", bridger.output());
    Ok(())
}

#[tokio::test]
async fn number_4_after_a_restart_while_a_node_is_ambiguous_its_vm_stays_in_its_rules() -> Result<()> {
    let site = Site::start(4, 4).await?;
    let cluster = Cluster::start(&site, 0..3).await?;
    let stage = Stage { site, cluster };
    stage.place("web", &[0, 1, 2]).await?;
    let mut bridger = stage.cluster.run(&SHORT).await?;
    let before = stage.rules(&[&[0, 1, 2]], &bridger).await?;
    counts(&bridger, "bridger_rules_owned", 1).await?;
    stage.site.power(3, "-off").await?;
    stage.site.copy(0, 3).await?;
    stage.site.power(3, "-on").await?;
    stage.matched("ambiguous", 1, &bridger).await?;
    bridger.stop();

    // This process never knew which of the two VMs the node was.
    let mut bridger = stage.cluster.run(&SHORT).await?;
    stage.matched("ambiguous", 1, &bridger).await?;
    counts(&bridger, "bridger_rules_findings{name=\"uncertainMember\"}", 1).await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let during = stage.own().await?;
    ensure!(during == before, "{during:?}, not {before:?}\n{}", bridger.output());
    let record = stage.cluster.record().await?;
    ensure!(record.values().all(|rule| rule["unwanted"].is_null()), "no wait begins: {record:?}");
    bridger.stop();

    // Again, and now the node turns out to be the copy: its former VM leaves.
    let bridger = stage.cluster.run(&SHORT).await?;
    counts(&bridger, "bridger_rules_findings{name=\"uncertainMember\"}", 1).await?;
    stage.site.power(0, "-off").await?;
    stage.matched("found", 3, &bridger).await?;
    stage.rules(&[&[1, 2, 3]], &bridger).await?;
    counts(&bridger, "bridger_rules_findings{name=\"uncertainMember\"}", 0).await
}

/// The names of the ConfigMaps of the record.
async fn record_objects(stage: &Stage) -> Result<Vec<String>> {
    let maps: Api<ConfigMap> = Api::namespaced(stage.cluster.client.clone(), "kube-system");
    let found = maps.list(&ListParams::default().labels("bridger.dev/kind=rules")).await?;
    Ok(found.into_iter().filter_map(|map| map.metadata.name).collect())
}

/// Whether Bridger's account may do this with a ConfigMap.
async fn may(stage: &Stage, verb: &str, name: &str, namespace: &str) -> Result<bool> {
    let (object, account) = (format!("configmaps/{name}"), "--as=system:serviceaccount:kube-system:bridger");
    let arguments = ["auth", "can-i", verb, &object, "-n", namespace, account];
    let answer = stage.cluster.control_plane.kubectl().try_run(&arguments).await?;
    let said = answer.stdout.lines().last().with_context(|| format!("{arguments:?}: {answer:?}"))?;
    Ok(said.trim() == "yes")
}

#[tokio::test]
async fn number_10_the_role_that_names_the_record_is_enough_and_a_record_elsewhere_stops_rule_writes() -> Result<()> {
    let site = Site::start(4, 6).await?;
    let cluster = Cluster::start(&site, 0..6).await?;
    let stage = Stage { site, cluster };
    let kubectl = stage.cluster.control_plane.kubectl();
    kubectl.run(&["create", "configmap", "of-others", "-n", "kube-system"]).await?;
    let mut bridger = stage.cluster.run(&SHORT).await?;
    stage.place("web", &[0, 1]).await?;
    stage.rules(&[&[0, 1]], &bridger).await?;
    stage.place("web", &[2]).await?;
    let before = stage.rules(&[&[0, 1, 2]], &bridger).await?;
    counts(&bridger, "bridger_rules_owned", 1).await?;
    let objects = record_objects(&stage).await?;
    ensure!(objects == ["bridger-rules-0"] && may(&stage, "update", &objects[0], "kube-system").await?, "{objects:?}");
    for (verb, name) in
        [("update", "of-others"), ("patch", "of-others"), ("patch", &objects[0]), ("delete", &objects[0])]
    {
        ensure!(!may(&stage, verb, name, "kube-system").await?, "may {verb} {name}");
    }
    bridger.stop();

    // Without that record Bridger does not know which rules are its own.
    stage.cluster.grant(&["--for", "run", "--record-namespace", "default"]).await?;
    let elsewhere = [&SHORT[..], &["--record-namespace", "default"]].concat();
    let bridger = stage.cluster.run(&elsewhere).await?;
    is_degraded_by(&bridger, "RecordGone").await?;
    counts(&bridger, "bridger_rules_findings{name=\"notRecorded\"}", 1).await?;
    stage.place("api", &[3, 4]).await?;
    pods::delete(&stage.cluster.client, "web-2").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = stage.own().await?;
    ensure!(after == before, "{after:?}, not {before:?}\n{}", bridger.output());
    let made = metric(&bridger, "bridger_rules_changes_total{kind=\"create\"}").await?;
    ensure!(made.unwrap_or(0) == 0, "{made:?}");
    drop(bridger);

    // With it, what was waiting is done.
    let bridger = stage.cluster.run(&SHORT).await?;
    stage.rules(&[&[0, 1], &[3, 4]], &bridger).await?;
    Ok(())
}

#[tokio::test]
async fn number_10_who_may_write_leases_and_the_record_can_stop_changes_of_rules_but_cause_none() -> Result<()> {
    let site = Site::start(4, 4).await?;
    let cluster = Cluster::start(&site, 0..4).await?;
    let stage = Stage { site, cluster };
    stage.place("web", &[0, 1, 2]).await?;
    // Someone holds the lease for an hour.
    let leases: Api<Lease> = Api::namespaced(stage.cluster.client.clone(), "kube-system");
    let now = jiff::Timestamp::now().to_string();
    let taken = json!({ "metadata": { "name": "bridger" }, "spec": { "holderIdentity": "someone",
        "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now, "leaseTransitions": 0 } });
    leases.create(&PostParams::default(), &serde_json::from_value(taken)?).await?;
    let mut bridger = stage.cluster.run(&SHORT).await?;
    stage.matched("found", 4, &bridger).await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    ensure!(stage.own().await? == Witness::default(), "{}", bridger.output());
    leases.delete("bridger", &DeleteParams::default()).await?;
    let before = stage.rules(&[&[0, 1, 2]], &bridger).await?;
    counts(&bridger, "bridger_rules_owned", 1).await?;
    let name = before.rules.keys().next().context("a rule")?;
    bridger.stop();

    // No text of a pod has reached vCenter: a name is the prefix and a digest.
    let digest = name.strip_prefix(&stage.cluster.prefix).context("the prefix")?;
    ensure!(digest.len() == 16 && digest.chars().all(|digit| digit.is_ascii_hexdigit()), "{name}");
    ensure!(!format!("{before:?}").contains("web"), "{before:?}");

    // Marked as no longer wanted for long: a rule that pods require stays.
    let vms = stage.site.ids(&[0, 1, 2]);
    let unwanted = json!({ "since": 1, "vms": vms });
    stage.cluster.edit_record(|rules| rules[name]["unwanted"] = unwanted).await?;
    let mut bridger = stage.cluster.run(&SHORT).await?;
    eventually(SOON, || async {
        let record = stage.cluster.record().await?;
        ensure!(record[name]["unwanted"].is_null(), "{record:?}\n{}", bridger.output());
        Ok(())
    })
    .await?;
    ensure!(stage.own().await? == before, "{}", bridger.output());
    bridger.stop();

    // Removed from the record, the rule is Bridger's no more, whatever pods require.
    stage.cluster.edit_record(|rules| drop(rules.as_object_mut().map(|rules| rules.remove(name)))).await?;
    let bridger = stage.cluster.run(&SHORT).await?;
    counts(&bridger, "bridger_rules_findings{name=\"notRecorded\"}", 1).await?;
    for machine in 0..3 {
        pods::delete(&stage.cluster.client, &format!("web-{machine}")).await?;
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    ensure!(stage.own().await? == before, "{}", bridger.output());
    Ok(())
}
