//! Node taints and pod tolerations.
//!
//! This module alone decides which toleration covers which taint. The placer uses it to filter nodes, the taint-based
//! eviction to compute how long each pod may stay.

use std::time::Duration;

use serde_json::Value;

use super::json::{items, text};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

impl Taint {
    pub(crate) fn parse(taint: &Value) -> Taint {
        let field = |name: &str| text(&taint[name]).to_owned();
        Taint { key: field("key"), value: field("value"), effect: field("effect") }
    }

    pub(crate) fn of_node(node: &Value) -> Vec<Taint> {
        items(&node["spec"]["taints"]).iter().map(Taint::parse).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Toleration {
    key: String,
    value: String,
    effect: String,
    exists: bool,
    seconds: Option<i64>,
}

impl Toleration {
    pub(crate) fn of_pod(pod: &Value) -> Vec<Toleration> {
        items(&pod["spec"]["tolerations"])
            .iter()
            .map(|toleration| Toleration {
                key: text(&toleration["key"]).to_owned(),
                value: text(&toleration["value"]).to_owned(),
                effect: text(&toleration["effect"]).to_owned(),
                exists: toleration["operator"] == "Exists",
                seconds: toleration["tolerationSeconds"].as_i64(),
            })
            .collect()
    }

    pub(crate) fn covers(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() && self.exists || self.key == taint.key)
            && (self.exists || self.value == taint.value)
    }
}

/// Ten years: a pod that tolerates a taint for that long tolerates it permanently.
const LONG_SECONDS: u64 = 10 * 365 * 24 * 3600;

/// How long a pod may stay on a node with these taints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    Forever,
    For(Duration),
}

/// The shortest stay that the pod's tolerations allow under the node's NoExecute taints.
pub(crate) fn stay(taints: &[Taint], tolerations: &[Toleration]) -> Stay {
    let mut shortest: Option<u64> = None;
    for taint in taints.iter().filter(|taint| taint.effect == "NoExecute") {
        let mut covered = false;
        for toleration in tolerations.iter().filter(|toleration| toleration.covers(taint)) {
            covered = true;
            if let Some(seconds) = toleration.seconds {
                let seconds = u64::try_from(seconds).unwrap_or(0);
                shortest = Some(shortest.map_or(seconds, |known| known.min(seconds)));
            }
        }
        if !covered {
            return Stay::For(Duration::ZERO);
        }
    }
    match shortest {
        Some(seconds) if seconds < LONG_SECONDS => Stay::For(Duration::from_secs(seconds)),
        _ => Stay::Forever,
    }
}

/// The first taint with one of these effects that no toleration covers.
pub(crate) fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration], effects: &[&str]) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| effects.contains(&taint.effect.as_str()))
        .find(|taint| !tolerations.iter().any(|toleration| toleration.covers(taint)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn how_long_a_pod_may_stay() {
        let taint = |key: &str| Taint { key: key.to_owned(), value: String::new(), effect: "NoExecute".to_owned() };
        let pod = |tolerations: Value| Toleration::of_pod(&json!({ "spec": { "tolerations": tolerations } }));
        let seconds = |seconds| Stay::For(Duration::from_secs(seconds));
        let brief = json!({ "key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
        for (taints, tolerations, expected) in [
            (vec![], json!([]), Stay::Forever),
            (vec![taint("a")], json!([]), seconds(0)),
            (vec![taint("a")], json!([brief]), seconds(300)),
            (vec![taint("a"), taint("b")], json!([brief]), seconds(0)),
            (vec![taint("a"), taint("b")], json!([brief, { "operator": "Exists" }]), seconds(300)),
            (vec![taint("a")], json!([{ "operator": "Exists" }]), Stay::Forever),
            (vec![taint("a")], json!([{ "key": "a" }]), Stay::Forever),
            (vec![taint("a")], json!([{ "key": "a", "effect": "NoSchedule" }]), seconds(0)),
            (vec![taint("a")], json!([{ "key": "a", "operator": "Exists", "tolerationSeconds": -5 }]), seconds(0)),
        ] {
            assert_eq!(stay(&taints, &pod(tolerations.clone())), expected, "{tolerations}");
        }
    }
}
