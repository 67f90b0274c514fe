//! Taints that follow from a node's conditions and from cordoning.
//!
//! In: a node. Out: its `spec.taints`. The taints of this table are reconciled, all others stay unchanged.

use serde_json::{Value, json};

use super::Tools;
use crate::kubernetes::condition;
use crate::kubernetes::json::{array, items, text};
use crate::kubernetes::kinds::KindId;

/// condition, its status, taint, effect
const BY_CONDITION: [(&str, &str, &str, &str); 8] = [
    ("Ready", "False", "node.kubernetes.io/not-ready", "NoSchedule"),
    ("Ready", "False", "node.kubernetes.io/not-ready", "NoExecute"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable", "NoSchedule"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable", "NoExecute"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable", "NoSchedule"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Each taint of the table and whether the node should have it.
fn wanted(node: &Value) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
    BY_CONDITION
        .into_iter()
        .map(|(condition_type, status, taint, effect)| {
            (taint, effect, condition::status(node, condition_type) == status)
        })
        .chain([(UNSCHEDULABLE, "NoSchedule", node["spec"]["unschedulable"] == true)])
}

fn has(node: &Value, key: &str, effect: &str) -> bool {
    items(&node["spec"]["taints"]).iter().any(|taint| taint["key"] == key && taint["effect"] == effect)
}

pub(super) fn need_change(node: &Value) -> bool {
    wanted(node).any(|(key, effect, wanted)| has(node, key, effect) != wanted)
}

pub(crate) fn reconcile(tools: &mut Tools<'_>, name: &str) {
    let Some(node) = tools.store.get(KindId::NODE, "", name) else { return };
    let changes: Vec<_> = wanted(node).filter(|(key, effect, wanted)| has(node, key, effect) != *wanted).collect();
    let moment = tools.now.rfc3339_seconds();
    let _ = tools.store.edit(KindId::NODE, "", name, |node| {
        let taints = array(node, &["spec", "taints"]);
        for (key, effect, wanted) in changes {
            if wanted {
                taints.push(json!({ "key": key, "effect": effect, "timeAdded": moment }));
            } else {
                taints.retain(|taint| text(&taint["key"]) != key || text(&taint["effect"]) != effect);
            }
        }
        if taints.is_empty() {
            crate::kubernetes::json::take(node, &["spec"], "taints");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;

    #[test]
    fn cordoning_taints_and_uncordoning_leaves_foreign_taints_alone() {
        let mut bench = Bench::with_nodes(1);
        let foreign = json!({ "key": "dedicated", "value": "db", "effect": "NoSchedule" });
        bench.edit(KindId::NODE, "node-1", |node| {
            node["spec"]["unschedulable"] = json!(true);
            node["spec"]["taints"] = json!([foreign]);
        });
        bench.run_for_seconds(1);
        let keys = |bench: &Bench| -> Vec<String> {
            items(&bench.get(KindId::NODE, "node-1").unwrap()["spec"]["taints"])
                .iter()
                .map(|taint| text(&taint["key"]).to_owned())
                .collect()
        };
        assert_eq!(keys(&bench), ["dedicated", UNSCHEDULABLE]);
        bench.edit(KindId::NODE, "node-1", |node| {
            node["spec"].as_object_mut().unwrap().remove("unschedulable");
        });
        bench.run_for_seconds(1);
        assert_eq!(keys(&bench), ["dedicated"]);
    }
}
