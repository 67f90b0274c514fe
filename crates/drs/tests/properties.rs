//! What holds for any world: random clusters, pods, foreign rules, and random changes of them, planned and carried out.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drs::{ActionKind, DrsSettings, Finding, Owned, Plan, UnixMillis, plan};
use model::event::*;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use support::{FOREIGN_KEYS, HOST_KEY, HOSTNAME, Town, members, node_name, rule, vm_id, world_of};

fn cases() -> u32 {
    if std::env::var("BRIDGER_TEST_COUNTS").is_ok_and(|counts| counts == "full") { 10_000 } else { 400 }
}

fn text(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(of).prop_map(str::to_owned)
}

fn labels() -> impl Strategy<Value = Labels> {
    btree_map(text(&["app", "tier"]), text(&["a", "b", "c"]), 0..3)
}

fn term() -> impl Strategy<Value = TermFacts> {
    let operator = select(vec![Operator::In, Operator::NotIn, Operator::Exists]);
    let requirement = (text(&["app", "tier"]), operator, vec(text(&["a", "b"]), 1..3))
        .prop_map(|(key, operator, values)| RequirementFacts { key, operator, values });
    let selector = option::weighted(
        0.95,
        (labels(), vec(requirement, 0..2)).prop_map(|(labels, expressions)| SelectorFacts { labels, expressions }),
    );
    let namespaces = prop_oneof![3 => Just(vec![]), 1 => Just(vec!["shop".to_owned()])];
    let namespace_selector = prop_oneof![3 => Just(None), 1 => labels().prop_map(|labels| Some(SelectorFacts { labels, expressions: vec![] }))];
    (text(&[HOSTNAME, HOSTNAME, HOST_KEY, "zone"]), selector, namespaces, namespace_selector).prop_map(
        |(topology_key, selector, namespaces, namespace_selector)| TermFacts {
            topology_key,
            selector,
            namespaces,
            namespace_selector,
        },
    )
}

const NODES_MAX: usize = 9;

fn pod() -> impl Strategy<Value = PodFacts> {
    let node = option::weighted(0.9, 0..NODES_MAX + 1);
    let terms = (vec(term(), 0..2), option::weighted(0.15, term()));
    let rarely = || prop::bool::weighted(0.1);
    (text(&["shop", "bank"]), labels(), node, terms, (rarely(), rarely(), rarely())).prop_map(
        |(namespace, labels, node, (anti_affinity, affinity), (finished, terminating, lift_off))| PodFacts {
            namespace,
            labels,
            node: node.map(node_name),
            anti_affinity,
            affinity: affinity.into_iter().collect(),
            finished,
            terminating,
            lift_off,
            ..PodFacts::default()
        },
    )
}

fn pods() -> impl Strategy<Value = Vec<PodFacts>> {
    let workload = (pod(), vec(option::weighted(0.95, 0..NODES_MAX), 1..7)).prop_map(|(pod, nodes)| {
        // Replicas that want to be apart from each other, as most do.
        let own = SelectorFacts { labels: pod.labels.clone(), expressions: vec![] };
        let apart = TermFacts { topology_key: HOSTNAME.to_owned(), selector: Some(own), ..TermFacts::default() };
        let replica = |node: Option<usize>| PodFacts {
            node: node.map(node_name),
            anti_affinity: vec![apart.clone()],
            ..pod.clone()
        };
        nodes.into_iter().map(replica).collect::<Vec<_>>()
    });
    (vec(pod(), 0..8), vec(workload, 0..3)).prop_map(|(singles, workloads)| {
        let mut pods: Vec<PodFacts> = singles.into_iter().chain(workloads.into_iter().flatten()).collect();
        for (number, pod) in pods.iter_mut().enumerate() {
            pod.name = format!("pod-{number}");
            pod.uid = format!("uid-{number}");
        }
        pods
    })
}

/// Rules of somebody else, some named almost like Bridger's.
fn foreign_rules() -> impl Strategy<Value = Vec<RuleFacts>> {
    let vms = vec((0..NODES_MAX).prop_map(vm_id), 2..4);
    let name = text(&["web", "bridger-other", "bridger-42030201-ab12-7d4c-9a00-1c2d3e4f5a6b-0000"]);
    let foreign = (name, vms, 0..3u8, prop::bool::weighted(0.8)).prop_map(|(name, vms, kind, enabled)| {
        let kind = match kind {
            0 => RuleKind::VmsApart(vms),
            1 => RuleKind::VmsTogether(vms),
            _ => RuleKind::VmsOnHosts {
                vm_group: "vms".to_owned(),
                affine_hosts: Some("hosts".to_owned()),
                anti_affine_hosts: None,
            },
        };
        RuleFacts { enabled, mandatory: true, uuid: Some("theirs".to_owned()), ..rule(0, &name, kind) }
    });
    vec(foreign, 0..3).prop_map(|mut rules| {
        for (number, rule) in rules.iter_mut().enumerate() {
            rule.key = FOREIGN_KEYS + number as i32;
            rule.name = format!("{}{number}", rule.name);
        }
        rules
    })
}

fn groups() -> impl Strategy<Value = Vec<GroupFacts>> {
    (vec((0..NODES_MAX).prop_map(vm_id), 0..4), vec((0..5usize).prop_map(|host| format!("host-{host}")), 1..3))
        .prop_map(|(vms, hosts)| {
            let group = |name: &str, kind| GroupFacts { name: name.to_owned(), user_created: true, kind };
            vec![group("vms", GroupKind::Vms(vms)), group("hosts", GroupKind::Hosts(hosts))]
        })
}

fn town() -> impl Strategy<Value = Town> {
    let first = (1..6usize, vec(0..6usize, 1..NODES_MAX - 2));
    let second = option::weighted(0.4, (1..4usize, vec(0..4usize, 0..3)));
    let namespace = (labels(), prop::bool::weighted(0.1)).prop_map(|(labels, lift_off)| NamespaceFacts {
        name: "bank".to_owned(),
        labels,
        lift_off,
        ..NamespaceFacts::default()
    });
    (first, second, pods(), (foreign_rules(), groups()), option::of(namespace)).prop_map(
        |((hosts, nodes), second, pods, (rules, groups), namespace)| {
            let within = |nodes: &[usize], hosts: usize| nodes.iter().map(|host| host % hosts).collect::<Vec<_>>();
            let mut town = Town::new(hosts, &within(&nodes, hosts));
            if let Some((hosts, nodes)) = second {
                town.add_cluster(hosts, &within(&nodes, hosts));
            }
            town.clusters[0].rules = rules;
            town.clusters[0].groups = groups;
            town.pods = pods;
            town.namespaces = namespace.into_iter().collect();
            town
        },
    )
}

/// A change of everything that may change from one pass to the next.
#[derive(Clone, Debug)]
struct Change {
    pods: Vec<PodFacts>,
    /// Node, host.
    moves: Vec<(usize, usize)>,
    maintenance: Vec<usize>,
    seconds: u64,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = (option::of(pods()), vec((0..NODES_MAX, 0..8usize), 0..3), vec(0..8usize, 0..2), 0..1200u64)
        .prop_map(|(pods, moves, maintenance, seconds)| (pods, moves, maintenance, seconds));
    vec(change, 1..4).prop_map(|changes| {
        changes
            .into_iter()
            .map(|(pods, moves, maintenance, seconds)| Change {
                pods: pods.unwrap_or_default(),
                moves,
                maintenance,
                seconds,
            })
            .collect()
    })
}

fn change(town: &mut Town, change: &Change) {
    if !change.pods.is_empty() {
        town.pods.clone_from(&change.pods);
    }
    for &(node, host) in &change.moves {
        if node < town.nodes.len() {
            // A VM stays in its cluster.
            let of = town.nodes[node].map(|host| town.hosts[host].1);
            let hosts: Vec<usize> = (0..town.hosts.len()).filter(|host| Some(town.hosts[*host].1) == of).collect();
            if !hosts.is_empty() {
                town.nodes[node] = Some(hosts[host % hosts.len()]);
            }
        }
    }
    for (number, (host, _)) in town.hosts.iter_mut().enumerate() {
        host.maintenance = change.maintenance.contains(&number);
    }
}

fn at_once() -> DrsSettings {
    DrsSettings {
        removal_grace: Duration::ZERO,
        shrink_hold: Duration::ZERO,
        allow_mass_deletion: true,
        deletions_max: usize::MAX,
        ..DrsSettings::default()
    }
}

fn foreign_names(town: &Town) -> BTreeSet<(String, i32)> {
    let rules = town.clusters.iter().flat_map(|cluster| &cluster.rules);
    rules.filter(|rule| rule.key >= FOREIGN_KEYS).map(|rule| (rule.name.clone(), rule.key)).collect()
}

/// Nobody else's rule is touched, and what is edited or deleted is in the record.
fn check_ownership(town: &Town, owned: &Owned, plan: &Plan) -> Result<(), TestCaseError> {
    let foreign = foreign_names(town);
    for (cluster, action) in plan.actions() {
        prop_assert!(foreign.iter().all(|(name, _)| *name != action.rule));
        if let ActionKind::Edit { key, .. } | ActionKind::Delete { key, .. } = &action.kind {
            prop_assert!(foreign.iter().all(|(_, foreign)| foreign != key));
            prop_assert!(owned.rule(&cluster.cluster, &action.rule).is_some());
        }
        prop_assert!(plan.record.rule(&cluster.cluster, &action.rule).is_some(), "intents come first");
        if !matches!(action.kind, ActionKind::Delete { .. }) {
            prop_assert!(action.vms.len() > 1, "a rule has two members or more");
            prop_assert!(!action.pods.is_empty(), "an action names the pods that cause it: {action:?}");
        }
    }
    Ok(())
}

/// Every pair that is wanted apart is kept apart by an enabled rule, or reported.
fn check_coverage(town: &Town, plan: &Plan, settings: &DrsSettings) -> Result<(), TestCaseError> {
    for (place, cluster) in town.clusters.iter().enumerate() {
        let planned = plan.clusters.iter().find(|planned| planned.cluster.1 == cluster.id).expect("every cluster");
        let uncovered: BTreeSet<(String, String)> = planned.uncovered.iter().cloned().collect();
        prop_assert_eq!(uncovered.len(), planned.uncovered.len());
        let enabled = cluster.rules.iter().filter(|rule| rule.enabled);
        let sets: Vec<BTreeSet<String>> =
            enabled.filter(|rule| matches!(rule.kind, RuleKind::VmsApart(_))).map(members).collect();
        let wanted = town.apart(settings);
        let expected: BTreeSet<(String, String)> = wanted
            .iter()
            .filter(|(of, a, b)| *of == place && !sets.iter().any(|set| set.contains(a) && set.contains(b)))
            .map(|(_, a, b)| (a.clone(), b.clone()))
            .collect();
        prop_assert_eq!(&uncovered, &expected);
        let told = plan.findings.iter().any(|finding| {
            matches!(
                finding,
                Finding::Unsatisfiable { cluster: of, .. } | Finding::JointlyUnsatisfiable { cluster: of, .. }
                    | Finding::Conflict { cluster: of, .. }
                    | Finding::DisabledByAdministrator { cluster: of, .. } if of.1 == cluster.id
            )
        });
        prop_assert!(uncovered.is_empty() || told, "{:?} {:?}", uncovered, plan.findings);
    }
    Ok(())
}

/// No rule of Bridger's parts two VMs that no pair of pods wants apart, and none ties two that are wanted apart.
fn check_need(town: &Town, settings: &DrsSettings) -> Result<(), TestCaseError> {
    let wanted = town.apart(settings);
    for (place, cluster) in town.clusters.iter().enumerate() {
        for rule in cluster.rules.iter().filter(|rule| rule.key < FOREIGN_KEYS) {
            let members = members(rule);
            for a in &members {
                for b in members.iter().filter(|b| a < *b) {
                    let is_wanted = wanted.contains(&(place, a.clone(), b.clone()));
                    let apart = matches!(rule.kind, RuleKind::VmsApart(_));
                    prop_assert_eq!(is_wanted, apart, "{} {} in {:?}", a, b, rule);
                }
            }
        }
    }
    Ok(())
}

fn check_guard(town: &Town, plan: &Plan, settings: &DrsSettings) -> Result<(), TestCaseError> {
    for (cluster, action) in plan.actions().filter(|(_, action)| action.sort == drs::RuleSort::Apart) {
        let hosts = town.hosts.iter().filter(|(host, _)| host.cluster.as_ref() == Some(&cluster.cluster.1)).count();
        let adds = match &action.kind {
            ActionKind::Create => true,
            ActionKind::Edit { added, .. } => !added.is_empty(),
            ActionKind::Delete { .. } | ActionKind::DeleteGroups => false,
        };
        if adds {
            prop_assert!(action.vms.len() + settings.reserve_hosts <= hosts, "{:?}", action);
        }
    }
    Ok(())
}

/// The record without what is being waited for.
fn identities(owned: &Owned) -> Vec<(String, Option<String>)> {
    let rules = owned.clusters.values().flat_map(|rules| rules.iter());
    rules.map(|(name, rule)| (name.clone(), rule.uuid.clone())).collect()
}

fn described(plan: &Plan) -> String {
    let actions: Vec<_> = plan.clusters.iter().map(|cluster| (&cluster.cluster, &cluster.actions)).collect();
    let uncovered: Vec<_> = plan.clusters.iter().map(|cluster| &cluster.uncovered).collect();
    let mut findings: Vec<String> = plan.findings.iter().map(|finding| format!("{finding:?}")).collect();
    findings.sort_unstable();
    format!("{actions:#?} {uncovered:#?} {findings:#?} {:#?}", plan.record)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    /// With no time to wait for, each pass leaves exactly what is wanted, and nothing to do.
    #[test]
    fn each_pass_leaves_what_is_wanted(mut town in town(), changes in changes()) {
        let settings = at_once();
        let mut owned = Owned::default();
        let mut now = UnixMillis(0);
        let foreign = foreign_names(&town);
        for step in std::iter::once(None).chain(changes.iter().map(Some)) {
            if let Some(step) = step {
                change(&mut town, step);
                now.0 += step.seconds * 1000;
            }
            let planned = plan(&town.world(), &owned, now, &settings);
            check_ownership(&town, &owned, &planned)?;
            check_guard(&town, &planned, &settings)?;
            owned = town.carry_out(&planned);
            check_coverage(&town, &planned, &settings)?;
            check_need(&town, &settings)?;
            prop_assert_eq!(&foreign_names(&town), &foreign);
            let again = plan(&town.world(), &owned, now, &settings);
            prop_assert!(again.is_empty(), "{:#?}", again.actions().collect::<Vec<_>>());
            prop_assert_eq!(identities(&again.record), identities(&owned));
            check_coverage(&town, &again, &settings)?;
        }
    }

    /// With times to wait for, nothing is done twice, nothing foreign is touched, and what is wanted is covered or told.
    #[test]
    fn waiting_changes_no_invariant(mut town in town(), changes in changes()) {
        let settings = DrsSettings { deletions_max: 2, ..DrsSettings::default() };
        let mut owned = Owned::default();
        let mut now = UnixMillis(0);
        for step in std::iter::once(None).chain(changes.iter().map(Some)) {
            if let Some(step) = step {
                change(&mut town, step);
                now.0 += step.seconds * 1000;
            }
            let planned = plan(&town.world(), &owned, now, &settings);
            check_ownership(&town, &owned, &planned)?;
            check_guard(&town, &planned, &settings)?;
            owned = town.carry_out(&planned);
            check_coverage(&town, &planned, &settings)?;
            let again = plan(&town.world(), &owned, now, &settings);
            let only_deletions = again.actions().all(|(_, action)| matches!(action.kind, ActionKind::Delete { .. }));
            prop_assert!(only_deletions, "{:#?}", again.actions().collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_order_of_events_does_not_matter(
        (first, events, second) in (town(), changes()).prop_flat_map(|(town, changes)| {
            let mut later = town.clone();
            let settings = at_once();
            let planned = plan(&town.world(), &Owned::default(), UnixMillis(0), &settings);
            later.carry_out(&planned);
            change(&mut later, &changes[0]);
            let events = later.events();
            (Just((planned.record, later)), Just(events).prop_shuffle(), Just(changes))
        })
    ) {
        let (mut record, town) = first;
        for ((_, id), rules) in &mut record.clusters {
            let facts = town.clusters.iter().find(|cluster| cluster.id == *id).expect("a known cluster");
            for (name, rule) in Arc::make_mut(rules) {
                Arc::make_mut(rule).uuid = facts.rules.iter().find(|rule| rule.name == *name).and_then(|rule| rule.uuid.clone());
            }
        }
        let now = UnixMillis(second[0].seconds * 1000);
        let settings = at_once();
        let in_order = plan(&town.world(), &record, now, &settings);
        let shuffled = plan(&world_of(events), &record, now, &settings);
        prop_assert_eq!(described(&in_order), described(&shuffled));
    }
}
