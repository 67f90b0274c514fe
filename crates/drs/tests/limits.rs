//! Limits on the rules that one tenant can cause.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use drs::{AcrossNamespaces, Finding, Plan, Record, RuleType};
use model::event::*;
use support::story::*;
use support::*;

/// The pods in another namespace.
fn of(namespace: &str, pods: Vec<PodFacts>) -> Vec<PodFacts> {
    let moved =
        |pod: PodFacts| PodFacts { namespace: namespace.to_owned(), uid: format!("{namespace}-{}", pod.uid), ..pod };
    pods.into_iter().map(moved).collect()
}

/// Workloads of a namespace, with two replicas each: one for each pair of nodes.
fn workloads(namespace: &str, pairs: &[(usize, usize)]) -> Vec<PodFacts> {
    let replicas = pairs.iter().flat_map(|(a, b)| replicas(&format!("app-{a}-{b}"), &[*a, *b]));
    of(namespace, replicas.collect())
}

/// Each pair of these nodes.
fn pairs(nodes: usize) -> Vec<(usize, usize)> {
    (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b))).collect()
}

fn everywhere() -> Option<SelectorFacts> {
    Some(SelectorFacts { labels: Labels::new(), expressions: Vec::new() })
}

/// How many rules the plan creates for pods of each namespace.
fn created(plan: &Plan) -> BTreeMap<String, usize> {
    let mut created = BTreeMap::new();
    for (_, action) in plan.actions() {
        *created.entry(action.pods[0].namespace.to_string()).or_default() += 1;
    }
    created
}

fn counts(of: &[(&str, usize)]) -> BTreeMap<String, usize> {
    of.iter().map(|(namespace, count)| ((*namespace).to_owned(), *count)).collect()
}

fn found<'p>(plan: &'p Plan, name: &str) -> Vec<&'p Finding> {
    plan.findings.iter().filter(|finding| finding.name() == name).collect()
}

fn namespaces_of(finding: &Finding) -> BTreeSet<&str> {
    finding.pods().into_iter().map(|pod| &*pod.namespace).collect()
}

#[test]
fn number_9_a_namespace_with_34_pods_does_not_use_up_the_rules_of_others() {
    let nodes: Vec<usize> = (0..65).collect();
    let mut story = Story::new(Site::new(65, &nodes));
    // Each of 34 pods keeps away from the pods of a neighbour on 31 VMs, none of which keep away from each other.
    let away = TermFacts { namespace_selector: everywhere(), ..term(HOST_KEY, "web") };
    let greedy = (0..34).map(|node| PodFacts { anti_affinity: vec![away.clone()], ..pod("greedy", node, node) });
    story.site.pods = of("a", greedy.collect());
    story.site.pods.extend(of("b", (34..65).map(|node| pod("web", node, node)).collect()));
    story.site.pods.extend(workloads("b", &[(40, 41)]));
    let plan = story.pass();
    assert!(story.rules().contains(&vec![40, 41]), "the neighbour's own rule");
    assert_eq!(story.rules().len(), 101);
    let [finding @ Finding::NamespaceRuleLimit { namespace, left_out: 954, limit: 100, pairs, .. }] =
        &found(&plan, "namespaceRuleLimit")[..]
    else {
        panic!("{:?}", plan.findings)
    };
    assert_eq!((&**namespace, pairs.len()), ("a", 954));
    assert_eq!((namespaces_of(finding), finding.pods().is_empty()), (BTreeSet::from(["a"]), false));
    assert_eq!(plan.clusters[0].uncovered.len(), 954);
    assert!(story.plan().is_empty(), "the next plan is the same");
}

#[test]
fn number_9_at_the_limit_of_the_cluster_each_namespace_gets_its_fair_share() {
    let nodes: Vec<usize> = (0..10).collect();
    let mut story = Story::new(Site::new(20, &nodes));
    story.settings.rules_max = 10;
    let pairs = pairs(10);
    story.site.pods = workloads("a", &pairs[..20]);
    story.site.pods.extend(workloads("b", &pairs[20..23]));
    story.site.pods.extend(workloads("c", &pairs[23..40]));
    let plan = story.pass();
    assert_eq!(created(&plan), counts(&[("a", 4), ("b", 3), ("c", 3)]));
    let [finding @ Finding::RuleLimit { left_out: 30, limit: 10, .. }] = &found(&plan, "ruleLimit")[..] else {
        panic!("{:?}", plan.findings)
    };
    assert_eq!(namespaces_of(finding), BTreeSet::from(["a", "c"]));
    assert!(story.plan().is_empty());

    // A new tenant comes before those that have more; what exists stays.
    story.settings.rules_max = 12;
    story.site.pods.extend(workloads("d", &pairs[40..45]));
    let plan = story.pass();
    assert_eq!((kinds(&plan), created(&plan)), (vec!["create"; 2], counts(&[("d", 2)])));
    story.wait(10_000);
    assert!(story.plan().is_empty());
    let plan = story.plan();
    let [finding] = &found(&plan, "ruleLimit")[..] else { panic!("{:?}", plan.findings) };
    assert_eq!(namespaces_of(finding), BTreeSet::from(["a", "c", "d"]), "none is left out by the others' many pods");
}

#[test]
fn number_9_rules_that_are_violated_come_first_within_a_namespace() {
    let mut story = Story::new(Site::new(6, &[0, 1, 2, 3, 3]));
    story.settings.rules_per_namespace_max = 1;
    story.site.pods = workloads("a", &[(0, 1), (3, 4), (1, 2)]);
    story.pass();
    assert_eq!(story.rules(), sets(&[&[3, 4]]));
}

#[test]
fn number_9_rules_that_exist_stay_when_a_limit_is_lowered() {
    let mut story = Story::new(Site::new(6, &[0, 1, 2, 3]));
    story.site.pods = workloads("a", &[(0, 1), (1, 2), (2, 3)]);
    story.pass();
    story.settings.rules_per_namespace_max = 1;
    story.settings.rules_max = 2;
    story.site.pods.extend(workloads("a", &[(0, 3)]));
    story.site.pods.extend(workloads("b", &[(0, 2)]));
    let plan = story.pass();
    assert!(plan.is_empty());
    assert_eq!((found(&plan, "namespaceRuleLimit").len(), found(&plan, "ruleLimit").len()), (1, 1));
    story.wait(10_000);
    assert!(story.plan().is_empty());
}

#[test]
fn number_9_many_namespaces_delay_the_rules_of_others_until_the_grace_is_over() {
    let mut story = Story::new(Site::new(9, &[0, 1, 2, 3, 4, 5]));
    story.settings.rules_max = 3;
    story.settings.allow_mass_deletion = true;
    for (namespace, pair) in [("a1", (0, 1)), ("a2", (2, 3)), ("a3", (4, 5))] {
        story.site.pods.extend(workloads(namespace, &[pair]));
    }
    story.pass();
    // Their pods are gone, their rules are not yet.
    story.site.pods = workloads("b", &[(0, 5)]);
    let plan = story.pass();
    assert_eq!((story.rules().len(), found(&plan, "ruleLimit").len()), (3, 1));
    assert!(!story.rules().contains(&vec![0, 5]));
    story.wait(10_000);
    story.pass();
    story.pass();
    assert_eq!(story.rules(), sets(&[&[0, 5]]));
}

#[test]
fn number_9_a_rule_that_is_left_out_does_not_make_those_of_others_redundant() {
    let mut story = Story::new(Site::new(9, &[0, 1, 2, 3, 4, 5, 6]));
    story.settings.rules_per_namespace_max = 1;
    story.site.pods = workloads("a", &[(5, 6)]);
    story.pass();
    // Without limits, the larger rule would do for both.
    story.site.pods.extend(of("a", replicas("large", &[0, 1, 2])));
    story.site.pods.extend(workloads("b", &[(0, 1)]));
    let plan = story.pass();
    assert_eq!(story.rules(), sets(&[&[5, 6], &[0, 1]]));
    assert_eq!(plan.clusters[0].uncovered.len(), 2);
    for _ in 0..2 {
        story.wait(10_000);
        assert!(story.pass().is_empty(), "nor is the existing rule deleted");
    }
    story.settings.rules_per_namespace_max = 2;
    assert_eq!(kinds(&story.pass()), ["create"]);
    story.wait(10_000);
    story.pass();
    story.wait(10_000);
    story.pass();
    assert_eq!(story.rules(), sets(&[&[5, 6], &[0, 1, 2]]), "now it is");
}

#[test]
fn number_9_a_rule_that_is_left_out_takes_no_room_from_those_of_others() {
    let mut story = Story::new(Site::new(4, &[0, 1, 2, 3, 0, 1]));
    story.settings.rules_per_namespace_max = 1;
    story.site.pods = workloads("a", &[(4, 5)]);
    story.pass();
    // The reserve leaves three hosts: with both rules of `a`, these two VMs could not be apart as well.
    story.site.pods.extend(of("a", replicas("one", &[0, 1, 2])));
    story.site.pods.extend(of("a", replicas("two", &[0, 1, 3])));
    story.site.pods.extend(workloads("b", &[(2, 3)]));
    for pass in 0..3 {
        let plan = story.pass();
        assert_eq!((story.rules(), plan.is_empty()), (sets(&[&[4, 5], &[2, 3]]), pass > 0), "{:?}", plan.findings);
        assert!(found(&plan, "jointlyUnsatisfiable").is_empty(), "{:?}", plan.findings);
        let [finding @ Finding::NamespaceRuleLimit { left_out: 2, .. }] = &found(&plan, "namespaceRuleLimit")[..]
        else {
            panic!("{:?}", plan.findings)
        };
        assert_eq!((namespaces_of(finding), plan.clusters[0].uncovered.len()), (BTreeSet::from(["a"]), 5));
        story.wait(10_000);
    }
    // With room for them, they come first again.
    story.settings.rules_per_namespace_max = 3;
    story.owned = Record::default();
    story.site.clusters[0].rules.clear();
    let plan = story.pass();
    assert_eq!(story.rules(), sets(&[&[4, 5], &[0, 1, 2], &[0, 1, 3]]));
    assert_eq!(found(&plan, "jointlyUnsatisfiable").len(), 1);
}

#[test]
fn number_9_a_rule_that_is_left_out_takes_no_room_from_affinity_of_others() {
    let mut story = Story::new(Site::new(4, &[0, 1, 2, 3, 0, 1, 2, 3, 0]));
    story.settings.rules_per_namespace_max = 1;
    story.site.pods = workloads("a", &[(7, 8)]);
    story.pass();
    // On each of the three hosts that the reserve leaves, there would be a VM that one of 5 and 6 is kept away from.
    story.site.pods.extend(of("a", replicas("wide", &[0, 1, 2])));
    story.site.pods.extend(workloads("a", &[(0, 5), (1, 6), (2, 6)]));
    let near = PodFacts { affinity: vec![term(HOST_KEY, "cache")], ..pod("near", 0, 5) };
    story.site.pods.extend(of("b", vec![near, pod("cache", 0, 6)]));
    for pass in 0..3 {
        let plan = story.pass();
        assert_eq!((story.rules(), plan.is_empty()), (sets(&[&[7, 8], &[5, 6]]), pass > 0), "{:?}", plan.findings);
        assert!(found(&plan, "affinityUnmet").is_empty(), "{:?}", plan.findings);
        story.wait(10_000);
    }
}

#[test]
fn number_9_many_terms_for_the_same_vms_do_not_take_a_rule_from_others() {
    let mut story = Story::new(Site::new(9, &[0, 1, 2, 3, 4, 5, 6]));
    story.settings.rules_per_namespace_max = 1;
    story.site.pods = workloads("a", &[(5, 6)]);
    story.pass();
    // As each of them is left out, the next one would do for the other namespace too.
    story.site.pods.extend(of("a", (0..120).flat_map(|app| replicas(&format!("app-{app}"), &[0, 1, 2])).collect()));
    story.site.pods.extend(workloads("b", &[(0, 1)]));
    let plan = story.pass();
    assert_eq!(story.rules(), sets(&[&[5, 6], &[0, 1]]));
    assert_eq!(plan.clusters[0].uncovered.len(), 2);
    let [Finding::NamespaceRuleLimit { left_out: 1, pods, .. }] = &found(&plan, "namespaceRuleLimit")[..] else {
        panic!("{:?}", plan.findings)
    };
    assert_eq!(pods.len(), 50);
    assert!(story.plan().is_empty());
}

#[test]
fn number_9_requiring_what_others_require_does_not_fill_their_places() {
    let nodes: Vec<usize> = (0..12).collect();
    let mut story = Story::new(Site::new(12, &nodes));
    story.settings.rules_per_namespace_max = 3;
    story.site.pods = of("b", replicas("web", &[0, 1]));
    // Pods of `a` with the term of those of `b`: six rules, and the VMs of `b` are in each of them.
    let term = TermFacts { namespaces: vec!["b".to_owned()], ..term(HOSTNAME, "web") };
    let joins = (2..8).map(|node| PodFacts { anti_affinity: vec![term.clone()], ..pod("joins", node, node) });
    story.site.pods.extend(of("a", joins.collect()));
    let plan = story.pass();
    assert_eq!(story.rules(), sets(&[&[0, 1, 2], &[0, 1, 3], &[0, 1, 4], &[0, 1, 5]]), "three, and one counts for `b`");
    let [finding @ Finding::NamespaceRuleLimit { left_out: 2, .. }] = &found(&plan, "namespaceRuleLimit")[..] else {
        panic!("{:?}", plan.findings)
    };
    assert_eq!(namespaces_of(finding), BTreeSet::from(["a"]));
    assert!(story.plan().is_empty());
    story.site.pods.extend(workloads("b", &[(8, 9), (9, 10)]));
    assert_eq!(created(&story.pass()), counts(&[("b", 2)]));
    story.wait(10_000);
    assert!(story.plan().is_empty());
}

#[test]
fn number_9_all_namespaces_that_require_a_rule_get_events_if_it_is_left_out() {
    let mut story = Story::new(Site::new(9, &[0, 1, 2, 3, 4, 5, 6, 7, 8]));
    story.settings.rules_per_namespace_max = 1;
    story.site.pods = workloads("a", &[(5, 6)]);
    story.site.pods.extend(workloads("b", &[(7, 8)]));
    story.pass();
    let term = TermFacts { namespaces: vec!["b".to_owned()], ..term(HOSTNAME, "web") };
    story.site.pods.extend(of("b", replicas("web", &[0, 1])));
    // Many pods of `a` do not take the place of those of `b` among the named ones.
    let joins = (0..60).map(|number| PodFacts { anti_affinity: vec![term.clone()], ..pod("joins", number, 2) });
    story.site.pods.extend(of("a", joins.collect()));
    let plan = story.pass();
    assert!(plan.is_empty());
    let found = found(&plan, "namespaceRuleLimit");
    let affected: Vec<_> = found.iter().map(|finding| (namespaces_of(finding), finding.pods().len())).collect();
    assert_eq!(affected, [(BTreeSet::from(["a"]), 48), (BTreeSet::from(["b"]), 2)]);
}

#[test]
fn number_9_a_rule_of_several_namespaces_counts_for_one_that_has_room() {
    let mut story = Story::new(Site::new(9, &[0, 1, 2, 3, 4, 5, 6, 7, 8]));
    story.settings.rules_per_namespace_max = 1;
    // A pod of `a` with the same term as those of `b`.
    let term = TermFacts { namespaces: vec!["b".to_owned()], ..term(HOSTNAME, "web") };
    story.site.pods = of("b", replicas("web", &[0, 1]));
    let joins = PodFacts { anti_affinity: vec![term], ..pod("joins", 0, 2) };
    story.site.pods.extend(of("a", vec![joins]));
    story.pass();
    assert_eq!(story.rules(), sets(&[&[0, 1, 2]]));
    story.site.pods.extend(workloads("a", &[(5, 6)]));
    story.pass();
    assert_eq!(story.rules(), sets(&[&[0, 1, 2], &[5, 6]]), "it counts for the other one instead");
    story.site.pods.extend(workloads("b", &[(7, 8)]));
    let plan = story.pass();
    assert!(plan.is_empty());
    let [Finding::NamespaceRuleLimit { namespace, .. }] = &found(&plan, "namespaceRuleLimit")[..] else {
        panic!("{:?}", plan.findings)
    };
    assert_eq!(&**namespace, "b");
}

#[test]
fn number_9_rules_of_all_types_count() {
    let mut story = Story::new(Site::new(6, &[0, 1, 2, 3]));
    story.settings.rules_per_namespace_max = 2;
    let near = PodFacts { affinity: vec![term(HOST_KEY, "cache")], ..pod("near", 0, 2) };
    let pinned = PodFacts {
        node_affinity: NodeAffinityFacts {
            node_selector: model::testing::labels(&[(HOST_KEY, "esx-0")]),
            ..NodeAffinityFacts::default()
        },
        ..pod("pinned", 0, 0)
    };
    story.site.pods = [vec![near, pod("cache", 0, 3), pinned], replicas("web", &[0, 1])].concat();
    let plan = story.pass();
    let types: BTreeSet<RuleType> = plan.actions().map(|(_, action)| action.rule_type).collect();
    assert_eq!((types.len(), plan.actions().count()), (2, 2));
    assert_eq!(found(&plan, "namespaceRuleLimit").len(), 1);
    assert!(story.plan().is_empty());
}

#[test]
fn number_9_only_so_many_terms_of_a_pod_become_rules() {
    let nodes: Vec<usize> = (0..41).collect();
    let mut story = Story::new(Site::new(45, &nodes));
    let terms = (1..41).map(|node| term(HOST_KEY, &format!("app-{node}")));
    story.site.pods = vec![PodFacts { anti_affinity: terms.collect(), ..pod("shy", 0, 0) }];
    story.site.pods.extend((1..41).map(|node| pod(&format!("app-{node}"), 0, node)));
    let plan = story.pass();
    assert_eq!(story.rules().len(), 32);
    let [finding @ Finding::TermLimit { terms: 8, limit: 32, .. }] = &found(&plan, "termLimit")[..] else {
        panic!("{:?}", plan.findings)
    };
    assert_eq!(finding.pods().iter().map(ToString::to_string).collect::<Vec<_>>(), ["shop/shy-0"]);
    assert!(story.plan().is_empty());
}

#[test]
fn number_9_terms_over_other_namespaces_need_the_label_if_the_setting_says_so() {
    let mut story = Story::new(Site::new(6, &[0, 1, 2, 3]));
    let away = TermFacts { namespace_selector: everywhere(), ..term(HOST_KEY, "web") };
    let shy = PodFacts { anti_affinity: vec![away], ..pod("shy", 0, 0) };
    story.site.pods = of("a", vec![shy, pod("web", 0, 1)]);
    story.site.pods.extend(of("b", vec![pod("web", 0, 2)]));
    let rules = |story: &Story| {
        let mut story = Story { settings: story.settings.clone(), ..Story::new(story.site.clone()) };
        let plan = story.pass();
        (story.rules(), found(&plan, "confinedToNamespace").into_iter().cloned().collect::<Vec<_>>())
    };
    let everywhere = sets(&[&[0, 1], &[0, 2]]);
    assert_eq!(rules(&story), (everywhere.clone(), vec![]));
    story.settings.across_namespaces = AcrossNamespaces::Labelled;
    let (own, findings) = rules(&story);
    assert_eq!(own, sets(&[&[0, 1]]));
    let [finding @ Finding::ConfinedToNamespace { terms: 1, .. }] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(finding.pods().iter().map(ToString::to_string).collect::<Vec<_>>(), ["a/shy-0"]);
    // The label of the other namespace does not help, and neither does another value.
    story.site.namespaces = vec![labelled("b", "cluster"), labelled("a", "namespace")];
    assert_eq!(rules(&story).0, own);
    story.site.namespaces = vec![labelled("a", "cluster")];
    assert_eq!(rules(&story), (everywhere, vec![]));
}

#[test]
fn number_9_affinity_to_other_namespaces_needs_the_label_if_the_setting_says_so() {
    let mut story = Story::new(Site::new(6, &[0, 1]));
    let to = TermFacts { namespaces: vec!["b".to_owned()], ..term(HOST_KEY, "cache") };
    story.site.pods = of("a", vec![PodFacts { affinity: vec![to], ..pod("near", 0, 0) }]);
    story.site.pods.extend(of("b", vec![pod("cache", 0, 1)]));
    story.settings.across_namespaces = AcrossNamespaces::Labelled;
    let plan = story.plan();
    assert!(plan.is_empty());
    assert_eq!(found(&plan, "confinedToNamespace").len(), 1);
    story.site.namespaces = vec![labelled("a", "cluster")];
    story.pass();
    assert_eq!(story.rules(), sets(&[&[0, 1]]));
    // Without the label, the rule goes after the grace.
    story.site.namespaces.clear();
    assert!(story.pass().is_empty());
    story.wait(300);
    assert_eq!(kinds(&story.pass()), ["delete"]);
}
