//! Pods that accept only certain physical hosts.

mod support;

use std::collections::BTreeSet;

use drs::{
    ChangeKind, DrsSettings, Finding, GroupChange, Pinning, Plan, Record, RecordedGroups, RuleType, TooFewHosts,
    UnixMillis, plan,
};
use model::event::*;
use support::*;

struct Story {
    site: Site,
    owned: Record,
    now: UnixMillis,
    settings: DrsSettings,
}

impl Story {
    fn new(site: Site, pinning: Pinning) -> Story {
        let settings = DrsSettings { pinning, ..DrsSettings::default() };
        let mut story = Story { site, owned: Record::default(), now: UnixMillis(0), settings };
        story.site.namespaces = vec![labelled("shop", "cluster")];
        story
    }

    fn plan(&self) -> Plan {
        plan(&self.site.world(), &self.owned, self.now, &self.settings)
    }

    fn pass(&mut self) -> Plan {
        let plan = self.plan();
        self.owned = self.site.execute(&plan);
        plan
    }

    /// The VM-Host rules of the first cluster: VMs, hosts, and whether the rule is mandatory.
    fn host_rules(&self) -> BTreeSet<(Vec<String>, Vec<String>, bool)> {
        let cluster = &self.site.clusters[0];
        let members = |name: &str| match &cluster.groups.iter().find(|group| group.name == name).expect("a group").kind
        {
            GroupKind::Vms(members) | GroupKind::Hosts(members) => members.clone(),
        };
        let own = cluster.rules.iter().filter_map(|rule| match &rule.kind {
            RuleKind::VmHost { vm_group, affine_hosts: Some(hosts), .. } => {
                Some((members(vm_group), members(hosts), rule.mandatory))
            }
            _ => None,
        });
        own.collect()
    }

    /// The members of the anti-affinity rules of the first cluster.
    fn apart(&self) -> BTreeSet<BTreeSet<String>> {
        let rules = self.site.clusters[0].rules.iter();
        rules.filter(|rule| matches!(rule.kind, RuleKind::VmAntiAffinity(_))).map(members).collect()
    }
}

fn set(vms: &[usize]) -> BTreeSet<String> {
    ids("vm", vms).into_iter().collect()
}

fn expression(operator: Operator, values: &[&str]) -> RequirementFacts {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    RequirementFacts { key: HOST_KEY.to_owned(), operator, values }
}

fn terms(terms: &[&[RequirementFacts]]) -> NodeAffinityFacts {
    let term = |expressions: &&[RequirementFacts]| NodeTermFacts { expressions: expressions.to_vec(), fields: vec![] };
    NodeAffinityFacts { node_terms: terms.iter().map(term).collect(), ..NodeAffinityFacts::default() }
}

fn pinned(number: usize, node: usize, node_affinity: NodeAffinityFacts) -> PodFacts {
    PodFacts { node_affinity, ..pod("db", number, node) }
}

fn ids(prefix: &str, numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|number| if prefix == "vm" { vm_id(*number) } else { format!("{prefix}-{number}") }).collect()
}

#[test]
fn node_affinity_is_evaluated_as_in_kubernetes() {
    use Operator::*;
    let other = RequirementFacts { key: "zone".to_owned(), operator: In, values: vec!["z".to_owned()] };
    let malformed = RequirementFacts { values: vec![], ..other.clone() };
    let of_node = |operator, node: usize| NodeTermFacts {
        expressions: vec![expression(In, &["esx-0"])],
        fields: vec![RequirementFacts { key: "metadata.name".to_owned(), operator, values: vec![node_name(node)] }],
    };
    let selector = |key: &str, value: &str, rest: NodeAffinityFacts| NodeAffinityFacts {
        node_selector: model::testing::labels(&[(key, value)]),
        ..rest
    };
    // The accepted hosts of esx-0, esx-1, 7 and 30; `None` if there is no VM-Host rule.
    let cases: Vec<(NodeAffinityFacts, Option<&[usize]>)> = vec![
        (terms(&[&[expression(In, &["esx-0", "esx-1"])]]), Some(&[0, 1])),
        (terms(&[&[expression(NotIn, &["esx-0", "else"])]]), Some(&[1, 2, 3])),
        (terms(&[&[expression(Exists, &[])]]), None),
        (terms(&[&[expression(DoesNotExist, &[])], &[expression(In, &["7"])]]), Some(&[2])),
        (terms(&[&[expression(Gt, &["7"])]]), Some(&[3])),
        (terms(&[&[expression(Lt, &["30"])]]), Some(&[2])),
        (terms(&[&[expression(Lt, &["30", "31"])], &[expression(In, &["esx-0"])]]), Some(&[0])),
        // All requirements of a term, one of the terms; an empty term accepts nothing.
        (terms(&[&[expression(In, &["esx-0", "7"]), expression(NotIn, &["7"])]]), Some(&[0])),
        (terms(&[&[expression(In, &["esx-0"])], &[expression(In, &["30"])]]), Some(&[0, 3])),
        (terms(&[&[], &[expression(In, &["30"])]]), Some(&[3])),
        // Other labels may match on any host.
        (terms(&[std::slice::from_ref(&other)]), None),
        (terms(&[&[other.clone(), expression(In, &["esx-1"])]]), Some(&[1])),
        (terms(&[&[other], &[expression(In, &["esx-1"])]]), None),
        // The selector and one of the terms.
        (selector(HOST_KEY, "esx-1", NodeAffinityFacts::default()), Some(&[1])),
        (selector("zone", "z", NodeAffinityFacts::default()), None),
        (selector(HOST_KEY, "esx-1", terms(&[&[expression(In, &["esx-0", "esx-1"])]])), Some(&[1])),
        // The node's name does not change with the host.
        (NodeAffinityFacts { node_terms: vec![of_node(In, 0)], ..NodeAffinityFacts::default() }, Some(&[0])),
        (NodeAffinityFacts { node_terms: vec![of_node(In, 1)], ..NodeAffinityFacts::default() }, None),
        (NodeAffinityFacts { node_terms: vec![of_node(NotIn, 1)], ..NodeAffinityFacts::default() }, Some(&[0])),
        // A malformed term accepts nothing, whichever label is malformed; if all terms are malformed, there is no rule.
        (terms(&[&[expression(NotIn, &[])], &[expression(In, &["30"])]]), Some(&[3])),
        (terms(&[&[expression(NotIn, &["a b"])], &[expression(In, &["30"])]]), Some(&[3])),
        (terms(&[&[expression(Exists, &["7"])], &[expression(In, &["30"])]]), Some(&[3])),
        (terms(&[&[malformed.clone(), expression(In, &["7"])], &[expression(In, &["30"])]]), Some(&[3])),
        (terms(&[&[malformed, expression(In, &["7"])]]), None),
    ];
    for (node_affinity, expected) in cases {
        let mut story = Story::new(Site::new(4, &[0]), Pinning::Should);
        story.site.hosts[2].0.name = "7".to_owned();
        story.site.hosts[3].0.name = "30".to_owned();
        story.site.pods = vec![pinned(0, 0, node_affinity.clone())];
        story.pass();
        let expected: BTreeSet<_> =
            expected.map(|hosts| (ids("vm", &[0]), ids("host", hosts), false)).into_iter().collect();
        assert_eq!(story.host_rules(), expected, "{node_affinity:?}");
    }
}

#[test]
fn a_vm_host_rule_follows_its_pods_and_is_deleted_with_its_groups() {
    let only = |hosts: &[&str]| terms(&[&[expression(Operator::In, hosts)]]);
    let mut story = Story::new(Site::new(4, &[0, 1, 2]), Pinning::Should);
    story.site.pods = vec![pinned(0, 0, only(&["esx-0", "esx-1"])), pinned(1, 1, only(&["esx-0", "esx-1"]))];
    let first = story.pass();
    let (_, action) = first.actions().next().expect("one rule");
    assert_eq!((first.actions().count(), action.rule_type), (1, RuleType::VmHost));
    assert_eq!((action.hosts.join(" "), action.moves.len()), ("esx-0 esx-1".to_owned(), 0));
    assert!(matches!(&action.groups[..], [GroupChange::Add(_), GroupChange::Add(_)]));
    assert_eq!(action.pods.len(), 2);
    let (name, uuid) = (story.site.clusters[0].rules[0].name.clone(), story.site.clusters[0].rules[0].uuid.clone());
    let recorded = story.owned.clusters.values().next().expect("recorded")[&name].clone();
    let groups = RecordedGroups { vms: format!("{name}-vms"), hosts: format!("{name}-hosts") };
    assert_eq!(recorded.groups, Some(groups));
    assert!(story.plan().is_empty());

    // One more VM, then other hosts: edits of the same rule and of the affected group.
    story.site.pods.push(pinned(2, 2, only(&["esx-0", "esx-1"])));
    let plan = story.pass();
    let (_, action) = plan.actions().next().expect("one");
    assert!(matches!(&action.kind, ChangeKind::Edit { added, .. } if *added == ids("vm", &[2])));
    assert!(matches!(&action.groups[..], [GroupChange::Edit(group)] if group.name.ends_with("-vms")));
    assert_eq!(action.moves, ["machine-02"]);
    story.site.pods.iter_mut().for_each(|pod| pod.node_affinity = only(&["esx-3"]));
    let plan = story.pass();
    let (_, action) = plan.actions().next().expect("one");
    assert!(matches!(&action.groups[..], [GroupChange::Edit(group)] if group.name.ends_with("-hosts")));
    assert_eq!(story.host_rules(), BTreeSet::from([(ids("vm", &[0, 1, 2]), ids("host", &[3]), false)]));
    let rule = &story.site.clusters[0].rules[0];
    assert_eq!((&rule.name, &rule.uuid), (&name, &uuid));

    // Must instead of should.
    story.settings.pinning = Pinning::Must;
    assert_eq!(story.pass().actions().count(), 1);
    assert!(story.site.clusters[0].rules[0].mandatory);
    assert!(story.plan().is_empty());

    // Disabled: deleted after the grace, with the groups.
    story.settings.pinning = Pinning::Off;
    assert!(story.pass().is_empty());
    story.now.0 += 300_000;
    story.pass();
    assert!(story.site.clusters[0].rules.is_empty() && story.site.clusters[0].groups.is_empty());
    assert!(story.owned.is_empty());
}

#[test]
fn a_vm_gets_the_hosts_that_all_its_pods_accept() {
    let only = |hosts: &[&str]| terms(&[&[expression(Operator::In, hosts)]]);
    let mut story = Story::new(Site::new(4, &[0, 1]), Pinning::Should);
    story.site.pods = vec![
        pinned(0, 0, only(&["esx-0", "esx-1"])),
        pinned(1, 0, only(&["esx-1", "esx-2"])),
        pinned(2, 1, only(&["esx-0"])),
        pinned(3, 1, only(&["esx-2"])),
    ];
    let plan = story.pass();
    assert_eq!(story.host_rules(), BTreeSet::from([(ids("vm", &[0]), ids("host", &[1]), false)]));
    let [finding @ Finding::PinnedNowhere { pods, hosts: 4, .. }] = &plan.findings[..] else {
        panic!("{:?}", plan.findings)
    };
    assert_eq!((pods.len(), finding.name()), (2, "pinnedNowhere"));
}

#[test]
fn a_mandatory_rule_comes_before_anti_affinity_but_not_before_rules_of_others() {
    let only = terms(&[&[expression(Operator::In, &["esx-0", "esx-1"])]]);
    let pinned_rule = |mandatory| BTreeSet::from([(ids("vm", &[0, 1, 2]), ids("host", &[0, 1]), mandatory)]);
    let mut story = Story::new(Site::new(5, &[0, 1, 2]), Pinning::Must);
    story.site.pods =
        (0..3).map(|number| PodFacts { node_affinity: only.clone(), ..lonely("db", number, number) }).collect();
    let plan = story.pass();
    assert_eq!((story.host_rules(), story.apart()), (pinned_rule(true), BTreeSet::from([set(&[0, 1])])));
    let [Finding::Unsatisfiable(TooFewHosts { vms: Some(3), hosts_able: 2, pairs_left: 2, .. })] = &plan.findings[..]
    else {
        panic!("{:?}", plan.findings)
    };
    assert!(story.plan().is_empty());

    // An administrator keeps them apart: three VMs on different hosts do not fit on two, so DRS only prefers these.
    let mut story = Story::new(Site::new(5, &[0, 1, 2]), Pinning::Must);
    story.site.pods = (0..3).map(|number| pinned(number, number, only.clone())).collect();
    let apart = RuleKind::VmAntiAffinity((0..3).map(vm_id).collect());
    story.site.clusters[0].rules = vec![rule(FOREIGN_KEYS, "admin", apart)];
    let plan = story.pass();
    assert_eq!(story.host_rules(), pinned_rule(false));
    assert!(matches!(plan.findings[..], [Finding::PinnedTooTight { vms: 3, hosts: 2, .. }]), "{:?}", plan.findings);
    assert!(story.plan().is_empty());
}

#[test]
fn number_9_anti_affinity_of_pods_without_the_label_does_not_prevent_a_must_rule() {
    let only = terms(&[&[expression(Operator::In, &["esx-0", "esx-1"])]]);
    let pinned: Vec<PodFacts> = (0..3).map(|number| pinned(number, number, only.clone())).collect();
    let other = |number| PodFacts { namespace: "other".to_owned(), ..lonely("web", number, number) };
    let all: Vec<PodFacts> = pinned.iter().cloned().chain((0..3).map(other)).collect();
    let must = BTreeSet::from([(ids("vm", &[0, 1, 2]), ids("host", &[0, 1]), true)]);
    // At once, before, or after the must rule.
    for first in [&all, &all[3..].to_vec(), &pinned] {
        let mut story = Story::new(Site::new(5, &[0, 1, 2]), Pinning::Must);
        story.site.pods.clone_from(first);
        story.pass();
        story.site.pods.clone_from(&all);
        for _ in 0..3 {
            let plan = story.pass();
            assert_eq!(story.host_rules(), must, "{:?}", plan.findings);
            story.now.0 += 300_000;
        }
        assert!(story.apart().iter().all(|vms| vms.len() == 2), "{:?}", story.apart());
        assert!(story.plan().is_empty());
    }
}

#[test]
fn number_9_a_must_rule_that_is_left_out_limits_nothing() {
    let only = terms(&[&[expression(Operator::In, &["esx-0", "esx-1"])]]);
    let mut story = Story::new(Site::new(5, &[0, 1, 2, 3, 4]), Pinning::Must);
    story.settings.rules_per_namespace_max = 1;
    story.site.pods = vec![lonely("first", 0, 3), lonely("first", 1, 4)];
    story.pass();
    story.site.pods.extend((0..3).map(|number| pinned(number, number, only.clone())));
    let other = |number| PodFacts { namespace: "other".to_owned(), ..lonely("web", number, number) };
    story.site.pods.extend((0..3).map(other));
    for _ in 0..3 {
        story.pass();
        assert_eq!(story.apart(), BTreeSet::from([set(&[3, 4]), set(&[0, 1, 2])]));
        assert!(story.host_rules().is_empty());
        assert!(story.plan().is_empty());
        story.now.0 += 300_000;
    }
}

#[test]
fn number_9_only_pods_in_labelled_namespaces_get_must_rules() {
    let only = |hosts: &[&str]| terms(&[&[expression(Operator::In, hosts)]]);
    let mut story = Story::new(Site::new(4, &[0, 1, 2]), Pinning::Must);
    let other = PodFacts { namespace: "other".to_owned(), ..pinned(1, 1, only(&["esx-0"])) };
    story.site.pods = vec![pinned(0, 0, only(&["esx-0"])), other];
    story.pass();
    let rule = |vm: usize, hosts: &[usize], mandatory: bool| (ids("vm", &[vm]), ids("host", hosts), mandatory);
    assert_eq!(story.host_rules(), BTreeSet::from([rule(0, &[0], true), rule(1, &[0], false)]));
    assert!(story.plan().is_empty());

    // The namespaces change places.
    story.site.namespaces = vec![labelled("other", "cluster")];
    story.pass();
    story.now.0 += 300_000;
    story.pass();
    assert_eq!(story.host_rules(), BTreeSet::from([rule(0, &[0], false), rule(1, &[0], true)]));
    assert!(story.plan().is_empty());

    // Without the label, the same rule is a should rule.
    story.site.namespaces.clear();
    story.pass();
    story.now.0 += 300_000;
    story.pass();
    assert_eq!(story.host_rules(), BTreeSet::from([(ids("vm", &[0, 1]), ids("host", &[0]), false)]));
}

#[test]
fn number_9_pods_without_the_label_neither_narrow_nor_prevent_a_must_rule() {
    let only = |hosts: &[&str]| terms(&[&[expression(Operator::In, hosts)]]);
    let other = |hosts: &[&str]| PodFacts { namespace: "other".to_owned(), ..pinned(1, 0, only(hosts)) };
    let must = || (ids("vm", &[0]), ids("host", &[0, 1]), true);
    for (hosts, narrower) in [(&["esx-1", "esx-2"][..], Some(1)), (&["esx-0", "esx-1"], None), (&["esx-3"], None)] {
        let mut story = Story::new(Site::new(4, &[0]), Pinning::Must);
        story.site.pods = vec![pinned(0, 0, only(&["esx-0", "esx-1"])), other(hosts)];
        let plan = story.pass();
        let narrower = narrower.map(|host| (ids("vm", &[0]), ids("host", &[host]), false));
        assert_eq!(story.host_rules(), [must()].into_iter().chain(narrower).collect(), "{hosts:?}");
        let is_nowhere = plan.findings.iter().any(|finding| matches!(finding, Finding::PinnedNowhere { .. }));
        assert_eq!(is_nowhere, hosts == ["esx-3"], "{hosts:?}: {:?}", plan.findings);
        assert!(story.plan().is_empty());
    }
}

#[test]
fn groups_of_other_clients_stay_and_groups_without_their_rule_are_deleted() {
    let only = terms(&[&[expression(Operator::In, &["esx-0"])]]);
    let mut story = Story::new(Site::new(4, &[0]), Pinning::Should);
    story.site.pods = vec![pinned(0, 0, only)];
    let (_, action) = story.plan().actions().map(|(c, a)| (c.clone(), a.clone())).next().expect("one");
    // Another client already has a group with that name.
    let taken = GroupFacts {
        name: format!("{}-vms", action.rule),
        user_created: true,
        kind: GroupKind::Vms(vec!["vm-else".to_owned()]),
    };
    story.site.clusters[0].groups = vec![taken.clone()];
    story.pass();
    assert!(story.site.clusters[0].groups.contains(&taken), "{:?}", story.site.clusters[0].groups);
    assert_eq!(story.site.clusters[0].groups.len(), 3);
    // The rule is deleted by hand when no pod requires it any more.
    story.site.clusters[0].rules.clear();
    story.site.pods.clear();
    let plan = story.pass();
    assert!(plan.actions().all(|(_, action)| action.kind == ChangeKind::DeleteGroups));
    assert_eq!(story.site.clusters[0].groups, [taken]);
    assert!(story.owned.is_empty());
}
