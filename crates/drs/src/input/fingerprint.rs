//! What is stored of a cluster between plans: enough to detect that it did not change.
//!
//! Invariant: a cluster with the same fingerprint has the same plan at the same time. The converse does not hold: a
//! change may make no difference to the plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{ClusterId, NodeId, Revision, World};

use super::uncertain::UncertainVms;
use super::{PlanScope, nodes};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    prefix: Arc<str>,
    cluster: (ClusterId, Revision),
    namespaces: Revision,
    nodes: Vec<(NodeId, Revision)>,
    rolling: BTreeSet<String>,
    uncertain: Option<Arc<UncertainVms>>,
}

impl Fingerprint {
    #[must_use]
    pub fn of(world: &World, scope: PlanScope<'_>) -> Self {
        let PlanScope { cluster, rules, surroundings, .. } = scope;
        let nodes = nodes::ids(world, scope).into_iter().map(|node| (node, world.node_revision(node)));
        let mut nodes: Vec<(NodeId, Revision)> = nodes.collect();
        nodes.sort_unstable();
        Self {
            prefix: Arc::clone(&surroundings.prefix),
            cluster: (cluster, world.cluster_revision(cluster)),
            namespaces: world.namespaces_revision(),
            nodes,
            rolling: surroundings.rolling_of(rules),
            uncertain: world.cluster(cluster).map(|(vcenter, _)| surroundings.uncertain_of(vcenter)),
        }
    }
}
