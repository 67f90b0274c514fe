//! Nodes that are full of pods of low priority, and pods that need the room of two of them.
//!
//! The victims vanish when they are deleted: they have no grace period. A budget that allows no disruption covers the pods
//! of some nodes; these are not chosen as long as there are others.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;

use super::cluster::{Cluster, NAMESPACE, create, each, node_name};
use super::workload::{Constraint, pod};

/// Pods of low priority on each node. Together with the running pods they take all but 100m of its 4 CPUs.
const PER_NODE: usize = 4;
const VICTIM_CPU: &str = "825m";
/// Two victims must leave for it.
const LARGE_CPU: &str = "1600m";
/// The class of the victims. All other pods have priority 0, so that only the victims can be preempted.
const LOW: &str = "low";
const LOW_PRIORITY: i32 = -10;
/// The group of the victims of one node in this many has a budget.
const PROTECTED_EVERY: usize = 10;
const PROTECTED: &str = "victims-protected";
const UNPROTECTED: &str = "victims";
const OF_VICTIMS: &str = "group in (victims, victims-protected)";

fn with_cpu(mut pod: Pod, cpu: &str) -> Result<Pod> {
    let container = pod.spec.as_mut().and_then(|spec| spec.containers.first_mut()).context("a container")?;
    let requests = container.resources.as_mut().and_then(|resources| resources.requests.as_mut());
    requests.context("requests")?.insert("cpu".to_owned(), Quantity(cpu.to_owned()));
    Ok(pod)
}

impl Cluster {
    /// A measured pod that fits no node.
    pub(super) fn large(&self, pod: Pod) -> Result<Pod> {
        with_cpu(pod, LARGE_CPU)
    }

    /// Creates those victims that do not exist.
    pub(super) async fn fill_up(&self) -> Result<()> {
        let classes: Api<PriorityClass> = Api::all(self.client.clone());
        let class = json!({ "metadata": { "name": LOW }, "value": LOW_PRIORITY });
        if classes.get_opt(LOW).await?.is_none() {
            classes.create(&PostParams::default(), &serde_json::from_value(class)?).await?;
        }
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), NAMESPACE);
        let budget = json!({ "metadata": { "name": PROTECTED },
            "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "group": PROTECTED } } } });
        if budgets.get_opt(PROTECTED).await?.is_none() {
            budgets.create(&PostParams::default(), &serde_json::from_value(budget)?).await?;
        }
        let there = self.pods.list_metadata(&ListParams::default().labels(OF_VICTIMS)).await?;
        let there: BTreeSet<String> = there.items.into_iter().filter_map(|pod| pod.metadata.name).collect();
        let nodes = self.setup.size.nodes;
        let missing = (0..nodes * PER_NODE).filter(|number| !there.contains(&format!("victim-{number}")));
        let victims = missing.map(|number| self.victim(number, number % nodes));
        each(victims, |pod| create(&self.pods, pod)).await
    }

    fn victim(&self, number: usize, node: usize) -> Result<Pod> {
        let group = if node.is_multiple_of(PROTECTED_EVERY) { PROTECTED } else { UNPROTECTED };
        let (name, node) = (format!("victim-{number}"), node_name(node));
        let victim = pod(&name, group, Constraint::Nothing, self.setup.scheduler_name, Some(&node))?;
        let mut victim = with_cpu(victim, VICTIM_CPU)?;
        victim.spec.as_mut().context("a spec")?.priority_class_name = Some(LOW.to_owned());
        Ok(victim)
    }

    /// Removes all victims.
    pub(super) async fn empty_again(&self) -> Result<()> {
        let only = ListParams::default().labels(OF_VICTIMS);
        self.pods.delete_collection(&DeleteParams::default().grace_period(0), &only).await?;
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), NAMESPACE);
        budgets.delete(PROTECTED, &DeleteParams::default()).await?;
        Ok(())
    }
}
