//! Bridger respects the changes of administrators and the rules of other clients: one behaviour per test.

mod support;

use std::collections::BTreeSet;

use drs::{Finding, Pinning, Record, UnixMillis, plan};
use model::event::*;
use support::story::*;
use support::*;

/// A pod that accepts only these hosts.
fn only_on(number: usize, node: usize, hosts: &[&str]) -> PodFacts {
    PodFacts {
        node_affinity: NodeAffinityFacts {
            node_terms: vec![NodeTermFacts {
                expressions: vec![RequirementFacts {
                    key: HOST_KEY.to_owned(),
                    operator: Operator::In,
                    values: hosts.iter().map(|&host| host.to_owned()).collect(),
                }],
                fields: Vec::new(),
            }],
            ..NodeAffinityFacts::default()
        },
        ..pod("licensed", number, node)
    }
}

/// The only rule of the record.
fn recorded(story: &mut Story) -> &mut drs::RecordedRule {
    let rules = story.owned.clusters.values_mut().next().expect("a cluster");
    let rule = std::sync::Arc::make_mut(rules).values_mut().next().expect("a rule");
    std::sync::Arc::make_mut(rule)
}

const DAY_S: u64 = 24 * 3600;

/// A story whose rule was deleted twice, with this many seconds in between.
fn deleted_twice(interval_s: u64) -> Story {
    let mut story = Story::new(Site::new(5, &[0, 1]));
    story.site.pods = replicas("web", &[0, 1]);
    story.pass();
    story.site.clusters[0].rules.clear();
    assert_eq!(kinds(&story.pass()), ["create"]);
    story.wait(interval_s);
    story.site.clusters[0].rules.clear();
    story
}

#[test]
fn a_rule_deleted_by_hand_is_recreated_once() {
    let mut story = Story::new(Site::new(5, &[0, 1]));
    story.site.pods = replicas("web", &[0, 1]);
    story.pass();
    let name = story.only_rule().name.clone();
    story.site.clusters[0].rules.clear();
    assert_eq!(kinds(&story.pass()), ["create"]);
    assert_eq!(story.only_rule().name, name);
    story.site.clusters[0].rules.clear();
    let plan = story.pass();
    assert!(plan.is_empty());
    assert!(
        matches!(&plan.findings[..], [Finding::DeletedByHand { rule, .. }] if *rule == name),
        "{:?}",
        plan.findings
    );
    // When no pod requires the rule, it leaves the record; required again, it is created again.
    story.site.pods.clear();
    story.pass();
    assert!(story.owned.is_empty());
    story.site.pods = replicas("web", &[0, 1]);
    assert_eq!(kinds(&story.pass()), ["create"]);
}

#[test]
fn a_deletion_is_forgotten_after_a_day() {
    assert_eq!(kinds(&deleted_twice(DAY_S).plan()), ["create"]);
    let mut story = deleted_twice(DAY_S - 1);
    let plan = story.pass();
    assert!(plan.is_empty());
    assert_eq!(plan.next_due, Some(UnixMillis(story.now.0 + 1000)), "it is planned again then");
    story.wait(1);
    assert_eq!(kinds(&story.pass()), ["create"]);
    assert_eq!(story.rules(), sets(&[&[0, 1]]));

    // A record without the time: a day from now.
    let mut story = deleted_twice(0);
    for rules in story.owned.clusters.values_mut() {
        for rule in std::sync::Arc::make_mut(rules).values_mut() {
            std::sync::Arc::make_mut(rule).restored_at = Some(UnixMillis::UNKNOWN);
        }
    }
    assert!(story.pass().is_empty());
    story.wait(DAY_S - 1);
    assert!(story.pass().is_empty());
    story.wait(1);
    assert_eq!(kinds(&story.pass()), ["create"]);
}

#[test]
fn a_rule_that_was_given_up_is_restored_on_request() {
    let mut story = deleted_twice(0);
    assert!(story.pass().is_empty());
    let name = story.owned.clusters.values().flat_map(|rules| rules.keys()).next().expect("one").clone();
    let world = story.site.world();
    assert!(drs::restore(&world, &story.owned, Some("another")).0.is_empty());
    for named in [Some(name.as_str()), None] {
        let (restored, record) = drs::restore(&world, &story.owned, named);
        assert_eq!(restored.iter().map(|(_, rule)| rule).collect::<Vec<_>>(), [&name]);
        assert_eq!(kinds(&plan(&world, &record, story.now, &story.settings)), ["create"]);
    }
    let (_, record) = drs::restore(&world, &story.owned, None);
    story.owned = record;
    story.pass();
    assert!(drs::restore(&story.site.world(), &story.owned, None).0.is_empty(), "it exists");
}

/// Adds an administrator's mandatory VM-Host rule with a group of these VMs and a group of these hosts.
fn vm_host_rule(cluster: &mut ClusterFacts, vms: &[usize], hosts: &[usize], must_run: bool) {
    let group = |name: &str, kind| GroupFacts { name: name.to_owned(), user_created: true, kind };
    cluster.groups.push(group("theirs", GroupKind::Vms(vms.iter().map(|vm| vm_id(*vm)).collect())));
    let hosts = hosts.iter().map(|host| format!("host-{host}")).collect();
    cluster.groups.push(group("their-hosts", GroupKind::Hosts(hosts)));
    let named = |is_it: bool| is_it.then(|| "their-hosts".to_owned());
    let kind = RuleKind::VmHost {
        vm_group: "theirs".to_owned(),
        affine_hosts: named(must_run),
        anti_affine_hosts: named(!must_run),
    };
    cluster.rules.push(RuleFacts { mandatory: true, ..rule(FOREIGN_KEYS, "licence", kind) });
}

#[test]
fn a_mandatory_rule_of_another_client_limits_the_members_of_a_rule() {
    // Two hosts are left, either named or because all others are excluded.
    for (hosts, must_run) in [(&[0, 1][..], true), (&[2, 3, 4, 5], false)] {
        let mut story = Story::new(Site::new(6, &[0, 1, 2, 3]));
        story.site.pods = replicas("web", &[0, 1, 2, 3]);
        vm_host_rule(&mut story.site.clusters[0], &[0, 1, 2, 3], hosts, must_run);
        let plan = story.pass();
        assert!(story.rules().iter().all(|members| members.len() == 2), "{:?}", story.rules());
        let named: BTreeSet<_> = plan.findings.iter().flat_map(Finding::pairs).collect();
        assert!(!named.is_empty());
        assert_eq!(named.len(), plan.clusters[0].uncovered.len(), "{:?}", plan.findings);
        assert!(story.plan().is_empty());

        // A "should" rule limits nothing.
        story.site.clusters[0].rules.retain(|rule| rule.key >= FOREIGN_KEYS);
        story.site.clusters[0].rules[0].mandatory = false;
        story.owned = Record::default();
        story.pass();
        assert_eq!(story.rules(), sets(&[&[0, 1, 2, 3]]));
    }
}

#[test]
fn a_rule_disabled_by_an_administrator_stays_disabled() {
    let mut story = Story::new(Site::new(5, &[0, 1, 2]));
    story.site.pods = replicas("web", &[0, 1]);
    story.pass();
    story.only_rule().enabled = false;
    story.site.pods = replicas("web", &[0, 1, 2]);
    let plan = story.pass();
    assert!(plan.is_empty(), "neither edited nor worked around");
    assert!(matches!(plan.findings[..], [Finding::DisabledByAdministrator { .. }]), "{:?}", plan.findings);
    assert_eq!(plan.clusters[0].uncovered.len(), 3);

    // DRS itself disables the newer of two contradicting rules.
    let rival = rule(FOREIGN_KEYS, "keep", RuleKind::VmAffinity(vec![vm_id(0), vm_id(1)]));
    story.site.clusters[0].rules.push(rival);
    let plan = story.plan();
    assert!(plan.is_empty());
    let by_conflict =
        |finding: &Finding| matches!(finding, Finding::DisabledByConflict { rival, .. } if rival == "keep");
    assert!(plan.findings.iter().any(by_conflict), "{:?}", plan.findings);

    story.site.clusters[0].rules.pop();
    story.only_rule().enabled = true;
    assert_eq!(kinds(&story.pass()), ["edit"]);
}

/// If another client's rule uses a group of a rule, neither the rule's members nor its record change; that is reported
/// each time, not once.
#[test]
fn a_group_that_another_client_uses_stays_unchanged() {
    let mut story = Story::new(Site::new(5, &[0, 1, 2]));
    let hosts = &["esx-0", "esx-1"];
    story.site.pods = vec![only_on(0, 0, hosts), only_on(1, 1, hosts)];
    assert_eq!(kinds(&story.pass()), ["create"]);
    let borrower = rule(FOREIGN_KEYS, "borrower", story.only_rule().kind.clone());
    story.site.clusters[0].rules.push(borrower);
    let in_use = |finding: &Finding| matches!(finding, Finding::GroupInUse { used_by, .. } if used_by == "borrower");
    let left_alone = |story: &mut Story| {
        let before = (story.site.clusters[0].clone(), story.owned.clone());
        for _ in 0..3 {
            let plan = story.pass();
            assert!(plan.findings.iter().any(in_use), "{:?}", plan.findings);
            assert_eq!(before, (story.site.clusters[0].clone(), story.owned.clone()));
            story.wait(300);
        }
    };
    // A VM should be added.
    story.site.pods.push(only_on(2, 2, hosts));
    left_alone(&mut story);
    // A VM should be removed, after the grace.
    story.site.pods.truncate(1);
    assert!(story.pass().is_empty());
    story.wait(300);
    left_alone(&mut story);
    // No pod requires the rule.
    story.site.pods.clear();
    assert!(story.pass().is_empty());
    story.wait(300);
    left_alone(&mut story);
    // Another client deleted the rule, and its groups are left.
    story.site.clusters[0].rules.retain(|rule| rule.name == "borrower");
    left_alone(&mut story);
    // The other client's rule is deleted: the groups can be deleted now.
    story.site.clusters[0].rules.clear();
    assert_eq!(kinds(&story.pass()), ["delete groups"]);
    assert!(story.site.clusters[0].groups.is_empty() && story.owned.is_empty());
}

/// An affinity rule whose members changed is still recognised as the one that was recreated.
#[test]
fn a_rule_that_grew_is_recreated_once_too() {
    let near = |number, node| PodFacts { affinity: vec![term(HOST_KEY, "cache")], ..pod("web", number, node) };
    let mut story = Story::new(Site::new(4, &[0, 0, 0]));
    story.site.pods = vec![near(0, 1), pod("cache", 0, 0)];
    story.pass();
    story.site.pods.push(near(1, 2));
    assert_eq!(kinds(&story.pass()), ["edit"]);
    assert_eq!(story.rules(), sets(&[&[0, 1, 2]]));
    story.site.clusters[0].rules.clear();
    assert_eq!(kinds(&story.pass()), ["create"]);
    story.site.clusters[0].rules.clear();
    let plan = story.pass();
    assert!(plan.is_empty());
    assert!(plan.findings.iter().any(|finding| finding.name() == "deletedByHand"), "{:?}", plan.findings);
}

/// Records of versions that did not store the time, and of wrong clocks.
#[test]
fn an_unknown_or_future_time_does_not_give_up_a_rule_forever() {
    let mut story = deleted_twice(0);
    story.site.clusters[0].rules.clear();
    recorded(&mut story).restored_at = Some(UnixMillis(story.now.0 + 1));
    assert_eq!(kinds(&story.plan()), ["create"]);

    let mut story = Story::new(Site::new(5, &[0, 1]));
    story.site.pods = replicas("web", &[0, 1]);
    story.pass();
    recorded(&mut story).restored_at = Some(UnixMillis::UNKNOWN);
    assert!(story.pass().is_empty());
    story.wait(DAY_S);
    story.site.clusters[0].rules.clear();
    assert_eq!(kinds(&story.pass()), ["create"], "it existed all day");
}

/// The wait of a rule belongs to its workload: with another workload the wait starts again.
#[test]
fn a_rule_reassigned_to_another_workload_restarts_its_wait() {
    let mut story = Story::new(Site::new(5, &[0, 1, 2]));
    story.site.pods = replicas("web", &[0, 1, 2]);
    story.pass();
    story.site.pods.pop();
    story.pass();
    story.wait(200);
    story.site.pods = replicas("shop", &[0, 1]);
    story.pass();
    story.wait(200);
    assert!(story.pass().is_empty());
    assert_eq!(story.rules(), sets(&[&[0, 1, 2]]));
    story.wait(100);
    assert_eq!(kinds(&story.pass()), ["edit"]);
    assert_eq!(story.rules(), sets(&[&[0, 1]]));
}

/// Such a rule does not lift the limits of another rule, does not prevent affinity rules, and does not leave VMs
/// without hosts.
#[test]
fn a_mandatory_rule_of_another_client_without_hosts_has_no_effect() {
    let near = PodFacts { affinity: vec![term(HOST_KEY, "cache")], ..pod("web", 0, 1) };
    for (pods, pinning) in [
        (vec![near, pod("cache", 0, 0)], Pinning::Should),
        (vec![only_on(0, 0, &["esx-0"])], Pinning::Must),
        (replicas("web", &[0, 1, 2]), Pinning::Should),
    ] {
        let plans = [false, true].map(|exists| {
            let mut story = Story::new(Site::new(5, &[0, 1, 2]));
            story.settings.pinning = pinning;
            story.site.pods.clone_from(&pods);
            if pods.len() == 3 {
                vm_host_rule(&mut story.site.clusters[0], &[0, 1, 2], &[0, 1], true);
            }
            if exists {
                let cluster = &mut story.site.clusters[0];
                let kind = GroupKind::Vms(vec![vm_id(0)]);
                cluster.groups.push(GroupFacts { name: "one".to_owned(), user_created: true, kind });
                let kind = RuleKind::VmHost {
                    vm_group: "one".to_owned(),
                    affine_hosts: Some("missing".to_owned()),
                    anti_affine_hosts: None,
                };
                cluster.rules.push(RuleFacts { mandatory: true, ..rule(FOREIGN_KEYS + 1, "empty", kind) });
            }
            let plan = story.pass();
            assert!(!plan.is_empty());
            story.wait(300);
            assert!(story.pass().is_empty());
            (plan.clusters.iter().map(|cluster| cluster.actions.clone()).collect::<Vec<_>>(), plan.findings)
        });
        assert_eq!(plans[0], plans[1]);
    }
}

/// Planning works, and terminates, even if a rule of another client cannot be satisfied.
#[test]
fn a_mandatory_rule_of_another_client_without_hosts_limits_nothing() {
    for hosts in [Some(GroupKind::Hosts(Vec::new())), None] {
        let mut story = Story::new(Site::new(5, &[0, 1, 2]));
        story.site.pods = replicas("web", &[0, 1, 2]);
        let cluster = &mut story.site.clusters[0];
        let group = |name: &str, kind| GroupFacts { name: name.to_owned(), user_created: true, kind };
        cluster.groups = vec![group("theirs", GroupKind::Vms((0..3).map(vm_id).collect()))];
        cluster.groups.extend(hosts.map(|kind| group("their-hosts", kind)));
        let kind = RuleKind::VmHost {
            vm_group: "theirs".to_owned(),
            affine_hosts: Some("their-hosts".to_owned()),
            anti_affine_hosts: None,
        };
        cluster.rules = vec![RuleFacts { mandatory: true, ..rule(FOREIGN_KEYS, "licence", kind) }];
        story.pass();
        assert_eq!(story.rules(), sets(&[&[0, 1, 2]]));
        assert!(story.plan().is_empty());
    }
}

#[test]
fn foreign_rules_constrain_own_rules() {
    let mut story = Story::new(Site::new(5, &[0, 1, 2, 3]));
    story.site.pods = replicas("web", &[0, 1, 2]);
    // A foreign anti-affinity rule covers all pairs: nothing to do.
    let apart =
        rule(FOREIGN_KEYS, "admin", RuleKind::VmAntiAffinity(vec![vm_id(0), vm_id(1), vm_id(2), "vm-else".to_owned()]));
    story.site.clusters[0].rules = vec![apart];
    assert!(story.plan().is_empty());
    // A foreign affinity rule: that pair cannot be separated.
    let together = rule(FOREIGN_KEYS, "admin", RuleKind::VmAffinity(vec![vm_id(0), vm_id(1)]));
    story.site.clusters[0].rules = vec![together];
    let plan = story.pass();
    assert_eq!(story.rules(), sets(&[&[0, 2], &[1, 2]]));
    let [Finding::Conflict { vms, rival, pods, .. }] = &plan.findings[..] else { panic!("{:?}", plan.findings) };
    assert_eq!((vms.0.as_str(), vms.1.as_str(), rival.as_str()), ("machine-00", "machine-01", "admin"));
    assert_eq!(pods.len(), 2);
    assert_eq!(plan.clusters[0].uncovered, [("vm-00".to_owned(), "vm-01".to_owned())]);
    // A foreign mandatory VM-Host rule with two hosts: at most two of the VMs in one rule.
    let pin =
        RuleKind::VmHost { vm_group: "v".to_owned(), affine_hosts: Some("h".to_owned()), anti_affine_hosts: None };
    let mut story = Story::new(Site::new(5, &[0, 1, 2, 3]));
    story.site.pods = replicas("web", &[0, 1, 2]);
    let group = |name: &str, kind| GroupFacts { name: name.to_owned(), user_created: true, kind };
    story.site.clusters[0].rules = vec![RuleFacts { mandatory: true, ..rule(FOREIGN_KEYS, "pin", pin) }];
    story.site.clusters[0].groups = vec![
        group("v", GroupKind::Vms((0..3).map(vm_id).collect())),
        group("h", GroupKind::Hosts(vec!["host-0".to_owned(), "host-1".to_owned()])),
    ];
    let plan = story.pass();
    assert_eq!(story.rules(), sets(&[&[0, 1]]));
    assert!(matches!(plan.findings[..], [Finding::Unsatisfiable(_)]), "{:?}", plan.findings);
}
