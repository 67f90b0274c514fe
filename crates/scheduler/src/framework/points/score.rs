//! Which of the feasible nodes is best for the pod.

use model::NodeId;
use model::storage::arena::DenseId;

use crate::framework::cycle::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::Status;
use model::NodeSet;

/// The highest score of a plugin after normalisation. The lowest is 0.
pub const NODE_SCORE_MAX: i64 = 100;

/// Called once per cycle, after the feasible nodes are known and before any Score.
pub trait PreScore: Plugin {
    /// Writes what Score needs into `state`, which contains what PreFilter wrote. `Skip`: Score does not run, and the
    /// plugin adds nothing to any node's total. `Error`: the cycle is aborted. `nodes` are the feasible nodes or all
    /// nodes, see [`Plugin::scores_by_feasible`].
    fn pre_score(&self, cycle: &Cycle<'_>, state: &mut Self::State, nodes: &NodeSet) -> Status;
}

/// The result of [`Score::normalize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalized {
    /// The raw scores are already between 0 and [`NODE_SCORE_MAX`]; `normalized` was not written.
    AsGiven,
    /// `normalized` contains the scores of all feasible nodes.
    Written,
}

/// Ranks feasible nodes. Scores are in a slice indexed by node.
///
/// A plugin implements one of [`Score::score`] and [`Score::score_all`].
pub trait Score: Plugin {
    /// The raw score of one node.
    fn score(&self, _cycle: &Cycle<'_>, _state: &Self::State, _node: NodeId) -> i64 {
        0
    }

    /// Writes the raw scores of the nodes in `nodes` and leaves the others unchanged. `nodes` may be all nodes to be
    /// scored or only those that changed.
    fn score_all(&self, cycle: &Cycle<'_>, state: &Self::State, nodes: &NodeSet, scores: &mut [i64]) {
        for node in nodes.iter() {
            scores[node.index()] = self.score(cycle, state, node);
        }
    }

    /// Scales the raw scores of all feasible nodes to 0 to [`NODE_SCORE_MAX`] and writes them to `normalized`.
    fn normalize(
        &self,
        _cycle: &Cycle<'_>,
        _state: &Self::State,
        _feasible: &NodeSet,
        _scores: &[i64],
        _normalized: &mut [i64],
    ) -> Normalized {
        Normalized::AsGiven
    }
}

/// The default normalisation: in proportion to the highest score, inverted if `reverse`.
pub fn normalize_by_highest(feasible: &NodeSet, scores: &[i64], normalized: &mut [i64], reverse: bool) {
    let Some((lowest, highest)) = extremes(feasible, scores) else { return };
    if highest <= 0 {
        let of = |score: i64| if reverse { NODE_SCORE_MAX } else { score };
        return feasible.iter().for_each(|node| normalized[node.index()] = of(scores[node.index()]));
    }
    map_scores(feasible, (lowest, highest), scores, normalized, |score| {
        let score = NODE_SCORE_MAX * score / highest;
        if reverse { NODE_SCORE_MAX - score } else { score }
    });
}

/// The lowest and the highest score of these nodes. `None` if there are no nodes.
pub(crate) fn extremes(nodes: &NodeSet, scores: &[i64]) -> Option<(i64, i64)> {
    let mut found = (i64::MAX, i64::MIN);
    nodes.iter().for_each(|node| {
        let score = scores[node.index()];
        found = (found.0.min(score), found.1.max(score));
    });
    (found.0 <= found.1).then_some(found)
}

/// Writes `of(score)` for each node. If fewer scores are possible than there are nodes, each is computed once: the
/// divisions dominate the cost of normalising thousands of nodes.
pub(crate) fn map_scores(
    nodes: &NodeSet,
    (lowest, highest): (i64, i64),
    scores: &[i64],
    mapped: &mut [i64],
    of: impl Fn(i64) -> i64,
) {
    let span = usize::try_from(highest.saturating_sub(lowest)).unwrap_or(usize::MAX);
    if span >= nodes.len() {
        return nodes.iter().for_each(|node| mapped[node.index()] = of(scores[node.index()]));
    }
    let table: Vec<i64> = (lowest..=highest).map(&of).collect();
    nodes.iter().for_each(|node| {
        let score = scores[node.index()];
        let index = usize::try_from(score.wrapping_sub(lowest)).ok();
        mapped[node.index()] = index.and_then(|index| table.get(index).copied()).unwrap_or_else(|| of(score));
    });
}
