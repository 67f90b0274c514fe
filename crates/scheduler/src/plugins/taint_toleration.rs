//! TaintToleration: taints reject pods that do not tolerate them. PreferNoSchedule taints only lower the score.

use std::borrow::Cow;

use model::NodeSet;
use model::scheduling::{Taint, TaintEffect, Toleration};
use model::storage::arena::DenseId;

use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{Filter, Normalized, Score, normalize_by_highest};
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::{Rejection, Rejections};

const UNTOLERATED: Rejection = Rejection::unresolvable(&[Cow::Borrowed("node(s) had untolerated taint(s)")]);

pub struct TaintToleration;

fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| toleration.tolerates(taint))
}

fn keeps_away(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    taints.iter().any(|taint| taint.effect != TaintEffect::PreferNoSchedule && !is_tolerated(taint, tolerations))
}

impl Plugin for TaintToleration {
    const NAME: &'static str = "TaintToleration";
    type State = ();

    fn reads(&self) -> Reads {
        Reads::Node
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NODE_ADDED | ChangeKinds::NODE_TAINTS | ChangeKinds::SELF_UPDATED
    }

    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        change.node.is_none_or(|node| !keeps_away(&waiting.node_facts(node).taints, &waiting.facts().tolerations))
    }
}

impl Filter for TaintToleration {
    /// Tests each distinct list of taints once, not each node.
    fn filter_all(&self, cycle: &Cycle<'_>, (): &(), nodes: &NodeSet, rejections: &mut Rejections) {
        let tolerations = &cycle.facts().tolerations;
        for (_, tainted) in cycle.world.taints().iter().filter(|(taints, _)| keeps_away(taints, tolerations)) {
            let id = rejections.id(UNTOLERATED);
            tainted.iter().filter(|node| nodes.contains(*node)).for_each(|node| rejections.reject(node, id));
        }
    }
}

impl Score for TaintToleration {
    /// The number of PreferNoSchedule taints that the pod does not tolerate.
    fn score_all(&self, cycle: &Cycle<'_>, (): &(), nodes: &NodeSet, scores: &mut [i64]) {
        let tolerations = &cycle.facts().tolerations;
        let rather_not =
            |taint: &&Taint| taint.effect == TaintEffect::PreferNoSchedule && !is_tolerated(taint, tolerations);
        nodes.iter().for_each(|node| scores[node.index()] = 0);
        for (taints, tainted) in cycle.world.taints().iter() {
            // A node has few taints, so the cast is lossless.
            let count = taints.iter().filter(rather_not).count() as i64;
            if count > 0 {
                tainted.iter().filter(|node| nodes.contains(*node)).for_each(|node| scores[node.index()] = count);
            }
        }
    }

    fn normalize(
        &self,
        _: &Cycle<'_>,
        (): &(),
        feasible: &NodeSet,
        scores: &[i64],
        normalized: &mut [i64],
    ) -> Normalized {
        normalize_by_highest(feasible, scores, normalized, true);
        Normalized::Written
    }
}

impl Register for TaintToleration {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.filter().score()
    }
}
