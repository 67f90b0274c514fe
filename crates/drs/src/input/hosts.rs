//! Pods that accept only certain physical hosts, by node selector or required node affinity on the host label.

use std::sync::Arc;

use model::Pod;
use model::event::{NodeAffinityFacts, NodeTermFacts};

use crate::settings::DrsSettings;

/// The pod's node affinity, if it uses the host label.
pub(super) fn of<'p>(pod: &'p Pod, settings: &DrsSettings) -> Option<&'p Arc<NodeAffinityFacts>> {
    let names_host = |accepts: &&Arc<NodeAffinityFacts>| {
        let of_term = |term: &NodeTermFacts| term.expressions.iter().any(|of| of.key == settings.host_key);
        accepts.node_selector.contains_key(&settings.host_key) || accepts.node_terms.iter().any(of_term)
    };
    pod.node_affinity.as_ref().filter(names_host)
}
