//! What preemption keeps for equal pods equals what it would find again: random histories of full nodes. The comparison
//! itself is in `plugins/default_preemption`, where every preemption of this crate's tests is examined twice.

use std::sync::Arc;
use std::time::Duration;

use model::World;
use model::event::{Event, Labels, NodeFacts, PodFacts, SelectorFacts};
use model::scheduling::{DisruptionBudgetFacts, NodeSchedulingFacts, ResourceSums};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::effect::Victim;
use super::*;
use crate::config::{Configuration, DEFAULT_SCHEDULER_NAME};
use crate::plugins;
use crate::plugins::default_preemption::tests::kept_results_used;
use crate::testing::{NAMESPACE, apply, cases, everything, node, pod_with, world};

const NODES: usize = 5;
/// Pods of low priority, which fill the nodes at first.
const LOW: usize = 3 * NODES;

#[derive(Clone, Debug)]
enum Step {
    /// A pod of low priority on a node; the same pod again, if only its start differs.
    Low {
        pod: usize,
        node: usize,
        started_s: Option<i64>,
        app: bool,
    },
    RemoveLow {
        pod: usize,
    },
    /// A pod that waits, perhaps nominated by another client.
    High {
        pod: usize,
        class: usize,
        nominated: Option<usize>,
    },
    RemoveHigh {
        pod: usize,
    },
    Node {
        node: usize,
        cpu: i64,
        cordoned: bool,
    },
    RemoveNode {
        node: usize,
    },
    Budget {
        app: bool,
        allowed: i32,
        is_disrupted: bool,
    },
    RemoveBudget,
    /// Tries some pods.
    Schedule {
        at_most: usize,
    },
    /// The oldest preemption ends: its victims are gone, or could not be evicted.
    Evicted {
        is_done: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let some_node = || proptest::option::weighted(0.1, 0..NODES);
    // The first class is never local, so it is rare.
    let class = prop_oneof![1 => Just(0usize), 9 => 1..4usize];
    prop_oneof![
        4 => (0..LOW, 0..NODES, proptest::option::of(1..5i64), any::<bool>())
            .prop_map(|(pod, node, started_s, app)| Step::Low { pod, node, started_s, app }),
        1 => (0..LOW).prop_map(|pod| Step::RemoveLow { pod }),
        8 => (0..20usize, class, some_node()).prop_map(|(pod, class, nominated)| Step::High { pod, class, nominated }),
        1 => (0..20usize).prop_map(|pod| Step::RemoveHigh { pod }),
        1 => (0..NODES, 2..5i64, any::<bool>()).prop_map(|(node, cpu, cordoned)| Step::Node { node, cpu, cordoned }),
        1 => (0..NODES * 3).prop_map(|node| Step::RemoveNode { node }),
        2 => (any::<bool>(), 0..2i32, any::<bool>())
            .prop_map(|(app, allowed, is_disrupted)| Step::Budget { app, allowed, is_disrupted }),
        1 => Just(Step::RemoveBudget),
        12 => (1..4usize).prop_map(|at_most| Step::Schedule { at_most }),
        3 => any::<bool>().prop_map(|is_done| Step::Evicted { is_done }),
    ]
}

fn sized(name: &str, cpu_milli: i64, priority: i32) -> PodFacts {
    pod_with(name, |facts| {
        let sums = ResourceSums { cpu_milli, ..ResourceSums::default() };
        facts.priority = priority;
        (facts.requests.asked, facts.requests.taken, facts.requests.scored) = (sums.clone(), sums.clone(), sums);
    })
}

fn labels(app: bool) -> Labels {
    [("app".to_owned(), if app { "a" } else { "b" }.to_owned())].into()
}

fn node_name(number: usize) -> String {
    format!("n{number}")
}

impl Step {
    fn event(&self) -> Option<Event> {
        let deleted = |name: String| Event::PodDeleted { namespace: NAMESPACE.to_owned(), name };
        Some(match *self {
            Step::Low { pod, node, started_s, app } => {
                let facts = sized(&format!("low-{pod}"), 900 + 200 * (pod as i64 % 4), pod as i32 % 3);
                Event::PodApplied(PodFacts { node: Some(node_name(node)), started_s, labels: labels(app), ..facts })
            }
            Step::RemoveLow { pod } => deleted(format!("low-{pod}")),
            Step::High { pod, class, nominated } => {
                let facts = sized(&format!("high-{pod}"), 900 + 700 * class as i64, 5 + class as i32 % 2);
                // The first class spreads, so nothing is kept for it.
                let anti_affinity = (class == 0).then(|| model::event::TermFacts {
                    topology_key: "kubernetes.io/hostname".to_owned(),
                    selector: Some(SelectorFacts { labels: labels(true), ..SelectorFacts::default() }),
                    ..model::event::TermFacts::default()
                });
                Event::PodApplied(PodFacts {
                    uid: format!("high-{pod} of class {class}"),
                    nominated_node: nominated.map(node_name),
                    anti_affinity: anti_affinity.into_iter().collect(),
                    ..facts
                })
            }
            Step::RemoveHigh { pod } => deleted(format!("high-{pod}")),
            Step::Node { node: number, cpu, cordoned } => {
                let allocatable =
                    ResourceSums { cpu_milli: cpu * 1000, memory_bytes: 8 << 30, ..ResourceSums::default() };
                let scheduling = NodeSchedulingFacts {
                    allocatable,
                    allowed_pods: 10,
                    unschedulable: cordoned,
                    ..Default::default()
                };
                Event::NodeApplied(NodeFacts { scheduling: Some(Arc::new(scheduling)), ..node(&node_name(number)) })
            }
            Step::RemoveNode { node } => Event::NodeDeleted { name: node_name(node) },
            Step::Budget { app, allowed, is_disrupted } => Event::DisruptionBudgetApplied(DisruptionBudgetFacts {
                namespace: NAMESPACE.to_owned(),
                name: "budget".to_owned(),
                selector: Some(SelectorFacts { labels: labels(app), ..SelectorFacts::default() }),
                disruptions_allowed: allowed,
                disrupted_pods: is_disrupted.then(|| "low-1".to_owned()).into_iter().collect(),
            }),
            Step::RemoveBudget => {
                Event::DisruptionBudgetDeleted { namespace: NAMESPACE.to_owned(), name: "budget".to_owned() }
            }
            Step::Schedule { .. } | Step::Evicted { .. } => return None,
        })
    }
}

fn run(steps: Vec<Step>) {
    let names: Vec<String> = (0..NODES).map(node_name).collect();
    let mut world: World = world(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for pod in 0..LOW {
        let low = Step::Low { pod, node: pod % NODES, started_s: Some(pod as i64), app: pod.is_multiple_of(2) };
        low.event().into_iter().for_each(|event| drop(apply(&mut world, event)));
    }
    let configuration = Configuration::with_name(DEFAULT_SCHEDULER_NAME, &plugins::standard()).expect("a profile");
    let mut scheduler = Scheduler::new(configuration, 1);
    scheduler.observe(Duration::ZERO, &world, &everything());
    let (mut now, mut preemptions) = (Duration::ZERO, Vec::new());
    for step in steps {
        // Later than any backoff.
        now += Duration::from_secs(11);
        scheduler.step(now, &mut world, Input::Time);
        let effects = match step {
            Step::Schedule { at_most } => scheduler.step(now, &mut world, Input::Schedule { at_most }),
            Step::Evicted { is_done } => {
                let Some((pod, node, victims)) = preemptions.pop() else { continue };
                let victims: Vec<Victim> = victims;
                for Victim { pod: victim, .. } in victims.iter().filter(|_| is_done) {
                    let (namespace, name) = (victim.namespace.clone(), victim.name.clone());
                    let changes = apply(&mut world, Event::PodDeleted { namespace, name });
                    scheduler.observe(now, &world, &changes);
                }
                let error = (!is_done).then(|| "forbidden".to_owned());
                scheduler.step(now, &mut world, Input::Evicted { pod, node, victims, error })
            }
            ref other => {
                let Some(event) = other.event() else { continue };
                let changes = apply(&mut world, event);
                scheduler.observe(now, &world, &changes)
            }
        };
        for effect in effects {
            match effect {
                Effect::Preempt { pod, node, victims, .. } => preemptions.push((pod, node, victims)),
                // It fails at once: the pod's place is free again, and it is tried later.
                Effect::Bind { pod, .. } => {
                    scheduler.step(now, &mut world, Input::Failed { pod, error: "conflict".to_owned() });
                }
                _ => {}
            }
        }
    }
}

#[test]
fn what_preemption_keeps_for_equal_pods_equals_what_it_would_find_again() {
    let before = kept_results_used();
    let cases = cases(10_000, 400);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases));
    let histories = proptest::collection::vec(step(), 1..80);
    runner
        .run(&histories, |steps| {
            run(steps);
            Ok(())
        })
        .expect("kept results hold");
    let used = kept_results_used() - before;
    assert!(used > cases as usize, "only {used} kept results were used in {cases} histories");
}
