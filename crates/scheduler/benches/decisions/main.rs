//! Benchmark of scheduling decisions: no API, one core, all default plugins, all nodes scored.
//!
//! `cargo bench -p scheduler --bench decisions [-- NAME]`; `cargo xtask bench decisions` checks the result against the
//! limits. One iteration places a batch of pods in a cluster of 5000 nodes with a scheduler whose caches are empty,
//! then deletes them. With `BRIDGER_PROBE_TURNS=FILE`, what the plugin metrics cost is measured as well, into that file.
//! With `BRIDGER_GROWTH_TURNS=FILE`, so are preemption, volumes, and all workloads in a cluster of 50,000 nodes.
#![allow(clippy::unwrap_used)]

mod core_time;
mod growth;
mod preemption;
mod probe;
mod volumes;
mod workloads;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use model::World;
use model::event::Event;
use scheduler::{Changes, Configuration, Effect, Input, Probe, Scheduler, observe, plugins};

use self::core_time::CoreTime;
use self::workloads::{WORKLOADS, Workload, cluster};

const NODES: usize = 5_000;
/// Pods that already run.
const RUNNING: [usize; 2] = [10_000, 150_000];
/// Pods placed in one iteration.
const BATCH: usize = 4_000;

/// A scheduler whose caches are empty.
fn new_scheduler() -> Scheduler {
    Scheduler::new(Configuration::with_name("bridger", &plugins::standard()).unwrap(), 1)
}

/// Places a batch and returns how long it took. Afterwards the world is as before.
fn place_batch(
    world: &mut World,
    (name, workload): &Workload,
    batch: usize,
    probe: Option<Arc<dyn Probe>>,
) -> Duration {
    let mut scheduler = new_scheduler();
    if let Some(probe) = probe {
        scheduler = scheduler.measured_by(probe);
    }
    let now = Duration::ZERO;
    let everything = Changes::all();
    scheduler.observe(now, world, &everything);
    for number in 0..batch {
        let changes = observe::apply(world, Event::PodApplied(workload(number)));
        scheduler.observe(now, world, &changes);
    }
    let mut placed = 0;
    let start = core_time::now();
    while scheduler.has_work() {
        let effects = scheduler.step(now, world, Input::Schedule { at_most: 100 });
        placed += effects.iter().filter(|effect| matches!(effect, Effect::Bind { .. })).count();
    }
    let elapsed = core_time::now() - start;
    assert!(placed * 10 >= batch * 9, "{name}: only {placed} of {batch} pods were placed");
    for number in 0..batch {
        let facts = workload(number);
        world.apply(Event::PodDeleted { namespace: facts.namespace, name: facts.name });
    }
    elapsed
}

fn main() {
    let mut criterion = Criterion::default()
        .with_measurement(CoreTime)
        .sample_size(20)
        // The first batch is the warm-up. One batch is one sample, because batches are long enough.
        .warm_up_time(Duration::from_millis(1))
        .measurement_time(Duration::from_millis(1))
        .configure_from_args();
    let mut group = criterion.benchmark_group("decisions");
    group.sampling_mode(SamplingMode::Flat).throughput(Throughput::Elements(BATCH as u64));
    let mut worlds = RUNNING.map(|_| None);
    for workload in WORKLOADS {
        // Both sizes run one right after the other. They are compared, so other load on the machine should hit both.
        for (world, running) in worlds.iter_mut().zip(RUNNING) {
            group.bench_function(BenchmarkId::new(workload.0, running), |bencher| {
                // Built once, and only if a selected workload needs it.
                let world = world.get_or_insert_with(|| cluster(NODES, running));
                bencher.iter_custom(|batches| (0..batches).map(|_| place_batch(world, workload, BATCH, None)).sum());
            });
        }
    }
    group.finish();
    criterion.final_summary();
    // As criterion selects: by a part of the name.
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let is_selected = |name: &str| name.contains(&only);
    if let Some(file) = std::env::var_os("BRIDGER_PROBE_TURNS") {
        let world = worlds[0].get_or_insert_with(|| cluster(NODES, RUNNING[0]));
        probe::compare(world, |workload| is_selected(workload.0), &PathBuf::from(file));
    }
    if let Some(file) = std::env::var_os("BRIDGER_GROWTH_TURNS") {
        drop(worlds);
        growth::compare(is_selected, &PathBuf::from(file));
    }
}
