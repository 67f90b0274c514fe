//! What the pods that are measured ask for, and the pods themselves.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

pub const HOST: &str = "alpha.cna.vmware.com/host";
pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// What a pod asks with regard to the others of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    Nothing,
    ApartByNode,
    ApartByHost,
    TogetherByZone,
    /// Rather apart by node.
    RatherApart,
    /// Rather apart by node, and rather in one zone.
    RatherApartAndNear,
    /// Spread evenly over zones.
    Spread,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub name: &'static str,
    pub ask: Ask,
    /// How many pods form a group; there must be places for all of them.
    pub group_pods: usize,
}

impl Workload {
    /// For `group_pods`: all pods are one group.
    pub const ONE_GROUP: usize = usize::MAX;

    #[must_use]
    pub const fn new(name: &'static str, ask: Ask, group_pods: usize) -> Workload {
        Workload { name, ask, group_pods }
    }
}

/// An affinity term for the pods of a group.
#[must_use]
pub fn term(topology_key: &str, group: &str) -> Value {
    json!({ "topologyKey": topology_key, "labelSelector": { "matchLabels": { "group": group } } })
}

impl Ask {
    /// Adds it to a pod's spec.
    fn write(self, spec: &mut Value, group: &str) {
        let term = |key: &str| term(key, group);
        let weighted = |weight: u32, key: &str| json!({ "weight": weight, "podAffinityTerm": term(key) });
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        let affinity = match self {
            Ask::Nothing => return,
            Ask::Spread => {
                spec["topologySpreadConstraints"] = json!([{ "maxSkew": 1, "topologyKey": ZONE,
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "group": group } } }]);
                return;
            }
            Ask::ApartByNode => json!({ "podAntiAffinity": { required: [term(HOSTNAME)] } }),
            Ask::ApartByHost => json!({ "podAntiAffinity": { required: [term(HOST)] } }),
            Ask::TogetherByZone => json!({ "podAffinity": { required: [term(ZONE)] } }),
            Ask::RatherApart => json!({ "podAntiAffinity": { preferred: [weighted(100, HOSTNAME)] } }),
            Ask::RatherApartAndNear => json!({
                "podAntiAffinity": { preferred: [weighted(100, HOSTNAME)] },
                "podAffinity": { preferred: [weighted(50, ZONE)] },
            }),
        };
        spec["affinity"] = affinity;
    }
}

/// A pod of a group: one that runs on a node already, or one that is measured.
pub(super) fn pod(name: &str, group: &str, ask: Ask, scheduler_name: &str, node: Option<&str>) -> Result<Pod> {
    let mut spec = json!({
        "nodeName": node,
        "schedulerName": scheduler_name,
        "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "main", "image": "none",
            "resources": { "requests": { "cpu": "100m", "memory": "500Mi" } } }],
    });
    ask.write(&mut spec, group);
    let labels = json!({ "group": group, "measured": node.is_none().to_string() });
    Ok(serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels }, "spec": spec }))?)
}
