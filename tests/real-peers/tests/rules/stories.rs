//! Rules for pods, step by step: planned, created, edited in place, deleted after the grace period.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::Value;
use testkit::command::Finished;
use testkit::workdir::Workdir;
use testkit::{Bridger, eventually};

use crate::pods::{self, SECRETS, affinity_to, anti_affinity_to, node_affinity_to, pod};
use crate::stage::{Cluster, SOON, Site, counts, metric};
use crate::witness::{AFFINITY, ANTI_AFFINITY, VM_HOST, Witness, identity, ids};

const GRACE: Duration = Duration::from_secs(3);
const POLICY: [&str; 2] = ["--removal-grace", "3s"];

struct Story {
    site: Site,
    cluster: Cluster,
}

impl Story {
    async fn place(&self, name: &str, app: &str, machine: usize, affinity: &Value) -> Result<()> {
        pods::create(&self.cluster.client, pod(name, app, &self.site.machines[machine].node, affinity)).await
    }

    async fn delete(&self, names: &[&str]) -> Result<()> {
        for name in names {
            pods::delete(&self.cluster.client, name).await?;
        }
        Ok(())
    }

    async fn own(&self) -> Result<Witness> {
        Ok(self.site.witness().await?.own(&self.cluster.prefix))
    }

    /// Waits until Bridger has exactly one rule of a kind, with exactly these VMs, and returns it.
    async fn one_rule(&self, kind: &str, machines: &[usize], bridger: &Bridger) -> Result<Value> {
        let expected = self.site.ids(machines);
        eventually(SOON, || async {
            let own = self.own().await?;
            let rules = own.of_kind(kind);
            ensure!(rules.len() == 1, "{kind}: {own:?}\n{}", bridger.output());
            ensure!(ids(rules[0], "vm") == expected, "not {expected:?}: {own:?}\n{}", bridger.output());
            ensure!(rules[0]["enabled"] == true && rules[0]["userCreated"] == true, "{own:?}");
            Ok(rules[0].clone())
        })
        .await
    }

    async fn plan(&self, flags: &[&str]) -> Result<Finished> {
        self.cluster.command(&[&["plan"], &POLICY[..], flags].concat()).await
    }
}

/// The plan as JSON, without its time.
fn document(finished: &Finished) -> Result<Value> {
    let mut document: Value = serde_json::from_str(&finished.stdout).with_context(|| format!("{finished:?}"))?;
    document.as_object_mut().context("an object")?.remove("taken");
    Ok(document)
}

/// Five hosts, six VMs with a node each, and `web` on the first three.
async fn start() -> Result<Story> {
    let site = Site::start(5, 6).await?;
    let cluster = Cluster::start(&site, 0..6).await?;
    let story = Story { site, cluster };
    for machine in 0..3 {
        story.place(&format!("web-{machine}"), "web", machine, &anti_affinity_to("web")).await?;
    }
    Ok(story)
}

#[tokio::test]
async fn plan_and_snapshot_show_a_rule_before_it_is_written() -> Result<()> {
    let story = start().await?;
    let shown = story.plan(&[]).await?;
    ensure!(shown.code == Some(3), "{shown:?}");
    for expected in ["create apart", "default/web-0", "DC0_C0_RP0_VM1", "1 to create, 0 to edit, 0 to delete"] {
        ensure!(shown.stdout.contains(expected), "{expected:?} is missing:\n{}", shown.stdout);
    }
    let live = story.plan(&["-o", "json"]).await?;
    let (code, live) = (live.code, document(&live)?);
    ensure!(code == Some(3) && live["create"] == 1, "{live:#}");
    ensure!(live["clusters"][0]["actions"][0]["vms"].as_array().is_some_and(|vms| vms.len() == 3), "{live:#}");

    let workdir = Workdir::create("snapshot")?;
    let file = workdir.join("world.json").display().to_string();
    let taken = story.cluster.command(&["snapshot", &file]).await?;
    ensure!(taken.code == Some(0) && taken.stdout.contains("6 nodes, 3 pods, 1 vCenters"), "{taken:?}");
    let again = story.cluster.command(&["plan", "--snapshot", &file, "-o", "json"]).await?;
    ensure!(again.code == Some(3) && document(&again)? == live, "{again:?}\n{live:#}");
    let text = std::fs::read_to_string(&file)?.to_lowercase();
    for secret in SECRETS.into_iter().chain([testkit::vcsim::PASSWORD, "password", "token", "annotation", "env"]) {
        ensure!(!text.contains(secret), "{secret:?} is in the snapshot");
    }
    ensure!(story.own().await? == Witness::default() && story.cluster.record().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn an_anti_affinity_rule_follows_its_pods_and_matches_the_record() -> Result<()> {
    let story = start().await?;
    let bridger = story.cluster.run(&POLICY).await?;
    follows(&story, &bridger).await?;
    matches_the_record(&story).await?;
    let output = bridger.output();
    for secret in SECRETS.into_iter().chain([testkit::vcsim::PASSWORD]) {
        ensure!(!output.contains(secret), "{secret} in the output:\n{output}");
    }
    Ok(())
}

/// There is a rule with exactly the VMs of the pods, and it is the same rule after a pod moved.
async fn follows(story: &Story, bridger: &Bridger) -> Result<()> {
    let began = Instant::now();
    let rule = story.one_rule(ANTI_AFFINITY, &[0, 1, 2], bridger).await?;
    ensure!(began.elapsed() < GRACE * 5, "additions must take only seconds, not {} ms", began.elapsed().as_millis());
    story.delete(&["web-2"]).await?;
    story.place("web-2", "web", 3, &anti_affinity_to("web")).await?;
    let edited = story.one_rule(ANTI_AFFINITY, &[0, 1, 3], bridger).await?;
    ensure!(identity(&edited) == identity(&rule) && edited["name"] == rule["name"], "{rule} became {edited}");
    counts(bridger, "bridger_rules_owned", 1).await?;
    ensure!(metric(bridger, "bridger_rules_changes_total{kind=\"create\"}").await? == Some(1), "not created once");
    Ok(())
}

/// The plan is empty, and the record matches the existing rules.
async fn matches_the_record(story: &Story) -> Result<()> {
    let own = story.own().await?;
    let record = story.cluster.record().await?;
    ensure!(record.keys().eq(own.rules.keys()), "{record:?}\n{own:?}");
    for (name, rule) in &own.rules {
        ensure!(record[name]["uuid"] == rule["ruleUuid"], "{record:?}\n{rule}");
    }
    let shown = story.plan(&[]).await?;
    ensure!(shown.code == Some(0) && shown.stdout.contains("Nothing to do."), "{shown:?}");
    let document = document(&story.plan(&["-o", "json"]).await?)?;
    ensure!((&document["create"], &document["edit"], &document["delete"]) == (&0.into(), &0.into(), &0.into()));
    Ok(())
}

#[tokio::test]
async fn rules_of_each_kind_are_created_and_deleted_after_the_grace_period() -> Result<()> {
    let story = start().await?;
    let bridger = story.cluster.run(&POLICY).await?;
    story.one_rule(ANTI_AFFINITY, &[0, 1, 2], &bridger).await?;
    affinity_and_node_affinity(&story, &bridger).await?;
    gone_after_the_grace(&story, &bridger).await
}

/// Required affinity creates a VM-VM affinity rule; node affinity to hosts creates groups and a VM-Host rule.
async fn affinity_and_node_affinity(story: &Story, bridger: &Bridger) -> Result<()> {
    story.place("cache", "cache", 4, &Value::Null).await?;
    story.place("front", "front", 5, &affinity_to("cache")).await?;
    story.one_rule(AFFINITY, &[4, 5], bridger).await?;

    let hosts: Vec<&str> = story.site.hosts.iter().take(2).map(String::as_str).collect();
    story.place("db", "db", 3, &node_affinity_to(&hosts)).await?;
    let mut host_ids = BTreeSet::new();
    for host in &hosts {
        let found = story.site.govc.run(&["find", "-i", "/", "-type", "h", "-name", host]).await?;
        host_ids.insert(found.trim().strip_prefix("HostSystem:").context("a host")?.to_owned());
    }
    eventually(SOON, || async {
        let own = story.own().await?;
        let rules = own.of_kind(VM_HOST);
        ensure!(rules.len() == 1, "{own:?}\n{}", bridger.output());
        let group = |field: &str| {
            let name = rules[0][field].as_str().context("a group's name")?;
            own.groups.get(name).with_context(|| format!("{name} in {own:?}"))
        };
        ensure!(ids(group("vmGroupName")?, "vm") == story.site.ids(&[3]), "{own:?}");
        ensure!(ids(group("affineHostGroupName")?, "host") == host_ids, "{own:?}");
        ensure!(rules[0]["mandatory"] == false && rules[0]["enabled"] == true, "{own:?}");
        Ok(())
    })
    .await
}

/// With the last pod, the rules and groups are deleted, but not before the grace period is over.
async fn gone_after_the_grace(story: &Story, bridger: &Bridger) -> Result<()> {
    let before = story.own().await?;
    ensure!((before.rules.len(), before.groups.len()) == (3, 2), "{before:?}");
    let began = Instant::now();
    story.delete(&["web-0", "web-1", "web-2", "cache", "front", "db"]).await?;
    while story.own().await?.rules.len() == before.rules.len() {
        ensure!(began.elapsed() < SOON, "the rules still exist:\n{}", bridger.output());
    }
    ensure!(began.elapsed() >= GRACE, "deleted after {} ms", began.elapsed().as_millis());
    eventually(SOON, || async {
        let own = story.own().await?;
        ensure!(own == Witness::default(), "{own:?}\n{}", bridger.output());
        ensure!(story.cluster.record().await?.is_empty(), "deleted rules must not be recorded");
        Ok(())
    })
    .await?;
    counts(bridger, "bridger_rules_owned", 0).await
}

#[tokio::test]
async fn more_replicas_than_hosts_get_a_limited_rule_and_events_with_the_numbers() -> Result<()> {
    let story = start().await?;
    let bridger = &story.cluster.run(&POLICY).await?;
    for machine in 0..6 {
        story.place(&format!("wide-{machine}"), "wide", machine, &anti_affinity_to("wide")).await?;
    }
    let expected = "6 replicas must run on different hosts and do not fit on the 5 hosts, with a reserve of 1: \
                    DRS rules keep 7 of 15 pairs apart, 8 are not protected";
    eventually(SOON, || async {
        let events = story.cluster.events("Unsatisfiable").await?;
        let pods: BTreeSet<&str> =
            events.iter().filter(|(_, message)| message == expected).map(|(pod, _)| pod.as_str()).collect();
        ensure!(pods.len() == 6, "{events:?}\n{}", bridger.output());
        let own = story.own().await?;
        ensure!(!own.rules.is_empty() && own.rules.values().all(|rule| ids(rule, "vm").len() <= 4), "{own:?}");
        Ok(())
    })
    .await?;
    counts(bridger, "bridger_rules_findings{name=\"unsatisfiable\"}", 1).await?;
    let shown = story.plan(&[]).await?;
    ensure!(shown.stdout.contains("unsatisfiable: 6 VMs want to be apart, 5 hosts, reserve 1"), "{}", shown.stdout);
    Ok(())
}

#[tokio::test]
async fn number_5_replicas_that_fit_on_the_hosts_get_no_warning() -> Result<()> {
    let story = start().await?;
    let bridger = &story.cluster.run(&POLICY).await?;
    // Five hosts, one of them the reserve.
    for machine in 0..5 {
        story.place(&format!("wide-{machine}"), "wide", machine, &anti_affinity_to("wide")).await?;
    }
    let expected = "5 replicas must run on different hosts and fit on the 5 hosts, with a reserve of 1: \
                    DRS rules keep 6 of 10 pairs apart, 4 are not protected";
    let events: Api<Event> = Api::default_namespaced(story.cluster.client.clone());
    eventually(SOON, || async {
        let listed = events.list(&ListParams::default().fields("reason=Unsatisfiable")).await?.items;
        let last = listed.iter().filter(|event| event.message.as_deref() == Some(expected));
        let pods: BTreeSet<_> = last.clone().filter_map(|event| event.involved_object.name.as_deref()).collect();
        ensure!(pods.len() == 5, "{listed:?}\n{}", bridger.output());
        ensure!(last.clone().all(|event| event.type_.as_deref() == Some("Normal")), "{listed:?}");
        ensure!(listed.iter().all(|event| event.type_.as_deref() == Some("Normal")), "{listed:?}");
        Ok(())
    })
    .await
}

/// The lines of an audit log.
fn audited(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

/// Waits until a line of the audit log has these values, and returns it.
async fn becomes_audited(path: &Path, expected: &[(&str, &str)], bridger: &Bridger) -> Result<Value> {
    eventually(SOON, || async {
        let lines = audited(path)?;
        let is_it = |line: &&Value| expected.iter().all(|(key, value)| line[*key] == *value);
        let found = lines.iter().find(is_it).cloned();
        found.with_context(|| format!("no line with {expected:?} in {lines:#?}\n{}", bridger.output()))
    })
    .await
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

const RULE: &str = "VM-VM anti-affinity rule";
const WEB: [&str; 3] = ["DC0_C0_RP0_VM0", "DC0_C0_RP0_VM1", "DC0_C0_RP0_VM2"];

#[tokio::test]
async fn number_7_every_change_is_a_line_in_the_log_and_in_the_audit_log() -> Result<()> {
    let story = start().await?;
    let workdir = Workdir::create("audit")?;
    let path = workdir.join("audit.log");
    let file = path.display().to_string();
    let flags = [&["--audit-log", &file], &POLICY[..]].concat();
    let what = format!("{RULE} {}", story.cluster.prefix);

    let mut bridger = story.cluster.run(&[&flags[..], &["--dry-run"]].concat()).await?;
    bridger.prints(&format!("would create {what}"), SOON).await?;
    bridger.prints("would label node dc0-c0-rp0-vm0: alpha.cna.vmware.com/host=DC0_C0_H", SOON).await?;
    let line = becomes_audited(&path, &[("kind", RULE), ("result", "dryRun")], &bridger).await?;
    ensure!(texts(&line["members"]) == WEB && line["side"] == "vsphere" && line["action"] == "create", "{line}");
    bridger.stop();
    ensure!(!bridger.output().contains("domain-c") && !bridger.output().contains("VmAntiAffinity"), "ids in the log");

    let mut bridger = story.cluster.run(&flags).await?;
    let created = becomes_audited(&path, &[("kind", RULE), ("result", "done")], &bridger).await?;
    ensure!(texts(&created["members"]) == WEB && created["error"] == Value::Null, "{created}");
    ensure!(texts(&created["pods"]) == ["default/web-0", "default/web-1", "default/web-2"], "{created}");
    ensure!(created["cluster"] == "DC0_C0" && created["vcenter"] == story.site.address()?.as_str(), "{created}");
    ensure!(created["cause"] == "the first plan for its cluster after the start found it", "{created}");
    bridger.prints(&format!("created {what}"), SOON).await?;
    becomes_audited(&path, &[("kind", "node"), ("name", "dc0-c0-rp0-vm5"), ("result", "done")], &bridger).await?;

    story.place("web-3", "web", 3, &anti_affinity_to("web")).await?;
    let edited = becomes_audited(&path, &[("kind", RULE), ("action", "edit")], &bridger).await?;
    ensure!(texts(&edited["members"]).contains(&"+DC0_C0_RP0_VM3"), "{edited}");
    ensure!(edited["cause"] == "pod default/web-3 was bound to dc0-c0-rp0-vm3", "{edited}");
    bridger.prints("; because pod default/web-3 was bound to dc0-c0-rp0-vm3", SOON).await?;

    moves_are_audited(&story, &path, &bridger).await?;

    story.delete(&["web-0", "web-1", "web-2", "web-3"]).await?;
    let deleted = becomes_audited(&path, &[("kind", RULE), ("action", "delete")], &bridger).await?;
    let cause = deleted["cause"].as_str().unwrap_or_default();
    ensure!(cause.starts_with("no pod has required it for ") && cause.ends_with(" s"), "{deleted}");
    bridger.prints(&format!("deleted {what}"), SOON).await?;
    let output = bridger.output();
    let ids = story.site.ids(&[0, 1, 2, 3, 4, 5]);
    ensure!(!output.contains("changes=") && !ids.iter().any(|id| output.contains(&format!(" {id}"))), "{output}");
    bridger.stop();

    let mode = std::fs::metadata(&path)?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "{mode:o}");
    let text = std::fs::read_to_string(&path)?;
    for secret in SECRETS.into_iter().chain([testkit::vcsim::PASSWORD]) {
        ensure!(!text.contains(secret), "{secret} in the audit log");
    }
    Ok(())
}

/// A VM that moves, and one whose node Bridger may not label any more.
async fn moves_are_audited(story: &Story, path: &Path, bridger: &Bridger) -> Result<()> {
    let (node, vm) = (&story.site.machines[4].node, &story.site.machines[4].vm);
    let kubectl = story.cluster.control_plane.kubectl();
    let host = story.site.host_of(4).await?;
    let others: Vec<usize> = (0..story.site.hosts.len()).filter(|number| story.site.hosts[*number] != host).collect();
    story.site.migrate(4, others[0]).await?;
    let cause = format!("VM {vm} moved from {host} to {}", story.site.hosts[others[0]]);
    becomes_audited(path, &[("name", node), ("result", "done"), ("cause", &cause)], bridger).await?;

    let mut role: Value = serde_json::from_str(&kubectl.run(&["get", "clusterrole", "bridger", "-o", "json"]).await?)?;
    for rule in role["rules"].as_array_mut().context("rules")? {
        let verbs = rule["verbs"].as_array_mut().context("verbs")?;
        verbs.retain(|verb| verb != "patch");
    }
    role["rules"].as_array_mut().context("rules")?.retain(|rule| rule["verbs"] != Value::Array(Vec::new()));
    kubectl.run_with(&["replace", "-f", "-"], &role.to_string()).await?;
    // Until the API server has noticed, labels may still be written: move until one is refused.
    let mut target = 0;
    eventually(SOON, || {
        target = (target + 1) % others.len();
        let host = others[target];
        async move {
            story.site.migrate(4, host).await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
            let lines = audited(path)?;
            let refused = lines.iter().find(|line| line["name"] == **node && line["result"] == "refused");
            let refused = refused.with_context(|| format!("{lines:#?}\n{}", bridger.output()))?;
            ensure!(refused["error"].as_str().is_some_and(|error| error.contains("forbidden")), "{refused}");
            ensure!(bridger.output().contains(&format!("could not label node {node}: ")), "{}", bridger.output());
            Ok(())
        }
    })
    .await
}

#[tokio::test]
async fn number_7_adopt_lists_vms_by_name() -> Result<()> {
    let story = start().await?;
    let mut bridger = story.cluster.run(&POLICY).await?;
    story.one_rule(ANTI_AFFINITY, &[0, 1, 2], &bridger).await?;
    counts(&bridger, "bridger_rules_owned", 1).await?;
    bridger.stop();
    let selector = ["delete", "configmap", "-n", "kube-system", "-l", "bridger.dev/kind=rules"];
    story.cluster.control_plane.kubectl().run(&selector).await?;
    let shown = story.cluster.command(&["adopt", "--yes"]).await?;
    ensure!(shown.stdout.contains(&format!("(3 VMs: {})", WEB.join(", "))), "{shown:?}");
    let listed = story.cluster.command(&["cleanup", "--dry-run"]).await?;
    ensure!(listed.stdout.contains(&WEB.join(", ")) && !listed.stdout.contains("vm-"), "{listed:?}");
    Ok(())
}
