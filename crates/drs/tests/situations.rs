//! Example cases, one behaviour per test.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use drs::{DrsSettings, Finding, Record, RuleType, TooFewHosts, UnixMillis, plan};
use model::event::*;
use support::story::*;
use support::*;

#[test]
fn a_rule_follows_its_pods_and_is_deleted_after_the_grace() {
    let mut story = Story::new(Site::new(5, &[0, 0, 1, 2, 3]));
    story.site.pods = replicas("web", &[0, 1, 2]);
    let first = story.pass();
    assert_eq!(kinds(&first), ["create"]);
    let (_, action) = first.actions().next().expect("one");
    assert!(action.rule.starts_with(&format!("bridger-{UID}-")), "{}", action.rule);
    assert_eq!(
        action.pods.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["shop/web-0", "shop/web-1", "shop/web-2"]
    );
    assert_eq!(action.moves, ["machine-01"], "two of them share a host");
    assert_eq!(story.rules(), sets(&[&[0, 1, 2]]));
    let (name, uuid) = (story.only_rule().name.clone(), story.only_rule().uuid.clone());

    // A replica moves: the same rule changes immediately.
    story.site.pods = replicas("web", &[0, 1, 4]);
    assert_eq!(kinds(&story.pass()), ["edit"]);
    assert_eq!(story.rules(), sets(&[&[0, 1, 4]]));
    // All replicas move to other VMs.
    story.site.pods = replicas("web", &[2, 3]);
    assert_eq!(kinds(&story.pass()), ["edit"]);
    assert_eq!(story.rules(), sets(&[&[2, 3]]));
    assert_eq!((&story.only_rule().name.clone(), &story.only_rule().uuid.clone()), (&name, &uuid));

    // One replica more, then one less: the removal waits.
    story.site.pods = replicas("web", &[0, 2, 3]);
    assert_eq!(kinds(&story.pass()), ["edit"]);
    story.site.pods.pop();
    assert_eq!(kinds(&story.pass()), [""; 0]);
    story.wait(299);
    assert_eq!(kinds(&story.pass()), [""; 0]);
    story.wait(1);
    assert_eq!(kinds(&story.pass()), ["edit"]);
    assert_eq!(story.rules(), sets(&[&[0, 2]]));

    story.site.pods.clear();
    assert_eq!(kinds(&story.pass()), [""; 0]);
    story.wait(200);
    // The pods return in time: the next wait starts again.
    story.site.pods = replicas("web", &[0, 2]);
    assert_eq!(kinds(&story.pass()), [""; 0]);
    story.site.pods.clear();
    story.wait(200);
    assert_eq!(kinds(&story.pass()), [""; 0]);
    story.wait(300);
    assert_eq!(kinds(&story.pass()), ["delete"]);
    assert!(story.site.clusters[0].rules.is_empty() && story.owned.is_empty());
}

#[test]
fn a_rollout_keeps_its_rule_longer() {
    let mut story = Story::new(Site::new(5, &[0, 1, 2]));
    story.site.pods = replicas("web", &[0, 1]);
    story.pass();
    // One pod is terminating, the next is not bound yet.
    story.site.pods[0].terminating = true;
    story.site.pods[0].node = Some(node_name(1));
    let pending = PodFacts { node: None, ..lonely("web", 7, 0) };
    story.site.pods.push(pending);
    story.pass();
    story.wait(600);
    assert_eq!(kinds(&story.pass()), [""; 0]);
    story.wait(599);
    assert_eq!(kinds(&story.pass()), [""; 0], "no pair is required, but the rule is kept");
    assert_eq!(story.rules(), sets(&[&[0, 1]]));
    story.wait(1);
    assert_eq!(kinds(&story.pass()), ["delete"], "but not forever");
}

#[test]
fn edges_that_are_not_a_clique_get_separate_rules() {
    let mut story = Story::new(Site::new(5, &[0, 1, 2, 3]));
    // One pod has anti-affinity to the app; the pods of the app have none to each other.
    let shy = PodFacts { anti_affinity: vec![term(HOST_KEY, "noisy")], ..pod("shy", 0, 0) };
    story.site.pods = vec![shy, pod("noisy", 1, 1), pod("noisy", 2, 2), pod("noisy", 3, 3)];
    story.pass();
    assert_eq!(story.rules(), sets(&[&[0, 1], &[0, 2], &[0, 3]]));
}

#[test]
fn terms_share_rules_where_possible() {
    let mut story = Story::new(Site::new(6, &[0, 1, 2, 3]));
    story.site.pods = replicas("a", &[0, 1, 2]);
    story.site.pods.extend(replicas("b", &[0, 1, 2]));
    story.site.pods.extend(replicas("c", &[1, 2]));
    story.site.pods.extend(replicas("d", &[2, 3]));
    story.pass();
    assert_eq!(story.rules(), sets(&[&[0, 1, 2], &[2, 3]]));
}

#[test]
fn an_unsatisfiable_term_is_capped_and_reported_with_the_figures() {
    let mut story = Story::new(Site::new(5, &[0, 0, 1, 2, 3, 4]));
    story.site.pods = replicas("web", &[0, 1, 2, 3, 4, 5]);
    let plan = story.pass();
    // The remaining VMs get a rule of their own.
    assert_eq!(story.rules(), sets(&[&[0, 1, 2, 3], &[4, 5]]));
    let texts: Vec<String> = plan.findings.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["6 VMs want to be apart, 5 hosts, reserve 1: 8 pairs are not kept apart"]);
    assert!(matches!(&plan.findings[0], Finding::Unsatisfiable(TooFewHosts { pods, .. }) if pods.len() == 6));
    assert_eq!(plan.clusters[0].uncovered.len(), 8);

    let mut alone = Story::new(Site::new(1, &[0, 0]));
    alone.site.pods = replicas("web", &[0, 1]);
    let plan = alone.pass();
    assert!(plan.is_empty());
    assert!(
        matches!(plan.findings[..], [Finding::Unsatisfiable(TooFewHosts { hosts: 1, reserve: 1, .. })]),
        "{:?}",
        plan.findings
    );
}

#[test]
fn number_9_the_figures_of_an_unsatisfiable_term_are_those_of_the_usable_hosts_and_the_required_pairs() {
    let figures = |story: &Story| {
        let plan = story.plan();
        let [Finding::Unsatisfiable(found)] = &plan.findings[..] else { panic!("{:?}", plan.findings) };
        let TooFewHosts { vms, hosts, hosts_able, pairs_required, pairs_left, .. } = *found;
        assert_eq!(found.pairs.len(), pairs_left);
        (vms, hosts, hosts_able, pairs_required, pairs_left)
    };
    // Two hosts in maintenance, and no rule yet.
    let mut story = Story::new(Site::new(4, &[0, 1, 0, 1]));
    story.site.pods = replicas("web", &[0, 1, 2, 3]);
    assert_eq!(figures(&story), (Some(4), 4, 4, 6, 3));
    story.site.hosts[2].0.maintenance = true;
    story.site.hosts[3].0.maintenance = true;
    assert_eq!(figures(&story), (Some(4), 4, 2, 6, 4));
    // Two more pods with the term, which they do not match: they may share a host.
    let mut story = Story::new(Site::new(4, &[0, 1, 2, 3, 3]));
    let shy = |node| PodFacts { anti_affinity: vec![term(HOSTNAME, "web")], ..pod("shy", node, node) };
    story.site.pods = [replicas("web", &[0, 1, 2]), vec![shy(3), shy(4)]].concat();
    assert_eq!(figures(&story), (Some(4), 4, 4, 9, 6));
    // One finding for a term, also if several rules of its own are too small.
    let mut story = Story::new(Site::new(4, &[0, 1, 2, 0, 1, 2, 0, 1, 2]));
    story.site.pods = replicas("web", &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(figures(&story), (Some(9), 4, 4, 36, 27));
}

#[test]
fn only_lasting_maintenance_shrinks_a_rule_and_a_disconnect_never_does() {
    let mut story = Story::new(Site::new(5, &[0, 1, 2, 3]));
    story.site.pods = replicas("web", &[0, 1, 2, 3]);
    story.pass();
    let all = sets(&[&[0, 1, 2, 3]]);
    assert_eq!(story.rules(), all);
    for (host, _) in &mut story.site.hosts {
        host.connection = HostConnection::NotResponding;
    }
    story.wait(100_000);
    assert_eq!(kinds(&story.pass()), [""; 0]);
    story.site.hosts[4].0.maintenance = true;
    story.wait(3600);
    assert_eq!(kinds(&story.pass()), [""; 0], "the others can still satisfy it");
    story.wait(3600);
    assert_eq!(kinds(&story.pass()), [""; 0]);
    // A second host: the rule cannot be satisfied now, but the maintenance may be short.
    story.site.hosts[3].0.maintenance = true;
    assert_eq!(kinds(&story.pass()), [""; 0]);
    story.wait(899);
    assert_eq!(kinds(&story.pass()), [""; 0]);
    story.wait(1);
    let plan = story.pass();
    assert_eq!(kinds(&plan), ["edit"]);
    assert_eq!(story.rules(), sets(&[&[0, 1, 2]]));
    assert!(plan.findings.iter().any(|finding| matches!(finding, Finding::Unsatisfiable(_))));
    assert_eq!(kinds(&story.pass()), [""; 0]);
    story.site.hosts[3].0.maintenance = false;
    assert_eq!(kinds(&story.pass()), ["edit"]);
    assert_eq!(story.rules(), all);
}

#[test]
fn vms_that_are_not_nodes_count_if_rules_of_other_clients_name_them() {
    let mut story = Story::new(Site::new(5, &[0, 1, 2]));
    story.site.pods = replicas("web", &[0, 1]);
    let with_database = |vm: usize, key| {
        let members = vec![vm_id(vm), "vm-database".to_owned()];
        rule(FOREIGN_KEYS + key, &format!("database-{vm}"), RuleKind::VmAffinity(members))
    };
    story.site.clusters[0].rules = vec![with_database(0, 0), with_database(1, 1)];
    let plan = story.pass();
    assert!(plan.is_empty(), "both are on the host of the database");
    let conflict = |finding: &Finding| matches!(finding, Finding::Conflict { rival, .. } if rival == "database-0");
    assert!(plan.findings.iter().any(conflict), "{:?}", plan.findings);
}

#[test]
fn an_intent_is_applied_and_an_unrecorded_creation_is_found_again() {
    let mut story = Story::new(Site::new(5, &[0, 1]));
    story.site.pods = replicas("web", &[0, 1]);
    // The process ended after the intent was recorded.
    story.owned = story.plan().record;
    let plan = story.plan();
    assert_eq!(kinds(&plan), ["create"]);
    // The process ended after the rule was created, before its UUID was recorded.
    story.owned = plan.record.clone();
    story.site.execute(&plan);
    let again = story.pass();
    assert!(again.is_empty());
    let uuid = story.only_rule().uuid.clone();
    let rule = story.owned.clusters.values().flat_map(|rules| rules.values()).next().expect("one");
    assert_eq!((rule.uuid.clone(), rule.restored_at), (uuid, None));
}

#[test]
fn number_6_a_creation_that_arrives_when_no_pod_requires_the_rule_any_more_is_recognised_and_deleted() {
    let mut story = Story::new(Site::new(5, &[0, 1]));
    let intended = |story: &mut Story| {
        story.site.pods = replicas("web", &[0, 1]);
        let plan = story.plan();
        story.owned = plan.record.clone();
        story.site.pods.clear();
        plan
    };
    let plan = intended(&mut story);
    story.pass();
    story.wait(100);
    story.pass();
    // What was planned before the pods were deleted.
    story.site.execute(&plan);
    assert_eq!(story.rules(), sets(&[&[0, 1]]));
    let next = story.pass();
    assert!(next.is_empty() && next.findings.is_empty(), "{:?}", next.findings);
    story.wait(300);
    assert_eq!(kinds(&story.pass()), ["delete"]);
    assert!(story.rules().is_empty());

    // If it does not arrive, it leaves the record.
    intended(&mut story);
    story.pass();
    assert_eq!(story.owned.clusters.values().map(|rules| rules.len()).sum::<usize>(), 1);
    story.wait(300);
    story.pass();
    assert_eq!(story.owned.clusters.values().map(|rules| rules.len()).sum::<usize>(), 0);
}

#[test]
fn a_rule_that_is_not_recorded_is_left_alone() {
    let mut story = Story::new(Site::new(5, &[0, 1, 2, 3]));
    story.site.pods = replicas("web", &[0, 1]);
    story.pass();
    let name = story.only_rule().name.clone();
    // The record is lost.
    story.owned = Record::default();
    story.site.pods = replicas("web", &[2, 3]);
    let plan = story.pass();
    assert_eq!(kinds(&plan), ["create"]);
    assert!(plan.findings.iter().any(|finding| matches!(finding, Finding::NotRecorded { rule, .. } if *rule == name)));
    assert_eq!(story.rules(), sets(&[&[0, 1], &[2, 3]]));
    let (_, action) = plan.actions().next().expect("one");
    assert_ne!(action.rule, name, "the name is taken");

    // Another client created a different rule under a recorded name.
    let recorded = action.rule.clone();
    let rules = &mut story.site.clusters[0].rules;
    rules.retain(|rule| rule.name == recorded);
    rules[0].uuid = Some("another".to_owned());
    rules[0].kind = RuleKind::VmAntiAffinity(vec![vm_id(0), vm_id(1)]);
    let plan = story.plan();
    let disagrees = |finding: &Finding| matches!(finding, Finding::RecordDisagrees { .. });
    assert!(plan.findings.iter().any(disagrees), "{:?}", plan.findings);
    assert!(plan.actions().all(|(_, action)| action.rule != recorded));
}

#[test]
fn a_cluster_that_enforces_too_little_or_too_much_is_reported() {
    let mut story = Story::new(Site::new(3, &[0, 1, 2]));
    story.site.pods = replicas("web", &[0, 1]);
    let preferred = WeightedTermFacts { weight: 1, term: term(HOSTNAME, "web") };
    story.site.pods[0].preferred_affinity = vec![preferred.clone()];
    story.site.pods[0].preferred_anti_affinity = vec![preferred];
    story.site.clusters[0].drs_enabled = false;
    let texts = |story: &Story| story.plan().findings.iter().map(ToString::to_string).collect::<Vec<_>>();
    let preferred = "2 preferred terms of 1 pods have no form in rules and are left out";
    assert_eq!(texts(&story), [preferred, "DRS is off: 1 rules protect nothing"]);
    story.site.clusters[0].drs_enabled = true;
    story.site.clusters[0].drs_behavior = DrsBehavior::Manual;
    assert_eq!(texts(&story).len(), 2);
    story.site.clusters[0].drs_behavior = DrsBehavior::FullyAutomated;
    assert_eq!(texts(&story), [preferred]);
    story.site.clusters[0].ha = HaFacts { enabled: true, respects_vm_anti_affinity: true };
    assert_eq!(texts(&story), [preferred], "three hosts, two members: one may fail");
    story.site.hosts[2].0.maintenance = true;
    assert!(texts(&story)[1].contains("has 2 members on 2 hosts"), "{:?}", texts(&story));
    story.site.clusters[0].ha.respects_vm_anti_affinity = false;
    assert_eq!(texts(&story), [preferred]);
}

#[test]
fn pods_that_rules_cannot_separate_are_reported() {
    let mut site = Site::new(4, &[0, 1]);
    site.add_cluster(4, &[0]);
    let mut story = Story::new(site);
    // Two pods on one VM, one in another cluster, one on an unknown node.
    story.site.pods = replicas("web", &[0, 0, 2, 9]);
    let plan = story.plan();
    assert!(plan.is_empty());
    assert_eq!(
        plan.findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "1 pods to which the host matters are on node-09, whose VM or cluster is not known",
            "shop/web-0 and shop/web-1 want to be apart and are on one VM, machine-00 (node node-00)",
        ]
    );
}

#[test]
fn lifting_can_be_turned_off() {
    let mut story = Story::new(Site::new(5, &[0, 1, 2, 3]));
    story.site.pods = replicas("web", &[0, 1, 2]);
    story.site.pods[0].lift_off = true;
    story.pass();
    assert_eq!(story.rules(), sets(&[&[0, 1, 2]]), "the others still have anti-affinity to it");
    story.site.pods.truncate(2);
    story.site.pods[1].lift_off = true;
    assert_eq!(story.site.apart(&story.settings), BTreeSet::new());
    // Terms on the host label do not depend on lifting.
    story.site.pods[0].anti_affinity = vec![term(HOST_KEY, "web")];
    assert_eq!(story.site.apart(&story.settings).len(), 1);

    let mut story = Story::new(Site::new(5, &[0, 1]));
    story.site.pods = replicas("web", &[0, 1]);
    let namespace = NamespaceFacts { name: "shop".to_owned(), lift_off: true, ..NamespaceFacts::default() };
    story.site.namespaces = vec![namespace];
    assert!(story.plan().is_empty());
    story.site.namespaces.clear();
    story.settings.lifted_keys.clear();
    assert!(story.plan().is_empty());
}

#[test]
fn affinity_uses_the_fewest_rules_and_yields_to_anti_affinity() {
    let near =
        |app: &str, to: &str, number, node| PodFacts { affinity: vec![term(HOST_KEY, to)], ..pod(app, number, node) };
    let mut story = Story::new(Site::new(4, &[0, 1, 1, 2, 3]));
    // It already shares a host with one of them: that one is chosen.
    story.site.pods = vec![near("web", "cache", 0, 2), pod("cache", 0, 0), pod("cache", 1, 1), pod("cache", 2, 3)];
    let plan = story.pass();
    assert_eq!(story.rules(), sets(&[&[1, 2]]));
    let (_, action) = plan.actions().next().expect("one");
    assert_eq!((action.rule_type, action.moves.len()), (RuleType::VmAffinity, 0));
    assert_eq!(action.pods.iter().map(ToString::to_string).collect::<Vec<_>>(), ["shop/web-0"]);
    // DRS moves both: the rule stays unchanged.
    (story.site.nodes[1], story.site.nodes[2]) = (Some(3), Some(3));
    story.site.nodes[0] = Some(3);
    assert!(story.plan().is_empty());
    // That cache pod gets anti-affinity to the web pod: a different cache pod is chosen.
    story.site.pods[2].anti_affinity = vec![term(HOST_KEY, "web")];
    story.pass();
    story.wait(300);
    story.pass();
    assert_eq!(story.rules(), sets(&[&[0, 2], &[1, 2]]), "one anti-affinity rule, one affinity rule");
    let affinity = story.site.clusters[0].rules.iter().find(|rule| matches!(rule.kind, RuleKind::VmAffinity(_)));
    assert_eq!(members(affinity.expect("one affinity rule")), BTreeSet::from([vm_id(0), vm_id(2)]));
    // All cache pods get it: affinity yields, and that is reported.
    for pod in &mut story.site.pods[1..] {
        pod.anti_affinity = vec![term(HOST_KEY, "web")];
    }
    let plan = story.plan();
    assert!(
        plan.findings.iter().any(|finding| matches!(finding, Finding::AffinityUnmet { .. })),
        "{:?}",
        plan.findings
    );
}

#[test]
fn affinity_on_the_node_name_is_never_lifted_and_a_matching_pod_on_the_vm_is_enough() {
    let mut story = Story::new(Site::new(4, &[0, 1]));
    let near = |key| PodFacts { affinity: vec![term(key, "cache")], ..pod("web", 0, 0) };
    story.site.pods = vec![near(HOSTNAME), pod("cache", 0, 1)];
    assert!(story.plan().is_empty());
    story.site.pods = vec![near(HOST_KEY), pod("cache", 0, 1), pod("cache", 1, 0)];
    assert!(story.plan().is_empty());
}

#[test]
fn most_rules_are_not_deleted_at_once_unless_allowed() {
    let mut story = Story::new(Site::new(9, &[0, 1, 2, 3, 4, 5, 6, 7]));
    for pair in 0..7 {
        story.site.pods.extend(replicas(&format!("app-{pair}"), &[pair, pair + 1]));
    }
    assert_eq!(kinds(&story.pass()).len(), 7);
    // An API server that returns no pods at all.
    story.site.pods.clear();
    story.pass();
    story.wait(300);
    let plan = story.pass();
    assert!(plan.is_empty());
    assert!(matches!(plan.findings[..], [Finding::DeletionsHeld { due: 7, owned: 7, .. }]), "{:?}", plan.findings);
    story.settings.allow_mass_deletion = true;
    story.settings.deletions_max = 4;
    assert_eq!(kinds(&story.pass()), ["delete"; 4]);
    assert_eq!(kinds(&story.pass()), ["delete"; 3]);
}

#[test]
fn the_rule_limit_keeps_the_rules_with_the_most_violations() {
    let mut story = Story::new(Site::new(6, &[0, 1, 2, 3, 3]));
    story.settings.rules_max = 1;
    story.site.pods = replicas("a", &[0, 1]);
    story.site.pods.extend(replicas("b", &[3, 4]));
    story.site.pods.extend(replicas("c", &[1, 2]));
    let plan = story.pass();
    assert_eq!(story.rules(), sets(&[&[3, 4]]));
    assert!(matches!(plan.findings[..], [Finding::RuleLimit { left_out: 2, limit: 1, .. }]), "{:?}", plan.findings);
    assert_eq!(plan.clusters[0].uncovered.len(), 2);
}

#[test]
fn a_vm_whose_host_is_temporarily_unknown_stays_a_member() {
    let mut story = Story::new(Site::new(5, &[0, 1, 2]));
    story.settings.removal_grace = Duration::ZERO;
    story.site.pods = replicas("web", &[0, 1, 2]);
    story.pass();
    story.site.nodes[1] = None;
    assert!(story.plan().is_empty());
}

#[test]
fn without_an_identity_nothing_is_planned() {
    let site = Site::new(5, &[0, 1]);
    let events = site.events().into_iter().filter(|event| !matches!(event, Event::NamespaceApplied(_)));
    let plan = plan(&world_of(events.collect()), &Record::default(), UnixMillis(0), &DrsSettings::default());
    assert_eq!(plan.findings, [Finding::NoIdentity]);
}
