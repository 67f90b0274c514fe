//! The few words that worlds are made of, so that things collide: labels, namespaces, selectors over them.

use serde_json::{Map, Value, json};

use super::dice::Dice;

pub const NAMESPACES: &[&str] = &["blue", "green", "red"];

/// Where pods live: mostly together, because spreading and most affinity look at one namespace only.
pub const HOMES: &[&str] = &["blue", "blue", "blue", "green", "red"];

pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const REGION: &str = "topology.kubernetes.io/region";
pub const RACK: &str = "rack";
/// The label that Bridger puts on nodes: the physical host.
pub const PHYSICAL_HOST: &str = "alpha.cna.vmware.com/host";

/// Some keys more often than others; `nowhere` is on no node.
pub const TOPOLOGY_KEYS: &[&str] =
    &[HOSTNAME, HOSTNAME, HOSTNAME, ZONE, ZONE, ZONE, RACK, RACK, PHYSICAL_HOST, PHYSICAL_HOST, REGION, "nowhere"];

/// The same for spreading, where a key that is on no node refuses them all.
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

/// A label key with the values that it takes.
pub type Word = (&'static str, &'static [&'static str]);

pub const POD_LABELS: &[Word] =
    &[("app", &["web", "db", "cache"]), ("tier", &["front", "back"]), ("version", &["1", "2", "3"])];
pub const NAMESPACE_LABELS: &[Word] = &[("team", &["x", "y"]), ("env", &["prod", "dev"])];

/// Labels from a list of words, each present in so many of 100 cases.
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

/// Adds `matchLabelKeys` (and, where the field exists, `mismatchLabelKeys`) to a term or constraint that has a selector,
/// and merges them into it, as the API server does when the pod is created.
pub fn match_label_keys(dice: &mut Dice, term: &mut Value, labels: &Map<String, Value>, mismatch: bool) {
    let Some(selector) = term.get("labelSelector").and_then(Value::as_object) else { return };
    let in_labels = |key: &str| selector.get("matchLabels").is_some_and(|labels| labels.get(key).is_some());
    let in_expressions = |key: &str| {
        selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().any(|requirement| requirement["key"] == key))
    };
    // A key may not be in both, and one that the pod does not carry is ignored.
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

/// Sets a field if there is a value for it.
pub fn set(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(value) = value {
        object[field] = value;
    }
}
