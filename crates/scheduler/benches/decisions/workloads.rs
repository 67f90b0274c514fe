//! The cluster in which pods are placed, and the workloads: some of equal pods, one of pods that all differ.

use std::sync::Arc;

use model::World;
use model::event::{Event, NodeFacts, PodFacts, WeightedTermFacts};
use model::scheduling::{NodeSchedulingFacts, PodSchedulingFacts, ResourceSums, SpreadFacts};
use model::testing::{selector, term};

pub const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "alpha.cna.vmware.com/host";

pub fn node(number: usize) -> NodeFacts {
    let name = format!("node-{number}");
    let labels = [
        (HOSTNAME.to_owned(), name.clone()),
        (ZONE.to_owned(), format!("zone-{}", number % 10)),
        (HOST.to_owned(), format!("esx-{}", number / 10)),
    ];
    let allocatable = ResourceSums { cpu_milli: 64_000, memory_bytes: 512 << 30, ..ResourceSums::default() };
    NodeFacts {
        uid: name.clone(),
        name,
        labels: labels.into(),
        ready: true,
        scheduling: Some(Arc::new(NodeSchedulingFacts { allocatable, allowed_pods: 250, ..Default::default() })),
        ..NodeFacts::default()
    }
}

/// A pod, and what is special about it.
pub fn pod(name: String, app: String, change: impl FnOnce(&mut PodFacts, &mut PodSchedulingFacts)) -> PodFacts {
    let mut scheduling = PodSchedulingFacts { scheduler_name: "bridger".to_owned(), ..PodSchedulingFacts::default() };
    let sums = ResourceSums { cpu_milli: 100, memory_bytes: 500 << 20, ..ResourceSums::default() };
    let requests = &mut scheduling.requests;
    (requests.asked, requests.taken, requests.scored) = (sums.clone(), sums.clone(), sums);
    requests.taken_non_zero.cpu_milli = 100;
    requests.taken_non_zero.memory_bytes = 500 << 20;
    scheduling.images = vec!["registry/app:1".to_owned()];
    scheduling.container_count = 1;
    let mut facts = PodFacts {
        namespace: "default".to_owned(),
        uid: name.clone(),
        name,
        labels: [("app".to_owned(), app)].into(),
        ..PodFacts::default()
    };
    change(&mut facts, &mut scheduling);
    facts.scheduling = Some(Arc::new(scheduling));
    facts
}

fn spread(key: &str, app: &str, hard: bool) -> SpreadFacts {
    SpreadFacts {
        topology_key: key.to_owned(),
        max_skew: 5,
        hard,
        selector: Some(selector(app)),
        min_domains: 1,
        honor_node_affinity: true,
        honor_taints: false,
    }
}

/// A name, and a function from a number to a pod.
pub type Workload = (&'static str, fn(usize) -> PodFacts);

pub const WORKLOADS: &[Workload] = &[
    ("basic", |number| pod(format!("basic-{number}"), "basic".into(), |_, _| {})),
    ("anti-affinity by node", |number| {
        pod(format!("anti-node-{number}"), "anti-node".into(), |facts, _| {
            facts.lift_off = true;
            facts.anti_affinity = vec![term(HOSTNAME, "anti-node")];
        })
    }),
    ("anti-affinity by host", |number| {
        let app = format!("anti-host-{}", number / 400);
        pod(format!("anti-host-{number}"), app.clone(), |facts, _| facts.anti_affinity = vec![term(HOST, &app)])
    }),
    ("lifted anti-affinity", |number| {
        let app = format!("lifted-{}", number / 400);
        pod(format!("lifted-{number}"), app.clone(), |facts, _| facts.anti_affinity = vec![term(HOSTNAME, &app)])
    }),
    ("small services over hosts", |number| {
        let app = format!("small-{}", number / 5);
        pod(format!("small-{number}"), app.clone(), |facts, _| facts.anti_affinity = vec![term(HOST, &app)])
    }),
    ("affinity by zone", |number| {
        pod(format!("zone-{number}"), "zone".into(), |facts, _| facts.affinity = vec![term(ZONE, "zone")])
    }),
    ("preferred anti-affinity", |number| {
        pod(format!("preferred-{number}"), "preferred".into(), |facts, _| {
            let term = term(HOST, "preferred");
            facts.preferred_anti_affinity = vec![WeightedTermFacts { weight: 10, term }];
        })
    }),
    ("spread by zone, hard", |number| {
        pod(format!("hard-{number}"), "hard".into(), |_, facts| facts.spread = vec![spread(ZONE, "hard", true)])
    }),
    ("spread by host, soft", |number| {
        pod(format!("soft-{number}"), "soft".into(), |_, facts| facts.spread = vec![spread(HOST, "soft", false)])
    }),
    ("no two pods equal", |number| {
        pod(format!("own-{number}"), format!("own-{number}"), |facts, scheduling| {
            facts.anti_affinity = vec![term(HOST, &format!("own-{number}"))];
            scheduling.requests.asked.cpu_milli += number as i64 % 977;
            scheduling.spread = vec![spread(ZONE, &format!("own-{number}"), number % 2 == 0)];
        })
    }),
];

/// A cluster whose pods have anti-affinity, 30 pods per service.
pub fn cluster(nodes: usize, pods: usize) -> World {
    let mut world = World::default();
    for number in 0..nodes {
        world.apply(Event::NodeApplied(node(number)));
    }
    for number in 0..pods {
        let app = format!("running-{}", number / 30);
        let facts = pod(format!("running-{number}"), app.clone(), |facts, _| {
            facts.anti_affinity = vec![term(HOSTNAME, &app)];
            facts.node = Some(format!("node-{}", (number * 7919) % nodes));
        });
        world.apply(Event::PodApplied(facts));
    }
    world
}
