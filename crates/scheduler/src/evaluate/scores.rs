//! What each feasible node is worth: PreScore, Score, normalisation, and the weighted total.
//!
//! In: the feasible nodes, and which plugins are to be asked again about which nodes. Out: a total by node.
//!
//! Plugins whose scores do not depend on which nodes are feasible score all nodes, so that a node that becomes feasible has its
//! score. The others score the feasible ones, anew each time these are other ones.

use model::NodeId;
use model::storage::arena::DenseId;

use super::Stale;
use crate::framework::cycle::Cycle;
use crate::framework::erased::Slot;
use crate::framework::plugin::Reads;
use crate::framework::points::{NODE_SCORE_MAX, Normalized};
use crate::framework::profile::Profile;
use crate::framework::status::Status;
use model::NodeSet;

/// What one Score plugin says. The slices are indexed by node.
#[derive(Default)]
struct Scored {
    known: bool,
    skipped: bool,
    raw: Vec<i64>,
    normalized: Vec<i64>,
    /// The raw scores are the final ones.
    as_given: bool,
}

impl Scored {
    fn last(&self) -> &[i64] {
        if self.as_given { &self.raw } else { &self.normalized }
    }
}

/// How far a plugin's final scores differ from those before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    None,
    /// At nodes that changed.
    Some,
    All,
}

pub(crate) struct Scores {
    /// By place in the profile's Score list.
    scored: Vec<Scored>,
    totals: Vec<i64>,
    known: bool,
}

impl Scores {
    pub(super) fn new(profile: &Profile) -> Self {
        let scored = profile.points.score.iter().map(|_| Scored::default()).collect();
        Self { scored, totals: Vec::new(), known: false }
    }

    /// The next refresh asks everybody about everything.
    pub(super) fn forget(&mut self) {
        self.known = false;
    }

    pub(super) fn totals(&self) -> &[i64] {
        &self.totals
    }

    pub(super) fn refresh(
        &mut self,
        stale: &Stale<'_>,
        feasible: &NodeSet,
        feasible_changed: bool,
        slots: &mut [Slot],
    ) -> Result<(), String> {
        let &Stale { profile, cycle, journal, .. } = stale;
        let all_anew = !self.known;
        self.known = false;
        let mut extent = if all_anew { Extent::All } else { Extent::None };
        for (scored, &place) in self.scored.iter_mut().zip(&profile.points.score) {
            let built = &profile.plugins[place];
            let Some(score) = &built.score else { continue };
            let reads = built.plugin.reads();
            let reads_node_alone = matches!(reads, Reads::Node | Reads::NodeAndItsPods);
            let by_feasible = !reads_node_alone && built.plugin.scores_by_feasible();
            let nodes = if by_feasible { feasible } else { journal.all() };
            let anew = all_anew || !scored.known || stale.anew.contains(place) || (by_feasible && feasible_changed);
            if anew {
                let was_skipped = scored.known && scored.skipped;
                scored.known = true;
                scored.skipped = pre_score(profile, place, cycle, nodes, &mut slots[place])?;
                if scored.skipped {
                    extent = if was_skipped { extent } else { Extent::All };
                    continue;
                }
                scored.raw.resize(journal.width(), 0);
                score.score_all(cycle, &slots[place], nodes, &mut scored.raw);
                extent = Extent::All;
            } else if scored.skipped {
                continue;
            } else {
                let nodes = stale.nodes(reads);
                if !nodes.is_empty() {
                    score.score_all(cycle, &slots[place], nodes, &mut scored.raw);
                    extent = if extent == Extent::All { extent } else { Extent::Some };
                } else if scored.as_given || !feasible_changed {
                    continue;
                }
            }
            if !anew && scored.as_given {
                continue;
            }
            scored.normalized.resize(journal.width(), 0);
            let normalized = score.normalize(cycle, &slots[place], feasible, &scored.raw, &mut scored.normalized);
            scored.as_given = normalized == Normalized::AsGiven;
            if !scored.as_given {
                extent = Extent::All;
            }
        }
        match extent {
            Extent::None if !feasible_changed => {}
            Extent::All | Extent::None => self.add_up(profile, journal.width(), feasible)?,
            Extent::Some => {
                for node in stale.since.either.iter() {
                    self.totals[node.index()] = self.total_of(profile, node);
                }
            }
        }
        self.known = true;
        Ok(())
    }

    fn add_up(&mut self, profile: &Profile, width: usize, feasible: &NodeSet) -> Result<(), String> {
        self.totals.clear();
        self.totals.resize(width, 0);
        for (scored, &place) in self.scored.iter().zip(&profile.points.score) {
            if scored.skipped {
                continue;
            }
            let weight = profile.weights[place];
            let last = scored.last();
            // Negative as soon as one score is below 0 or above the highest.
            let mut range = 0;
            match u32::try_from(weight) {
                // Scores that are in range fit 32 bits, and their products 64, which processors multiply several at a time.
                Ok(weight) => self.totals.iter_mut().zip(last).for_each(|(total, score)| {
                    *total = total.wrapping_add((u64::from(*score as u32) * u64::from(weight)) as i64);
                    range |= *score | NODE_SCORE_MAX.wrapping_sub(*score);
                }),
                Err(_) => self.totals.iter_mut().zip(last).for_each(|(total, score)| {
                    *total = total.wrapping_add(weight.wrapping_mul(*score));
                    range |= *score | NODE_SCORE_MAX.wrapping_sub(*score);
                }),
            }
            if range < 0 {
                check_range(profile, place, last, feasible)?;
            }
        }
        Ok(())
    }

    fn total_of(&self, profile: &Profile, node: NodeId) -> i64 {
        let scored = self.scored.iter().zip(&profile.points.score).filter(|(scored, _)| !scored.skipped);
        scored.map(|(scored, &place)| profile.weights[place] * scored.last()[node.index()]).sum()
    }

    /// The normalised score of each plugin that did not skip, before its weight.
    pub(crate) fn of(&self, profile: &Profile, node: NodeId) -> Vec<(&'static str, i64)> {
        let scored = self.scored.iter().zip(&profile.points.score).filter(|(scored, _)| !scored.skipped);
        scored.map(|(scored, &place)| (profile.plugin_name(place), scored.last()[node.index()])).collect()
    }

    pub(crate) fn total(&self, node: NodeId) -> i64 {
        self.totals[node.index()]
    }
}

/// Tells whether the plugin skips the pod.
fn pre_score(
    profile: &Profile,
    place: usize,
    cycle: &Cycle<'_>,
    feasible: &NodeSet,
    slot: &mut Slot,
) -> Result<bool, String> {
    if !profile.points.pre_score.contains(&place) {
        return Ok(false);
    }
    let Some(plugin) = &profile.plugins[place].pre_score else { return Ok(false) };
    match plugin.pre_score(cycle, slot, feasible) {
        Status::Success => Ok(false),
        Status::Skip => Ok(true),
        other => Err(format!("running PreScore plugin {:?}: {other:?}", profile.plugin_name(place))),
    }
}

/// A score beyond the range is an error of the plugin, as upstream has it.
fn check_range(profile: &Profile, place: usize, scores: &[i64], feasible: &NodeSet) -> Result<(), String> {
    let beyond = |score: &i64| !(0..=NODE_SCORE_MAX).contains(score);
    // Nodes that are not feasible may hold anything.
    match feasible.iter().find(|node| beyond(&scores[node.index()])) {
        None => Ok(()),
        Some(node) => Err(format!(
            "plugin {:?} returns an invalid score {}, it should be in the range of [0, {NODE_SCORE_MAX}] after normalizing",
            profile.plugin_name(place),
            scores[node.index()]
        )),
    }
}
