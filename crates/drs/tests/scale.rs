//! That a plan's cost grows with the pods and not with their square, and how many rules it makes.

mod support;

use std::time::{Duration, Instant};

use drs::{DrsSettings, Owned, UnixMillis, plan};
use model::event::Event;
use support::*;

const REPLICAS: usize = 10;

struct Measured {
    first: Duration,
    again: Duration,
    rules: usize,
}

/// Workloads of ten replicas each that want to be apart, spread over the nodes of a cluster with half as many hosts.
fn measure(nodes: usize, workloads: usize) -> Measured {
    let hosts: Vec<usize> = (0..nodes).map(|node| node / 2).collect();
    let mut town = Town::new(nodes.div_ceil(2), &hosts);
    for workload in 0..workloads {
        let app = format!("app-{workload}");
        // Steps that differ, so that the workloads do not all meet on the same nodes.
        let step = 1 + workload % 7;
        town.pods.extend((0..REPLICAS).map(|replica| lonely(&app, replica, (workload * 13 + replica * step) % nodes)));
    }
    let mut world = town.world();
    let settings = DrsSettings { rules_max: usize::MAX, ..DrsSettings::default() };
    let planned = plan(&world, &Owned::default(), UnixMillis(0), &settings);
    let first = best_of_three(|| drop(plan(&world, &Owned::default(), UnixMillis(0), &settings)));
    let rules = planned.actions().count();
    assert_eq!(planned.clusters[0].uncovered.len(), 0);
    let owned = town.carry_out(&planned);
    world.apply(Event::ClusterApplied { vcenter: VCENTER, cluster: town.clusters[0].clone() });
    assert!(plan(&world, &owned, UnixMillis(0), &settings).is_empty());
    let again = best_of_three(|| drop(plan(&world, &owned, UnixMillis(0), &settings)));
    Measured { first, again, rules }
}

/// Others use the machine too.
fn best_of_three(work: impl Fn()) -> Duration {
    let measured = (0..3).map(|_| {
        let started = Instant::now();
        work();
        started.elapsed()
    });
    measured.min().unwrap_or_default()
}

#[test]
#[allow(clippy::print_stderr)]
fn cost_grows_with_the_pods() {
    measure(100, 50);
    let small = measure(200, 200);
    let large = measure(200, 2_000);
    for (workloads, measured) in [(200, &small), (2_000, &large)] {
        let Measured { first, again, rules } = measured;
        let (pods, pairs) = (workloads * REPLICAS, workloads * REPLICAS * (REPLICAS - 1) / 2);
        eprintln!("{pods} pods: {first:?}, again {again:?}; {rules} rules, {pods} for each pod, {pairs} for each pair");
        assert!(*rules <= workloads);
    }
    assert!(large.first < 20 * small.first, "{:?} {:?}", small.first, large.first);
    assert!(large.again < 20 * small.again.max(Duration::from_millis(5)), "{:?} {:?}", small.again, large.again);
}
