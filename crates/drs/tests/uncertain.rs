//! While it is uncertain which VM a node is, owned rules keep the VMs that it may be. Each plan starts from the events alone, so
//! nothing remembers what a node was, as after a restart.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use drs::{ChangeKind, Finding, Pinning};
use model::World;
use model::event::*;
use proptest::prelude::*;
use support::generate::{at_once, cases, change, changes, doubts, site};
use support::story::{Story, kinds, replicas, sets};
use support::*;

const DOUBTS: [Doubt; 3] = [Doubt::Ambiguous, Doubt::Contested, Doubt::Unconfirmed];

fn is_reported(findings: &[Finding], machine: &str, of: &str) -> bool {
    let is_it = |finding: &Finding| matches!(finding, Finding::UncertainMember { vm, node, rules: 1, .. } if vm == machine && **node == *of);
    findings.iter().filter(|finding| is_it(finding)).count() == 1
}

/// Three replicas in one rule, then a doubt about the first node.
fn doubted(doubt: Doubt) -> Story {
    let mut story = Story::new(Site::new(6, &[0, 1, 2, 3]));
    story.site.pods = replicas("web", &[0, 1, 2]);
    story.pass();
    story.site.doubts.insert(0, doubt);
    story
}

#[test]
fn number_4_a_member_that_an_uncertain_node_may_be_stays_beyond_the_grace_and_is_reported() {
    for doubt in DOUBTS {
        let mut story = doubted(doubt);
        for _ in 0..3 {
            let plan = story.pass();
            assert_eq!(kinds(&plan), [""; 0], "{doubt:?}");
            assert_eq!(plan.next_due, None, "{doubt:?}: no wait begins");
            assert!(is_reported(&plan.findings, "machine-00", "node-00"), "{doubt:?}: {:?}", plan.findings);
            story.wait(3600);
        }
        // It is the node after all.
        story.site.doubts.clear();
        let plan = story.pass();
        assert!(plan.is_empty() && plan.findings.is_empty(), "{doubt:?}: {:?}", plan.findings);
        assert_eq!(story.rules(), sets(&[&[0, 1, 2]]));
    }
}

#[test]
fn number_4_a_member_that_turns_out_not_to_be_the_node_leaves_after_the_grace() {
    let mut story = doubted(Doubt::Ambiguous);
    story.pass();
    story.wait(3600);
    // The node is the copy: nothing says any more that it may be its old VM.
    let only_the_copy = |story: &Story| -> World {
        let events = story.site.events().into_iter();
        world_of(events.filter(|event| !matches!(event, Event::VmApplied { vm, .. } if vm.id == vm_id(0))).collect())
    };
    let plan = |story: &Story| drs::plan(&only_the_copy(story), &story.owned, story.now, &story.settings);
    let first = plan(&story);
    let (_, added) = first.actions().next().expect("the copy is added");
    assert!(
        matches!(&added.kind, ChangeKind::Edit { added, removed, .. }
        if *added == ["copy-00"] && *removed == [vm_id(0)]),
        "{added:?}"
    );
    assert!(first.findings.is_empty(), "{:?}", first.findings);
}

#[test]
fn number_4_only_pods_that_rules_are_for_keep_a_member() {
    for doubt in DOUBTS {
        let mut story = doubted(doubt);
        story.site.pods[0] = pod("other", 0, 0);
        assert_eq!(kinds(&story.pass()), [""; 0]);
        story.wait(300);
        assert_eq!(kinds(&story.pass()), ["edit"], "{doubt:?}");
        assert_eq!(story.rules(), sets(&[&[1, 2]]));
    }
}

#[test]
fn number_4_a_rule_with_such_a_member_grows_and_shrinks_by_the_others_only() {
    for doubt in DOUBTS {
        let mut story = doubted(doubt);
        story.site.pods = replicas("web", &[0, 1, 2, 3]);
        assert_eq!(kinds(&story.pass()), ["edit"], "{doubt:?}");
        assert_eq!(story.rules(), sets(&[&[0, 1, 2, 3]]));
        story.site.pods = replicas("web", &[0, 1, 3]);
        story.pass();
        story.wait(300);
        assert_eq!(kinds(&story.pass()), ["edit"], "{doubt:?}");
        assert_eq!(story.rules(), sets(&[&[0, 1, 3]]));
        // With one certain node left, no pair of certain ones needs the rule.
        story.site.pods = replicas("web", &[0, 1]);
        story.pass();
        story.wait(3600);
        assert_eq!(kinds(&story.pass()), [""; 0], "{doubt:?}");
        assert_eq!(story.rules(), sets(&[&[0, 1, 3]]));
        story.site.doubts.clear();
        story.pass();
        story.wait(300);
        story.pass();
        assert_eq!(story.rules(), sets(&[&[0, 1]]), "{doubt:?}");
    }
}

#[test]
fn number_4_no_vm_joins_a_rule_because_an_uncertain_node_may_be_it() {
    for doubt in DOUBTS {
        let mut story = doubted(doubt);
        story
            .site
            .pods
            .extend(replicas("api", &[0, 1]).into_iter().map(|pod| PodFacts { uid: "api".to_owned(), ..pod }));
        assert_eq!(kinds(&story.pass()), [""; 0], "{doubt:?}");
    }
}

#[test]
fn number_4_a_member_counts_for_the_room_in_its_rule() {
    // Four hosts, one in reserve: three members.
    let mut story = Story::new(Site::new(4, &[0, 1, 2, 3]));
    story.site.pods = replicas("web", &[0, 1]);
    story.pass();
    story.site.doubts.insert(0, Doubt::Ambiguous);
    story.site.pods = replicas("web", &[0, 1, 2, 3]);
    story.pass();
    let rules = story.rules();
    assert!(rules.iter().all(|rule| rule.len() <= 3) && rules.iter().any(|rule| rule.contains(&0)), "{rules:?}");
}

#[test]
fn number_4_a_vm_host_rule_keeps_such_a_member() {
    let accepts = |hosts: &[&str]| {
        let values = hosts.iter().map(|host| (*host).to_owned()).collect();
        let expression = RequirementFacts { key: HOST_KEY.to_owned(), operator: Operator::In, values };
        let term = NodeTermFacts { expressions: vec![expression], fields: vec![] };
        NodeAffinityFacts { node_terms: vec![term], ..NodeAffinityFacts::default() }
    };
    let pinned = |number, hosts: &[&str]| PodFacts { node_affinity: accepts(hosts), ..pod("db", number, number) };
    let group = |story: &Story, number: usize| -> Vec<String> {
        let vms = story.site.clusters[0].groups.iter().filter_map(|group| match &group.kind {
            GroupKind::Vms(ids) => Some(ids.clone()),
            GroupKind::Hosts(_) => None,
        });
        let mut vms: Vec<Vec<String>> = vms.collect();
        vms.sort();
        vms.into_iter().nth(number).unwrap_or_default()
    };
    for doubt in DOUBTS {
        let mut story = Story::new(Site::new(4, &[0, 1, 2]));
        story.site.pods = vec![pinned(0, &["esx-0", "esx-1"]), pinned(1, &["esx-0", "esx-1"])];
        story.pass();
        story.site.doubts.insert(0, doubt);
        story.pass();
        story.wait(3600);
        assert_eq!(kinds(&story.pass()), [""; 0], "{doubt:?}");
        // Another VM joins.
        story.site.pods.push(pinned(2, &["esx-0", "esx-1"]));
        story.pass();
        let ids = |numbers: &[usize]| -> Vec<String> { numbers.iter().map(|number| vm_id(*number)).collect() };
        assert_eq!(group(&story, 0), ids(&[1, 2, 0]), "{doubt:?}");
        // All others accept other hosts: the rule stays for those that the uncertain one accepts.
        story.site.pods = vec![pinned(0, &["esx-0", "esx-1"]), pinned(1, &["esx-2"])];
        story.pass();
        story.wait(3600);
        story.pass();
        assert_eq!(group(&story, 0), ids(&[1]), "{doubt:?}");
        assert!(group(&story, 1).contains(&vm_id(0)), "{doubt:?}");
    }
}

#[test]
fn number_4_while_a_vcenter_is_not_read_members_stay_that_may_be_its_nodes() {
    let mut story = Story::new(Site::new(6, &[0, 1, 2]));
    story.site.pods = replicas("web", &[0, 1, 2]);
    story.pass();
    // The first node has no UUID; only its address says which VM it is, and counts when all vCenters were read.
    let address = || vec!["10.0.0.1".parse().expect("an address")];
    let without_uuid = |event: Event| match event {
        Event::VmApplied { vcenter, vm } if vm.id == vm_id(0) => {
            Event::VmApplied { vcenter, vm: VmFacts { bios_uuid: None, ip_addresses: address(), ..vm } }
        }
        Event::NodeApplied(node) if node.name == node_name(0) => {
            Event::NodeApplied(NodeFacts { system_uuid: None, ip_addresses: address(), ..node })
        }
        other => other,
    };
    let other = VcenterId(VCENTER.0 + 1);
    let mut world = World::default();
    world.expect_vcenters([VCENTER, other]);
    world.apply(Event::RelistBegan(Source::Vcenter(VCENTER)));
    story.site.events().into_iter().for_each(|event| drop(world.apply(without_uuid(event))));
    world.apply(Event::RelistEnded(Source::Vcenter(VCENTER)));
    story.settings.removal_grace = Duration::ZERO;
    let plan = |world: &World| drs::plan(world, &story.owned, story.now, &story.settings);
    let waiting = plan(&world);
    assert!(waiting.is_empty(), "{:?}", waiting.actions().collect::<Vec<_>>());
    assert!(is_reported(&waiting.findings, "machine-00", "node-00"), "{:?}", waiting.findings);
    // A VM with another UUID is another one.
    let node = |system_uuid| NodeFacts { name: node_name(0), system_uuid, ..NodeFacts::default() };
    world.apply(Event::NodeApplied(node(Some(uuid::Uuid::from_u128(77)))));
    assert!(plan(&world).is_empty(), "the VM has no UUID: it may be it");
    let known =
        VmFacts { id: vm_id(0), bios_uuid: Some(uuid::Uuid::from_u128(1)), powered_on: true, ..VmFacts::default() };
    world.apply(Event::VmApplied { vcenter: VCENTER, vm: known });
    assert_eq!(kinds(&plan(&world)), ["edit"]);
    // Everything is read, and the node is in no vCenter.
    world.apply(Event::VmApplied { vcenter: VCENTER, vm: VmFacts { id: vm_id(0), ..VmFacts::default() } });
    world.apply(Event::NodeApplied(node(None)));
    world.apply(Event::RelistBegan(Source::Vcenter(other)));
    assert!(plan(&world).actions().all(|(_, action)| !matches!(action.kind, ChangeKind::Delete { .. })));
    world.apply(Event::RelistEnded(Source::Vcenter(other)));
    assert_eq!(kinds(&plan(&world)), ["edit"]);
}

/// The VMs of Bridger's own anti-affinity rules and groups, by cluster and name.
fn own_members(site: &Site) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for cluster in &site.clusters {
        for rule in cluster.rules.iter().filter(|rule| rule.key < FOREIGN_KEYS) {
            let members = match &rule.kind {
                RuleKind::VmAntiAffinity(vms) => vms.clone(),
                RuleKind::VmHost { vm_group, .. } => {
                    let group = cluster.groups.iter().find(|group| group.name == *vm_group);
                    match group.map(|group| &group.kind) {
                        Some(GroupKind::Vms(ids)) => ids.clone(),
                        _ => Vec::new(),
                    }
                }
                _ => continue,
            };
            found.insert(format!("{} {}", cluster.id, rule.name), members);
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    /// Without waits, no rule loses a VM that an uncertain node with such pods may be, and none gains one; when it is certain
    /// again, the rules are what they would be without the doubt.
    #[test]
    fn number_4_owned_rules_keep_the_vms_of_uncertain_nodes_and_take_none(
        mut site in site(), changes in changes(), doubts in doubts(),
    ) {
        let mut story = Story::new(Site::default());
        story.settings = drs::DrsSettings { pinning: Pinning::Should, ..at_once() };
        let doubts: BTreeMap<usize, Doubt> = doubts.into_iter().filter(|(node, _)| *node < site.nodes.len()).collect();
        let keepers = |site: &mut Site| {
            let keeper = |node: &usize| PodFacts {
                // No generated setting of a namespace opts it out of rules.
                namespace: "keepers".to_owned(),
                uid: format!("keeper-{node}"),
                ..lonely("keeper", *node, *node)
            };
            site.pods.retain(|pod| !pod.name.starts_with("keeper"));
            site.pods.extend(doubts.keys().map(keeper));
        };
        keepers(&mut site);
        story.site = site;
        story.pass();
        story.site.doubts.clone_from(&doubts);
        for step in std::iter::once(None).chain(changes.iter().map(Some)) {
            if let Some(step) = step {
                change(&mut story.site, step);
                keepers(&mut story.site);
                story.wait(step.seconds);
            }
            let before = own_members(&story.site);
            let plan = story.pass();
            let after = own_members(&story.site);
            for vm in doubts.keys().map(|node| vm_id(*node)) {
                let having = |rules: &BTreeMap<String, Vec<String>>| -> Vec<String> {
                    rules.iter().filter(|(_, members)| members.contains(&vm)).map(|(name, _)| name.clone()).collect()
                };
                prop_assert_eq!(having(&before), having(&after), "{} {:#?}", vm, plan.actions().collect::<Vec<_>>());
            }
            prop_assert!(after.values().flatten().all(|vm| !vm.starts_with("copy")), "{:?}", after);
            let again = story.plan();
            prop_assert!(again.is_empty(), "{:#?}", again.actions().collect::<Vec<_>>());
        }
        story.site.doubts.clear();
        story.pass();
        let required = story.site.apart(&story.settings);
        for (index, cluster) in story.site.clusters.iter().enumerate() {
            for rule in cluster.rules.iter().filter(|rule| rule.key < FOREIGN_KEYS) {
                let members = members(rule);
                for (a, b) in members.iter().flat_map(|a| members.iter().filter(move |b| a < b).map(move |b| (a, b))) {
                    let is_required = required.contains(&(index, a.clone(), b.clone()));
                    prop_assert_eq!(is_required, matches!(rule.kind, RuleKind::VmAntiAffinity(_)), "{:?}", rule);
                }
            }
        }
        let again = story.plan();
        prop_assert!(again.is_empty(), "{:#?}", again.actions().collect::<Vec<_>>());
    }
}
