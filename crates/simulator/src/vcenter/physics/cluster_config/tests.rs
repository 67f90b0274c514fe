use super::super::testing::{Bench, quiet};
use super::*;
use crate::vcenter::{Config, DrsLevel};

fn anti(vms: &[VmId]) -> Option<RuleKind> {
    Some(RuleKind::AntiAffinity { vms: vms.to_vec() })
}

fn affine(vms: &[VmId]) -> Option<RuleKind> {
    Some(RuleKind::Affinity { vms: vms.to_vec() })
}

fn rule(name: &str, kind: Option<RuleKind>) -> RuleSpec {
    RuleSpec { name: Some(name.to_owned()), enabled: Some(true), kind, ..RuleSpec::default() }
}

fn rules(edits: Vec<Edit<RuleSpec, i32>>) -> ClusterChange {
    ClusterChange { rules: edits, ..ClusterChange::default() }
}

fn groups(edits: Vec<Edit<Group, String>>) -> ClusterChange {
    ClusterChange { groups: edits, ..ClusterChange::default() }
}

fn vm_group(name: &str, vms: &[VmId]) -> Group {
    Group { name: name.to_owned(), members: GroupMembers::Vms(vms.to_vec()) }
}

fn host_group(name: &str, hosts: &[HostId]) -> Group {
    Group { name: name.to_owned(), members: GroupMembers::Hosts(hosts.to_vec()) }
}

fn stored(bench: &Bench) -> Vec<Rule> {
    bench.vcenter.inventory().cluster(bench.cluster()).unwrap().rules.clone()
}

#[test]
fn an_invalid_entry_fails_the_task_and_changes_nothing() {
    let mut bench = Bench::new(&Config { clusters: 2, hosts: 4, nodes: 6, drs: DrsLevel::Off, ..Config::default() }, 1);
    // Nodes are assigned to the clusters round-robin: odd ones are in the first.
    let (a, b, foreign, host) = (bench.vm("node-1"), bench.vm("node-3"), bench.vm("node-2"), bench.host("esx-1.lab"));
    let setup = ClusterChange {
        rules: vec![Edit::Add(rule("old", anti(&[a, b])))],
        groups: vec![Edit::Add(vm_group("vms", &[a])), Edit::Add(host_group("hosts", &[host]))],
        ..ClusterChange::default()
    };
    bench.reconfigure(setup).unwrap();
    let vm_host = |vms: &str, hosts: Option<&str>| {
        Some(RuleKind::VmHost {
            vm_group: vms.to_owned(),
            affine_host_group: hosts.map(str::to_owned),
            anti_affine_host_group: None,
        })
    };
    bench.reconfigure(rules(vec![Edit::Add(rule("pinned", vm_host("vms", Some("hosts"))))])).unwrap();
    let before = format!("{:?}", bench.vcenter.inventory().cluster(bench.cluster()).unwrap());
    let no_name = RuleSpec { name: None, ..rule("", anti(&[a, b])) };
    let unknown_key = RuleSpec { key: Some(99), ..rule("old", anti(&[a, b])) };
    let cases: Vec<(&str, ClusterChange)> = vec![
        ("DuplicateName", rules(vec![Edit::Add(rule("old", anti(&[a, b])))])),
        ("InvalidArgument", rules(vec![Edit::Add(rule("one", anti(&[a])))])),
        ("InvalidArgument", rules(vec![Edit::Add(rule("twice one", anti(&[a, a])))])),
        ("InvalidArgument", rules(vec![Edit::Add(rule("foreign", affine(&[a, foreign])))])),
        ("InvalidArgument", rules(vec![Edit::Add(rule("unknown", affine(&[a, VmId(9999)])))])),
        ("InvalidArgument", rules(vec![Edit::Add(rule("nothing", None))])),
        ("InvalidArgument", rules(vec![Edit::Add(no_name)])),
        ("InvalidArgument", rules(vec![Edit::Change(unknown_key)])),
        ("InvalidArgument", rules(vec![Edit::Change(rule("old", affine(&[a, b])))])),
        ("InvalidArgument", rules(vec![Edit::Remove(99)])),
        ("InvalidArgument", rules(vec![Edit::Add(rule("no group", vm_host("none", Some("hosts"))))])),
        ("InvalidArgument", rules(vec![Edit::Add(rule("wrong group", vm_host("hosts", Some("hosts"))))])),
        ("InvalidArgument", rules(vec![Edit::Add(rule("no hosts", vm_host("vms", None)))])),
        ("DuplicateName", groups(vec![Edit::Add(vm_group("vms", &[b]))])),
        ("InvalidArgument", groups(vec![Edit::Add(vm_group("other", &[foreign]))])),
        ("InvalidArgument", groups(vec![Edit::Change(vm_group("none", &[b]))])),
        ("InvalidArgument", groups(vec![Edit::Change(vm_group("hosts", &[b]))])),
        ("InvalidArgument", groups(vec![Edit::Remove("vms".to_owned())])),
        ("InvalidArgument", groups(vec![Edit::Remove("none".to_owned())])),
        (
            "InvalidArgument",
            rules(vec![Edit::Add(rule("good", affine(&[a, b]))), Edit::Remove(1), Edit::Add(rule("bad", anti(&[a])))]),
        ),
    ];
    for (number, (fault, change)) in cases.into_iter().enumerate() {
        let outcome = bench.reconfigure(change);
        assert_eq!(outcome.err().map(|fault| fault.type_name()), Some(fault), "case {number}");
        let after = format!("{:?}", bench.vcenter.inventory().cluster(bench.cluster()).unwrap());
        assert_eq!(after, before, "case {number} changed the cluster");
    }
}

#[test]
fn an_edit_keeps_the_fields_that_it_omits() {
    let mut bench = quiet(3, 3, DrsLevel::Off);
    let (a, b, c) = (bench.vm("node-1"), bench.vm("node-2"), bench.vm("node-3"));
    bench.reconfigure(rules(vec![Edit::Add(RuleSpec { enabled: None, ..rule("r", anti(&[a, b])) })])).unwrap();
    let made = stored(&bench)[0].clone();
    assert!(!made.enabled, "enabled defaults to false");
    let edit = RuleSpec { key: Some(made.key), enabled: Some(true), kind: anti(&[a, c]), ..RuleSpec::default() };
    bench.reconfigure(rules(vec![Edit::Change(edit)])).unwrap();
    let edited = stored(&bench)[0].clone();
    assert_eq!((edited.key, edited.uuid, &edited.name), (made.key, made.uuid, &made.name));
    assert_eq!((edited.enabled, edited.kind), (true, anti(&[a, c]).unwrap()));
    bench.reconfigure(rules(vec![Edit::Remove(made.key), Edit::Add(rule("r", anti(&[a, b])))])).unwrap();
    let added = &stored(&bench)[0];
    assert!(added.key != made.key && added.uuid != made.uuid, "a removed rule's key and uuid are not reused");
}

#[test]
fn the_newer_of_two_contradicting_rules_is_disabled() {
    let mut bench = quiet(3, 3, DrsLevel::Off);
    let (a, b, c) = (bench.vm("node-1"), bench.vm("node-2"), bench.vm("node-3"));
    bench.reconfigure(rules(vec![Edit::Add(rule("one", anti(&[a, b])))])).unwrap();
    bench.reconfigure(rules(vec![Edit::Add(rule("two", affine(&[a, b, c])))])).unwrap();
    let flags = |bench: &Bench| stored(bench).iter().map(|rule| rule.enabled).collect::<Vec<_>>();
    assert_eq!(flags(&bench), [true, false]);
    assert_eq!(bench.happened(|h| matches!(h, Happening::RuleAdded { rule, enabled: false, .. } if rule == "two")), 1);
    let events = bench.vcenter.inventory().events();
    assert!(events.iter().any(|event| event.type_name == "GeneralEvent" && event.message.contains("two")));
    // Narrowed, the rule no longer conflicts and is enabled again. Then the older rule is widened into a conflict and
    // wins.
    let two = stored(&bench)[1].key;
    let narrower = RuleSpec { key: Some(two), enabled: Some(true), kind: affine(&[b, c]), ..RuleSpec::default() };
    bench.reconfigure(rules(vec![Edit::Change(narrower)])).unwrap();
    assert_eq!(flags(&bench), [true, true]);
    let wider = RuleSpec { key: Some(stored(&bench)[0].key), kind: anti(&[a, b, c]), ..RuleSpec::default() };
    bench.reconfigure(rules(vec![Edit::Change(wider)])).unwrap();
    assert_eq!(flags(&bench), [true, false]);
    assert_eq!(bench.happened(|h| matches!(h, Happening::RuleEdited { rule, enabled: false, .. } if rule == "two")), 1);
}

#[test]
fn settings_and_options_change_without_affecting_the_rest() {
    let mut bench = quiet(2, 2, DrsLevel::Off);
    let option = |value: &str| ClusterChange {
        ha_options: [("das.respectVmVmAntiAffinityRules".to_owned(), value.to_owned())].into_iter().collect(),
        drs_enabled: Some(true),
        ..ClusterChange::default()
    };
    bench.reconfigure(option("false")).unwrap();
    let cluster = bench.vcenter.inventory().cluster(bench.cluster()).unwrap();
    assert!(cluster.drs.enabled && cluster.ha.enabled);
    assert_eq!(cluster.ha.options.get("das.respectVmVmAntiAffinityRules").map(String::as_str), Some("false"));
    bench.reconfigure(option("")).unwrap();
    assert!(bench.vcenter.inventory().cluster(bench.cluster()).unwrap().ha.options.is_empty());
}
