//! Describes the blocking pods and hosts.
//!
//! kube-scheduler's own event only counts nodes by reason. In: the verdicts. Out: a sentence that names the first few
//! nodes. Invariants: it names no pod of another namespace than the pod's, whose users read it; it has at most
//! [`MESSAGE_BYTES_MAX`] bytes, however long the names in a request are.

use std::fmt::Write as _;

use super::judge::Judge;
use super::{NAME_BYTES_MAX, NodeVerdict};

/// How many nodes are named.
const NODES_NAMED_MAX: usize = 3;
/// The limit of Kubernetes for the message of an Event.
const MESSAGE_BYTES_MAX: usize = 1024;

/// The blockers on the first few nodes, one node of each host.
pub(super) fn in_words(judge: &Judge<'_>, namespace: &str, nodes: &[&str], verdicts: &[NodeVerdict]) -> String {
    let mut text = String::from("no node fits:");
    let mut named = 0;
    let mut hosts = Vec::new();
    for (name, verdict) in nodes.iter().zip(verdicts) {
        let NodeVerdict::Fails(reason) = verdict else { continue };
        let host = judge.host_of(name);
        if host.as_ref().is_some_and(|host| hosts.contains(host)) {
            continue;
        }
        if named == NODES_NAMED_MAX {
            break;
        }
        let separator = if named == 0 { " " } else { "; " };
        named += 1;
        let _ = write!(text, "{separator}{}", cut(name, NAME_BYTES_MAX));
        if let Some(host) = host {
            let _ = write!(text, " on {host}");
            hosts.push(host);
        }
        match judge.blocker(name, namespace) {
            Some(blocker) => {
                let _ = write!(text, ": {blocker}");
            }
            None => {
                let _ = write!(text, ": {}", reason.text());
            }
        }
    }
    if nodes.len() > named {
        let _ = write!(text, "; {} nodes in all", nodes.len());
    }
    cut(&text, MESSAGE_BYTES_MAX).to_owned()
}

/// The beginning of a text.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}
