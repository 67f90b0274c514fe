//! Tests the rule store on vcsim and on the embedded vCenter. govc acts as the administrator and shows the actual
//! rules.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use engine::ports::{
    ChangeKind, ClusterRules, GroupChange, PortError, RecordedGroups, RuleChange, RuleStore, RuleType, VmRef,
};
use model::event::{ClusterFacts, Event, GroupFacts, GroupKind, RuleFacts, RuleKind, VcenterId};
use serde_json::Value;
use testkit::{Govc, Sandbox, Vcsim, VcsimOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use vsphere::{Rules, Settings, VcenterConfig, VcenterStatus, inventory};

const ID: VcenterId = VcenterId(0);
const LIMIT: Duration = Duration::from_secs(60);
/// How often the inventory re-reads properties for which a server may send no update.
const READ_AGAIN: Duration = Duration::from_secs(30);
/// A change reported within this time was not found by the periodic read.
const SOON: Duration = Duration::from_secs(10);

/// One vCenter, and the names in its inventory.
struct Peer {
    govc: Govc,
    config: VcenterConfig,
    cluster: &'static str,
    vms: [&'static str; 4],
    /// It rejects invalid rules, as a real vCenter does.
    checks_rules: bool,
}

fn config(url: &str) -> Result<VcenterConfig> {
    let mut config = VcenterConfig::from_settings(&Settings::default(), |name| match name {
        "GOVC_URL" => Some(url.to_owned()),
        "GOVC_INSECURE" => Some("true".to_owned()),
        _ => None,
    })?;
    config.timing.read_again_every = READ_AGAIN;
    Ok(config)
}

/// The inventory as the watch reports it.
struct Inventory {
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
    cluster: ClusterFacts,
    /// Ids of VMs and hosts by name.
    ids: BTreeMap<String, String>,
}

impl Inventory {
    async fn start(peer: &Peer) -> Result<Inventory> {
        let (sender, events) = mpsc::channel(64);
        let (status, _) = watch::channel(VcenterStatus::default());
        let jitter = engine::runtime::Jitter::from_seed(1);
        let run = inventory::run(
            peer.config.clone(),
            ID,
            inventory::Instances::default(),
            sender,
            status,
            jitter,
            std::future::pending(),
        );
        let task = tokio::spawn(run);
        let mut inventory = Inventory { events, task, cluster: ClusterFacts::default(), ids: BTreeMap::new() };
        while !matches!(inventory.next_event().await?, Event::RelistEnded(_)) {}
        Ok(inventory)
    }

    async fn next_event(&mut self) -> Result<Event> {
        let event = tokio::time::timeout(LIMIT, self.events.recv()).await.context("no event")?;
        let event = event.context("the run has ended")?;
        match &event {
            Event::ClusterApplied { cluster, .. } => self.cluster = cluster.clone(),
            Event::VmApplied { vm, .. } => drop(self.ids.insert(vm.name.clone(), vm.id.clone())),
            Event::HostApplied { host, .. } => drop(self.ids.insert(host.name.clone(), host.id.clone())),
            _ => (),
        }
        Ok(event)
    }

    /// Waits until the watch reports these rules, which must take much less time than the periodic read.
    async fn until_soon(&mut self, rules: &ClusterRules) -> Result<()> {
        let began = Instant::now();
        while self.cluster.rules != rules.rules || self.cluster.groups != rules.groups {
            let event = tokio::time::timeout(LIMIT.saturating_sub(began.elapsed()), self.next_event()).await;
            event.with_context(|| format!("not reported: {rules:?}; but {:?}", self.cluster))??;
        }
        ensure!(began.elapsed() < SOON, "reported after {} ms", began.elapsed().as_millis());
        Ok(())
    }
}

/// The rules and groups as govc shows them, by name.
async fn witness(peer: &Peer) -> Result<BTreeMap<String, Value>> {
    let path = peer.govc.run(&["find", "/", "-type", "c", "-name", peer.cluster]).await?;
    let json = peer.govc.run(&["object.collect", "-o", "-json", path.trim(), "configurationEx"]).await?;
    let json: Value = serde_json::from_str(&json)?;
    let config = json.pointer("/configurationEx").context("configurationEx")?;
    let all = ["rule", "group"].map(|field| config[field].as_array().cloned().unwrap_or_default());
    all.concat()
        .into_iter()
        .map(|mut entry| {
            // Compliance depends on the placement of VMs, not on the rule.
            entry.as_object_mut().map(|entry| entry.remove("inCompliance"));
            Ok((entry["name"].as_str().context("a name")?.to_owned(), entry))
        })
        .collect()
}

fn rule_change(name: &str, rule_type: RuleType, kind: ChangeKind, vms: &[String]) -> RuleChange {
    let vms = vms.iter().map(|id| VmRef { id: id.clone(), name: id.clone() }).collect();
    RuleChange::new(name.to_owned(), rule_type, kind, vms)
}

fn create(name: &str, rule_type: RuleType, vms: &[String]) -> RuleChange {
    rule_change(name, rule_type, ChangeKind::Create, vms)
}

fn delete(name: &str, key: i32) -> RuleChange {
    rule_change(name, RuleType::VmAntiAffinity, ChangeKind::Delete { key, uuid: None }, &[])
}

fn delete_group(name: &str) -> RuleChange {
    let groups = vec![GroupChange::Remove { name: name.to_owned() }];
    RuleChange { groups, ..rule_change("ours-pin", RuleType::VmHost, ChangeKind::DeleteGroups, &[]) }
}

fn rule<'a>(rules: &'a ClusterRules, name: &str) -> Result<&'a RuleFacts> {
    rules.rules.iter().find(|rule| rule.name == name).with_context(|| format!("{name} in {rules:?}"))
}

fn members(witness: &Value) -> Vec<&str> {
    witness["vm"].as_array().into_iter().flatten().filter_map(|vm| vm["value"].as_str()).collect()
}

/// An edit that keeps the rule's key and UUID.
fn edit(facts: &RuleFacts, rule_type: RuleType, vms: &[String]) -> RuleChange {
    let (key, uuid) = (facts.key, facts.uuid.clone());
    rule_change(&facts.name, rule_type, ChangeKind::Edit { key, uuid, added: vec![], removed: vec![] }, vms)
}

async fn scenario(peer: &Peer) -> Result<()> {
    let mut inventory = Inventory::start(peer).await?;
    let cluster = inventory.cluster.id.clone();
    let vms: Vec<String> = peer.vms.iter().map(|vm| inventory.ids[*vm].clone()).collect();
    let host = inventory.ids.values().find(|id| id.starts_with("host-")).context("a host")?.clone();
    let vm_list = |indexes: &[usize]| indexes.iter().map(|index| vms[*index].clone()).collect::<Vec<_>>();
    let store = Rules::new([(ID, peer.config.clone())]);
    let change = async |changes: &[RuleChange]| store.change(ID, &cluster, changes).await;

    // An administrator's rule and group.
    let govc = &peer.govc;
    let common = ["-cluster", peer.cluster, "-name"];
    let rule_create = [&["cluster.rule.create"], &common[..], &["foreign", "-enable", "-anti-affinity"]].concat();
    govc.run(&[&rule_create[..], &peer.vms[..2]].concat()).await?;
    govc.run(&[&["cluster.group.create"], &common[..], &["foreign-vms", "-vm", peer.vms[2]]].concat()).await?;
    let foreign = witness(peer).await?;
    ensure!(foreign.len() == 2, "{foreign:?}");
    let read = store.read(ID, &cluster).await?;
    inventory.until_soon(&read).await?;

    // Our rules, one of each kind, in one change.
    let group = |name: &str, kind| GroupFacts { name: name.to_owned(), user_created: true, kind };
    let pin = RuleKind::VmHost {
        vm_group: "ours-vms".to_owned(),
        affine_hosts: Some("ours-hosts".to_owned()),
        anti_affine_hosts: None,
    };
    let names = RecordedGroups { vms: "ours-vms".to_owned(), hosts: "ours-hosts".to_owned() };
    let pinned = RuleChange {
        group_names: Some(names),
        groups: vec![
            GroupChange::Add(group("ours-vms", GroupKind::Vms(vm_list(&[0])))),
            GroupChange::Add(group("ours-hosts", GroupKind::Hosts(vec![host]))),
        ],
        ..create("ours-pin", RuleType::VmHost, &vm_list(&[0]))
    };
    change(&[
        create("ours-anti", RuleType::VmAntiAffinity, &vm_list(&[0, 2])),
        create("ours-affine", RuleType::VmAffinity, &vm_list(&[1, 3])),
        pinned.clone(),
    ])
    .await?;
    let read = store.read(ID, &cluster).await?;
    inventory.until_soon(&read).await?;
    ensure!(rule(&read, "ours-anti")?.kind == RuleKind::VmAntiAffinity(vm_list(&[0, 2])), "{read:?}");
    ensure!(rule(&read, "ours-affine")?.kind == RuleKind::VmAffinity(vm_list(&[1, 3])), "{read:?}");
    ensure!(rule(&read, "ours-pin")?.kind == pin, "{read:?}");
    ensure!(read.rules.iter().all(|rule| rule.enabled && rule.uuid.is_some()), "{read:?}");
    let observed = witness(peer).await?;
    ensure!(observed.len() == foreign.len() + 5, "{observed:?}");
    let shown = govc.run(&["cluster.rule.info", "-cluster", peer.cluster, "-name", "ours-anti"]).await?;
    ensure!(shown.contains("ClusterAntiAffinityRuleSpec"), "{shown}");
    ensure!(members(&observed["ours-anti"]) == vm_list(&[0, 2]), "{observed:?}");

    // Edited in place: other members, but still the same rule.
    let before = rule(&read, "ours-anti")?.clone();
    let mut wider = edit(rule(&read, "ours-pin")?, RuleType::VmHost, &vm_list(&[0, 1]));
    wider.group_names.clone_from(&pinned.group_names);
    wider.groups = vec![GroupChange::Edit(group("ours-vms", GroupKind::Vms(vm_list(&[0, 1]))))];
    change(&[edit(&before, RuleType::VmAntiAffinity, &vm_list(&[0, 2, 3])), wider]).await?;
    let read = store.read(ID, &cluster).await?;
    inventory.until_soon(&read).await?;
    let after = rule(&read, "ours-anti")?;
    let expected = RuleFacts { kind: RuleKind::VmAntiAffinity(vm_list(&[0, 2, 3])), ..before };
    ensure!(*after == expected, "{after:?}");
    ensure!(rule(&read, "ours-pin")?.kind == pin && rule(&read, "ours-pin")?.enabled, "{read:?}");
    let edited = witness(peer).await?;
    for field in ["key", "ruleUuid"] {
        ensure!(edited["ours-anti"][field] == observed["ours-anti"][field], "{field}: {edited:?}");
    }
    ensure!(members(&edited["ours-vms"]) == vm_list(&[0, 1]), "{edited:?}");

    // Invalid changes are reported as such, and change nothing.
    let twice = create("foreign", RuleType::VmAntiAffinity, &vm_list(&[2, 3]));
    let mut invalid = vec![twice, delete("none", 9999), delete_group("x")];
    if peer.checks_rules {
        let unknown = vec![vms[0].clone(), "vm-9999".to_owned()];
        invalid.push(create("ours-unknown", RuleType::VmAntiAffinity, &unknown));
        invalid.push(create("ours-lonely", RuleType::VmAntiAffinity, &vm_list(&[1])));
        invalid.push(delete_group("ours-vms"));
    }
    for invalid in invalid {
        let outcome = change(std::slice::from_ref(&invalid)).await;
        ensure!(matches!(outcome, Err(PortError::Invalid(_))), "{invalid:?}: {outcome:?}");
    }
    ensure!(witness(peer).await? == edited, "a failed change must change nothing");
    for outcome in
        [store.read(ID, "domain-c9999").await.map(|_| ()), store.change(ID, "domain-c9999", &[delete("none", 1)]).await]
    {
        ensure!(matches!(outcome, Err(PortError::NotFound(_))), "{outcome:?}");
    }

    // All sessions are removed: the next call logs in again.
    for line in govc.run(&["session.ls"]).await?.lines().skip(1) {
        // govc's own session is in the list and cannot remove itself.
        let _ = govc.try_run(&["session.rm", line.split_whitespace().next().unwrap_or_default()]).await?;
    }
    ensure!(store.read(ID, &cluster).await? == read);

    // Our rules are deleted, and only those.
    let ours = read.rules.iter().filter(|rule| rule.name.starts_with("ours-"));
    let mut removals: Vec<_> = ours.map(|rule| delete(&rule.name, rule.key)).collect();
    removals.extend(["ours-vms", "ours-hosts"].map(delete_group));
    change(&removals).await?;
    ensure!(witness(peer).await? == foreign, "the administrator's rules must not change");

    inventory.task.abort();
    let sessions = async || anyhow::Ok(govc.run(&["session.ls"]).await?.lines().count());
    let before = sessions().await?;
    store.close().await;
    ensure!(sessions().await? == before - 1, "the session must be logged out");
    Ok(())
}

#[tokio::test]
async fn the_rule_store_works_on_vcsim() -> Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let vms = ["DC0_C0_RP0_VM0", "DC0_C0_RP0_VM1", "DC0_C0_RP0_VM2", "DC0_C0_RP0_VM3"];
    let config = config(&vcsim.govc_url())?;
    Box::pin(scenario(&Peer { govc: vcsim.govc(), config, cluster: "DC0_C0", vms, checks_rules: false })).await
}

#[tokio::test]
async fn the_rule_store_works_on_the_embedded_vcenter() -> Result<()> {
    let flags = ["--hosts", "4", "--nodes", "4", "--drs", "off", "--speed", "5", "--no-placer"];
    let sandbox = Sandbox::start(&flags).await?;
    let vms = ["node-1", "node-2", "node-3", "node-4"];
    let config = config(sandbox.govc_url())?;
    Box::pin(scenario(&Peer { govc: sandbox.govc(), config, cluster: "cluster-1", vms, checks_rules: true })).await
}

/// Any failure during a change is a transient error, and reading the rules shows whether the change was made.
#[tokio::test]
async fn after_a_transient_error_reading_shows_whether_the_change_was_made() -> Result<()> {
    let sandbox =
        Sandbox::start(&["--hosts", "3", "--nodes", "3", "--drs", "off", "--speed", "20", "--no-placer"]).await?;
    let govc = sandbox.govc();
    let reference = async |path: &str| {
        let found = govc.run(&["find", "-i", "/", "-name", path]).await?;
        anyhow::Ok(found.trim().rsplit(':').next().unwrap_or_default().to_owned())
    };
    let cluster = reference("cluster-1").await?;
    let vms = vec![reference("node-1").await?, reference("node-2").await?];
    let store = Rules::new([(ID, config(sandbox.govc_url())?)]);
    let reconfigure = "ReconfigureComputeResource_Task";
    let status = serde_json::json!({ "kind": "http-status", "status": 503 });
    let kind = |kind: &str| serde_json::json!({ "kind": kind });
    for (number, (methods, fault, succeeds, made)) in [
        (reconfigure, kind("drop-connection"), false, true),
        (reconfigure, status, false, false),
        (reconfigure, kind("session-expired"), true, true),
        ("RetrievePropertiesEx", kind("session-expired"), true, true),
        (reconfigure, kind("task-fails-halfway"), false, false),
    ]
    .into_iter()
    .enumerate()
    {
        let about = format!("{methods} {fault}");
        let rule = serde_json::json!({
            "side": "vcenter", "methods": methods, "fault": fault, "frequency": { "times": 1 },
        });
        let name = format!("rule-{number}");
        store.read(ID, &cluster).await?;
        sandbox.control("POST", "faults", rule).await?;
        let outcome = store.change(ID, &cluster, &[create(&name, RuleType::VmAntiAffinity, &vms)]).await;
        ensure!(outcome.is_ok() == succeeds, "{about}: {outcome:?}");
        ensure!(matches!(outcome, Ok(()) | Err(PortError::Transient(_))), "{about}: {outcome:?}");
        // A change whose answer was lost may still be in progress.
        let found = testkit::eventually(Duration::from_secs(5), async || {
            let rules = store.read(ID, &cluster).await?.rules;
            let found = rules.iter().filter(|rule| rule.name == name).count();
            ensure!(found == usize::from(made), "{about}: {found} created");
            Ok(found)
        });
        found.await?;
        sandbox.control("DELETE", "faults", Value::Null).await?;
    }
    store.close().await;
    Ok(())
}
