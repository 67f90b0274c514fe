//! Rules: they are read, changed in one task, which succeeds, and in one that fails.

use std::collections::BTreeSet;

use engine::ports::{ChangeKind, GroupChange, PortError, RecordedGroups, RuleChange, RuleStore, RuleType, VmRef};
use hostile::{Memory, alone};
use model::event::{GroupFacts, GroupKind, VcenterId};
use vsphere::config::VcenterConfig;
use vsphere::{Rules, connect_once};

use crate::conversation::{Answer, attack_conversation, config, embedded, in_virtual_time, recording};

const ID: VcenterId = VcenterId(0);

/// What the requests are about.
#[derive(Debug)]
struct Cluster {
    id: String,
    hosts: Vec<String>,
    vms: Vec<String>,
}

#[test]
fn number_10_no_response_of_a_vcenter_to_a_rule_change_is_dangerous() {
    let (alone, runtime) = (alone(), in_virtual_time());
    let (cluster, answers) = runtime.block_on(async {
        let world = embedded();
        let (transport, log) = recording(&world);
        let (_, counts) = connect_once(&config(transport)).await.expect("the inventory");
        let inventory = log.lock().expect("a log").clone();
        let id = counts.clusters[0].id.clone();
        let cluster = Cluster { id, hosts: ids_in(&inventory, "host-"), vms: ids_in(&inventory, "vm-") };
        let (transport, log) = recording(&world);
        assert!(work(config(transport), &cluster).await, "it succeeds on the embedded vCenter: {cluster:?}");
        (cluster, log.lock().expect("a log").clone())
    });
    let memory = Memory { fixed_bytes: 1 << 20, bytes_per_byte: 160 };
    attack_conversation(&alone, runtime, ("rules", memory), &answers, async |config| work(config, &cluster).await);
}

fn ids_in(answers: &[Answer], prefix: &str) -> Vec<String> {
    let text: String = answers.iter().map(|answer| String::from_utf8_lossy(&answer.body)).collect();
    let texts = text.split(['<', '>']).filter(|text| text.starts_with(prefix));
    texts.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

async fn work(config: VcenterConfig, cluster: &Cluster) -> bool {
    let rules = Rules::new([(ID, config)]);
    let before = rules.read(ID, &cluster.id).await;
    let changed = rules.change(ID, &cluster.id, &changes(cluster)).await;
    let after = rules.read(ID, &cluster.id).await;
    let kind = ChangeKind::Edit { key: 999, uuid: None, added: Vec::new(), removed: Vec::new() };
    let missing = change("missing", RuleType::VmAntiAffinity, kind, cluster);
    let refused = rules.change(ID, &cluster.id, &[missing]).await;
    rules.close().await;
    let is_changed = after.is_ok_and(|after| after.rules.len() == 3 && after.groups.len() == 2);
    before.is_ok() && changed.is_ok() && is_changed && matches!(refused, Err(PortError::Invalid(_)))
}

fn change(name: &str, rule_type: RuleType, kind: ChangeKind, cluster: &Cluster) -> RuleChange {
    let pair = cluster.vms.iter().take(2);
    let vms = pair.map(|id| VmRef { id: id.clone(), name: id.clone() }).collect();
    RuleChange::new(name.to_owned(), rule_type, kind, vms)
}

fn changes(cluster: &Cluster) -> [RuleChange; 3] {
    let (vms, hosts) = ("pinned-vms".to_owned(), "pinned-hosts".to_owned());
    let group = |name: &str, kind| GroupChange::Add(GroupFacts { name: name.to_owned(), user_created: true, kind });
    let groups = vec![
        group(&vms, GroupKind::Vms(cluster.vms[2..].to_vec())),
        group(&hosts, GroupKind::Hosts(cluster.hosts[..2].to_vec())),
    ];
    let pinned = change("pinned", RuleType::VmHost, ChangeKind::Create, cluster);
    let others = Cluster { id: cluster.id.clone(), hosts: Vec::new(), vms: cluster.vms[2..].to_vec() };
    [
        change("apart", RuleType::VmAntiAffinity, ChangeKind::Create, cluster),
        change("together", RuleType::VmAffinity, ChangeKind::Create, &others),
        RuleChange { groups, group_names: Some(RecordedGroups { vms, hosts }), ..pinned },
    ]
}
