//! What pods say about the physical hosts they accept.
//!
//! In: a pod's node selector and required node affinity, the value of the host label. Out: whether a host with that value
//! may do. Only the host label is looked at: what other labels a node would have on another host can not be known, so these
//! count as satisfied; names of nodes do not change with the host, so these are compared with the pod's own.
//!
//! Invariant: the meaning is the model's, which is that of kube-scheduler.

use model::affinity::node::{Label, RequiredNodeAffinity};
use model::event::{NodeTermFacts, PinningFacts};

/// Whether the host label is spoken of at all.
pub(crate) fn speaks_of(pinning: &PinningFacts, host_key: &str) -> bool {
    let of_term = |term: &NodeTermFacts| term.expressions.iter().any(|expression| expression.key == host_key);
    pinning.node_selector.contains_key(host_key) || pinning.node_terms.iter().any(of_term)
}

/// Whether the node's name leaves a term that could hold; without one the host is not what matters.
pub(crate) fn is_possible(required: &RequiredNodeAffinity<'_>, node: &str) -> bool {
    required.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.accepts_name(node)))
}

/// Whether a pod on this node accepts hosts with this label value; `None` stands for a host without one.
pub(crate) fn accepts(required: &RequiredNodeAffinity<'_>, host_key: &str, node: &str, value: Option<&str>) -> bool {
    required.accepts(node, |key| if key == host_key { Label::from(value) } else { Label::Unknown })
}
