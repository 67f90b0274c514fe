//! Random sites and random changes of them.

use std::collections::BTreeMap;
use std::time::Duration;

use drs::DrsSettings;
use model::event::*;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{Doubt, FOREIGN_KEYS, HOST_KEY, HOSTNAME, Site, node_name, rule, vm_id};

pub fn cases() -> u32 {
    if std::env::var("BRIDGER_TEST_COUNTS").is_ok_and(|counts| counts == "full") { 10_000 } else { 400 }
}

pub fn text(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(of).prop_map(str::to_owned)
}

pub fn labels() -> impl Strategy<Value = Labels> {
    btree_map(text(&["app", "tier"]), text(&["a", "b", "c"]), 0..3)
}

pub fn term() -> impl Strategy<Value = TermFacts> {
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

pub const NODES_MAX: usize = 9;

pub fn pod() -> impl Strategy<Value = PodFacts> {
    let node = option::weighted(0.9, 0..NODES_MAX + 1);
    let terms = (vec(term(), 0..2), option::weighted(0.15, term()));
    let rarely = || prop::bool::weighted(0.1);
    let extras = (rarely(), rarely(), rarely(), option::weighted(0.2, node_affinity()), option::weighted(0.1, 1..3u32));
    (text(&["shop", "bank"]), labels(), node, terms, extras).prop_map(
        |(namespace, labels, node, (anti_affinity, affinity), extras)| {
            let (finished, terminating, lift_off, node_affinity, preferred_terms) = extras;
            PodFacts {
                namespace,
                labels,
                node: node.map(node_name),
                anti_affinity,
                affinity: affinity.into_iter().collect(),
                finished,
                terminating,
                lift_off,
                node_affinity: node_affinity.unwrap_or_default(),
                preferred_affinity: vec![WeightedTermFacts::default(); preferred_terms.unwrap_or_default() as usize],
                ..PodFacts::default()
            }
        },
    )
}

/// Which hosts a pod accepts: mostly by the host label, in every supported form.
pub fn node_affinity() -> impl Strategy<Value = NodeAffinityFacts> {
    let hosts = || vec((0..6usize).prop_map(|host| format!("esx-{host}")), 1..4);
    let operator = select(vec![Operator::In, Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist]);
    let expression =
        (text(&[HOST_KEY, HOST_KEY, "zone"]), operator, hosts()).prop_map(|(key, operator, values)| match operator {
            Operator::Exists | Operator::DoesNotExist => RequirementFacts { key, operator, values: vec![] },
            _ => RequirementFacts { key, operator, values },
        });
    let field = vec((0..NODES_MAX).prop_map(node_name), 1..=1).prop_map(|values| RequirementFacts {
        key: "metadata.name".to_owned(),
        operator: Operator::In,
        values,
    });
    let term = (vec(expression, 0..3), option::weighted(0.2, field))
        .prop_map(|(expressions, field)| NodeTermFacts { expressions, fields: field.into_iter().collect() });
    let selector = option::weighted(0.3, (text(&[HOST_KEY, "zone"]), text(&["esx-0", "esx-1"])));
    (selector, vec(term, 0..3)).prop_map(|(selector, node_terms)| NodeAffinityFacts {
        node_selector: selector.into_iter().collect(),
        node_terms,
    })
}

pub fn pods() -> impl Strategy<Value = Vec<PodFacts>> {
    let workload = (pod(), vec(option::weighted(0.95, 0..NODES_MAX), 1..7)).prop_map(|(pod, nodes)| {
        // Replicas with anti-affinity to each other, which is the common case.
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

/// The groups that foreign rules name: some are empty, one does not exist.
const VM_GROUPS: &[&str] = &["vms", "vms", "more-vms", "no-vms", "gone"];
const HOST_GROUPS: &[&str] = &["hosts", "hosts", "more-hosts", "no-hosts", "gone"];

/// Every type of rule that vSphere has, including those that Bridger never creates.
fn foreign_kind() -> impl Strategy<Value = RuleKind> {
    let vms = || vec((0..NODES_MAX + 2).prop_map(vm_id), 0..5);
    let vm_host = |affine: bool, anti_affine: bool| {
        (text(VM_GROUPS), text(HOST_GROUPS), text(HOST_GROUPS)).prop_map(move |(vm_group, hosts, others)| {
            RuleKind::VmHost {
                vm_group,
                affine_hosts: affine.then_some(hosts),
                anti_affine_hosts: anti_affine.then_some(others),
            }
        })
    };
    prop_oneof![
        3 => vms().prop_map(RuleKind::VmAntiAffinity),
        3 => vms().prop_map(RuleKind::VmAffinity),
        2 => vm_host(true, false),
        2 => vm_host(false, true),
        // vSphere's own clients create neither of these; its API does not forbid them.
        1 => vm_host(true, true),
        1 => vm_host(false, false),
        1 => (text(VM_GROUPS), text(VM_GROUPS))
            .prop_map(|(vm_group, depends_on)| RuleKind::Dependency { vm_group, depends_on }),
        1 => Just(RuleKind::Other("ClusterSomethingNewInfo".to_owned())),
    ]
}

/// Rules of other clients, some with names similar to Bridger's.
pub fn foreign_rules() -> impl Strategy<Value = Vec<RuleFacts>> {
    let name = text(&["web", "bridger-other", "bridger-42030201-ab12-7d4c-9a00-1c2d3e4f5a6b-0000"]);
    let flags = (prop::bool::weighted(0.8), prop::bool::weighted(0.7), prop::bool::weighted(0.9));
    let foreign = (name, foreign_kind(), flags).prop_map(|(name, kind, (enabled, mandatory, user_created))| {
        RuleFacts { enabled, mandatory, user_created, uuid: Some("theirs".to_owned()), ..rule(0, &name, kind) }
    });
    vec(foreign, 0..4).prop_map(|mut rules| {
        for (number, rule) in rules.iter_mut().enumerate() {
            rule.key = FOREIGN_KEYS + number as i32;
            rule.name = format!("{}{number}", rule.name);
        }
        rules
    })
}

pub fn groups() -> impl Strategy<Value = Vec<GroupFacts>> {
    let vms = || vec((0..NODES_MAX + 2).prop_map(vm_id), 0..5);
    let hosts = || vec((0..6usize).prop_map(|host| format!("host-{host}")), 1..4);
    (vms(), vms(), hosts(), hosts()).prop_map(|(vms, more_vms, hosts, more_hosts)| {
        let group = |name: &str, kind| GroupFacts { name: name.to_owned(), user_created: true, kind };
        vec![
            group("vms", GroupKind::Vms(vms)),
            group("more-vms", GroupKind::Vms(more_vms)),
            group("no-vms", GroupKind::Vms(Vec::new())),
            group("hosts", GroupKind::Hosts(hosts)),
            group("more-hosts", GroupKind::Hosts(more_hosts)),
            group("no-hosts", GroupKind::Hosts(Vec::new())),
        ]
    })
}

pub fn namespace(name: &'static str) -> impl Strategy<Value = NamespaceFacts> {
    (labels(), prop::bool::weighted(0.1), any::<bool>()).prop_map(move |(mut labels, lift_off, has_cluster_rules)| {
        if has_cluster_rules {
            labels.extend(super::labelled(name, "cluster").labels);
        }
        NamespaceFacts { name: name.to_owned(), labels, lift_off, ..NamespaceFacts::default() }
    })
}

pub fn site() -> impl Strategy<Value = Site> {
    let first = (1..6usize, vec(0..6usize, 1..NODES_MAX - 2));
    let second = option::weighted(0.4, (1..4usize, vec(0..4usize, 0..3)));
    let namespaces = (option::of(namespace("bank")), option::of(namespace("shop")));
    (first, second, pods(), (foreign_rules(), groups()), namespaces).prop_map(
        |((hosts, nodes), second, pods, (rules, groups), (bank, shop))| {
            let within = |nodes: &[usize], hosts: usize| nodes.iter().map(|host| host % hosts).collect::<Vec<_>>();
            let mut site = Site::new(hosts, &within(&nodes, hosts));
            if let Some((hosts, nodes)) = second {
                site.add_cluster(hosts, &within(&nodes, hosts));
            }
            site.clusters[0].rules = rules;
            site.clusters[0].groups = groups;
            site.pods = pods;
            site.namespaces = bank.into_iter().chain(shop).collect();
            site
        },
    )
}

/// A change of everything that may change from one pass to the next.
#[derive(Clone, Debug)]
pub struct Change {
    pub pods: Vec<PodFacts>,
    /// Pairs of node and host.
    pub moves: Vec<(usize, usize)>,
    pub maintenance: Vec<usize>,
    /// An administrator creates a rule that uses one of the existing groups, possibly Bridger's.
    pub borrows: Option<usize>,
    pub seconds: u64,
}

pub fn changes() -> impl Strategy<Value = Vec<Change>> {
    let moves = vec((0..NODES_MAX, 0..8usize), 0..3);
    let borrows = option::weighted(0.2, 0..20usize);
    let change = (option::of(pods()), moves, vec(0..8usize, 0..2), borrows, 0..1200u64).prop_map(
        |(pods, moves, maintenance, borrows, seconds)| Change {
            pods: pods.unwrap_or_default(),
            moves,
            maintenance,
            borrows,
            seconds,
        },
    );
    vec(change, 1..4)
}

/// Adds a rule of another client that uses the groups of an existing rule.
fn borrow(cluster: &mut ClusterFacts, number: usize) {
    let kinds = cluster.rules.iter().map(|rule| &rule.kind).filter(|kind| kind.groups().next().is_some());
    let kinds: Vec<RuleKind> = kinds.cloned().collect();
    if let Some(kind) = kinds.get(number % kinds.len().max(1)) {
        let key = cluster.rules.iter().map(|rule| rule.key).max().unwrap_or(0).max(FOREIGN_KEYS) + 1;
        let uuid = Some("theirs".to_owned());
        // A "should" rule limits nothing: only its use of the groups matters here.
        cluster.rules.push(RuleFacts { uuid, ..rule(key, &format!("borrows-{key}"), kind.clone()) });
    }
}

pub fn change(site: &mut Site, change: &Change) {
    if !change.pods.is_empty() {
        site.pods.clone_from(&change.pods);
    }
    for &(node, host) in &change.moves {
        if node < site.nodes.len() {
            // A VM stays in its cluster.
            let of = site.nodes[node].map(|host| site.hosts[host].1);
            let hosts: Vec<usize> = (0..site.hosts.len()).filter(|host| Some(site.hosts[*host].1) == of).collect();
            if !hosts.is_empty() {
                site.nodes[node] = Some(hosts[host % hosts.len()]);
            }
        }
    }
    if let Some(number) = change.borrows {
        borrow(&mut site.clusters[0], number);
    }
    for (number, (host, _)) in site.hosts.iter_mut().enumerate() {
        host.maintenance = change.maintenance.contains(&number);
    }
}

/// Nodes that become uncertain.
pub fn doubts() -> impl Strategy<Value = BTreeMap<usize, Doubt>> {
    btree_map(0..NODES_MAX, select(vec![Doubt::Ambiguous, Doubt::Contested, Doubt::Unconfirmed]), 1..4)
}

pub fn at_once() -> DrsSettings {
    DrsSettings {
        removal_grace: Duration::ZERO,
        shrink_hold: Duration::ZERO,
        allow_mass_deletion: true,
        deletions_max: usize::MAX,
        ..DrsSettings::default()
    }
}
