//! Answers that are kept and brought up to date equal answers worked out anew, whatever happens in between.

use std::sync::Arc;

use model::event::{Event, NodeFacts, PodFacts, SelectorFacts, TermFacts, WeightedTermFacts};
use model::scheduling::{
    HostPort, NodeSchedulingFacts, PodSchedulingFacts, ResourceSums, SpreadFacts, Taint, TaintEffect,
};
use model::{LiftMode, LiftSettings, World};
use proptest::prelude::*;

use super::*;
use crate::classes::Classes;
use crate::config::Configuration;
use crate::observe;
use crate::plugins;
use crate::testing;

#[derive(Clone, Debug)]
enum Step {
    Node {
        node: usize,
        zone: u8,
        cpu: i64,
        tainted: bool,
        cordoned: bool,
    },
    RemoveNode {
        node: usize,
    },
    Pod {
        pod: usize,
        class: usize,
        node: Option<usize>,
    },
    RemovePod {
        pod: usize,
    },
    /// Looks at a pod of each class.
    Ask,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..6usize, 0..3u8, 1..5i64, any::<bool>(), any::<bool>()).prop_map(|(node, zone, cpu, tainted, cordoned)| Step::Node { node, zone, cpu, tainted: tainted && cordoned, cordoned: cordoned && !tainted }),
        1 => (0..6usize).prop_map(|node| Step::RemoveNode { node }),
        6 => (0..12usize, 0..CLASSES, proptest::option::of(0..6usize)).prop_map(|(pod, class, node)| Step::Pod { pod, class, node }),
        2 => (0..12usize).prop_map(|pod| Step::RemovePod { pod }),
        5 => Just(Step::Ask),
    ]
}

fn node(node: usize, zone: u8, cpu: i64, tainted: bool, cordoned: bool) -> NodeFacts {
    let name = format!("node-{node}");
    let mut facts = testing::node(&name);
    if zone > 0 {
        facts.labels.insert("zone".to_owned(), format!("zone-{zone}"));
        facts.labels.insert("alpha.cna.vmware.com/host".to_owned(), format!("host-{zone}-{}", node % 2));
    }
    let taint = Taint { key: "dedicated".to_owned(), value: String::new(), effect: TaintEffect::NoSchedule };
    let rather_not = Taint { effect: TaintEffect::PreferNoSchedule, ..taint.clone() };
    facts.scheduling = Some(Arc::new(NodeSchedulingFacts {
        allocatable: ResourceSums { cpu_milli: cpu * 1000, memory_bytes: 8 << 30, ..ResourceSums::default() },
        allowed_pods: 4,
        taints: if tainted {
            vec![taint]
        } else if zone == 1 {
            vec![rather_not]
        } else {
            vec![]
        },
        unschedulable: cordoned,
        ..NodeSchedulingFacts::default()
    }));
    facts
}

const CLASSES: usize = 7;

fn selector(class: usize) -> SelectorFacts {
    SelectorFacts { labels: [("class".to_owned(), class.to_string())].into(), ..SelectorFacts::default() }
}

fn term(key: &str, class: usize) -> TermFacts {
    TermFacts { topology_key: key.to_owned(), selector: Some(selector(class)), ..TermFacts::default() }
}

/// No node is kept free for others.
fn none(_: &Trial<'_>) -> Vec<(NodeId, ())> {
    Vec::new()
}

/// Pods of different classes, so that each plugin has something to say of one of them.
fn pod(name: &str, class: usize) -> PodFacts {
    let mut scheduling = PodSchedulingFacts { scheduler_name: "bridger".to_owned(), ..PodSchedulingFacts::default() };
    let sums = ResourceSums { cpu_milli: 700, memory_bytes: 1 << 30, ..ResourceSums::default() };
    scheduling.requests.asked = sums.clone();
    scheduling.requests.taken = sums.clone();
    scheduling.requests.scored = sums;
    scheduling.requests.taken_non_zero.cpu_milli = 700;
    scheduling.requests.taken_non_zero.memory_bytes = 1 << 30;
    let mut facts = PodFacts { labels: selector(class).labels, ..testing::pod(name) };
    match class {
        1 => facts.anti_affinity = vec![term("kubernetes.io/hostname", 1)],
        2 => facts.affinity = vec![term("zone", 1)],
        3 => facts.preferred_anti_affinity = vec![WeightedTermFacts { weight: 5, term: term("zone", 3) }],
        4 | 5 => scheduling.spread.push(SpreadFacts {
            topology_key: "zone".to_owned(),
            max_skew: 1,
            hard: class == 4,
            selector: Some(selector(class)),
            min_domains: 1,
            honor_node_affinity: true,
            honor_taints: false,
        }),
        6 => scheduling.host_ports.push(HostPort {
            ip: HostPort::EVERY_ADDRESS.to_owned(),
            protocol: "TCP".to_owned(),
            port: 80,
        }),
        _ => {}
    }
    facts.scheduling = Some(Arc::new(scheduling));
    facts
}

/// All that is answered, as text.
fn described(profile: &Profile, answers: &Answers, world: &World) -> Vec<String> {
    let nodes = world.node_ids().map(|node| {
        let verdict = answers.filters.verdict(profile, node);
        match verdict {
            Some(verdict) => format!("{node:?} {:?} {:?}", names(profile, verdict.by), verdict.rejection),
            None => format!("{node:?} {} {:?}", answers.scores.total(node), answers.scores.of(profile, node)),
        }
    });
    nodes.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::testing::cases(5_000, 300)))]

    #[test]
    fn kept_answers_equal_new_ones(steps in proptest::collection::vec(step(), 1..60), relaxed in any::<bool>()) {
        let configuration = Configuration::with_name("bridger", &plugins::standard()).expect("the default profile works");
        let profile = &configuration.profiles()[0];
        let mode = if relaxed { LiftMode::Relaxed } else { LiftMode::Strict };
        let mut world = testing::world_with(LiftSettings { mode, ..LiftSettings::default() }, &["node-0", "node-1"]);
        for class in 0..CLASSES {
            world.apply(Event::PodApplied(pod(&format!("waits-{class}"), class)));
        }
        let (mut journal, mut classes, mut scratch) = (Journal::default(), Classes::default(), Scratch::default());
        journal.everything_changed(&world);
        for step in steps {
            let event = match step {
                Step::Node { node: number, zone, cpu, tainted, cordoned } => Event::NodeApplied(node(number, zone, cpu, tainted, cordoned)),
                Step::RemoveNode { node } => Event::NodeDeleted { name: format!("node-{node}") },
                Step::Pod { pod: number, class, node } => {
                    let facts = pod(&format!("pod-{number}"), class);
                    Event::PodApplied(PodFacts { node: node.map(|node| format!("node-{node}")), ..facts })
                }
                Step::RemovePod { pod } => Event::PodDeleted { namespace: testing::NAMESPACE.to_owned(), name: format!("pod-{pod}") },
                Step::Ask => {
                    for class in 0..CLASSES {
                        let waiting = testing::id(&world, &format!("waits-{class}"));
                        let cycle = Cycle::of(&world, waiting).expect("it is known");
                        let kept = classes.answers(0, profile, &cycle);
                        kept.refresh(profile, &cycle, &journal, &mut scratch, none).expect("no plugin fails");
                        let mut anew = Answers::new(profile);
                        anew.refresh(profile, &cycle, &journal, &mut Scratch::default(), none).expect("no plugin fails");
                        prop_assert_eq!(described(profile, kept, &world), described(profile, &anew, &world), "class {}", class);
                        prop_assert_eq!(kept.filters.feasible(), anew.filters.feasible());
                    }
                    continue;
                }
            };
            let (_, changes) = observe::apply(&mut world, event);
            crate::scheduler::note(&mut journal, &world, &changes);
        }
    }
}

#[test]
fn equal_pods_share_answers_and_others_do_not() {
    let configuration = Configuration::with_name("bridger", &plugins::standard()).expect("the default profile works");
    let profile = &configuration.profiles()[0];
    let mut world = testing::world(&["node-0"]);
    for (name, class) in [("a", 0), ("b", 0), ("c", 1)] {
        world.apply(Event::PodApplied(pod(name, class)));
    }
    let mut classes = Classes::default();
    let mut hits = |name: &str| {
        let cycle = Cycle::of(&world, testing::id(&world, name)).expect("it is known");
        classes.answers(0, profile, &cycle);
        classes.hits()
    };
    assert_eq!(["a", "b", "c", "a"].map(&mut hits), [0, 1, 1, 2]);
}
