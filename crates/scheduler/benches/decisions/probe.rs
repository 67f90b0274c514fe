//! What the plugin metrics cost: each workload without and with the probe of `bridger scheduler`, in turns.
//!
//! In: a world and a workload. Out: the times of both kinds of batches, for `cargo xtask bench decisions`, which limits
//! their ratio. The turns alternate, so that other load on the machine hits both kinds.

// The real one: a cheaper probe would prove nothing.
#[allow(dead_code)]
#[path = "../../../bridger/src/service/plugin_metrics.rs"]
mod plugin_metrics;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use model::World;
use serde_json::json;

use self::plugin_metrics::PluginMetrics;
use crate::place_batch;
use crate::workloads::{WORKLOADS, Workload};

/// Pairs of batches for each workload.
const TURNS: usize = 11;

/// Writes the nanoseconds of each turn by workload: without the probe, and with it.
pub fn compare(world: &mut World, is_selected: impl Fn(&Workload) -> bool, file: &Path) {
    let mut turns = BTreeMap::new();
    for workload in WORKLOADS.iter().filter(|workload| is_selected(workload)) {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        let probe = Arc::<PluginMetrics>::default();
        for turn in 0..TURNS {
            let is_first_with = turn % 2 == 1;
            for is_with in [is_first_with, !is_first_with] {
                let took = place_batch(world, workload, crate::BATCH, is_with.then(|| probe.clone() as _)).as_nanos();
                let times = if is_with { &mut with } else { &mut without };
                times.push(u64::try_from(took).unwrap_or(u64::MAX));
            }
        }
        turns.insert(workload.0, json!({ "without": without, "with": with }));
    }
    fs::write(file, json!({ "batch": crate::BATCH, "turns": turns }).to_string()).expect("the results can be written");
}
