//! Which of the nodes that can run the pod suits it best.

use model::NodeId;
use model::storage::arena::DenseId;

use crate::framework::cycle::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::Status;
use model::NodeSet;

/// The best score a plugin may give, after normalisation; the least is 0.
pub const NODE_SCORE_MAX: i64 = 100;

/// Called once per cycle, after the feasible nodes are known and before any Score.
pub trait PreScore: Plugin {
    /// Computes what Score needs into `state`, which holds what PreFilter left there. `Skip`: Score is not called; the
    /// plugin adds nothing to any node. `Error`: the cycle is given up. `nodes` are the feasible ones, or all of them: see
    /// [`Plugin::scores_by_feasible`].
    fn pre_score(&self, cycle: &Cycle<'_>, state: &mut Self::State, nodes: &NodeSet) -> Status;
}

/// What [`Score::normalize`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalized {
    /// The scores are between 0 and [`NODE_SCORE_MAX`] as they were given; `normalized` was not written.
    AsGiven,
    /// `normalized` holds the scores of all feasible nodes.
    Written,
}

/// Ranks feasible nodes. Scores stand in a slice under the index of the node.
///
/// A plugin implements one of [`Score::score`] and [`Score::score_all`].
pub trait Score: Plugin {
    /// The raw score of one node.
    fn score(&self, _cycle: &Cycle<'_>, _state: &Self::State, _node: NodeId) -> i64 {
        0
    }

    /// Writes the raw scores of the nodes of `nodes`; others are left as they are. May be called for any part of the feasible
    /// nodes: all of them, or the few that changed.
    fn score_all(&self, cycle: &Cycle<'_>, state: &Self::State, nodes: &NodeSet, scores: &mut [i64]) {
        for node in nodes.iter() {
            scores[node.index()] = self.score(cycle, state, node);
        }
    }

    /// Brings the raw scores of all feasible nodes between 0 and [`NODE_SCORE_MAX`], into `normalized`.
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

/// The usual normalisation: in proportion to the highest score, from the top down when `reverse`.
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

/// The lowest and the highest score of these nodes; `None` when there are none.
pub(crate) fn extremes(nodes: &NodeSet, scores: &[i64]) -> Option<(i64, i64)> {
    let mut found = (i64::MAX, i64::MIN);
    nodes.iter().for_each(|node| {
        let score = scores[node.index()];
        found = (found.0.min(score), found.1.max(score));
    });
    (found.0 <= found.1).then_some(found)
}

/// Writes `of(score)` for each node. Where fewer scores are possible than there are nodes, each is worked out once: divisions are
/// what normalising thousands of nodes costs.
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
        let place = usize::try_from(score.wrapping_sub(lowest)).ok();
        mapped[node.index()] = place.and_then(|place| table.get(place).copied()).unwrap_or_else(|| of(score));
    });
}
