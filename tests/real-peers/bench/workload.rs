//! The measured pods and their constraints.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::selection::Load;

pub const HOST: &str = "alpha.cna.vmware.com/host";
pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// A pod's constraint with regard to the other pods of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    Nothing,
    AntiAffinityByNode,
    AntiAffinityByHost,
    AffinityByZone,
    /// By node.
    PreferredAntiAffinity,
    /// Preferred anti-affinity by node and preferred affinity by zone.
    PreferredAntiAffinityAndAffinity,
    /// Spread evenly over zones.
    Spread,
}

/// What the measured pods need, other than to be placed beside the pods of their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Nothing: there is room on every node.
    Plain,
    /// Room: nodes are full of pods of lower priority.
    Preemption { pods: usize },
    /// A volume each.
    Volumes { pods: usize, source: Source },
}

/// Where volumes come from. Their class waits for the pod's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Volumes exist on so many nodes, one on each.
    Local {
        nodes: usize,
    },
    Provisioned,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub name: &'static str,
    pub constraint: Constraint,
    /// The number of pods in a group. All of them must fit in the cluster.
    pub group_pods: usize,
    pub scene: Scene,
}

impl Workload {
    /// Value of `group_pods` that puts all pods in one group.
    pub const ONE_GROUP: usize = usize::MAX;

    #[must_use]
    pub const fn new(name: &'static str, constraint: Constraint, group_pods: usize) -> Workload {
        Workload { name, constraint, group_pods, scene: Scene::Plain }
    }

    /// Pods without constraints that need what the scene says. Measured in a loaded cluster only.
    #[must_use]
    pub const fn in_scene(name: &'static str, scene: Scene) -> Workload {
        Workload { name, constraint: Constraint::Nothing, group_pods: Workload::ONE_GROUP, scene }
    }

    #[must_use]
    pub fn is_measured_in(&self, load: Load) -> bool {
        load == Load::Loaded || self.scene == Scene::Plain
    }
}

/// An affinity term for the pods of a group.
#[must_use]
pub fn term(topology_key: &str, group: &str) -> Value {
    json!({ "topologyKey": topology_key, "labelSelector": { "matchLabels": { "group": group } } })
}

impl Constraint {
    /// Adds the constraint to a pod's spec.
    fn write(self, spec: &mut Value, group: &str) {
        let term = |key: &str| term(key, group);
        let weighted = |weight: u32, key: &str| json!({ "weight": weight, "podAffinityTerm": term(key) });
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        let affinity = match self {
            Constraint::Nothing => return,
            Constraint::Spread => {
                spec["topologySpreadConstraints"] = json!([{ "maxSkew": 1, "topologyKey": ZONE,
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "group": group } } }]);
                return;
            }
            Constraint::AntiAffinityByNode => json!({ "podAntiAffinity": { required: [term(HOSTNAME)] } }),
            Constraint::AntiAffinityByHost => json!({ "podAntiAffinity": { required: [term(HOST)] } }),
            Constraint::AffinityByZone => json!({ "podAffinity": { required: [term(ZONE)] } }),
            Constraint::PreferredAntiAffinity => json!({ "podAntiAffinity": { preferred: [weighted(100, HOSTNAME)] } }),
            Constraint::PreferredAntiAffinityAndAffinity => json!({
                "podAntiAffinity": { preferred: [weighted(100, HOSTNAME)] },
                "podAffinity": { preferred: [weighted(50, ZONE)] },
            }),
        };
        spec["affinity"] = affinity;
    }
}

/// A pod of a group: either already running on a node, or measured.
pub(super) fn pod(
    name: &str,
    group: &str,
    constraint: Constraint,
    scheduler_name: &str,
    node: Option<&str>,
) -> Result<Pod> {
    let mut spec = json!({
        "nodeName": node,
        "schedulerName": scheduler_name,
        "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "main", "image": "none",
            "resources": { "requests": { "cpu": "100m", "memory": "500Mi" } } }],
    });
    constraint.write(&mut spec, group);
    let labels = json!({ "group": group, "measured": node.is_none().to_string() });
    Ok(serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels }, "spec": spec }))?)
}
