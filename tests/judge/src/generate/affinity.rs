//! Generates node affinity by label and name, required and preferred pod affinity and anti-affinity, and topology
//! spread constraints.

use serde_json::{Map, Value, json};

use super::dice::Dice;
use super::node::{self, DISKS};
use super::words::{
    HOSTNAME, NAMESPACE_LABELS, NAMESPACES, PHYSICAL_HOST, POD_LABELS, RACK, SPREAD_KEYS, TOPOLOGY_KEYS, ZONE,
    match_label_keys, selector, selector_of, set,
};

/// The probability of each kind of term in a pod, in percent.
#[derive(Clone, Copy, Debug)]
pub struct TermRates {
    pub required_affinity: usize,
    pub required_anti_affinity: usize,
    pub preferred: usize,
    /// Required anti-affinity uses narrow domains, so that many such pods still leave some nodes free.
    pub narrow: bool,
}

/// `podAffinity` and `podAntiAffinity`.
pub fn pod_affinity(dice: &mut Dice, rates: TermRates, labels: &Map<String, Value>, affinity: &mut Value) {
    let mut towards = json!({});
    if dice.chance(rates.required_affinity) {
        let count = dice.pick(&[1, 1, 1, 2]);
        let terms: Vec<Value> = (0..count)
            .map(|_| {
                let own = dice.chance(45);
                term(dice, labels, own, false)
            })
            .collect();
        towards["requiredDuringSchedulingIgnoredDuringExecution"] = terms.into();
    }
    let mut against = json!({});
    if dice.chance(rates.required_anti_affinity) {
        let count = dice.pick(&[1, 1, 1, 2]);
        let terms: Vec<Value> = (0..count)
            .map(|_| {
                let own = dice.chance(40);
                term(dice, labels, own, rates.narrow)
            })
            .collect();
        against["requiredDuringSchedulingIgnoredDuringExecution"] = terms.into();
    }
    for direction in [&mut towards, &mut against] {
        if dice.chance(rates.preferred) {
            let count = dice.between(1, 2);
            let terms: Vec<Value> = (0..count)
                .map(|_| {
                    let own = dice.chance(30);
                    json!({ "weight": dice.pick(&[1, 5, 10, 37, 100]), "podAffinityTerm": term(dice, labels, own, false) })
                })
                .collect();
            direction["preferredDuringSchedulingIgnoredDuringExecution"] = terms.into();
        }
    }
    for (field, terms) in [("podAffinity", towards), ("podAntiAffinity", against)] {
        if terms != json!({}) {
            affinity[field] = terms;
        }
    }
}

fn term(dice: &mut Dice, labels: &Map<String, Value>, own: bool, narrow: bool) -> Value {
    let key = if narrow {
        dice.pick(&[HOSTNAME, HOSTNAME, RACK, PHYSICAL_HOST, "nowhere"])
    } else {
        dice.pick(TOPOLOGY_KEYS)
    };
    let mut term = json!({ "topologyKey": key });
    let chosen = if own { Some(selector_of(dice, labels)) } else { selector(dice, POD_LABELS) };
    set(&mut term, "labelSelector", chosen);
    match dice.below(100) {
        // The pod's own namespace.
        0..55 => {}
        55..75 => {
            let count = dice.between(1, 2);
            term["namespaces"] = dice.several(NAMESPACES, count).into();
        }
        75..93 => set(&mut term, "namespaceSelector", selector(dice, NAMESPACE_LABELS)),
        _ => {
            term["namespaces"] = json!([dice.pick(NAMESPACES)]);
            set(&mut term, "namespaceSelector", selector(dice, NAMESPACE_LABELS));
        }
    }
    if dice.chance(15) {
        match_label_keys(dice, &mut term, labels, true);
    }
    term
}

/// `nodeAffinity`, sometimes with a `nodeSelector`.
pub fn node_affinity(dice: &mut Dice, node_count: usize, spec: &mut Value, affinity: &mut Value) {
    if dice.chance(20) {
        spec["nodeSelector"] = match dice.below(3) {
            0 => json!({ "disk": dice.pick(DISKS) }),
            1 => json!({ ZONE: dice.pick(&["z1", "z2"]) }),
            _ => json!({ RACK: "k1", "disk": "ssd" }),
        };
    }
    let mut to_nodes = json!({});
    if dice.chance(65) {
        to_nodes["requiredDuringSchedulingIgnoredDuringExecution"] = required_nodes(dice, node_count);
    }
    if dice.chance(75) {
        let terms: Vec<Value> = (0..dice.between(1, 3))
            .map(|_| json!({ "weight": dice.pick(&[1, 3, 20, 64, 100]), "preference": node_term(dice, node_count, false) }))
            .collect();
        to_nodes["preferredDuringSchedulingIgnoredDuringExecution"] = terms.into();
    }
    if to_nodes != json!({}) {
        affinity["nodeAffinity"] = to_nodes;
    }
}

/// A required node selector: one to three alternatives.
pub fn required_nodes(dice: &mut Dice, node_count: usize) -> Value {
    let by_name = dice.chance(15);
    let terms: Vec<Value> = (0..dice.pick(&[1, 1, 2, 3])).map(|_| node_term(dice, node_count, by_name)).collect();
    json!({ "nodeSelectorTerms": terms })
}

fn node_term(dice: &mut Dice, node_count: usize, by_name: bool) -> Value {
    // An empty term matches nothing.
    if dice.chance(4) {
        return json!({});
    }
    let mut term = json!({});
    if !by_name || dice.chance(25) {
        let expressions: Vec<Value> = (0..dice.pick(&[1, 1, 1, 2])).map(|_| node_requirement(dice)).collect();
        term["matchExpressions"] = expressions.into();
    }
    if by_name || dice.chance(6) {
        let operator = dice.pick(&["In", "In", "In", "NotIn"]);
        let field = |dice: &mut Dice, operator: &str| {
            // The index after the last one names a node that does not exist.
            let name = node::name(dice.below(node_count + 1));
            json!({ "key": "metadata.name", "operator": operator, "values": [name] })
        };
        let mut fields = vec![field(dice, operator)];
        if dice.chance(15) {
            fields.push(field(dice, "In"));
        }
        term["matchFields"] = fields.into();
    }
    term
}

fn node_requirement(dice: &mut Dice) -> Value {
    match dice.below(10) {
        0..2 => json!({ "key": "disk", "operator": "In", "values": [dice.pick(DISKS)] }),
        2..4 => json!({ "key": ZONE, "operator": "In", "values": dice.several(&["z1", "z2", "z3"], 2) }),
        4 => json!({ "key": ZONE, "operator": "NotIn", "values": [dice.pick(&["z1", "z2"])] }),
        5 => json!({ "key": RACK, "operator": "Exists" }),
        6 => json!({ "key": "generation", "operator": "DoesNotExist" }),
        _ => {
            let operator = dice.pick(&["Gt", "Lt"]);
            json!({ "key": "generation", "operator": operator, "values": [dice.pick(&["1", "3", "3", "5"])] })
        }
    }
}

/// `topologySpreadConstraints`. The pair of topology key and `whenUnsatisfiable` is unique in a pod.
pub fn spread(dice: &mut Dice, labels: &Map<String, Value>) -> Value {
    let mut constraints: Vec<Value> = Vec::new();
    for _ in 0..dice.pick(&[1, 1, 1, 2, 3]) {
        let mut constraint = json!({ "topologyKey": dice.pick(SPREAD_KEYS), "maxSkew": dice.pick(&[1, 1, 1, 2, 3]),
            "whenUnsatisfiable": dice.pick(&["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]) });
        let same = |other: &Value| {
            other["topologyKey"] == constraint["topologyKey"]
                && other["whenUnsatisfiable"] == constraint["whenUnsatisfiable"]
        };
        if constraints.iter().any(same) {
            continue;
        }
        let chosen = match dice.below(10) {
            // Selects most pods: skew is visible only if domains have several pods each.
            0..4 => Some(json!({ "matchExpressions": [{ "key": "app", "operator": "Exists" }] })),
            4..7 => Some(selector_of(dice, labels)),
            _ => selector(dice, POD_LABELS),
        };
        set(&mut constraint, "labelSelector", chosen);
        if constraint["whenUnsatisfiable"] == "DoNotSchedule" {
            set(&mut constraint, "minDomains", dice.maybe(50, |dice| dice.pick(&[1, 2, 3, 4, 5, 8]).into()));
        }
        // Mostly not the default values.
        for (policy, other, default) in
            [("nodeAffinityPolicy", "Ignore", "Honor"), ("nodeTaintsPolicy", "Honor", "Ignore")]
        {
            set(&mut constraint, policy, dice.maybe(75, |dice| dice.pick(&[other, other, other, default]).into()));
        }
        if dice.chance(15) {
            match_label_keys(dice, &mut constraint, labels, false);
        }
        constraints.push(constraint);
    }
    constraints.into()
}
