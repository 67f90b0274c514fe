//! Generates PodDisruptionBudgets: several over the same pods, of other namespaces, with empty and nil selectors, with few
//! disruptions left, and with pods whose disruption is already counted.

use serde_json::{Value, json};

use super::dice::Dice;
use super::words::{NAMESPACES, POD_LABELS, selector, set};
use crate::World;

pub fn add(dice: &mut Dice, world: &mut World) {
    for namespace in NAMESPACES {
        let count = if *namespace == NAMESPACES[0] { dice.between(0, 3) } else { dice.below(3) };
        for number in 0..count {
            let names: Vec<&str> = world
                .pods
                .iter()
                .filter(|pod| pod["metadata"]["namespace"] == *namespace)
                .filter_map(|pod| pod["metadata"]["name"].as_str())
                .collect();
            let budget = budget(dice, namespace, number, &names);
            world.pod_disruption_budgets.push(budget);
        }
    }
}

fn budget(dice: &mut Dice, namespace: &str, number: usize, pods: &[&str]) -> Value {
    let mut spec = match dice.below(3) {
        0 => json!({ "minAvailable": 1 }),
        1 => json!({ "maxUnavailable": "25%" }),
        _ => json!({ "maxUnavailable": 0 }),
    };
    let chosen = match dice.below(100) {
        0..12 => Some(json!({})),
        12..17 => None,
        // Selects many pods: with few disruptions left, the importance of the pods decides which ones violate it.
        17..45 => Some(json!({ "matchExpressions": [{ "key": "app", "operator": "Exists" }] })),
        45..75 => {
            let (key, values) = dice.pick(POD_LABELS);
            Some(json!({ "matchLabels": { key: dice.pick(values) } }))
        }
        _ => selector(dice, POD_LABELS),
    };
    set(&mut spec, "selector", chosen);
    let mut status = json!({ "disruptionsAllowed": dice.pick(&[0, 0, 1, 1, 2, 3]), "currentHealthy": 3,
        "desiredHealthy": 2, "expectedPods": 3 });
    if dice.chance(30) && !pods.is_empty() {
        let count = dice.between(1, 3);
        for name in dice.several(pods, count) {
            status["disruptedPods"][name] = "2025-03-01T12:00:00Z".into();
        }
    }
    json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": format!("pdb{number}"), "namespace": namespace }, "spec": spec, "status": status })
}
