//! Rules that an earlier version wrote: this version takes them over unchanged.
//!
//! `tests/golden/written-rules.json` has the rules that commit 6919da2 wrote for the pods below. With
//! `BRIDGER_BEFORE=PROGRAM`, that program writes the rules instead; if `BRIDGER_GOLDEN=write` is also set, the file is
//! written again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::eventually;

use crate::pods::{self, affinity_to, anti_affinity_to, node_affinity_to, pod};
use crate::stage::{Cluster, SOON, Site, counts, metric};
use crate::witness::{AFFINITY, ANTI_AFFINITY, VM_HOST, Witness, ids, is_a};

/// A placeholder for the prefix, which differs between Kubernetes clusters.
const PREFIX: &str = "PREFIX-";
/// The number of required rules: one of each kind, and one more for a second workload.
const RULES: usize = 4;

fn golden_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/written-rules.json")
}

/// The name of the ConfigMap in which earlier versions keep a record.
fn object_name(record_name: &str) -> String {
    let hex: String = Sha256::digest(record_name).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("bridger-rules-{hex}")
}

struct Upgrade {
    site: Site,
    cluster: Cluster,
}

impl Upgrade {
    async fn place(&self, name: &str, app: &str, machine: usize, affinity: &Value) -> Result<()> {
        pods::create(&self.cluster.client, pod(name, app, &self.site.machines[machine].node, affinity)).await
    }

    async fn own(&self) -> Result<Witness> {
        Ok(self.site.witness().await?.own(&self.cluster.prefix))
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.cluster.client.clone(), "kube-system")
    }

    async fn record_objects(&self) -> Result<Vec<String>> {
        let found = self.config_maps().list(&ListParams::default().labels("bridger.dev/kind=rules")).await?;
        Ok(found.into_iter().filter_map(|map| map.metadata.name).collect())
    }

    /// Lets an earlier build write the rules, and stops it.
    async fn write_by(&self, program: &Path) -> Result<()> {
        let mut before = self.cluster.run_build(Some(program), &[]).await?;
        eventually(SOON, || async {
            let (own, record) = (self.own().await?, self.cluster.record().await?);
            let is_known = |rule: &Value| rule["uuid"].is_string();
            let is_done = own.rules.len() == RULES && record.len() == RULES && record.values().all(is_known);
            ensure!(is_done, "{own:?} {record:?}\n{}", before.output());
            Ok(())
        })
        .await?;
        before.stop();
        if std::env::var("BRIDGER_GOLDEN").is_ok_and(|golden| golden == "write") {
            let text = serde_json::to_string_pretty(&self.written().await?)? + "\n";
            std::fs::write(golden_file(), text.replace(&self.cluster.prefix, PREFIX))?;
        }
        Ok(())
    }

    /// The current rules, groups and record in the format of the golden file, with rule names instead of UUIDs.
    async fn written(&self) -> Result<Value> {
        let own = self.own().await?;
        let list = ListParams::default().labels("bridger.dev/kind=rules");
        let map = self.config_maps().list(&list).await?.items.into_iter().next().context("a record")?;
        let mut data = map.data.context("data")?;
        for (name, rule) in &own.rules {
            let uuid = rule["ruleUuid"].as_str().context("a UUID")?;
            data.values_mut().for_each(|text| *text = text.replace(uuid, &format!("UUID-{name}")));
        }
        let names = |entry: &Value, field: &str| -> Vec<String> { ids(entry, field).into_iter().collect() };
        let rules = own.rules.iter().map(|(name, rule)| {
            json!({ "name": name, "kind": rule["kind"], "key": rule["key"], "vms": names(rule, "vm"),
                "vmGroup": rule["vmGroupName"], "hostGroup": rule["affineHostGroupName"] })
        });
        let groups = own
            .groups
            .iter()
            .map(|(name, group)| json!({ "name": name, "vms": names(group, "vm"), "hosts": names(group, "host") }));
        Ok(json!({
            "configMap": { "name": map.metadata.name, "labels": map.metadata.labels, "data": data },
            "rules": rules.collect::<Vec<_>>(),
            "groups": groups.collect::<Vec<_>>(),
        }))
    }

    /// Creates the rules, groups and record of the golden file, in their original order.
    async fn create_from_golden(&self) -> Result<()> {
        let text = std::fs::read_to_string(golden_file()).context("the golden file")?;
        let kept: Value = serde_json::from_str(&text.replace(PREFIX, &self.cluster.prefix))?;
        let listed = |of: &Value| -> Vec<String> {
            of.as_array().into_iter().flatten().filter_map(|id| id.as_str().map(str::to_owned)).collect()
        };
        let vm_name = |id: &String| {
            let machine = self.site.machines.iter().find(|machine| machine.id == *id);
            machine.map(|machine| machine.vm.clone()).with_context(|| format!("no VM {id}"))
        };
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a text");
        for group in kept["groups"].as_array().context("groups")? {
            let vms = listed(&group["vms"]).iter().map(vm_name).collect::<Result<Vec<_>>>()?;
            let hosts = self.site.host_names(&listed(&group["hosts"])).await?;
            let (kind, members) = if hosts.is_empty() { ("-vm", vms) } else { ("-host", hosts) };
            let name = text(&group["name"])?;
            let mut arguments = vec!["-name", &name, kind];
            arguments.extend(members.iter().map(String::as_str));
            self.site.administer("cluster.group.create", &arguments).await?;
        }
        let mut rules = kept["rules"].as_array().context("rules")?.clone();
        rules.sort_by_key(|rule| rule["key"].as_i64());
        for rule in &rules {
            let name = text(&rule["name"])?;
            let vms = listed(&rule["vms"]).iter().map(vm_name).collect::<Result<Vec<_>>>()?;
            let mut arguments = vec!["-name".to_owned(), name, "-enable".to_owned()];
            match () {
                () if is_a(rule, ANTI_AFFINITY) => arguments.push("-anti-affinity".to_owned()),
                () if is_a(rule, AFFINITY) => arguments.push("-affinity".to_owned()),
                () => {
                    let groups = (text(&rule["vmGroup"])?, text(&rule["hostGroup"])?);
                    let words = ["-vm-host", "-vm-group", &groups.0, "-host-affine-group", &groups.1];
                    arguments.extend(words.map(str::to_owned));
                }
            }
            arguments.extend(vms);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            self.site.administer("cluster.rule.create", &arguments).await?;
        }
        let mut data: BTreeMap<String, String> = serde_json::from_value(kept["configMap"]["data"].clone())?;
        for (name, rule) in self.own().await?.rules {
            let uuid = text(&rule["ruleUuid"])?;
            data.values_mut().for_each(|text| *text = text.replace(&format!("UUID-{name}"), &uuid));
        }
        // Each vcsim has its own instance UUID, which is part of the record's name.
        let record_name = data.get_mut("name").context("the record's name")?;
        ensure!(object_name(record_name) == text(&kept["configMap"]["name"])?, "{record_name} has another object name");
        let (_, cluster) = record_name.split_once('/').context("a vCenter and a cluster")?;
        *record_name = format!("{}/{cluster}", self.site.instance_uuid().await?);
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": object_name(record_name), "labels": kept["configMap"]["labels"] }, "data": data });
        self.config_maps().create(&PostParams::default(), &serde_json::from_value(map)?).await?;
        Ok(())
    }
}

#[tokio::test]
async fn rules_of_an_earlier_version_stay_unchanged() -> Result<()> {
    let site = Site::start(5, 8).await?;
    let hosts: Vec<String> = site.hosts.clone();
    let cluster = Cluster::start(&site, 0..8).await?;
    let upgrade = Upgrade { site, cluster };
    for machine in 0..3 {
        upgrade.place(&format!("web-{machine}"), "web", machine, &anti_affinity_to("web")).await?;
    }
    for machine in 2..4 {
        upgrade.place(&format!("api-{machine}"), "api", machine, &anti_affinity_to("api")).await?;
    }
    upgrade.place("cache", "cache", 4, &json!({})).await?;
    upgrade.place("reader", "reader", 5, &affinity_to("cache")).await?;
    upgrade.place("licensed", "licensed", 6, &node_affinity_to(&[&hosts[0], &hosts[1]])).await?;

    let names = ["--for", "run", "--name-records"];
    match std::env::var_os("BRIDGER_BEFORE") {
        Some(program) => {
            upgrade.cluster.grant(&names).await?;
            upgrade.write_by(Path::new(&program)).await?;
        }
        None => {
            upgrade.create_from_golden().await?;
            // The usual role allows changes of the ConfigMaps of new records alone.
            let refused = upgrade.cluster.command(&["run", "--port", "0", "--listen", "127.0.0.1"]).await?;
            let is_explained = ["bridger-rules-", "--name-records"].iter().all(|text| refused.stderr.contains(text));
            ensure!(refused.code == Some(2) && is_explained, "{refused:?}");
            upgrade.cluster.grant(&names).await?;
        }
    }
    let held = upgrade.record_objects().await?;
    let before = upgrade.own().await?;
    for (kind, number) in [(ANTI_AFFINITY, 2), (AFFINITY, 1), (VM_HOST, 1)] {
        ensure!(before.of_kind(kind).len() == number, "{kind}: {before:?}");
    }
    let record = upgrade.cluster.record().await?;

    // The plan is empty.
    let planned = upgrade.cluster.command(&["plan", "-o", "json"]).await?;
    let plan: Value = serde_json::from_str(&planned.stdout).with_context(|| format!("{planned:?}"))?;
    let clusters = plan["clusters"].as_array().context("clusters")?;
    let actions: Vec<&Value> = clusters.iter().flat_map(|cluster| cluster["actions"].as_array()).flatten().collect();
    ensure!(clusters.len() == 1 && actions.is_empty(), "{planned:?}");

    // A rule for new pods shows that Bridger is running.
    let bridger = upgrade.cluster.run(&[]).await?;
    for machine in 6..8 {
        upgrade.place(&format!("new-{machine}"), "new", machine, &anti_affinity_to("new")).await?;
    }
    counts(&bridger, "bridger_rules_changes_total{kind=\"create\"}", 1).await?;
    for kind in ["edit", "delete"] {
        let changes = metric(&bridger, &format!("bridger_rules_changes_total{{kind=\"{kind}\"}}")).await?;
        ensure!(changes == Some(0), "{kind}: {changes:?}\n{}", bridger.output());
    }
    let after = upgrade.own().await?;
    ensure!(after.only(&before.names()) == before, "{before:?}\n{after:?}\n{}", bridger.output());
    let recorded = eventually(SOON, || async {
        let recorded = upgrade.cluster.record().await?;
        ensure!(recorded.len() == RULES + 1, "{recorded:?}");
        Ok(recorded)
    })
    .await?;
    ensure!(record.iter().all(|(name, rule)| recorded.get(name) == Some(rule)), "{record:?}\n{recorded:?}");
    let holds = upgrade.record_objects().await?;
    ensure!(held.len() == 1 && holds == held, "the record keeps its ConfigMap: {held:?}, {holds:?}");
    Ok(())
}
