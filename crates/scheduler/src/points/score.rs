//! Which of the nodes that can run the pod suits it best.

use model::NodeId;
use model::arena::DenseId;

use crate::cycle::Cycle;
use crate::plugin::Plugin;
use crate::status::Status;
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
    let highest = feasible.iter().map(|node| scores[node.index()]).max().unwrap_or(0).max(0);
    if highest == 0 {
        let all = if reverse { NODE_SCORE_MAX } else { 0 };
        feasible.iter().for_each(|node| normalized[node.index()] = if reverse { all } else { scores[node.index()] });
        return;
    }
    for node in feasible.iter() {
        let score = NODE_SCORE_MAX * scores[node.index()] / highest;
        normalized[node.index()] = if reverse { NODE_SCORE_MAX - score } else { score };
    }
}
