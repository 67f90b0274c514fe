//! The names and values of random worlds (labels, namespaces), and selectors over them. There are few, so that
//! selectors match.

use serde_json::{Map, Value, json};

use super::dice::Dice;

pub const NAMESPACES: &[&str] = &["blue", "green", "red"];

/// The namespaces of pods. Most pods share one, because spread constraints and most affinity terms cover one namespace.
pub const HOMES: &[&str] = &["blue", "blue", "blue", "green", "red"];

pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const REGION: &str = "topology.kubernetes.io/region";
pub const RACK: &str = "rack";
/// The node label that Bridger sets to the physical host.
pub const PHYSICAL_HOST: &str = "alpha.cna.vmware.com/host";

/// Repeated keys are more frequent. No node has `nowhere`.
pub const TOPOLOGY_KEYS: &[&str] =
    &[HOSTNAME, HOSTNAME, HOSTNAME, ZONE, ZONE, ZONE, RACK, RACK, PHYSICAL_HOST, PHYSICAL_HOST, REGION, "nowhere"];

/// As [`TOPOLOGY_KEYS`], for spread constraints, where a key that no node has rejects all nodes.
pub const SPREAD_KEYS: &[&str] = &[
    HOSTNAME,
    HOSTNAME,
    HOSTNAME,
    HOSTNAME,
    HOSTNAME,
    HOSTNAME,
    ZONE,
    ZONE,
    ZONE,
    ZONE,
    ZONE,
    ZONE,
    ZONE,
    ZONE,
    RACK,
    RACK,
    RACK,
    RACK,
    RACK,
    RACK,
    PHYSICAL_HOST,
    PHYSICAL_HOST,
    PHYSICAL_HOST,
    REGION,
    REGION,
    REGION,
    REGION,
    "nowhere",
];

/// A label key with its possible values.
pub type Word = (&'static str, &'static [&'static str]);

pub const POD_LABELS: &[Word] =
    &[("app", &["web", "db", "cache"]), ("tier", &["front", "back"]), ("version", &["1", "2", "3"])];
pub const NAMESPACE_LABELS: &[Word] = &[("team", &["x", "y"]), ("env", &["prod", "dev"])];

/// Labels from a list of words, each present with a probability of `percent`.
pub fn labels(dice: &mut Dice, words: &[Word], percent: usize) -> Map<String, Value> {
    let mut labels = Map::new();
    for (key, values) in words {
        if dice.chance(percent) {
            labels.insert((*key).to_owned(), dice.pick(values).into());
        }
    }
    labels
}

/// A label selector over the words: `None` (nil), `{}`, or one or two requirements.
pub fn selector(dice: &mut Dice, words: &[Word]) -> Option<Value> {
    match dice.below(100) {
        0..6 => None,
        6..12 => Some(json!({})),
        12..50 => {
            let (key, values) = dice.pick(words);
            Some(json!({ "matchLabels": { key: dice.pick(values) } }))
        }
        50..58 => {
            let ((first, of_first), (second, of_second)) = (words[0], words[1]);
            Some(json!({ "matchLabels": { first: dice.pick(of_first), second: dice.pick(of_second) } }))
        }
        58..92 => Some(json!({ "matchExpressions": [requirement(dice, words)] })),
        _ => {
            let (key, values) = dice.pick(words);
            Some(json!({ "matchLabels": { key: dice.pick(values) }, "matchExpressions": [requirement(dice, words)] }))
        }
    }
}

fn requirement(dice: &mut Dice, words: &[Word]) -> Value {
    let (key, values) = dice.pick(words);
    match dice.below(10) {
        0..4 => {
            let count = dice.between(1, values.len());
            json!({ "key": key, "operator": "In", "values": dice.several(values, count) })
        }
        4..6 => json!({ "key": key, "operator": "NotIn", "values": [dice.pick(values)] }),
        6..8 => json!({ "key": key, "operator": "Exists" }),
        _ => json!({ "key": key, "operator": "DoesNotExist" }),
    }
}

/// A selector that these labels satisfy.
pub fn selector_of(dice: &mut Dice, labels: &Map<String, Value>) -> Value {
    let pairs: Vec<(&String, &Value)> = labels.iter().collect();
    if pairs.is_empty() {
        return json!({ "matchExpressions": [{ "key": "app", "operator": "DoesNotExist" }] });
    }
    let (key, value) = dice.pick(&pairs);
    json!({ "matchLabels": { key.as_str(): value } })
}

/// Adds `matchLabelKeys` (and, where the field exists, `mismatchLabelKeys`) to a term or constraint that has a
/// selector, and merges them into it, as the API server does when the pod is created.
pub fn match_label_keys(dice: &mut Dice, term: &mut Value, labels: &Map<String, Value>, mismatch: bool) {
    let Some(selector) = term.get("labelSelector").and_then(Value::as_object) else { return };
    let in_labels = |key: &str| selector.get("matchLabels").is_some_and(|labels| labels.get(key).is_some());
    let in_expressions = |key: &str| {
        selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().any(|requirement| requirement["key"] == key))
    };
    // A key must not be in both, and a key that the pod does not have is ignored.
    let free: Vec<&str> =
        POD_LABELS.iter().map(|(key, _)| *key).filter(|key| !in_labels(key) && !in_expressions(key)).collect();
    if free.is_empty() {
        return;
    }
    let key = dice.pick(&free);
    let (field, operator) =
        if mismatch && dice.chance(40) { ("mismatchLabelKeys", "NotIn") } else { ("matchLabelKeys", "In") };
    term[field] = json!([key]);
    if let Some(value) = labels.get(key) {
        let merged = json!({ "key": key, "operator": operator, "values": [value] });
        match term["labelSelector"]["matchExpressions"].as_array_mut() {
            Some(list) => list.push(merged),
            None => term["labelSelector"]["matchExpressions"] = json!([merged]),
        }
    }
}

/// Sets a field if the value is `Some`.
pub fn set(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(value) = value {
        object[field] = value;
    }
}
