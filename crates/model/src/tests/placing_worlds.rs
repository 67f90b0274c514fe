//! Random histories for placing: a few nodes, VMs, hosts, namespaces and pods that often refer to each other; every
//! kind of term.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use uuid::Uuid;

use crate::event::*;
use crate::{LiftMode, LiftSettings};

pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
pub(super) const HOST_LABEL: &str = "host";
pub(super) const VCENTER: VcenterId = VcenterId(0);
pub(super) const NODES: usize = 4;

fn text(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(of).prop_map(str::to_owned)
}

fn pairs(pairs: Vec<(&str, Option<String>)>) -> Labels {
    pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn node_uuid(number: usize) -> Uuid {
    Uuid::from_u128(number as u128 + 1)
}

fn node() -> impl Strategy<Value = Event> {
    let labels = (
        option::weighted(0.9, text(&["a", "b", "c", "d"])),
        option::weighted(0.8, text(&["z1", "z2"])),
        option::weighted(0.3, text(&["esx-1", "esx-2", "elsewhere"])),
    );
    (0..NODES, labels, prop::bool::weighted(0.8)).prop_map(|(number, (hostname, zone, host), ready)| {
        Event::NodeApplied(NodeFacts {
            name: format!("n{number}"),
            labels: pairs(vec![(HOSTNAME, hostname), ("zone", zone), (HOST_LABEL, host)]),
            system_uuid: Some(node_uuid(number)),
            ready,
            ..NodeFacts::default()
        })
    })
}

fn vm() -> impl Strategy<Value = Event> {
    (0..NODES, option::weighted(0.9, text(&["h1", "h2", "h3"]))).prop_map(|(number, host)| {
        let bios_uuid = Some(node_uuid(number));
        let vm = VmFacts { id: format!("vm-{number}"), host, bios_uuid, powered_on: true, ..VmFacts::default() };
        Event::VmApplied { vcenter: VCENTER, vm }
    })
}

fn host() -> impl Strategy<Value = Event> {
    (text(&["h1", "h2", "h3"]), text(&["esx-1", "esx-2", "esx 3", ""]), prop::bool::weighted(0.2)).prop_map(
        |(id, name, maintenance)| Event::HostApplied {
            vcenter: VCENTER,
            host: HostFacts { id, name, maintenance, ..HostFacts::default() },
        },
    )
}

fn requirement() -> impl Strategy<Value = RequirementFacts> {
    let operator = select(vec![Operator::In, Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist]);
    (text(&["app", "tier"]), operator, vec(text(&["web", "db"]), 1..3))
        .prop_map(|(key, operator, values)| RequirementFacts { key, operator, values })
}

fn selector() -> impl Strategy<Value = Option<SelectorFacts>> {
    let labels = proptest::collection::btree_map(text(&["app", "tier"]), text(&["web", "db"]), 0..2);
    let selector = (labels, vec(requirement(), 0..2));
    option::weighted(0.95, selector.prop_map(|(labels, expressions)| SelectorFacts { labels, expressions }))
}

fn term() -> impl Strategy<Value = TermFacts> {
    let namespaces = prop_oneof![3 => Just(Vec::new()), 1 => vec(text(&["s1", "s2"]), 1..3)];
    let namespace_selector = prop_oneof![3 => Just(None), 1 => selector()];
    let key = prop_oneof![3 => Just(HOSTNAME.to_owned()), 2 => Just("zone".to_owned()), 1 => Just(HOST_LABEL.to_owned()), 1 => Just("never".to_owned())];
    (key, selector(), namespaces, namespace_selector).prop_map(
        |(topology_key, selector, namespaces, namespace_selector)| TermFacts {
            topology_key,
            selector,
            namespaces,
            namespace_selector,
        },
    )
}

/// Mostly few terms, sometimes one term twice.
fn terms() -> impl Strategy<Value = Vec<TermFacts>> {
    prop_oneof![4 => vec(term(), 0..2), 2 => vec(term(), 1..3), 1 => term().prop_map(|term| vec![term.clone(), term])]
}

fn weighted_terms() -> impl Strategy<Value = Vec<WeightedTermFacts>> {
    (terms(), vec(1..5i32, 2)).prop_map(|(terms, weights)| {
        terms.into_iter().zip(weights).map(|(term, weight)| WeightedTermFacts { weight, term }).collect()
    })
}

fn labels() -> impl Strategy<Value = Labels> {
    let value = || option::weighted(0.7, text(&["web", "db"]));
    (value(), value()).prop_map(|(app, tier)| pairs(vec![("app", app), ("tier", tier)]))
}

pub(super) fn pod() -> impl Strategy<Value = PodFacts> {
    let name = (text(&["s1", "s2"]), text(&["p1", "p2", "p3", "p4"]), text(&["u1", "u1", "u1", "u2"]));
    let seldom = || prop::bool::weighted(0.1);
    (
        name,
        labels(),
        option::weighted(0.7, 0..=NODES),
        (terms(), terms()),
        (weighted_terms(), weighted_terms()),
        (seldom(), seldom(), seldom()),
    )
        .prop_map(
            |(
                (namespace, name, uid),
                labels,
                node,
                (affinity, anti_affinity),
                (preferred_affinity, preferred_anti_affinity),
                (finished, terminating, lift_off),
            )| {
                PodFacts {
                    namespace,
                    name,
                    uid,
                    labels,
                    node: node.map(|number| format!("n{number}")),
                    finished,
                    terminating,
                    affinity,
                    anti_affinity,
                    preferred_affinity,
                    preferred_anti_affinity,
                    lift_off,
                    ..PodFacts::default()
                }
            },
        )
}

fn event() -> impl Strategy<Value = Event> {
    let namespace = || text(&["s1", "s2"]);
    let pod_name = || text(&["p1", "p2", "p3", "p4"]);
    prop_oneof![
        12 => pod().prop_map(Event::PodApplied),
        2 => (namespace(), pod_name()).prop_map(|(namespace, name)| Event::PodDeleted { namespace, name }),
        5 => (pod(), 0..=NODES).prop_map(|(pod, node)| Event::PodAssumed { pod: Box::new(pod), node: format!("n{node}") }),
        2 => (namespace(), pod_name(), text(&["u1", "u2"]))
            .prop_map(|(namespace, name, uid)| Event::PodForgotten { namespace, name, uid }),
        6 => node(),
        1 => (0..NODES).prop_map(|number| Event::NodeDeleted { name: format!("n{number}") }),
        4 => vm(),
        1 => (0..NODES).prop_map(|number| Event::VmRemoved { vcenter: VCENTER, id: format!("vm-{number}") }),
        3 => host(),
        1 => text(&["h1", "h2", "h3"]).prop_map(|id| Event::HostRemoved { vcenter: VCENTER, id }),
        3 => (namespace(), labels(), prop::bool::weighted(0.2)).prop_map(|(name, labels, lift_off)| {
            Event::NamespaceApplied(NamespaceFacts { name, labels, lift_off, ..NamespaceFacts::default() })
        }),
        1 => namespace().prop_map(|name| Event::NamespaceDeleted { name }),
        1 => Just(Event::RelistBegan(Source::Pods)),
        1 => Just(Event::RelistEnded(Source::Pods)),
    ]
}

/// Nodes with VMs and hosts, so that placements are known from the start; then random events.
pub(super) fn history() -> impl Strategy<Value = Vec<Event>> {
    (vec(node(), 5), vec(vm(), 3), vec(host(), 2), vec(event(), 0..40))
        .prop_map(|(nodes, vms, hosts, events)| nodes.into_iter().chain(vms).chain(hosts).chain(events).collect())
}

pub(super) fn settings(mode: LiftMode) -> LiftSettings {
    LiftSettings {
        host_key: HOST_LABEL.to_owned(),
        lifted_keys: [HOSTNAME.to_owned()].into(),
        mode,
        ..LiftSettings::default()
    }
}
