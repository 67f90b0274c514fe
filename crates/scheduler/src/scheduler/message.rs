//! The message "0/5000 nodes are available: ...".
//!
//! In: the filter verdicts of all nodes. Out: the same message as kube-scheduler, with the number of nodes per reason.

use std::collections::BTreeMap;
use std::fmt::Write;

use model::{NodeId, NodeSet, World};

use crate::evaluate::{Filters, Outcome, Refused};
use crate::framework::profile::Profile;
use crate::framework::status::Rejection;

/// The longest event note that Kubernetes accepts.
const EVENT_BYTES_MAX: usize = 1024;

/// Why no node can run the pod. `kept_free` are nodes that the pod does not fit together with the pods nominated to
/// them; that reason is used even if there is another reason without those pods. `afterwards` is the message of
/// PostFilter, or empty.
pub(crate) fn fit_error(
    world: &World,
    profile: &Profile,
    filters: &Filters,
    all: &NodeSet,
    kept_free: &[(NodeId, Refused)],
    afterwards: &str,
) -> String {
    let mut message = format!("0/{} nodes are available:", world.node_count());
    if let Outcome::Rejected { rejection, .. } = filters.outcome() {
        // Writing to a string does not fail.
        let _ = write!(message, " {}.", rejection.reasons.message());
    } else {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let mut count = |rejection: &Rejection, nodes: usize| {
            for reason in rejection.reasons.iter() {
                match counts.get_mut(reason) {
                    Some(count) => *count += nodes,
                    None => drop(counts.insert(reason.to_owned(), nodes)),
                }
            }
        };
        let mut others = all.clone();
        for (node, refused) in kept_free {
            others.remove(*node);
            count(&refused.rejection, 1);
        }
        filters.for_each_verdict(profile, &others, |rejection, nodes| count(rejection, nodes.len()));
        // Sorted as text, including the numbers: "10 x" comes before "9 x".
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

/// Why the chosen node was rejected after Filter.
pub(crate) fn refused(reason: &str) -> String {
    format!("0/1 nodes are available: 1 {reason}.")
}

/// Truncated to the limit of an event.
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
    fn an_event_is_truncated_at_a_character_boundary() {
        assert_eq!(for_event("short"), "short");
        let long = "ä".repeat(600);
        let cut = for_event(&long);
        assert!(cut.len() <= EVENT_BYTES_MAX && cut.ends_with("ä ..."), "{} {cut}", cut.len());
    }
}
