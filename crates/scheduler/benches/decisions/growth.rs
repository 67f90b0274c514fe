//! What a decision costs in a cluster of 50,000 nodes, beside one of 5000: every workload, preemption and volumes.
//!
//! In: a selection of workloads. Out: the times of batches at both sizes, for `cargo xtask bench decisions`, which limits
//! their ratio. Both sizes have as many running pods and place as many pods; the turns alternate, so that other load on
//! the machine hits both. Few and short batches: a sample of the large cluster, not criterion's statistics.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use model::World;
use serde_json::{Value, json};

use crate::volumes::Source;
use crate::workloads::{WORKLOADS, cluster};
use crate::{RUNNING, place_batch, preemption, volumes};

const NODES: [usize; 2] = [5_000, 50_000];
const TURNS: usize = 3;
/// Pods placed in one batch.
const BATCH: usize = 1000;
/// Of pods that preempt others, and of pods with claims.
const BATCH_SMALL: usize = 100;

/// The nanoseconds per decision of each turn, by number of nodes.
type Turns = BTreeMap<usize, Vec<u64>>;

fn turns(worlds: &mut [World; 2], batch: usize, place: impl Fn(&mut World, usize) -> Duration) -> Turns {
    let mut turns = Turns::new();
    for _ in 0..TURNS {
        for (world, nodes) in worlds.iter_mut().zip(NODES) {
            let per_decision = place(world, nodes).as_nanos() / batch as u128;
            turns.entry(nodes).or_default().push(u64::try_from(per_decision).unwrap_or(u64::MAX));
        }
    }
    turns
}

/// Writes the turns by workload.
pub fn compare(is_selected: impl Fn(&str) -> bool, file: &Path) {
    let mut found: BTreeMap<&str, Turns> = BTreeMap::new();
    let mut worlds = None;
    for workload in WORKLOADS.iter().filter(|(name, _)| is_selected(name)) {
        let worlds = worlds.get_or_insert_with(|| NODES.map(|nodes| cluster(nodes, RUNNING[1])));
        found.insert(workload.0, turns(worlds, BATCH, |world, _| place_batch(world, workload, BATCH, None)));
    }
    drop(worlds);
    if is_selected("preemption") {
        let place = |world: &mut World, nodes| preemption::preempt_batch(world, nodes, BATCH_SMALL);
        found.insert("preemption", turns(&mut NODES.map(preemption::full_cluster), BATCH_SMALL, place));
    }
    for (name, source) in [("volumes, local", Source::Local), ("volumes, provisioned", Source::Provisioned)] {
        if is_selected(name) {
            let place = |world: &mut World, _| volumes::place_batch(world, source, BATCH_SMALL);
            found.insert(name, turns(&mut NODES.map(volumes::cluster), BATCH_SMALL, place));
        }
    }
    let by_nodes = |turns: Turns| -> Value { turns.into_iter().map(|(nodes, of)| (nodes.to_string(), of)).collect() };
    let found: BTreeMap<&str, Value> = found.into_iter().map(|(name, turns)| (name, by_nodes(turns))).collect();
    fs::write(file, json!({ "turns": found }).to_string()).expect("the results can be written");
}
