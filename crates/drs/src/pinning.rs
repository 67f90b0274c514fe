//! What pods say about the physical hosts they accept, as Kubernetes means it.
//!
//! In: a pod's node selector and required node affinity, the value of the host label. Out: whether a host with that value
//! may do. Only the host label is looked at: what other labels a node would have on another host can not be known, so these
//! count as satisfied; names of nodes do not change with the host, so these are compared with the pod's own.
//!
//! Invariant: the meaning is that of kube-scheduler: the selector and one of the terms must hold; all of a term must hold;
//! an empty term accepts nothing.

use model::event::{NodeTermFacts, Operator, PinningFacts, RequirementFacts};

/// The one field that node affinity may name.
const NAME_FIELD: &str = "metadata.name";

/// Whether the host label is spoken of at all.
pub(crate) fn speaks_of(pinning: &PinningFacts, host_key: &str) -> bool {
    let of_term = |term: &NodeTermFacts| term.expressions.iter().any(|expression| expression.key == host_key);
    pinning.node_selector.contains_key(host_key) || pinning.node_terms.iter().any(of_term)
}

/// Whether the node's name leaves a term that could hold; without one the host is not what matters.
pub(crate) fn is_possible(pinning: &PinningFacts, node: &str) -> bool {
    pinning.node_terms.is_empty() || pinning.node_terms.iter().any(|term| !is_empty(term) && is_about(term, node))
}

/// Whether a pod on this node accepts hosts with this label value; `None` stands for a host without one.
pub(crate) fn accepts(pinning: &PinningFacts, host_key: &str, node: &str, value: Option<&str>) -> bool {
    let selected = pinning.node_selector.get(host_key).is_none_or(|wanted| Some(wanted.as_str()) == value);
    let of_host = |term: &NodeTermFacts| {
        let expressions = term.expressions.iter().filter(|expression| expression.key == host_key);
        let mut expressions = expressions.map(|expression| holds(expression, value));
        !is_empty(term) && expressions.all(|holds| holds) && is_about(term, node)
    };
    selected && (pinning.node_terms.is_empty() || pinning.node_terms.iter().any(of_host))
}

fn is_empty(term: &NodeTermFacts) -> bool {
    term.expressions.is_empty() && term.fields.is_empty()
}

fn is_about(term: &NodeTermFacts, node: &str) -> bool {
    term.fields.iter().all(|field| field.key == NAME_FIELD && holds(field, Some(node)))
}

fn holds(requirement: &RequirementFacts, value: Option<&str>) -> bool {
    let is_one_of = |value: &str| requirement.values.iter().any(|of| of == value);
    let compared = |holds: fn(i64, i64) -> bool| {
        let [bound] = requirement.values.as_slice() else { return false };
        let value = value.and_then(|value| value.parse().ok());
        bound.parse().ok().zip(value).is_some_and(|(bound, value)| holds(value, bound))
    };
    match requirement.operator {
        Operator::In => value.is_some_and(is_one_of),
        Operator::NotIn => !value.is_some_and(is_one_of),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => compared(|value, bound| value > bound),
        Operator::Lt => compared(|value, bound| value < bound),
    }
}
