//! Pods that fit no node: each one evicts pods of lower priority from a cluster that is full of them.
//!
//! In: the number of nodes. Out: the core time of a batch of preemptions, from the attempt that finds no node to the
//! binding once the victims are gone. Evictions take effect between two steps of a few pods each, as with an API.

use std::time::Duration;

use model::World;
use model::event::{Event, PodFacts};
use model::scheduling::{DisruptionBudgetFacts, ResourceSums};
use model::testing::selector;
use scheduler::{Changes, Effect, Input, PodRef, Scheduler, Victim, observe};

use crate::core_time;
use crate::new_scheduler;
use crate::workloads::{node, pod};

/// Pods of low priority on each node; together they take all of it.
const PER_NODE: usize = 4;
const NODE_CPU_MILLI: i64 = 64_000;
/// A budget protects the pods of one node in this many.
const PROTECTED_EVERY: usize = 10;
/// Pods that are tried before the evictions of the first of them have taken effect.
const AT_ONCE: usize = 20;
const LOW: i32 = 0;
const HIGH: i32 = 100;

fn sized(name: String, app: &str, cpu_milli: i64, priority: i32) -> PodFacts {
    pod(name, app.to_owned(), |_, scheduling| {
        let sums = ResourceSums { cpu_milli, memory_bytes: 1 << 30, ..ResourceSums::default() };
        scheduling.priority = priority;
        let requests = &mut scheduling.requests;
        (requests.asked, requests.taken, requests.scored) = (sums.clone(), sums.clone(), sums);
    })
}

fn low(number: usize, nodes: usize) -> PodFacts {
    let on = number % nodes;
    let app = if on.is_multiple_of(PROTECTED_EVERY) { "protected" } else { "low" };
    let cpu_milli = NODE_CPU_MILLI / PER_NODE as i64;
    let facts = sized(format!("low-{number}"), app, cpu_milli, LOW);
    PodFacts { node: Some(format!("node-{on}")), started_s: Some(number as i64), ..facts }
}

/// As large as two pods of low priority.
fn high(number: usize) -> PodFacts {
    sized(format!("high-{number}"), "high", NODE_CPU_MILLI / 2, HIGH)
}

pub fn full_cluster(nodes: usize) -> World {
    let mut world = World::default();
    (0..nodes).for_each(|number| drop(world.apply(Event::NodeApplied(node(number)))));
    (0..nodes * PER_NODE).for_each(|number| drop(world.apply(Event::PodApplied(low(number, nodes)))));
    world.apply(Event::DisruptionBudgetApplied(DisruptionBudgetFacts {
        namespace: "default".to_owned(),
        name: "protected".to_owned(),
        selector: Some(selector("protected")),
        ..DisruptionBudgetFacts::default()
    }));
    world
}

/// The evictions that an executor would make.
struct Preempted {
    pod: PodRef,
    node: String,
    victims: Vec<Victim>,
}

/// Lets these pods preempt others, and returns how long that took. Afterwards the world is as before.
pub fn preempt_batch(world: &mut World, nodes: usize, batch: usize) -> Duration {
    let mut scheduler = new_scheduler();
    let mut now = Duration::ZERO;
    scheduler.observe(now, world, &Changes::all());
    for number in 0..batch {
        let changes = observe::apply(world, Event::PodApplied(high(number)));
        scheduler.observe(now, world, &changes);
    }
    let (mut placed, mut evicted) = (0, Vec::new());
    let start = core_time::now();
    while placed < batch {
        let mut preempted = Vec::new();
        let effects = scheduler.step(now, world, Input::Schedule { at_most: AT_ONCE });
        for effect in effects {
            match effect {
                Effect::Bind { .. } => placed += 1,
                Effect::Preempt { pod, node, victims, .. } => preempted.push(Preempted { pod, node, victims }),
                _ => (),
            }
        }
        preempted.into_iter().for_each(|preempted| evict(&mut scheduler, now, world, preempted, &mut evicted));
        // Longer than any backoff.
        now += Duration::from_secs(11);
        scheduler.step(now, world, Input::Time);
        assert!(now < Duration::from_secs(11 * 10 * batch as u64), "{placed} of {batch} pods were placed");
    }
    let elapsed = core_time::now() - start;
    for number in 0..batch {
        let PodFacts { namespace, name, .. } = high(number);
        world.apply(Event::PodDeleted { namespace, name });
    }
    assert!(evicted.len() >= 2 * batch, "{} pods were evicted for {batch}", evicted.len());
    for name in evicted {
        let number = name.strip_prefix("low-").and_then(|number| number.parse().ok());
        world.apply(Event::PodApplied(low(number.expect("only pods of low priority are evicted"), nodes)));
    }
    elapsed
}

fn evict(scheduler: &mut Scheduler, now: Duration, world: &mut World, preempted: Preempted, evicted: &mut Vec<String>) {
    let Preempted { pod, node, victims } = preempted;
    for Victim { pod: victim, .. } in &victims {
        let (namespace, name) = (victim.namespace.clone(), victim.name.clone());
        let changes = observe::apply(world, Event::PodDeleted { namespace, name });
        scheduler.observe(now, world, &changes);
        evicted.push(victim.name.clone());
    }
    scheduler.step(now, world, Input::Evicted { pod, node, victims, error: None });
}
