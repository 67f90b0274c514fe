//! The memory per pod, including all counts: 150,000 pods on 5000 nodes, with realistic labels and terms. Alone in its
//! process, because it reads the memory of the whole process from the operating system.
#![cfg(target_os = "linux")]

use model::World;
use model::event::{
    Event, HostFacts, Labels, NodeAffinityFacts, NodeFacts, OwnerFacts, PodFacts, SelectorFacts, TermFacts, VcenterId,
    VmFacts, WeightedTermFacts,
};
use uuid::Uuid;

const PODS: usize = 150_000;
const NODES: usize = 5_000;
const HOSTS: usize = 500;
const VCENTER: VcenterId = VcenterId(0);
const BYTES_PER_POD_MAX: usize = 400;

fn nodes(world: &mut World) {
    for number in 0..HOSTS {
        let host = HostFacts { id: format!("host-{number}"), name: format!("esx-{number}"), ..HostFacts::default() };
        world.apply(Event::HostApplied { vcenter: VCENTER, host });
    }
    for number in 0..NODES {
        let (name, uuid) = (format!("node-{number}"), Some(Uuid::from_u128(number as u128 + 1)));
        let host = Some(format!("host-{}", number % HOSTS));
        let vm = VmFacts { id: format!("vm-{number}"), host, bios_uuid: uuid, ..VmFacts::default() };
        world.apply(Event::VmApplied { vcenter: VCENTER, vm });
        let labels = [("kubernetes.io/hostname", name.clone()), ("zone", format!("zone-{}", number % 3))];
        let labels = labels.map(|(key, value)| (key.to_owned(), value)).into();
        world.apply(Event::NodeApplied(NodeFacts { name, labels, system_uuid: uuid, ..NodeFacts::default() }));
    }
}

/// Replicas of 5000 workloads, 30 each, with realistic labels, owner and anti-affinity, required between nodes and
/// preferred between zones; every fifth workload is a StatefulSet, whose pods have individual labels.
fn pod(number: usize) -> Event {
    let workload = number / 30;
    let hash = format!("{:010x}", workload * 0x9e37_79b9);
    let mut labels: Labels = [
        ("app.kubernetes.io/name", format!("service-{workload}")),
        ("app.kubernetes.io/instance", format!("service-{workload}-production")),
        ("app.kubernetes.io/version", format!("1.{}.0", workload % 17)),
        ("tier", "backend".to_owned()),
        ("team", format!("team-{}", workload % 60)),
        ("pod-template-hash", hash.clone()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    let name = format!("service-{workload}-{hash}-{number:05x}");
    if workload.is_multiple_of(5) {
        labels.insert("statefulset.kubernetes.io/pod-name".to_owned(), name.clone());
        labels.insert("apps.kubernetes.io/pod-index".to_owned(), (number % 30).to_string());
    }
    let selector = SelectorFacts {
        labels: [("app.kubernetes.io/name".to_owned(), format!("service-{workload}"))].into(),
        ..SelectorFacts::default()
    };
    Event::PodApplied(PodFacts {
        namespace: format!("namespace-{}", workload % 300),
        name,
        uid: format!("42030201-ab12-7d4c-9a00-{number:012x}"),
        labels,
        node: Some(format!("node-{}", number % NODES)),
        owner: Some(OwnerFacts {
            kind: "ReplicaSet".to_owned(),
            name: format!("service-{workload}-{hash}"),
            uid: format!("42030201-ab12-7d4c-9a01-{workload:012x}"),
        }),
        anti_affinity: vec![term("kubernetes.io/hostname", selector.clone())],
        preferred_anti_affinity: vec![WeightedTermFacts { weight: 100, term: term("zone", selector) }],
        node_affinity: NodeAffinityFacts {
            node_selector: [("kubernetes.io/os".to_owned(), "linux".to_owned())].into(),
            ..NodeAffinityFacts::default()
        },
        ..PodFacts::default()
    })
}

fn term(topology_key: &str, selector: SelectorFacts) -> TermFacts {
    TermFacts { topology_key: topology_key.to_owned(), selector: Some(selector), ..TermFacts::default() }
}

/// The resident memory of this process.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is readable on Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("status contains VmRSS");
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok());
    kilobytes.expect("a number of kilobytes") * 1024
}

#[test]
#[allow(clippy::print_stderr)]
fn a_pod_is_small() {
    let mut world = World::default();
    nodes(&mut world);
    // Exclude start-up and the test harness from the measurement.
    world.apply(pod(0));
    let before = resident_bytes();
    let mut name_bytes = 0;
    for number in 0..PODS {
        let event = pod(number);
        if let Event::PodApplied(facts) = &event {
            name_bytes += facts.name.len();
        }
        world.apply(event);
    }
    let bytes = resident_bytes() - before;
    assert_eq!((world.pod_count(), world.pods_bound_to("node-7").len()), (PODS, PODS / NODES));
    assert_eq!(world.term_count(), 2 * PODS / 30);
    let (all, without_names) = (bytes / PODS, bytes.saturating_sub(name_bytes) / PODS);
    eprintln!("{PODS} pods: {all} bytes each, {without_names} without names");
    assert!(without_names < BYTES_PER_POD_MAX, "{without_names}");
}
