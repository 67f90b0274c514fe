//! The placer: stands in for the user's existing scheduler and follows kube-scheduler's defaults.
//!
//! In: pods without a node whose `schedulerName` is one of its names, and the nodes. Out: bindings, or the Events and
//! the condition that give the reason for failure. HTTP extenders take part if configured.
//!
//! - [`cache`]: nodes and the usage of their pods, updated from the store's changes.
//! - [`decide`]: filters and scores nodes. Pure.
//! - [`queue`]: the order of pods; back-off.
//! - [`extender`]: the calls to extenders.
//! - [`run`]: the task that connects them.
//!
//! Invariants: pods are placed one at a time; ties are broken by the seed, so the same seed gives the same placement.

mod cache;
mod decide;
pub mod extender;
mod inter_pod;
mod node_affinity;
mod pod_info;
mod queue;
mod resources;
mod runner;
mod volumes;

pub use extender::{ExtenderConfig, Transport};
pub use runner::run;

use crate::seed::Seed;

#[derive(Clone, Debug)]
pub struct PlacerConfig {
    /// The `schedulerName`s that this placer handles.
    pub scheduler_names: Vec<String>,
    /// Called in this order.
    pub extenders: Vec<ExtenderConfig>,
    pub seed: Seed,
}

impl Default for PlacerConfig {
    fn default() -> Self {
        PlacerConfig { scheduler_names: vec!["default-scheduler".to_owned()], extenders: Vec::new(), seed: Seed(1) }
    }
}

/// Makes a decision for every pod and discards the result.
#[cfg(test)]
pub(crate) fn consider_all(store: &crate::kubernetes::store::Store, pods: &[std::sync::Arc<serde_json::Value>]) {
    let mut cache = cache::Cache::default();
    cache.update(store);
    for pod in pods {
        let _ = decide::decide(store, &cache, &pod_info::PodInfo::of(pod), "");
    }
}
