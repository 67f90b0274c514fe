//! Random events over few names, so that they collide: the same keys on several VMs and nodes, hosts that arrive late,
//! relists that are interrupted.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use uuid::Uuid;

use crate::event::*;

pub(crate) const NODE_NAMES: [&str; 5] = ["n1", "n2", "n3", "n4", "elsewhere"];

fn uuid() -> impl Strategy<Value = Option<Uuid>> {
    // The second is the first with its leading fields byte-swapped.
    let uuids = ["01020304-0506-0708-090a-0b0c0d0e0f10", "04030201-0605-0807-090a-0b0c0d0e0f10"]
        .map(|text| Some(Uuid::parse_str(text).expect("a UUID")));
    select(vec![None, None, uuids[0], uuids[1], Some(Uuid::from_u128(2)), Some(Uuid::nil()), Some(Uuid::max())])
}

fn ips() -> impl Strategy<Value = Vec<std::net::IpAddr>> {
    let addresses = ["10.0.0.1", "10.0.0.2", "::ffff:10.0.0.2", "127.0.0.1", "fe80::1", "2001:db8::1"];
    vec(select(addresses.to_vec()).prop_map(|text| text.parse().expect("an address")), 0..3)
}

fn dns() -> impl Strategy<Value = String> {
    select(vec!["a", "A", "a.example.com", "b", "localhost", ""]).prop_map(str::to_owned)
}

fn text(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(of).prop_map(str::to_owned)
}

fn labels() -> impl Strategy<Value = Labels> {
    btree_map(text(&["host", "cluster", "app", "tier"]), text(&["esx-1", "C1", "web", "host"]), 0..3)
}

fn node() -> impl Strategy<Value = NodeFacts> {
    let identity = (uuid(), uuid(), ips(), vec(dns(), 0..3));
    (text(&NODE_NAMES[..4]), text(&["u1", "u2"]), labels(), identity, any::<bool>()).prop_map(
        |(name, uid, labels, (system_uuid, provider_uuid, ip_addresses, dns_names), ready)| NodeFacts {
            name,
            uid,
            labels,
            system_uuid,
            provider_uuid,
            ip_addresses,
            dns_names,
            ready,
            scheduling: None,
        },
    )
}

fn requirement() -> impl Strategy<Value = RequirementFacts> {
    let operator = select(vec![Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist, Operator::Gt]);
    // Mostly the most common operator.
    let operator = prop_oneof![3 => Just(Operator::In), 2 => operator];
    (text(&["app", "tier", "host"]), operator, vec(text(&["web", "C1", "host"]), 0..3))
        .prop_map(|(key, operator, values)| RequirementFacts { key, operator, values })
}

fn selector() -> impl Strategy<Value = Option<SelectorFacts>> {
    let labels = btree_map(text(&["app", "tier"]), text(&["web", "C1"]), 0..2);
    option::weighted(0.9, (labels, vec(requirement(), 0..2)))
        .prop_map(|parts| parts.map(|(labels, expressions)| SelectorFacts { labels, expressions }))
}

fn term() -> impl Strategy<Value = TermFacts> {
    let namespaces = prop_oneof![2 => Just(Vec::new()), 1 => vec(text(&["s1", "s2", "s3"]), 1..3)];
    let namespace_selector = prop_oneof![1 => Just(None), 1 => selector()];
    (text(&["host", "zone"]), selector(), namespaces, namespace_selector).prop_map(
        |(topology_key, selector, namespaces, namespace_selector)| TermFacts {
            topology_key,
            selector,
            namespaces,
            namespace_selector,
        },
    )
}

fn node_affinity() -> impl Strategy<Value = NodeAffinityFacts> {
    let node_terms =
        vec(vec(requirement(), 0..2).prop_map(|expressions| NodeTermFacts { expressions, fields: vec![] }), 0..2);
    (labels(), node_terms).prop_map(|(node_selector, node_terms)| NodeAffinityFacts { node_selector, node_terms })
}

/// Owner, affinity, anti-affinity, preferred terms, node_affinity, opt-out.
fn policy() -> impl Strategy<Value = PodFacts> {
    let owner = option::of((text(&["ReplicaSet", "Job"]), text(&["web-1", "web-2"])).prop_map(|(kind, name)| {
        let uid = format!("{kind}-{name}");
        OwnerFacts { kind, name, uid }
    }));
    let required = (vec(term(), 0..3), vec(term(), 0..3));
    let weighted = || vec((1..3i32, term()).prop_map(|(weight, term)| WeightedTermFacts { weight, term }), 0..2);
    (owner, required, (weighted(), weighted()), node_affinity(), any::<bool>()).prop_map(
        |(owner, (affinity, anti_affinity), (preferred_affinity, preferred_anti_affinity), node_affinity, lift_off)| {
            PodFacts {
                owner,
                affinity,
                anti_affinity,
                preferred_affinity,
                preferred_anti_affinity,
                node_affinity,
                lift_off,
                ..PodFacts::default()
            }
        },
    )
}

fn pod() -> impl Strategy<Value = PodFacts> {
    let uid = text(&["u1", "42030201-ab12-7d4c-9a00-1c2d3e4f5a6b"]);
    let node = option::of(text(&NODE_NAMES));
    let name = (text(&["s1", "s2"]), text(&["p1", "p2", "p3"]));
    let finished = prop::bool::weighted(0.2);
    (policy(), name, uid, labels(), node, finished, any::<bool>()).prop_map(
        |(policy, (namespace, name), uid, labels, node, finished, terminating)| PodFacts {
            namespace,
            name,
            uid,
            labels,
            node,
            finished,
            terminating,
            ..policy
        },
    )
}

fn namespace() -> impl Strategy<Value = NamespaceFacts> {
    (text(&["s1", "kube-system"]), text(&["u1", "u2"]), labels(), any::<bool>())
        .prop_map(|(name, uid, labels, lift_off)| NamespaceFacts { name, uid, labels, lift_off })
}

fn vcenter() -> impl Strategy<Value = VcenterId> {
    (0..2u16).prop_map(VcenterId)
}

const VM_IDS: &[&str] = &["vm-1", "vm-2", "vm-3"];
const HOST_IDS: &[&str] = &["host-1", "host-2"];
const CLUSTER_IDS: &[&str] = &["c-1", "c-2"];

fn vm() -> impl Strategy<Value = VmFacts> {
    let seldom = prop::bool::weighted(0.1);
    (text(VM_IDS), option::of(text(HOST_IDS)), uuid(), ips(), option::of(dns()), seldom, any::<bool>()).prop_map(
        |(id, host, bios_uuid, ip_addresses, dns_name, template, powered_on)| VmFacts {
            name: format!("name-of-{id}"),
            id,
            host,
            bios_uuid,
            ip_addresses,
            dns_name,
            template,
            powered_on,
        },
    )
}

fn host() -> impl Strategy<Value = HostFacts> {
    let connection =
        select(vec![HostConnection::Connected, HostConnection::Disconnected, HostConnection::NotResponding]);
    let name = text(&["esx-1", "2001:db8::7", "", "esx 2"]);
    let datacenter = option::of(text(&["DC0", "DC 1"]));
    let load = option::of((0..3_u64, 0..3_u64).prop_map(|(used, capacity)| HostLoadFacts {
        cpu_used_mhz: used * 500,
        cpu_capacity_mhz: capacity * 1000,
        memory_used_mib: 300,
        memory_capacity_mib: 1000,
    }));
    (text(HOST_IDS), name, option::of(text(CLUSTER_IDS)), datacenter, connection, any::<bool>(), load).prop_map(
        |(id, name, cluster, datacenter, connection, maintenance, load)| HostFacts {
            id,
            name,
            cluster,
            datacenter,
            connection,
            maintenance,
            load,
            datastores_missing: Vec::new(),
        },
    )
}

fn cluster() -> impl Strategy<Value = ClusterFacts> {
    (text(CLUSTER_IDS), text(&["C1", "C 2", ""]), option::of(text(&["DC0", "DC2"])), any::<bool>()).prop_map(
        |(id, name, datacenter, drs_enabled)| ClusterFacts {
            id,
            name,
            datacenter,
            drs_enabled,
            ..ClusterFacts::default()
        },
    )
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        Just(Source::Nodes),
        Just(Source::Pods),
        Just(Source::Namespaces),
        vcenter().prop_map(Source::Vcenter),
        vcenter().prop_map(Source::Vcenter),
    ]
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => source().prop_map(Event::RelistBegan),
        2 => source().prop_map(Event::RelistEnded),
        1 => source().prop_map(Event::Lost),
        1 => (vcenter(), select(vec!["i-1", "i-2"]))
            .prop_map(|(vcenter, uuid)| Event::VcenterIdentified { vcenter, instance_uuid: uuid.into() }),
        8 => node().prop_map(Event::NodeApplied),
        2 => text(&NODE_NAMES).prop_map(|name| Event::NodeDeleted { name }),
        4 => pod().prop_map(Event::PodApplied),
        1 => (text(&["s1", "s2"]), text(&["p1", "p2", "p4"]))
            .prop_map(|(namespace, name)| Event::PodDeleted { namespace, name }),
        1 => (pod(), text(&NODE_NAMES)).prop_map(|(pod, node)| Event::PodAssumed { pod: Box::new(pod), node }),
        1 => (text(&["s1", "s2"]), text(&["p1", "p2", "p3"]), text(&["u1", "u2"]))
            .prop_map(|(namespace, name, uid)| Event::PodForgotten { namespace, name, uid }),
        2 => namespace().prop_map(Event::NamespaceApplied),
        1 => text(&["s1", "kube-system", "s3"]).prop_map(|name| Event::NamespaceDeleted { name }),
        12 => (vcenter(), vm()).prop_map(|(vcenter, vm)| Event::VmApplied { vcenter, vm }),
        2 => (vcenter(), text(VM_IDS)).prop_map(|(vcenter, id)| Event::VmRemoved { vcenter, id }),
        8 => (vcenter(), host()).prop_map(|(vcenter, host)| Event::HostApplied { vcenter, host }),
        1 => (vcenter(), text(HOST_IDS)).prop_map(|(vcenter, id)| Event::HostRemoved { vcenter, id }),
        5 => (vcenter(), cluster()).prop_map(|(vcenter, cluster)| Event::ClusterApplied { vcenter, cluster }),
        1 => (vcenter(), text(CLUSTER_IDS)).prop_map(|(vcenter, id)| Event::ClusterRemoved { vcenter, id }),
    ]
}

/// Events of pods and namespaces only.
pub(crate) fn policy_events() -> impl Strategy<Value = Vec<Event>> {
    let source = || prop_oneof![Just(Source::Pods), Just(Source::Namespaces)];
    let event = prop_oneof![
        1 => source().prop_map(Event::RelistBegan),
        1 => source().prop_map(Event::RelistEnded),
        12 => pod().prop_map(Event::PodApplied),
        3 => (text(&["s1", "s2"]), text(&["p1", "p2", "p3"]))
            .prop_map(|(namespace, name)| Event::PodDeleted { namespace, name }),
        2 => (pod(), text(&NODE_NAMES)).prop_map(|(pod, node)| Event::PodAssumed { pod: Box::new(pod), node }),
        1 => (text(&["s1", "s2"]), text(&["p1", "p2", "p3"]), text(&["u1", "u2"]))
            .prop_map(|(namespace, name, uid)| Event::PodForgotten { namespace, name, uid }),
        6 => (text(&["s1", "s2", "s3"]), labels())
            .prop_map(|(name, labels)| Event::NamespaceApplied(NamespaceFacts { name, labels, ..NamespaceFacts::default() })),
        2 => text(&["s1", "s2", "s3"]).prop_map(|name| Event::NamespaceDeleted { name }),
    ];
    vec(event, 0..40)
}

pub(crate) fn events() -> impl Strategy<Value = Vec<Event>> {
    vec(event(), 0..100)
}
