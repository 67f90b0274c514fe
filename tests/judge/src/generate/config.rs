//! Generates scheduler configurations: every strategy and argument of the plugins, weights, disabled plugins.
//!
//! Most come from a bounded number of combinations, because the judge builds one framework per configuration.

use serde_json::{Value, json};

use super::affinity::required_nodes;
use super::dice::Dice;

pub fn config(dice: &mut Dice, node_count: usize) -> Value {
    let mut plugin_config = Vec::new();
    let mut arguments = |name: &str, kind: &str, mut args: Value| {
        args["apiVersion"] = "kubescheduler.config.k8s.io/v1".into();
        args["kind"] = kind.into();
        plugin_config.push(json!({ "name": name, "args": args }));
    };
    if dice.chance(60) {
        arguments("NodeResourcesFit", "NodeResourcesFitArgs", fit(dice));
    }
    if dice.chance(25) {
        let resources = dice.pick(&[
            &["cpu"][..],
            &["cpu", "memory", "example.com/gpu"][..],
            &["cpu", "memory", "ephemeral-storage"][..],
        ]);
        let resources: Vec<Value> = resources.iter().map(|name| json!({ "name": name, "weight": 1 })).collect();
        arguments(
            "NodeResourcesBalancedAllocation",
            "NodeResourcesBalancedAllocationArgs",
            json!({ "resources": resources }),
        );
    }
    if dice.chance(30) {
        arguments("PodTopologySpread", "PodTopologySpreadArgs", spread(dice));
    }
    if dice.chance(30) {
        let weight = dice.pick(&[0, 1, 10, 100]);
        let ignore = dice.chance(40);
        arguments(
            "InterPodAffinity",
            "InterPodAffinityArgs",
            json!({ "hardPodAffinityWeight": weight, "ignorePreferredTermsOfExistingPods": ignore }),
        );
    }
    if dice.chance(20) {
        arguments("NodeAffinity", "NodeAffinityArgs", json!({ "addedAffinity": added_affinity(dice, node_count) }));
    }
    let mut profile = json!({ "schedulerName": "default-scheduler", "pluginConfig": plugin_config });
    if dice.chance(25) {
        let weighted = dice.pick(&["InterPodAffinity", "NodeResourcesFit", "TaintToleration", "PodTopologySpread"]);
        profile["plugins"] =
            json!({ "multiPoint": { "enabled": [{ "name": weighted, "weight": dice.pick(&[4, 7]) }] } });
    }
    if dice.chance(12) {
        let off = dice.pick(&["ImageLocality", "NodeResourcesBalancedAllocation", "NodeAffinity"]);
        profile["plugins"]["score"] = json!({ "disabled": [{ "name": off }] });
    }
    json!({ "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile] })
}

fn fit(dice: &mut Dice) -> Value {
    let resources = dice.pick(&[
        &[("cpu", 1), ("memory", 1)][..],
        &[("cpu", 3), ("memory", 1)][..],
        &[("memory", 1)][..],
        &[("cpu", 1), ("example.com/gpu", 5)][..],
        &[("cpu", 1), ("memory", 1), ("ephemeral-storage", 2), ("example.com/gpu", 3)][..],
    ]);
    let resources: Vec<Value> =
        resources.iter().map(|(name, weight)| json!({ "name": name, "weight": weight })).collect();
    let mut strategy = json!({ "type": dice.pick(&["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]), "resources": resources });
    if strategy["type"] == "RequestedToCapacityRatio" {
        let shape = dice.pick(&[
            &[(0, 0), (100, 10)][..],
            &[(0, 10), (100, 0)][..],
            &[(0, 0), (40, 8), (100, 2)][..],
            &[(30, 1), (70, 9)][..],
        ]);
        let shape: Vec<Value> =
            shape.iter().map(|(utilization, score)| json!({ "utilization": utilization, "score": score })).collect();
        strategy["requestedToCapacityRatio"] = json!({ "shape": shape });
    }
    let mut args = json!({ "scoringStrategy": strategy });
    match dice.below(10) {
        0 => args["ignoredResources"] = json!(["example.com/gpu"]),
        1 => args["ignoredResourceGroups"] = json!(["example.com"]),
        _ => {}
    }
    args
}

fn spread(dice: &mut Dice) -> Value {
    let hard =
        json!({ "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule" });
    let soft = json!({ "maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway" });
    let constraints = match dice.below(4) {
        0 => json!([]),
        1 => json!([hard]),
        2 => json!([soft]),
        _ => json!([hard, soft]),
    };
    json!({ "defaultingType": "List", "defaultConstraints": constraints })
}

fn added_affinity(dice: &mut Dice, node_count: usize) -> Value {
    let preferred = json!([{ "weight": 30, "preference":
        { "matchExpressions": [{ "key": "disk", "operator": "In", "values": ["ssd"] }] } }]);
    match dice.below(3) {
        0 => json!({ "preferredDuringSchedulingIgnoredDuringExecution": preferred }),
        1 => json!({ "requiredDuringSchedulingIgnoredDuringExecution": required_nodes(dice, node_count) }),
        _ => json!({ "requiredDuringSchedulingIgnoredDuringExecution": required_nodes(dice, node_count),
            "preferredDuringSchedulingIgnoredDuringExecution": preferred }),
    }
}
