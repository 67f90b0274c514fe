//! The calls that a recording plugin wrote down.
//!
//! In: the lines of a file. Out: the calls by pod, in order. The calls for different pods mix as binding cycles run beside
//! the next pod's scheduling cycle, so only those for one pod are compared.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Call {
    pub point: String,
    /// Empty if the call is about no single node.
    pub node: String,
    pub plugin: String,
    pub status: String,
    pub pod: String,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} {} {}", self.plugin, self.point, self.node, self.status)
    }
}

pub type CallsByPod = BTreeMap<String, Vec<Call>>;

pub fn read(file: &Path) -> Result<CallsByPod> {
    // Neither program has written yet.
    let Ok(text) = std::fs::read_to_string(file) else { return Ok(CallsByPod::new()) };
    let mut calls = CallsByPod::new();
    // The last line may be incomplete.
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let call: Call = serde_json::from_str(line).with_context(|| line.to_owned())?;
        calls.entry(call.pod.clone()).or_default().push(call);
    }
    for calls in calls.values_mut() {
        // kube-scheduler keeps PreEnqueue plugins in a map: their order is random.
        sort_runs(calls, &["PreEnqueue"]);
        // And visits the nodes in the order in which it happened to learn of them. An error ends the visits, so it is
        // about the first of them.
        for call in calls.iter_mut().filter(|call| call.point == "Filter" && call.status == "Error") {
            call.node = "any".to_owned();
        }
    }
    Ok(calls)
}

/// Sorts the calls of each uninterrupted run at one of these points.
pub fn sort_runs(calls: &mut [Call], points: &[&str]) {
    for run in calls.chunk_by_mut(|a, b| a.point == b.point) {
        if points.contains(&run[0].point.as_str()) {
            run.sort_unstable();
        }
    }
}

/// Where two sequences differ, with some calls before; `None` if they are equal.
pub fn difference(expected: &[Call], found: &[Call]) -> Option<String> {
    let same = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    if same == expected.len() && same == found.len() {
        return None;
    }
    let show = |calls: &[Call]| {
        let shown = calls.iter().skip(same.saturating_sub(4)).take(16).map(ToString::to_string);
        shown.collect::<Vec<_>>().join(", ")
    };
    Some(format!("after {same} calls\n    kube-scheduler: {}\n    Bridger:        {}", show(expected), show(found)))
}
