//! Where Bridger calls plugins differently from kube-scheduler, on purpose: the list of docs/write-a-plugin.md, as far as
//! the scenarios show it.
//!
//! In: the calls of both for one pod. Out: the same without one difference. Each difference must occur: without it, the
//! comparison must fail.

use std::collections::BTreeSet;

use super::calls::{Call, CallsByPod, difference, sort_runs};

/// The pod that is nominated in its first attempt.
pub const NOMINATED: &str = "post-filter-nominates";
/// The second of two equal pods, of plugins that depend on the node alone.
pub const EQUAL: &str = "equal-2";
/// A pod in a cluster of more than a hundred nodes.
pub const AMONG_MANY: &str = "among-many";

pub struct Difference {
    pub name: &'static str,
    pub reason: &'static str,
    remove: fn(pod: &str, upstream: &mut Vec<Call>, bridger: &mut Vec<Call>),
}

pub const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "plugin by plugin",
        reason: "A plugin gets all nodes in one call, so that it can judge them together.",
        remove: |_, upstream, bridger| {
            for calls in [upstream, bridger] {
                sort_runs(calls, &["Filter", "Score"]);
            }
        },
    },
    Difference {
        name: "no node comes first",
        reason: "kube-scheduler filters the nominated node alone, and scores nothing if one node fits. Verdicts of all \
                 nodes serve the next equal pod, too.",
        remove: |pod, _, bridger| {
            if pod != NOMINATED {
                return;
            }
            let again = bridger.iter().rposition(|call| call.point == "PreFilter").unwrap_or_default();
            let mut position = 0;
            bridger.retain(|call| {
                position += 1;
                let is_extra = match call.point.as_str() {
                    "Filter" => call.node != "n1",
                    point => is_scoring(point),
                };
                position <= again || !is_extra
            });
        },
    },
    Difference {
        name: "equal pods share answers",
        reason: "What no plugin can tell apart is computed once.",
        remove: |pod, upstream, _| {
            if pod == EQUAL {
                upstream
                    .retain(|call| !is_scoring(&call.point) && !["PreFilter", "Filter"].contains(&call.point.as_str()));
            }
        },
    },
    Difference {
        name: "all nodes",
        reason: "kube-scheduler stops when enough nodes fit, at least a hundred. Bridger chooses among all.",
        remove: |pod, upstream, bridger| {
            if pod != AMONG_MANY {
                return;
            }
            let seen: BTreeSet<(String, String)> =
                upstream.iter().map(|call| (call.point.clone(), call.node.clone())).collect();
            bridger.retain(|call| {
                !["Filter", "Score"].contains(&call.point.as_str())
                    || seen.contains(&(call.point.clone(), call.node.clone()))
            });
        },
    },
];

fn is_scoring(point: &str) -> bool {
    ["PreScore", "Score", "NormalizeScore"].contains(&point)
}

/// Every pod whose calls differ otherwise than by these differences.
pub fn unexplained<'a>(
    upstream: &CallsByPod,
    bridger: &CallsByPod,
    pods: impl IntoIterator<Item = &'a str>,
    differences: &[&Difference],
) -> Vec<String> {
    let of = |calls: &CallsByPod, pod: &str| calls.get(pod).cloned().unwrap_or_default();
    let differs = |pod: &str| {
        let (mut expected, mut found) = (of(upstream, pod), of(bridger, pod));
        for difference in differences {
            (difference.remove)(pod, &mut expected, &mut found);
        }
        difference(&expected, &found).map(|difference| format!("{pod}: {difference}"))
    };
    pods.into_iter().filter_map(differs).collect()
}
