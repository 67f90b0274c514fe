//! Example cases, one test each.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::description::settings;
use crate::event::*;
use crate::{ClusterId, Evidence, Match, NodeId, Placement, SourceState, World, differences, wanted};

pub(super) const VCENTER: VcenterId = VcenterId(0);
pub(super) const SMBIOS: &str = "42030201-ab12-7d4c-9a00-1c2d3e4f5a6b";
const SWAPPED: &str = "01020342-12ab-4c7d-9a00-1c2d3e4f5a6b";

pub(super) fn uuid(text: &str) -> Option<Uuid> {
    Some(text.parse().unwrap())
}

pub(super) fn node(name: &str) -> NodeFacts {
    NodeFacts { name: name.to_owned(), uid: format!("uid-of-{name}"), ready: true, ..NodeFacts::default() }
}

pub(super) fn vm(id: &str) -> VmFacts {
    VmFacts { id: id.to_owned(), name: format!("name-of-{id}"), ..VmFacts::default() }
}

pub(super) fn on(host: &str, vm: VmFacts) -> Event {
    Event::VmApplied { vcenter: VCENTER, vm: VmFacts { host: Some(host.to_owned()), ..vm } }
}

pub(super) fn host(id: &str, name: &str) -> HostFacts {
    HostFacts {
        id: id.to_owned(),
        name: name.to_owned(),
        cluster: Some("c-1".to_owned()),
        datacenter: Some("DC0".to_owned()),
        ..HostFacts::default()
    }
}

pub(super) fn host_applied(host: HostFacts) -> Event {
    Event::HostApplied { vcenter: VCENTER, host }
}

fn cluster(name: &str) -> Event {
    let facts = ClusterFacts { id: "c-1".to_owned(), name: name.to_owned(), ..ClusterFacts::default() };
    Event::ClusterApplied { vcenter: VCENTER, cluster: facts }
}

pub(super) fn world_of(events: impl IntoIterator<Item = Event>) -> World {
    let mut world = World::default();
    for event in events {
        world.apply(event);
    }
    world
}

/// One node on esx-1, and a second host it can move to.
fn one_node() -> (World, NodeId) {
    let world = world_of([
        Event::NodeApplied(NodeFacts { system_uuid: uuid(SMBIOS), ..node("n1") }),
        cluster("C1"),
        host_applied(host("host-1", "esx-1")),
        host_applied(host("host-2", "esx-2")),
        on("host-1", VmFacts { bios_uuid: uuid(SMBIOS), ..vm("vm-1") }),
    ]);
    let node = world.node_id("n1").unwrap();
    (world, node)
}

pub(super) fn host_label(world: &World, node: NodeId) -> Option<String> {
    wanted(world, node, &settings()).remove("host")
}

#[test]
fn evidence_is_tried_in_order_of_strength() {
    let full_node = NodeFacts {
        system_uuid: uuid(SMBIOS),
        provider_uuid: uuid(SMBIOS),
        ip_addresses: vec!["10.0.0.1".parse().unwrap()],
        dns_names: vec!["n1.example.com".to_owned()],
        ..node("n1")
    };
    let without_system = NodeFacts { system_uuid: None, provider_uuid: Some(Uuid::from_u128(1)), ..full_node.clone() };
    let by_uuid = |text| VmFacts { bios_uuid: uuid(text), ..vm("") };
    let by_provider = VmFacts { bios_uuid: Some(Uuid::from_u128(1)), ..vm("") };
    let by_ip = VmFacts { ip_addresses: vec!["10.0.0.1".parse().unwrap()], ..vm("") };
    let by_dns = VmFacts { dns_name: Some("N1.Example.Com".to_owned()), ..vm("") };
    let short_dns = VmFacts { dns_name: Some("n1".to_owned()), ..vm("") };
    let template = VmFacts { template: true, ..by_uuid(SMBIOS) };

    // The VMs, and the evidence and indexes of those that match; several if the match is ambiguous.
    type Case = (Vec<VmFacts>, Option<(Evidence, Vec<usize>)>);
    let cases: Vec<Case> = vec![
        (vec![], None),
        (vec![short_dns], None),
        (vec![template.clone()], None),
        (vec![by_uuid(SMBIOS)], Some((Evidence::SystemUuid, vec![0]))),
        (vec![by_uuid(SWAPPED)], Some((Evidence::SystemUuid, vec![0]))),
        (vec![by_uuid(SWAPPED), by_uuid(SMBIOS)], Some((Evidence::SystemUuid, vec![0, 1]))),
        (
            vec![by_dns.clone(), by_ip.clone(), by_provider.clone(), by_uuid(SMBIOS)],
            Some((Evidence::SystemUuid, vec![3])),
        ),
        // A VM with another UUID is another machine.
        (vec![by_provider.clone()], None),
        (vec![VmFacts { bios_uuid: Some(Uuid::from_u128(9)), ..by_ip.clone() }], None),
        (vec![by_dns.clone(), by_ip.clone()], Some((Evidence::IpAddress, vec![1]))),
        // Two match by address: the one that matches by name would be a guess.
        (vec![by_dns.clone(), by_ip.clone(), by_ip.clone()], Some((Evidence::IpAddress, vec![1, 2]))),
        (vec![by_dns.clone(), template], Some((Evidence::DnsName, vec![0]))),
    ];
    let by_its_provider: Case = (vec![by_dns, by_ip, by_provider], Some((Evidence::ProviderId, vec![2])));
    let cases = cases.into_iter().map(|case| (&full_node, case)).chain([(&without_system, by_its_provider)]);
    for (number, (node, (vms, expected))) in cases.enumerate() {
        let mut world = world_of([Event::NodeApplied(node.clone())]);
        for (index, facts) in vms.into_iter().enumerate() {
            // A match must be unique over all vCenters.
            let vcenter = VcenterId(index as u16 % 2);
            world.apply(Event::VmApplied { vcenter, vm: VmFacts { id: format!("vm-{index}"), ..facts } });
        }
        let found = world.match_of(world.node_id("n1").unwrap());
        let index_of = |vm| world.vm(vm).unwrap().1.id.trim_start_matches("vm-").parse::<usize>().unwrap();
        let actual = match found {
            Match::Unmatched => None,
            Match::Matched { vm, by } => Some((by, vec![index_of(vm)])),
            Match::Ambiguous { by, candidates } => Some((by, candidates.into_iter().map(index_of).collect())),
            Match::Contested { .. } | Match::Unconfirmed { .. } => panic!("no other node, no other witness"),
        };
        assert_eq!(actual, expected, "case {number}");
    }
}

#[test]
fn a_vm_claimed_twice_goes_to_the_stronger_claim_or_to_neither() {
    let (mut world, first) = one_node();
    // The VM also has an address, by which a second node claims it.
    let address: std::net::IpAddr = "10.0.0.9".parse().unwrap();
    world.apply(on("host-1", VmFacts { bios_uuid: uuid(SMBIOS), ip_addresses: vec![address], ..vm("vm-1") }));
    let touched =
        world.apply(Event::NodeApplied(NodeFacts { ip_addresses: vec![address], ..node("weak") })).touched.clone();
    let weak = world.node_id("weak").unwrap();
    assert!(touched.contains(weak));
    assert!(matches!(world.match_of(first), Match::Matched { by: Evidence::SystemUuid, .. }));
    assert!(
        matches!(world.match_of(weak), Match::Contested { by: Evidence::IpAddress, rivals, .. } if rivals == [first])
    );
    assert_eq!((host_label(&world, first).as_deref(), host_label(&world, weak)), (Some("esx-1"), None));

    // A clone with the same UUID: it cannot be determined which of the two nodes the VM is.
    let touched =
        world.apply(Event::NodeApplied(NodeFacts { system_uuid: uuid(SWAPPED), ..node("clone") })).touched.clone();
    let clone = world.node_id("clone").unwrap();
    assert!(touched.contains(first) && touched.contains(clone));
    assert!(matches!(world.match_of(first), Match::Contested { rivals, .. } if rivals == [clone]));
    assert!(matches!(world.match_of(clone), Match::Contested { rivals, .. } if rivals == [first]));
    assert!(matches!(world.match_of(weak), Match::Contested { rivals, .. } if rivals == [first, clone]));
    assert_eq!(host_label(&world, first), None);

    let explanation = world.explain_match(clone);
    for named in ["name-of-vm-1 (vm-1)", "system UUID", "n1"] {
        assert!(explanation.contains(named), "{explanation}");
    }

    let touched = world.apply(Event::NodeDeleted { name: "clone".to_owned() }).touched.clone();
    assert_eq!(touched.removed().collect::<Vec<_>>(), [clone]);
    assert!(touched.contains(first));
    assert_eq!(host_label(&world, first).as_deref(), Some("esx-1"));
}

#[test]
fn an_explanation_stays_short() {
    let mut world = world_of([Event::NodeApplied(NodeFacts { system_uuid: uuid(SMBIOS), ..node("n1") })]);
    for number in 0..300 {
        world.apply(on("host-1", VmFacts { bios_uuid: uuid(SMBIOS), ..vm(&format!("vm-{number}")) }));
    }
    let report = world.matches();
    assert_eq!((report.matched(), report.ambiguous, report.problems.len()), (0, 1, 1));
    let explanation = &report.problems[0].explanation;
    assert!(explanation.starts_with("300 VMs have its system UUID: name-of-vm-0 (vm-0), "), "{explanation}");
    assert!(explanation.contains("and 295 more") && explanation.len() < 300, "{explanation}");
}

#[test]
fn the_label_follows_the_vm_and_its_host() {
    let (mut world, node) = one_node();
    let bios_uuid = uuid(SMBIOS);
    let at = |host| on(host, VmFacts { bios_uuid, ..vm("vm-1") });
    let mut maintenance = host("host-2", "esx-2");
    maintenance.maintenance = true;

    let two_words = crate::labels::value::label_value("esx two");
    // The case, the event, whether the node is touched, and the desired host label after it.
    let steps: Vec<(&str, Event, bool, Option<&str>)> = vec![
        ("vMotion", at("host-2"), true, Some("esx-2")),
        ("the same event again", at("host-2"), false, Some("esx-2")),
        ("maintenance", host_applied(maintenance), true, Some("esx-2")),
        ("the other host renamed", host_applied(host("host-1", "esx-one")), false, Some("esx-2")),
        ("its host renamed", host_applied(host("host-2", "esx two")), true, two_words.as_deref()),
        ("its host without a name", host_applied(host("host-2", "")), true, None),
        ("its host removed", Event::HostRemoved { vcenter: VCENTER, id: "host-2".to_owned() }, true, None),
        ("its host back", host_applied(host("host-2", "esx-2")), true, Some("esx-2")),
        ("on an unknown host", at("host-3"), true, None),
        ("which is then added", host_applied(host("host-3", "esx-3")), true, Some("esx-3")),
        ("an unknown VM removed", Event::VmRemoved { vcenter: VCENTER, id: "vm-9".to_owned() }, false, Some("esx-3")),
        (
            "same id in another vCenter",
            Event::VmRemoved { vcenter: VcenterId(1), id: "vm-1".to_owned() },
            false,
            Some("esx-3"),
        ),
        ("the VM deleted", Event::VmRemoved { vcenter: VCENTER, id: "vm-1".to_owned() }, true, None),
    ];
    for (what, event, touches, label) in steps {
        let touched = world.apply(event).touched.clone();
        assert_eq!(touched.contains(node), touches, "{what}");
        assert_eq!(host_label(&world, node).as_deref(), label, "{what}");
    }
    assert_eq!(world.placement(node), Placement::NotMatched);
}

#[test]
fn cluster_and_datacenter_labels_follow_the_host() {
    let (mut world, node) = one_node();
    let names = |world: &World| {
        let mut labels = wanted(world, node, &settings());
        (labels.remove("cluster"), labels.remove("datacenter"))
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(names(&world), (text("C1"), text("DC0")));
    let clusters_with_nodes = |world: &World| -> BTreeSet<ClusterId> {
        world.node_ids().filter_map(|node| world.host_of(node)?.cluster).map(|(cluster, _)| cluster).collect()
    };
    let [cluster_id] = clusters_with_nodes(&world).into_iter().collect::<Vec<_>>()[..] else { panic!("one cluster") };
    assert_eq!(world.cluster(cluster_id).unwrap().1.name, "C1");
    assert_eq!(world.hosts_in(cluster_id).count(), 2);

    assert!(world.apply(cluster("C2")).touched.contains(node));
    assert_eq!(names(&world), (text("C2"), text("DC0")));

    // The host moves to a cluster that is not known yet.
    let moved = HostFacts { cluster: Some("c-2".to_owned()), datacenter: None, ..host("host-1", "esx-1") };
    assert!(world.apply(host_applied(moved)).touched.contains(node));
    assert_eq!(names(&world), (None, None));
    assert!(!world.apply(cluster("C3")).touched.contains(node));
    assert_eq!((clusters_with_nodes(&world).len(), world.hosts_in(cluster_id).count()), (0, 1));

    let other = ClusterFacts {
        id: "c-2".to_owned(),
        name: "Other".to_owned(),
        datacenter: text("DC7"),
        ..ClusterFacts::default()
    };
    assert!(world.apply(Event::ClusterApplied { vcenter: VCENTER, cluster: other }).touched.contains(node));
    assert_eq!(names(&world), (text("Other"), text("DC7")));
    assert!(world.apply(Event::ClusterRemoved { vcenter: VCENTER, id: "c-2".to_owned() }).touched.contains(node));
    assert_eq!(names(&world), (None, None));
}

#[test]
fn differences_are_exactly_the_labels_to_write() {
    let (mut world, node_id) = one_node();
    let labelled = |pairs: &[(&str, &str)]| {
        let labels = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Event::NodeApplied(NodeFacts { system_uuid: uuid(SMBIOS), labels, ..node("n1") })
    };
    let changes = |world: &World| -> Vec<(String, Option<String>, String)> {
        let found = differences(world, node_id, &settings());
        found.into_iter().map(|(key, difference)| (key, difference.from, difference.to)).collect()
    };
    let change = |key: &str, from: Option<&str>, to: &str| (key.to_owned(), from.map(str::to_owned), to.to_owned());

    assert_eq!(changes(&world).len(), 3);
    let touched = world.apply(labelled(&[("host", "esx-9"), ("cluster", "C1"), ("app", "web")])).touched.clone();
    assert!(touched.contains(node_id), "another client changed its labels");
    assert_eq!(changes(&world), [change("datacenter", None, "DC0"), change("host", Some("esx-9"), "esx-1")]);
    assert_eq!(world.label_of(node_id, "host"), Some("esx-9"));
    assert_eq!(world.label_of(node_id, "absent"), None);

    world.apply(labelled(&[("host", "esx-1"), ("cluster", "C1"), ("datacenter", "DC0")]));
    assert_eq!(changes(&world), []);
    // If a value is unknown, the label stays unchanged: it is never emptied or removed.
    world.apply(Event::HostRemoved { vcenter: VCENTER, id: "host-1".to_owned() });
    assert_eq!(changes(&world), []);
    assert!(matches!(world.placement(node_id), Placement::HostUnknown { .. }));
}

#[test]
fn a_relist_removes_missing_objects_when_it_ends() {
    let (mut world, node_id) = one_node();
    let source = Source::Vcenter(VCENTER);
    assert_eq!(world.source(source), SourceState::NeverSynced);
    let on_first_host = || on("host-1", VmFacts { bios_uuid: uuid(SMBIOS), ..vm("vm-1") });

    // An interrupted relist removes nothing, and its objects do not count for the next one.
    for event in [Event::RelistBegan(source), on_first_host(), Event::Lost(source), Event::RelistEnded(source)] {
        assert!(world.apply(event).touched.is_empty());
    }
    assert_eq!(world.source(source), SourceState::NeverSynced);

    for event in [Event::RelistBegan(source), on_first_host(), host_applied(host("host-1", "esx-1")), cluster("C1")] {
        assert!(world.apply(event).touched.is_empty());
    }
    let touched = world.apply(Event::RelistEnded(source)).touched.clone();
    assert_eq!(touched.nodes().count(), 0, "the removed host had no node on it");
    assert!(world.in_sync(source));
    assert_eq!(world.summary().vcenters[&VCENTER], crate::report::VcenterSummary { clusters: 1, hosts: 1, vms: 1 });
    assert_eq!(host_label(&world, node_id).as_deref(), Some("esx-1"));

    for event in [Event::RelistBegan(source), host_applied(host("host-1", "esx-1")), cluster("C1")] {
        assert!(world.apply(event).touched.is_empty());
    }
    assert_eq!(world.source(source), SourceState::Relisting { was_synced: true });
    assert_eq!(host_label(&world, node_id).as_deref(), Some("esx-1"));
    assert!(world.apply(Event::RelistEnded(source)).touched.contains(node_id));
    assert_eq!(world.match_of(node_id), Match::Unmatched);

    // The nodes' own relist.
    world.apply(Event::RelistBegan(Source::Nodes));
    let touched = world.apply(Event::RelistEnded(Source::Nodes)).touched.clone();
    assert_eq!(touched.removed().collect::<Vec<_>>(), [node_id]);
    assert_eq!(
        (world.node_count(), world.node_name(node_id), world.placement(node_id)),
        (0, None, Placement::NotMatched)
    );
}

#[test]
fn pods_are_listed_under_the_node_they_name() {
    let pod = |name: &str, node: Option<&str>| {
        Event::PodApplied(PodFacts {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            node: node.map(str::to_owned),
            ..PodFacts::default()
        })
    };
    let mut world = world_of([pod("a", Some("n1")), pod("b", Some("n1")), pod("c", Some("n1")), pod("d", None)]);
    assert_eq!((world.pod_count(), world.pods_bound_to("n1").len()), (4, 3));

    // The node is added after its pods.
    world.apply(Event::NodeApplied(node("n1")));
    let n1 = world.node_id("n1").unwrap();
    assert_eq!(world.pods_on(n1).len(), 3);

    world.apply(pod("a", Some("n2")));
    world.apply(Event::PodDeleted { namespace: "shop".to_owned(), name: "c".to_owned() });
    world.apply(Event::PodDeleted { namespace: "shop".to_owned(), name: "unknown".to_owned() });
    assert_eq!(world.pods_on(n1), [world.pod_id("shop", "b").unwrap()]);
    assert_eq!(world.pods_bound_to("n2"), [world.pod_id("shop", "a").unwrap()]);
    assert_eq!((world.pod_count(), world.pod_id("other", "a"), world.pods_bound_to("n3").len()), (3, None, 0));

    // The node is removed; its pods stay.
    world.apply(Event::NodeDeleted { name: "n1".to_owned() });
    assert_eq!((world.pods_on(n1).len(), world.pods_bound_to("n1").len()), (0, 1));
}

#[test]
fn kube_system_identifies_the_cluster() {
    let mut world = World::default();
    assert_eq!(world.kubernetes_uid(), None);
    let facts = NamespaceFacts { name: "kube-system".to_owned(), uid: SMBIOS.to_owned(), ..NamespaceFacts::default() };
    world.apply(Event::NamespaceApplied(facts));
    assert_eq!(world.kubernetes_uid().as_deref(), Some(SMBIOS));
}
