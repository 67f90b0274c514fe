//! Changes by administrators, and a lost record: rules disabled or deleted by hand, rules that administrators own.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Bridger, eventually};

use crate::pods::{self, anti_affinity_to, pod};
use crate::stage::{Cluster, SOON, Site, counts, metric};
use crate::witness::{Witness, identity, ids};

const FLAGS: [&str; 2] = ["--removal-grace", "3s"];

struct Respect {
    site: Site,
    cluster: Cluster,
    bridger: Bridger,
    /// The administrator's rule, as it was created.
    foreign: Witness,
}

impl Respect {
    async fn place(&self, app: &str, machine: usize) -> Result<()> {
        let node = &self.site.machines[machine].node;
        pods::create(&self.cluster.client, pod(&format!("{app}-{machine}"), app, node, &anti_affinity_to(app))).await
    }

    /// Waits until the rule of this name is as expected, and returns it.
    async fn rule(&self, name: &str, machines: &[usize], enabled: bool) -> Result<Value> {
        let expected = self.site.ids(machines);
        eventually(SOON, || async {
            let own = self.own().await?;
            let rule = own.rules.get(name).with_context(|| format!("{own:?}\n{}", self.bridger.output()))?;
            ensure!(ids(rule, "vm") == expected, "not {expected:?}: {rule}\n{}", self.bridger.output());
            ensure!(rule["enabled"] == enabled, "{rule}");
            Ok(rule.clone())
        })
        .await
    }

    /// Waits until there is a rule with exactly the VMs of these machines.
    async fn rule_of(&self, machines: &[usize]) -> Result<()> {
        let expected = self.site.ids(machines);
        eventually(SOON, || async {
            let own = self.own().await?;
            let is_there = own.rules.values().any(|rule| ids(rule, "vm") == expected);
            ensure!(is_there, "no rule of {expected:?}: {own:?}\n{}", self.bridger.output());
            Ok(())
        })
        .await
    }

    /// Waits until the rule of this name is recorded with this UUID.
    async fn recorded(&self, name: &str, uuid: &Option<String>) -> Result<()> {
        eventually(SOON, || async {
            let record = self.cluster.record().await?;
            let recorded = record.get(name).and_then(|rule| rule["uuid"].as_str().map(str::to_owned));
            ensure!(recorded == *uuid, "{record:?}");
            Ok(())
        })
        .await
    }

    async fn own(&self) -> Result<Witness> {
        Ok(self.site.witness().await?.own(&self.cluster.prefix))
    }

    /// While Bridger runs, a command that writes refuses and names the holder of the lease. Then stops Bridger.
    async fn stop_for(&mut self, command: &str) -> Result<()> {
        let refused = self.cluster.command(&[command, "--yes"]).await?;
        let holder = self.cluster.lease_holder("bridger").await?;
        ensure!(refused.code == Some(1) && refused.stderr.contains(&holder), "{holder}: {refused:?}");
        self.bridger.stop();
        Ok(())
    }

    async fn start_again(&mut self) -> Result<()> {
        self.bridger = self.cluster.run(&FLAGS).await?;
        Ok(())
    }

    /// After a plan of a new process, which has no such metric before the first such finding.
    async fn finds_no(&self, finding: &str) -> Result<()> {
        let found = metric(&self.bridger, &format!("bridger_rules_findings{{name=\"{finding}\"}}")).await?;
        ensure!(found.unwrap_or(0) == 0, "{finding}: {found:?}");
        Ok(())
    }

    async fn found(&self, finding: &str, times: u64) -> Result<()> {
        counts(&self.bridger, &format!("bridger_rules_findings{{name=\"{finding}\"}}"), times).await
    }
}

/// Bridger runs with a rule for `web` on the machines 0, 1 and 2 and one for `api` on 4 and 5, beside an administrator's rule
/// with a similar name. Returns the name of the rule for `web`.
async fn start() -> Result<(Respect, String)> {
    let site = Site::start(6, 6).await?;
    let vms: Vec<&str> = site.machines.iter().map(|machine| machine.vm.as_str()).collect();
    let similar = "bridger-apart-0123456789abcdef";
    site.administer("cluster.rule.create", &["-name", similar, "-enable", "-anti-affinity", vms[0], vms[5]]).await?;
    let foreign = site.witness().await?;
    let cluster = Cluster::start(&site, 0..6).await?;
    let bridger = cluster.run(&FLAGS).await?;
    let respect = Respect { site, cluster, bridger, foreign };
    for machine in 0..3 {
        respect.place("web", machine).await?;
    }
    let name = eventually(SOON, || async {
        let own = respect.own().await?;
        own.rules.keys().next().cloned().with_context(|| format!("no rule\n{}", respect.bridger.output()))
    })
    .await?;
    respect.rule(&name, &[0, 1, 2], true).await?;
    for machine in 4..6 {
        respect.place("api", machine).await?;
    }
    respect.rule_of(&[4, 5]).await?;
    Ok((respect, name))
}

#[tokio::test]
async fn a_rule_disabled_by_an_administrator_is_unchanged_until_it_is_enabled() -> Result<()> {
    let (respect, name) = start().await?;
    let name = name.as_str();
    respect.site.administer("cluster.rule.change", &["-name", name, "-enable=false"]).await?;
    respect.found("disabledByAdministrator", 1).await?;
    respect.place("web", 3).await?;
    // Meanwhile the rule of another workload grows, so Bridger is not merely slow.
    respect.place("api", 3).await?;
    respect.rule_of(&[3, 4, 5]).await?;
    respect.rule(name, &[0, 1, 2], false).await?;
    respect.site.administer("cluster.rule.change", &["-name", name, "-enable=true"]).await?;
    respect.rule(name, &[0, 1, 2, 3], true).await?;
    respect.found("disabledByAdministrator", 0).await
}

#[tokio::test]
async fn number_10_an_entry_in_the_record_does_not_make_an_administrators_rule_bridgers() -> Result<()> {
    let (mut respect, _) = start().await?;
    respect.bridger.stop();
    // Someone who can write the ConfigMap adds the administrator's rule, with its UUID, as one that no pod requires.
    let (name, rule) = respect.foreign.rules.iter().next().context("the administrator's rule")?;
    let entry = json!({ "sort": "apart", "source": "0123456789abcdef", "uuid": rule["ruleUuid"],
        "unwanted": { "since": 1, "vms": ids(rule, "vm") } });
    respect.cluster.add_to_record(name, &entry).await?;
    let shown = respect.cluster.command(&["plan"]).await?;
    ensure!(!shown.stdout.contains(name.as_str()), "{shown:?}");
    respect.bridger = respect.cluster.run(&FLAGS).await?;
    respect.bridger.prints("which is not Bridger's", SOON).await?;
    // Bridger works on: the rule of another workload grows.
    respect.place("api", 3).await?;
    respect.rule_of(&[3, 4, 5]).await?;
    let found = respect.site.witness().await?;
    ensure!(found.rules.get(name) == Some(rule), "{found:?}");

    respect.bridger.stop();
    respect.cluster.add_to_record(name, &entry).await?;
    let cleaned = respect.cluster.command(&["cleanup", "--yes"]).await?;
    ensure!(cleaned.code == Some(0), "{cleaned:?}");
    ensure!(respect.site.witness().await? == respect.foreign, "only the administrator's rule must be left");
    Ok(())
}

#[tokio::test]
async fn number_10_a_record_in_another_namespace_stops_writes_until_it_is_moved() -> Result<()> {
    let (mut respect, name) = start().await?;
    respect.bridger.stop();
    let elsewhere = ["--record-namespace", "default"];
    let shown = respect.cluster.command_as_administrator(&[&["plan"], &elsewhere[..]].concat()).await?;
    ensure!(shown.code == Some(2) && shown.stdout.contains("Nothing is written"), "{shown:?}");
    let before = respect.site.witness().await?;
    let adopt = [&["adopt", "--yes", "--from-namespace", "kube-system"], &elsewhere[..]].concat();
    let moved = respect.cluster.command_as_administrator(&adopt).await?;
    ensure!(moved.code == Some(0) && moved.stdout.contains("1 records are moved"), "{moved:?}");
    ensure!(respect.cluster.record().await?.is_empty(), "the old one is empty");
    let again = respect.cluster.command_as_administrator(&adopt).await?;
    ensure!(again.stdout.contains("Nothing to move"), "{again:?}");
    let shown = respect.cluster.command_as_administrator(&[&["plan"], &elsewhere[..]].concat()).await?;
    ensure!(
        shown.code == Some(0) && !shown.stdout.contains(&name),
        "the rules are Bridger's, and as they should be: {shown:?}"
    );
    ensure!(respect.site.witness().await? == before, "no rule has changed");
    Ok(())
}

#[tokio::test]
async fn without_its_record_bridger_changes_nothing_until_the_rules_are_adopted() -> Result<()> {
    let (mut respect, name) = start().await?;
    let name = name.as_str();
    let before = respect.site.witness().await?;
    let kubectl = respect.cluster.control_plane.kubectl();
    kubectl.run(&["delete", "configmap", "-n", "kube-system", "-l", "bridger.dev/kind=rules"]).await?;
    // Bridger notices the missing record before its next change, or within a minute.
    respect.place("queue", 2).await?;
    respect.place("queue", 5).await?;
    respect.place("web", 4).await?;
    eventually(SOON, || async {
        let ready = respect.bridger.get("/readyz").await?;
        ensure!(ready.contains("degraded") && ready.contains("bridger adopt"), "{ready}\n{}", respect.bridger.output());
        Ok(())
    })
    .await?;
    ensure!(respect.bridger.output().contains("RecordGone"), "{}", respect.bridger.output());
    respect.found("notRecorded", 2).await?;
    let shown = respect.cluster.command(&["plan", "-o", "json"]).await?;
    ensure!(shown.stdout.contains("notRecorded") && shown.stdout.contains(name), "{shown:?}");
    ensure!(shown.stdout.contains("\"reason\": \"RecordGone\""), "{shown:?}");
    let shown = respect.cluster.command(&["plan"]).await?;
    ensure!(shown.stdout.starts_with("Nothing is written in DC0_C0: the record of its 2 rules"), "{shown:?}");
    respect.stop_for("adopt").await?;
    let shown = respect.cluster.command(&["adopt"]).await?;
    ensure!(shown.code == Some(2) && shown.stdout.contains(name), "without a terminal it needs --yes: {shown:?}");
    ensure!(respect.site.witness().await? == before, "rules must not change");
    ensure!(respect.cluster.record().await?.is_empty());

    let adopted = respect.cluster.command(&["adopt", "--yes"]).await?;
    ensure!(adopted.code == Some(0) && adopted.stdout.contains("2 rules are recorded"), "{adopted:?}");
    let again = respect.cluster.command(&["adopt", "--yes"]).await?;
    ensure!(again.stdout.contains("Nothing to adopt"), "{again:?}");
    respect.start_again().await?;
    let edited = respect.rule(name, &[0, 1, 2, 4], true).await?;
    ensure!(identity(&edited) == identity(&before.rules[name]), "the same rule: {edited}");
    respect.finds_no("notRecorded").await?;
    eventually(SOON, || async {
        let ready = respect.bridger.get("/readyz").await?;
        ensure!(ready.ends_with("\r\n\r\nready\n"), "{ready}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_rule_deleted_twice_is_given_up_until_adopt_restores_it() -> Result<()> {
    let (mut respect, name) = start().await?;
    let name = name.as_str();
    let before = identity(&respect.rule(name, &[0, 1, 2], true).await?);
    respect.recorded(name, &before.1).await?;
    respect.site.administer("cluster.rule.remove", &["-name", name]).await?;
    let restored = identity(&respect.rule(name, &[0, 1, 2], true).await?);
    ensure!(restored != before, "it must be a new rule: {restored:?}");
    // A second deletion can be distinguished from a failed creation only once the recreated rule is recorded.
    respect.recorded(name, &restored.1).await?;
    respect.site.administer("cluster.rule.remove", &["-name", name]).await?;
    respect.found("deletedByHand", 1).await?;
    let passes = metric(&respect.bridger, "bridger_rules_passes_total").await?;
    // The other workload grows, which causes a pass. This rule stays deleted.
    respect.place("api", 3).await?;
    respect.rule_of(&[3, 4, 5]).await?;
    let own = respect.own().await?;
    ensure!(!own.rules.contains_key(name), "{own:?}");
    ensure!(metric(&respect.bridger, "bridger_rules_passes_total").await? > passes, "no pass was made");
    let ready = respect.bridger.get("/readyz").await?;
    ensure!(ready.contains("degraded") && ready.contains(&format!("RuleGivenUp: {name}")), "{ready}");

    respect.stop_for("adopt").await?;
    let unknown = respect.cluster.command(&["adopt", "--restore", "web", "--yes"]).await?;
    ensure!(unknown.code == Some(1) && unknown.stderr.contains("web is not a rule that Bridger"), "{unknown:?}");
    let restored = respect.cluster.command(&["adopt", "--restore", name, "--yes"]).await?;
    ensure!(restored.code == Some(0) && restored.stdout.contains("1 rules are no longer given up"), "{restored:?}");
    let again = respect.cluster.command(&["adopt", "--restore", "all", "--yes"]).await?;
    ensure!(again.code == Some(0) && again.stdout.contains("Nothing to restore"), "{again:?}");
    respect.start_again().await?;
    respect.place("api", 2).await?;
    respect.rule(name, &[0, 1, 2], true).await?;
    respect.finds_no("deletedByHand").await
}

#[tokio::test]
async fn number_13_cleanup_deletes_all_rules_of_bridger_and_nothing_else() -> Result<()> {
    let (mut respect, name) = start().await?;
    respect.stop_for("cleanup").await?;
    // Without the record of these rules, or without their vCenter, nothing looks like success.
    let elsewhere = ["cleanup", "--yes", "--record-namespace", "default"];
    let elsewhere = respect.cluster.command_as_administrator(&elsewhere).await?;
    ensure!(elsewhere.code == Some(2) && elsewhere.stderr.contains("--record-namespace"), "{elsewhere:?}");
    for command in [&["cleanup", "--yes"][..], &["adopt", "--yes"], &["plan"]] {
        let without = respect.cluster.command_without_vcenter(command).await?;
        ensure!(without.code == Some(2) && without.stderr.contains("no vCenter is given"), "{command:?}: {without:?}");
    }
    ensure!(respect.own().await?.rules.len() == 2, "nothing must be deleted");
    let shown = respect.cluster.command(&["cleanup", "--dry-run"]).await?;
    ensure!(shown.code == Some(0) && shown.stdout.contains("0 to edit, 2 to delete"), "{shown:?}");
    ensure!(respect.own().await?.rules.len() == 2, "a dry run must not delete");
    let deleted = respect.cluster.command(&["cleanup", "--yes"]).await?;
    ensure!(deleted.code == Some(0) && deleted.stdout.contains("2 rules are deleted"), "{deleted:?}");
    ensure!(respect.site.witness().await? == respect.foreign, "only the administrator's rule must be left");
    let record = respect.cluster.record().await?;
    ensure!(record.is_empty(), "{name} does not exist and needs no record: {record:?}");
    Ok(())
}

#[tokio::test]
async fn number_9_cleanup_removes_the_labels_that_bridger_wrote_and_its_empty_records() -> Result<()> {
    const KEY: &str = "alpha.cna.vmware.com/host";
    let (mut respect, _) = start().await?;
    let kubectl = respect.cluster.control_plane.kubectl();
    let labels = || async {
        let template = "jsonpath={.items[*].metadata.labels.alpha\\.cna\\.vmware\\.com/host}";
        let found = kubectl.run(&["get", "nodes", "-o", template]).await?;
        anyhow::Ok(found.split_whitespace().count())
    };
    eventually(SOON, || async {
        let count = labels().await?;
        ensure!(count == 6, "{count} labels\n{}", respect.bridger.output());
        Ok(())
    })
    .await?;
    respect.stop_for("cleanup").await?;
    // An administrator's own labels: one under another key, and one that Bridger wrote before.
    let (first, second) = (respect.site.machines[0].node.clone(), respect.site.machines[1].node.clone());
    kubectl.run(&["label", "node", &first, "--overwrite", &format!("{KEY}=mine")]).await?;
    kubectl.run(&["label", "node", &second, "example.org/rack=r1"]).await?;
    // And one that Bridger wrote and a GitOps tool has applied with the same value since: both are its owners.
    let third = respect.site.machines[2].node.clone();
    let host = kubectl.run(&["get", "node", &third, "-o", "jsonpath={.metadata.labels}"]).await?;
    let host = serde_json::from_str::<Value>(&host)?[KEY].clone();
    let applied = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": third, "labels": { KEY: host } } });
    let apply = ["apply", "--server-side", "--field-manager=gitops", "-f", "-"];
    kubectl.run_with(&apply, &applied.to_string()).await?;

    let shown = respect.cluster.command(&["cleanup", "--labels", "--dry-run"]).await?;
    ensure!(shown.stdout.contains(&format!("Label {KEY} of 4 nodes: {second} (")), "{shown:?}");
    let stays = format!("Label {KEY} of 2 nodes stays, because another client wrote it: {first} (mine), {third} (");
    ensure!(shown.stdout.contains(&stays), "{shown:?}");
    ensure!(labels().await? == 6 && respect.own().await?.rules.len() == 2, "a dry run must not change anything");

    // With the account of `run`, which cannot delete the record.
    let cleaned = respect.cluster.command(&["cleanup", "--labels", "--yes"]).await?;
    for expected in ["2 rules are deleted", "4 labels are removed", "stays", "--for cleanup"] {
        ensure!(cleaned.code == Some(0) && cleaned.stdout.contains(expected), "{expected:?}: {cleaned:?}");
    }
    ensure!(respect.site.witness().await? == respect.foreign, "only the administrator's rule must be left");
    ensure!(labels().await? == 2, "the labels of others must be left, and no more");
    let rack = kubectl.run(&["get", "nodes", "-l", "example.org/rack=r1", "-o", "name"]).await?;
    ensure!(rack.trim() == format!("node/{second}"), "{rack}");
    let nodes: Value = serde_json::from_str(&kubectl.run(&["get", "nodes", "-o", "json"]).await?)?;
    ensure!(nodes["items"].as_array().is_some_and(|nodes| nodes.len() == 6), "no node must be deleted");

    let records = ["get", "configmaps", "-n", "kube-system", "-l", "bridger.dev/kind=rules", "-o", "name"];
    ensure!(kubectl.run(&records).await?.lines().count() == 1, "it is empty and still there");
    let cleaned = respect.cluster.command_as_cleaner(&["cleanup", "--labels", "--yes"]).await?;
    ensure!(cleaned.code == Some(0) && cleaned.stdout.contains("1 empty records are deleted"), "{cleaned:?}");
    ensure!(cleaned.stdout.contains("No node has a label that Bridger wrote"), "{cleaned:?}");
    ensure!(kubectl.run(&records).await?.is_empty(), "the record is gone");
    let again = respect.cluster.command_as_cleaner(&["cleanup", "--yes"]).await?;
    ensure!(again.code == Some(0) && again.stdout.trim() == "Nothing to do.", "{again:?}");
    // A new start makes a new record.
    respect.start_again().await?;
    respect.rule_of(&[0, 1, 2]).await
}

#[tokio::test]
async fn number_9_a_record_of_a_newer_version_is_refused_and_nothing_is_written() -> Result<()> {
    let (mut respect, _) = start().await?;
    respect.bridger.stop();
    let before = (respect.site.witness().await?, respect.cluster.make_record_newer().await?);
    respect.place("api", 3).await?;
    respect.start_again().await?;
    eventually(SOON, || async {
        let ready = respect.bridger.get("/readyz").await?;
        ensure!(ready.contains("RecordUnreadable") && ready.contains("version 2"), "{ready}");
        Ok(())
    })
    .await?;
    respect.bridger.stop();
    for command in [&["cleanup", "--yes"][..], &["adopt", "--yes"], &["plan"]] {
        let refused = respect.cluster.command(command).await?;
        ensure!(refused.code == Some(1) && refused.stderr.contains("use the Bridger that wrote it"), "{refused:?}");
        let holder = respect.cluster.lease_holder("bridger").await;
        ensure!(
            holder.as_ref().is_err_and(|error| error.to_string().contains("no one holds")),
            "{command:?} keeps the lease: {holder:?}"
        );
    }
    let after = (respect.site.witness().await?, respect.cluster.record_version().await?);
    ensure!(before == after, "{before:?}\n{after:?}");
    Ok(())
}
