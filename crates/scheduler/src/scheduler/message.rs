//! The familiar words: "0/5000 nodes are available: ...".
//!
//! In: what the filters say of all nodes. Out: the message kube-scheduler would write, reason by reason.

use std::collections::BTreeMap;
use std::fmt::Write;

use model::{NodeId, World};

use crate::evaluate::{Filters, Outcome, Refused};
use crate::framework::profile::Profile;

/// Kubernetes takes no longer note on an event.
const EVENT_BYTES_MAX: usize = 1024;

/// Why no node can run the pod. `kept_free` are nodes that do not do together with the pods for which room is being made there:
/// their reason is that one, also where there is another without those pods. `afterwards` is what PostFilter says, empty for
/// nothing.
pub(crate) fn fit_error(
    world: &World,
    profile: &Profile,
    filters: &Filters,
    kept_free: &[(NodeId, Refused)],
    afterwards: &str,
) -> String {
    let mut message = format!("0/{} nodes are available:", world.node_count());
    if let Outcome::Rejected { rejection, .. } = filters.outcome() {
        // Writing to a string does not fail.
        let _ = write!(message, " {}.", rejection.reasons.message());
    } else {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let is_kept_free = |node: &NodeId| kept_free.binary_search_by_key(node, |(node, _)| *node).is_ok();
        let others = world.node_ids().filter(|node| !is_kept_free(node));
        let verdicts: Vec<_> = others.filter_map(|node| filters.verdict(profile, node)).collect();
        let rejections = verdicts.iter().map(|verdict| verdict.rejection);
        for rejection in rejections.chain(kept_free.iter().map(|(_, refused)| &refused.rejection)) {
            for reason in rejection.reasons.iter() {
                *counts.entry(reason).or_default() += 1;
            }
        }
        // Sorted as text, numbers too: "10 x" comes before "9 x".
        let mut counted: Vec<String> = counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        counted.sort_unstable();
        if !counted.is_empty() {
            let _ = write!(message, " {}.", counted.join(", "));
        }
    }
    if !afterwards.is_empty() {
        let _ = write!(message, " {afterwards}");
    }
    message
}

/// Why the one node that was chosen was refused later.
pub(crate) fn refused(reason: &str) -> String {
    format!("0/1 nodes are available: 1 {reason}.")
}

/// Cut to what fits into an event.
pub(crate) fn for_event(message: &str) -> String {
    const DOTS: &str = " ...";
    if message.len() <= EVENT_BYTES_MAX {
        return message.to_owned();
    }
    let mut end = EVENT_BYTES_MAX - DOTS.len();
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{DOTS}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_cut_at_a_character() {
        assert_eq!(for_event("short"), "short");
        let long = "ä".repeat(600);
        let cut = for_event(&long);
        assert!(cut.len() <= EVENT_BYTES_MAX && cut.ends_with("ä ..."), "{} {cut}", cut.len());
    }
}
