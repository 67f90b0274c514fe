//! The placer: the stand-in for the scheduler a user already has, in the manner of kube-scheduler's defaults.
//!
//! Input: pods without a node whose `schedulerName` is one of its names, and the nodes. Output: bindings, or Events and
//! the condition that say why there is none. HTTP extenders take part when they are configured.
//!
//! - [`cache`]: nodes, and what the pods on them use, kept current from the store's changes.
//! - [`decide`]: which nodes are feasible, and how good each is. Pure.
//! - [`queue`]: which pod is next; back-off.
//! - [`extender`]: the calls to extenders.
//! - [`run`]: the task that ties them together.
//!
//! Invariants: one pod is placed after another; ties are broken by the seed, so the same seed places the same way.

mod cache;
mod decide;
pub mod extender;
mod inter_pod;
mod node_affinity;
mod pod_info;
mod queue;
mod resources;
mod runner;

pub use extender::{ExtenderConfig, Transport};
pub use runner::run;

use crate::seed::Seed;

#[derive(Clone, Debug)]
pub struct PlacerConfig {
    /// Pods of these `schedulerName`s are its business.
    pub scheduler_names: Vec<String>,
    /// Asked in this order.
    pub extenders: Vec<ExtenderConfig>,
    pub seed: Seed,
}

impl Default for PlacerConfig {
    fn default() -> Self {
        PlacerConfig { scheduler_names: vec!["default-scheduler".to_owned()], extenders: Vec::new(), seed: Seed(1) }
    }
}

/// Decides on every pod as if it were to be placed, and forgets the result.
#[cfg(test)]
pub(crate) fn consider_all(store: &crate::kubernetes::store::Store, pods: &[std::sync::Arc<serde_json::Value>]) {
    let mut cache = cache::Cache::default();
    cache.update(store);
    for pod in pods {
        let _ = decide::decide(store, &cache, &pod_info::PodInfo::of(pod), "");
    }
}
