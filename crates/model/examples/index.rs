//! Measures how long the index takes to answer for an incoming pod, and how much memory it needs.
//!
//! `cargo run --profile dist -p model --example index`: 5000 nodes on 500 hosts in 10 zones; 1,000, 30,000 and 150,000
//! pods that carry anti-affinity. Prints per kind of pod the 50th and 99th percentile of verdicts and scores of all
//! nodes.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use model::event::*;
use model::testing::{self, HOSTNAME, VCENTER, term};
use model::{Incoming, NodeId, Reading, ScoreSettings, View, World};
use uuid::Uuid;

const NODES: usize = 5_000;
const HOSTS: usize = 500;
const ZONES: usize = 10;
const REPLICAS: usize = 30;
const ROUNDS: usize = 500;
const ZONE: &str = "topology.kubernetes.io/zone";

fn pairs<const N: usize>(pairs: [(&str, String); N]) -> Labels {
    pairs.map(|(key, value)| (key.to_owned(), value)).into()
}

fn fill_nodes(world: &mut World) {
    for number in 0..HOSTS {
        world.apply(testing::host_applied(testing::host(number)));
    }
    for number in 0..NODES {
        world.apply(testing::vm_applied(testing::vm(number, number % HOSTS)));
        let labels = pairs([(HOSTNAME, format!("node-{number}")), (ZONE, format!("zone-{}", number % ZONES))]);
        world.apply(Event::NodeApplied(NodeFacts { labels, ..testing::node(number) }));
    }
}

/// A replica of a workload with required anti-affinity to itself by node and preferred anti-affinity by zone.
fn pod(workload: usize, number: usize, node: Option<usize>) -> PodFacts {
    let app = format!("app-{workload}");
    PodFacts {
        namespace: format!("namespace-{}", workload % 300),
        name: format!("{app}-{number:06}"),
        uid: Uuid::from_u128((number + 1) as u128).to_string(),
        labels: pairs([
            ("app", app.clone()),
            ("tier", "backend".to_owned()),
            ("team", format!("team-{}", workload % 60)),
        ]),
        node: node.map(|node| format!("node-{node}")),
        anti_affinity: vec![term(HOSTNAME, &app)],
        preferred_anti_affinity: vec![WeightedTermFacts { weight: 10, term: term(ZONE, &app) }],
        ..PodFacts::default()
    }
}

/// A pod that runs on every node, with anti-affinity to its copies.
fn daemon(node: usize) -> PodFacts {
    PodFacts {
        name: format!("everywhere-{node}"),
        namespace: "namespace-0".to_owned(),
        labels: pairs([("app", "everywhere".to_owned())]),
        node: Some(format!("node-{node}")),
        anti_affinity: vec![term(HOSTNAME, "everywhere")],
        preferred_affinity: vec![WeightedTermFacts { weight: 3, term: term(HOSTNAME, "everywhere") }],
        ..PodFacts::default()
    }
}

fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<usize>().ok()? * 1024)
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6;
    format!("{:8.1} {:8.1}", at(50), at(99))
}

fn timed(mut what: impl FnMut(usize)) -> String {
    let time = |round| {
        let started = Instant::now();
        what(round);
        started.elapsed()
    };
    percentiles((0..ROUNDS).map(time).collect())
}

fn main() {
    println!("microseconds                                         resolve          verdicts            scores");
    println!("                                                 p50      p99      p50      p99      p50      p99");
    for pods in [1_000, 30_000, 150_000] {
        let mut world = World::default();
        fill_nodes(&mut world);
        let before = resident_bytes();
        let mut name_bytes = 0;
        for number in 0..pods {
            let facts = pod(number / REPLICAS, number, Some(number * 7 % NODES));
            name_bytes += facts.name.len();
            world.apply(Event::PodApplied(facts));
        }
        if let (Some(before), Some(after)) = (before, resident_bytes()) {
            println!("{pods} pods: {} bytes each without names", after.saturating_sub(before + name_bytes) / pods);
        }
        for node in 0..NODES {
            world.apply(Event::PodApplied(daemon(node)));
        }
        let workloads = pods / REPLICAS;
        let nodes: Vec<NodeId> = world.node_ids().collect();
        type Kind = (&'static str, fn(usize) -> PodFacts);
        let kinds: [Kind; 5] = [
            ("replica: host required, zone preferred", |workload| pod(workload, 9_000_000, None)),
            ("affinity to a workload, by zone", |workload| PodFacts {
                anti_affinity: Vec::new(),
                affinity: vec![term(ZONE, &format!("app-{workload}"))],
                ..pod(workload, 9_000_000, None)
            }),
            ("copy of a pod on every node", |_| PodFacts { node: None, ..daemon(NODES) }),
            ("no terms, matches none", |_| PodFacts { namespace: "other".to_owned(), ..PodFacts::default() }),
            ("unknown, anti-affinity to a workload", |workload| PodFacts {
                anti_affinity: vec![TermFacts {
                    namespaces: vec!["x".to_owned()],
                    ..term(HOSTNAME, &format!("app-{workload}"))
                }],
                ..pod(workload, 9_000_000, None)
            }),
        ];
        for (name, make) in kinds {
            let facts: Vec<PodFacts> = (0..ROUNDS).map(|round| make(round * 13 % workloads)).collect();
            let resolved: Vec<Incoming> = facts.iter().map(|facts| Incoming::of(&world, facts)).collect();
            let view = View::default();
            let resolve = timed(|round| {
                black_box(Incoming::of(&world, &facts[round]));
            });
            let verdicts = timed(|round| {
                black_box(resolved[round].verdicts(&world, &view, Reading::Lifting, None));
            });
            let settings = ScoreSettings::default();
            let scores = timed(|round| {
                black_box(resolved[round].scores(&world, &view, Reading::Lifting, &settings, &nodes).normalised());
            });
            println!("{pods:7}  {name:40} {resolve} {verdicts} {scores}");
        }
        let bind = timed(|round| {
            let facts = pod(round * 13 % workloads, 9_000_000 + round, None);
            world.apply(Event::PodAssumed { pod: Box::new(facts), node: format!("node-{}", round % NODES) });
        });
        let moved = timed(|round| {
            let vm = VmFacts {
                id: format!("vm-{round}"),
                host: Some(format!("host-{}", (round + 1) % HOSTS)),
                bios_uuid: testing::bios_uuid(round),
                ..VmFacts::default()
            };
            world.apply(Event::VmApplied { vcenter: VCENTER, vm });
        });
        println!("{pods:7}  events: a pod assumed {bind}, a VM moved {moved}");
    }
}
