//! Which VM a node is when something speaks against it: contradicting UUIDs, copies, impostors, vCenters not yet read.

use uuid::Uuid;

use super::situations::{SMBIOS, VCENTER, host, host_applied, host_label, node, on, uuid, vm, world_of};
use crate::event::*;
use crate::{Evidence, Match, NodeId, Placement, World};

const OTHER: VcenterId = VcenterId(1);

fn running(id: &str) -> VmFacts {
    VmFacts { powered_on: true, bios_uuid: uuid(SMBIOS), ..vm(id) }
}

fn addressed(address: &str, name: &str, vm: VmFacts) -> VmFacts {
    VmFacts { ip_addresses: vec![address.parse().unwrap()], dns_name: Some(name.to_owned()), ..vm }
}

/// A node with the UUID of [`running`].
fn own_node(name: &str, address: &str) -> NodeFacts {
    NodeFacts {
        system_uuid: uuid(SMBIOS),
        ip_addresses: vec![address.parse().unwrap()],
        dns_names: vec![name.to_owned()],
        ..node(name)
    }
}

fn hosts() -> [Event; 2] {
    [host_applied(host("host-1", "esx-1")), host_applied(host("host-2", "esx-2"))]
}

fn id(world: &World, name: &str) -> NodeId {
    world.node_id(name).unwrap()
}

fn vm_of(world: &World, name: &str) -> Option<String> {
    match world.match_of(id(world, name)) {
        Match::Matched { vm, .. } => Some(world.vm(vm).unwrap().1.id.clone()),
        _ => None,
    }
}

/// The VMs that an uncertain node may be.
fn candidates(world: &World, name: &str) -> Vec<String> {
    let all = world.candidates(id(world, name), std::iter::empty());
    all.map(|vm| world.vm(vm).unwrap().1.id.clone()).collect()
}

/// The VM that rules use, and whether its host is known.
fn placed_vm(world: &World, name: &str) -> Option<(String, bool)> {
    let (vm, known) = match world.placement(id(world, name)) {
        Placement::On { vm, .. } => (vm, true),
        Placement::HostUnknown { vm } => (vm, false),
        Placement::NotMatched => return None,
    };
    Some((world.vm(vm).unwrap().1.id.clone(), known))
}

#[test]
fn number_3_a_vm_with_another_uuid_is_never_the_node_whatever_its_address_and_name() {
    let stranger = VmFacts { bios_uuid: Some(Uuid::from_u128(5)), ..running("vm-9") };
    let world = world_of(hosts().into_iter().chain([
        Event::NodeApplied(own_node("n1", "10.0.0.1")),
        on("host-1", addressed("10.0.0.1", "n1", stranger.clone())),
    ]));
    assert_eq!(world.match_of(id(&world, "n1")), Match::Unmatched);
    assert_eq!((host_label(&world, id(&world, "n1")), placed_vm(&world, "n1")), (None, None));
    // A VM whose UUID is unknown may be it.
    let unknown = VmFacts { bios_uuid: None, ..stranger };
    let world =
        world_of(hosts().into_iter().chain([
            Event::NodeApplied(own_node("n1", "10.0.0.1")),
            on("host-1", addressed("10.0.0.1", "n1", unknown)),
        ]));
    assert_eq!(vm_of(&world, "n1").as_deref(), Some("vm-9"));
}

#[test]
fn number_3_addresses_and_names_wait_until_every_vcenter_was_read_or_is_down() {
    let by_address = |answer: Event| {
        let mut world = World::default();
        world.expect_vcenters([VCENTER, OTHER]);
        let facts = NodeFacts { system_uuid: None, ..own_node("n1", "10.0.0.1") };
        let without_uuid = VmFacts { bios_uuid: None, ..running("vm-1") };
        let events = [
            Event::NodeApplied(facts),
            Event::RelistBegan(Source::Vcenter(VCENTER)),
            on("host-1", addressed("10.0.0.1", "x", without_uuid)),
            Event::RelistEnded(Source::Vcenter(VCENTER)),
        ];
        for event in events {
            world.apply(event);
        }
        assert_eq!(vm_of(&world, "n1"), None);
        let touched = world.apply(answer).touched.clone();
        (vm_of(&world, "n1"), touched.contains(id(&world, "n1")))
    };
    let found = (Some("vm-1".to_owned()), true);
    assert_eq!(by_address(Event::Lost(Source::Vcenter(OTHER))), found);
    assert_eq!(by_address(Event::RelistBegan(Source::Vcenter(OTHER))), (None, false));
    // UUIDs do not wait.
    let mut world = World::default();
    world.expect_vcenters([VCENTER, OTHER]);
    world.apply(Event::NodeApplied(own_node("n1", "10.0.0.1")));
    world.apply(on("host-1", running("vm-1")));
    assert_eq!(vm_of(&world, "n1").as_deref(), Some("vm-1"));
}

#[test]
fn number_4_a_powered_off_copy_changes_nothing() {
    let copy = VmFacts { powered_on: false, ..running("vm-2") };
    let mut world = world_of(
        hosts().into_iter().chain([Event::NodeApplied(own_node("n1", "10.0.0.1")), on("host-1", running("vm-1"))]),
    );
    let before = world.match_of(id(&world, "n1"));
    world.apply(on("host-2", copy.clone()));
    assert_eq!(world.match_of(id(&world, "n1")), before);
    assert_eq!(host_label(&world, id(&world, "n1")).as_deref(), Some("esx-1"));
    // Also when the copy was known first.
    let world = world_of(hosts().into_iter().chain([
        on("host-2", copy),
        on("host-1", running("vm-1")),
        Event::NodeApplied(own_node("n1", "10.0.0.1")),
    ]));
    assert_eq!(vm_of(&world, "n1").as_deref(), Some("vm-1"));
}

#[test]
fn number_4_while_the_vm_is_ambiguous_labels_and_rules_stay() {
    let mut world = world_of(
        hosts().into_iter().chain([Event::NodeApplied(own_node("n1", "10.0.0.1")), on("host-1", running("vm-1"))]),
    );
    assert_eq!(placed_vm(&world, "n1"), Some(("vm-1".to_owned(), true)));
    world.apply(on("host-2", running("vm-2")));
    assert!(matches!(world.match_of(id(&world, "n1")), Match::Ambiguous { .. }));
    assert_eq!(host_label(&world, id(&world, "n1")), None, "not written");
    assert_eq!(placed_vm(&world, "n1"), None);
    assert!(world.is_uncertain(id(&world, "n1")));
    assert_eq!(candidates(&world, "n1"), ["vm-1", "vm-2"], "rules keep those of them that they have");
    assert_eq!(world.matches().ambiguous, 1, "reported");
    // The copy is stopped: it is certain again.
    world.apply(on("host-2", VmFacts { powered_on: false, ..running("vm-2") }));
    assert_eq!(placed_vm(&world, "n1"), Some(("vm-1".to_owned(), true)));
    assert!(!world.is_uncertain(id(&world, "n1")) && candidates(&world, "n1").is_empty());
    // Its VM is deleted while it is ambiguous between two others.
    world.apply(on("host-2", running("vm-2")));
    world.apply(on("host-2", running("vm-3")));
    world.apply(Event::VmRemoved { vcenter: VCENTER, id: "vm-1".to_owned() });
    assert_eq!(candidates(&world, "n1"), ["vm-2", "vm-3"]);
}

#[test]
fn number_4_while_the_vm_is_contested_each_of_the_nodes_may_be_it() {
    // Whichever is known first, also after a restart.
    for names in [["n1", "impostor"], ["impostor", "n1"]] {
        let mut world = world_of(hosts().into_iter().chain([on("host-1", running("vm-1"))]));
        names.into_iter().for_each(|name| drop(world.apply(Event::NodeApplied(own_node(name, "10.0.0.1")))));
        assert!(matches!(world.match_of(id(&world, "n1")), Match::Contested { .. }));
        for name in names {
            assert_eq!((placed_vm(&world, name), candidates(&world, name)), (None, vec!["vm-1".to_owned()]));
        }
        world.apply(Event::NodeDeleted { name: "impostor".to_owned() });
        assert_eq!(placed_vm(&world, "n1"), Some(("vm-1".to_owned(), true)));
    }
}

#[test]
fn number_5_a_claimed_system_uuid_needs_a_second_witness_where_there_is_one() {
    let provider = |uuid: u128| Some(Uuid::from_u128(uuid));
    let own = own_node("n1", "10.0.0.1");
    let silent = NodeFacts { ip_addresses: vec![], dns_names: vec![], ..own.clone() };
    let real_uuid = uuid(SMBIOS);
    let cases = [
        ("nothing to compare", silent.clone(), running("vm-1"), true),
        ("Tools do not run", own.clone(), running("vm-1"), true),
        ("the address agrees", own.clone(), addressed("10.0.0.1", "other", running("vm-1")), true),
        ("the name agrees", own.clone(), addressed("10.0.0.9", "n1", running("vm-1")), true),
        ("the name without domain agrees", own.clone(), addressed("10.0.0.9", "n1.example.com", running("vm-1")), true),
        ("nothing agrees", own.clone(), addressed("10.0.0.9", "other", running("vm-1")), false),
        ("the provider ID agrees", NodeFacts { provider_uuid: real_uuid, ..silent.clone() }, running("vm-1"), true),
        ("the provider ID differs", NodeFacts { provider_uuid: provider(3), ..silent }, running("vm-1"), false),
        (
            "the provider ID differs, the address agrees",
            NodeFacts { provider_uuid: provider(3), ..own },
            addressed("10.0.0.1", "n1", running("vm-1")),
            false,
        ),
    ];
    for (what, node, vm, is_confirmed) in cases {
        let world = world_of([Event::NodeApplied(node), on("host-1", vm)]);
        let found = world.match_of(id(&world, "n1"));
        let by = Evidence::SystemUuid;
        let as_expected = match found {
            Match::Matched { by: found, .. } => is_confirmed && found == by,
            Match::Unconfirmed { by: found, .. } => !is_confirmed && found == by,
            _ => false,
        };
        assert!(as_expected, "{what}: {found:?}");
        assert_eq!(world.matches().unconfirmed, usize::from(!is_confirmed), "{what}");
    }
}

#[test]
fn number_5_an_unconfirmed_claim_takes_nothing_from_the_real_node() {
    let world = world_of(hosts().into_iter().chain([
        Event::NodeApplied(own_node("n1", "10.0.0.1")),
        Event::NodeApplied(own_node("impostor", "10.0.0.66")),
        on("host-1", addressed("10.0.0.1", "n1", running("vm-1"))),
    ]));
    assert_eq!(vm_of(&world, "n1").as_deref(), Some("vm-1"));
    assert!(matches!(world.match_of(id(&world, "impostor")), Match::Unconfirmed { .. }));
    assert_eq!(placed_vm(&world, "impostor"), None);
}

#[test]
fn number_5_a_vm_without_configuration_keeps_its_uuid() {
    let mut world = world_of(hosts().into_iter().chain([
        Event::NodeApplied(own_node("n1", "10.0.0.1")),
        on("host-1", running("vm-1")),
        // The host does not respond: vCenter has no configuration of the VM.
        on("host-1", VmFacts { bios_uuid: None, ..running("vm-1") }),
    ]));
    assert_eq!(vm_of(&world, "n1").as_deref(), Some("vm-1"));
    world.apply(on("host-1", VmFacts { bios_uuid: Some(Uuid::from_u128(8)), ..running("vm-1") }));
    assert_eq!(vm_of(&world, "n1"), None);
}

#[test]
fn number_5_hosts_of_one_name_in_two_vcenters_have_different_labels() {
    let identified = |vcenter, uuid: &str| Event::VcenterIdentified { vcenter, instance_uuid: uuid.into() };
    let in_other = |event: Event| match event {
        Event::HostApplied { host, .. } => Event::HostApplied { vcenter: OTHER, host },
        Event::VmApplied { vm, .. } => Event::VmApplied { vcenter: OTHER, vm },
        other => other,
    };
    let second = NodeFacts { system_uuid: Some(Uuid::from_u128(2)), ..node("n2") };
    let mut world = world_of([
        identified(VCENTER, "i-1"),
        identified(OTHER, "i-2"),
        Event::NodeApplied(NodeFacts { system_uuid: uuid(SMBIOS), ..node("n1") }),
        Event::NodeApplied(second),
        host_applied(host("host-1", "esx-1")),
        on("host-1", running("vm-1")),
        in_other(on("host-1", VmFacts { bios_uuid: Some(Uuid::from_u128(2)), ..running("vm-1") })),
    ]);
    let labels = |world: &World| ["n1", "n2"].map(|name| host_label(world, id(world, name)));
    assert_eq!(labels(&world), [Some("esx-1".to_owned()), None]);
    let touched = world.apply(in_other(host_applied(host("host-1", "esx-1")))).touched.clone();
    assert!(touched.contains(id(&world, "n1")), "its label changes although its host does not");
    let [one, two] = labels(&world).map(Option::unwrap);
    assert!(one != two && one.starts_with("esx-1-") && two.starts_with("esx-1-"), "{one} {two}");
    world.apply(in_other(host_applied(host("host-1", "esx-7"))));
    assert_eq!(labels(&world), [Some("esx-1".to_owned()), Some("esx-7".to_owned())]);
}
