//! How much memory a pod needs: 150,000 of them, with the labels that real ones carry. Alone in its process, because
//! it asks the operating system.
#![cfg(target_os = "linux")]

use model::World;
use model::event::{Event, Labels, OwnerFacts, PinningFacts, PodFacts, SelectorFacts, TermFacts};

const PODS: usize = 150_000;
const BYTES_PER_POD_MAX: usize = 400;

/// Replicas of 5000 workloads, 30 each, with the labels, the owner and the anti-affinity that real ones have; every
/// fifth workload is a StatefulSet, whose pods have labels of their own.
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
        node: Some(format!("node-{}", number % 5_000)),
        owner: Some(OwnerFacts {
            kind: "ReplicaSet".to_owned(),
            name: format!("service-{workload}-{hash}"),
            uid: format!("42030201-ab12-7d4c-9a01-{workload:012x}"),
        }),
        anti_affinity: vec![TermFacts {
            topology_key: "kubernetes.io/hostname".to_owned(),
            selector: Some(selector),
            ..TermFacts::default()
        }],
        pinning: PinningFacts {
            node_selector: [("kubernetes.io/os".to_owned(), "linux".to_owned())].into(),
            ..PinningFacts::default()
        },
        ..PodFacts::default()
    })
}

/// Memory of this process that is really used.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS is among it");
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok());
    kilobytes.expect("a number of kilobytes") * 1024
}

#[test]
#[allow(clippy::print_stderr)]
fn a_pod_is_small() {
    let mut world = World::default();
    // Start-up and the test harness are not the pods' fault.
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
    assert_eq!((world.pod_count(), world.pods_bound_to("node-7").len()), (PODS, PODS / 5_000));
    assert_eq!(world.term_count(), PODS / 30);
    let (all, without_names) = (bytes / PODS, bytes.saturating_sub(name_bytes) / PODS);
    eprintln!("{PODS} pods: {all} bytes each, {without_names} beside their names");
    assert!(without_names < BYTES_PER_POD_MAX, "{without_names}");
}
