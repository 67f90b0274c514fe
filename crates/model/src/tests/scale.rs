//! A cluster of 5000 nodes, to check that no cost is quadratic.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::World;
use crate::event::*;

const NODES: u32 = 5_000;
const HOSTS: u32 = 250;
/// Enough for a debug build on a busy machine; quadratic cost would need minutes.
const TIME_MAX: Duration = Duration::from_secs(3);

fn node(number: u32) -> Event {
    let labels = (0..12).map(|label| (format!("example.com/label-{label}"), format!("value-{}", number % 40)));
    Event::NodeApplied(NodeFacts {
        name: format!("node-{number}"),
        uid: Uuid::from_u128(u128::from(number)).to_string(),
        labels: labels.collect(),
        system_uuid: Some(Uuid::from_u128(u128::from(number) + 1)),
        ip_addresses: vec![std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into()],
        dns_names: vec![format!("node-{number}")],
        ready: true,
        ..NodeFacts::default()
    })
}

fn vm(number: u32, host: u32) -> Event {
    let vm = VmFacts {
        id: format!("vm-{number}"),
        name: format!("node-{number}"),
        host: Some(format!("host-{host}")),
        bios_uuid: Some(Uuid::from_u128(u128::from(number) + 1)),
        // Every guest with a container bridge reports that bridge's address too.
        ip_addresses: vec![
            std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into(),
            std::net::Ipv4Addr::new(172, 17, 0, 1).into(),
        ],
        dns_name: Some(format!("node-{number}")),
        powered_on: true,
        ..VmFacts::default()
    };
    Event::VmApplied { vcenter: VcenterId(0), vm }
}

fn host(number: u32, name: String) -> Event {
    Event::HostApplied {
        vcenter: VcenterId(0),
        host: HostFacts { id: format!("host-{number}"), name, ..HostFacts::default() },
    }
}

#[test]
#[allow(clippy::print_stderr)]
fn five_thousand_nodes_are_matched_in_linear_time() {
    let mut events: Vec<Event> = (0..NODES).map(node).collect();
    events.extend((0..NODES).map(|number| vm(number, number % HOSTS)));
    events.extend((0..HOSTS).map(|number| host(number, format!("esx-{number}"))));

    let started = Instant::now();
    let mut world = World::default();
    for event in events {
        world.apply(event);
    }
    let filled = started.elapsed();
    assert_eq!(world.summary().nodes_placed, NODES as usize);

    let started = Instant::now();
    for number in 0..NODES {
        let touched = world.apply(vm(number, (number + 1) % HOSTS)).touched.clone();
        assert_eq!(touched.nodes().count(), 1, "a move touches one node");
    }
    let moved = started.elapsed();

    assert_eq!(world.apply(host(7, "renamed".to_owned())).touched.nodes().count(), (NODES / HOSTS) as usize);
    eprintln!("{NODES} nodes and VMs: {filled:?} to fill, {moved:?} for as many moves");
    assert!(filled < TIME_MAX && moved < TIME_MAX, "{filled:?} {moved:?}");
}

#[test]
fn an_address_that_all_nodes_share_has_no_quadratic_cost() {
    let started = Instant::now();
    let mut world = World::default();
    let shared = vec![std::net::Ipv4Addr::new(10, 9, 9, 9).into()];
    for number in 0..1_000 {
        let name = format!("node-{number}");
        world.apply(Event::NodeApplied(NodeFacts { name, ip_addresses: shared.clone(), ..NodeFacts::default() }));
        let id = format!("vm-{number}");
        let vm = VmFacts { id, ip_addresses: shared.clone(), ..VmFacts::default() };
        world.apply(Event::VmApplied { vcenter: VcenterId(0), vm });
    }
    let report = world.matches();
    assert_eq!(report.ambiguous, 1_000);
    assert!(started.elapsed() < 5 * TIME_MAX, "{:?}", started.elapsed());
}
