//! The score of each feasible node: PreScore, Score, normalisation, and the weighted total.
//!
//! In: the feasible nodes, and which plugins must run again on which nodes. Out: a total by node.
//!
//! All PreScores run before the first Score, and all Scores before the first normalisation, as upstream.
//!
//! A plugin whose scores do not depend on the set of feasible nodes scores all nodes, so that a node that becomes
//! feasible already has its score. The other plugins score the feasible nodes, again each time that set changes.

use model::NodeId;
use model::storage::arena::DenseId;

use super::Stale;
use crate::framework::erased::Slot;
use crate::framework::plugin::Reads;
use crate::framework::points::{NODE_SCORE_MAX, Normalized};
use crate::framework::probe::ExtensionPoint;
use crate::framework::profile::Profile;
use crate::framework::registry::Built;
use crate::framework::status::Status;
use model::NodeSet;

/// The scores of one plugin. The vectors are indexed by node.
#[derive(Default)]
struct Scored {
    known: bool,
    skipped: bool,
    /// It was skipped before it was redone.
    was_skipped: bool,
    /// In this refresh, PreScore ran and all nodes are scored again.
    is_redone: bool,
    /// In this refresh, some nodes were scored.
    is_raw_new: bool,
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

/// Which final scores differ from those of the refresh before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    None,
    /// Those of nodes that changed.
    Some,
    All,
}

pub(crate) struct Scores {
    /// By position in the profile's Score list.
    scored: Vec<Scored>,
    totals: Vec<i64>,
    known: bool,
}

impl Scores {
    pub(super) fn new(profile: &Profile) -> Self {
        let scored = profile.points.score.iter().map(|_| Scored::default()).collect();
        Self { scored, totals: Vec::new(), known: false }
    }

    /// The next refresh runs all plugins on all nodes.
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
        let redo_all = !std::mem::take(&mut self.known);
        stale
            .meter
            .point(ExtensionPoint::PreScore, || self.pre_score(stale, feasible, feasible_changed, redo_all, slots))?;
        stale.meter.point(ExtensionPoint::Score, || self.score(stale, feasible, feasible_changed, redo_all, slots))?;
        self.known = true;
        Ok(())
    }

    /// Runs Score, and then normalises the scores.
    fn score(
        &mut self,
        stale: &Stale<'_>,
        feasible: &NodeSet,
        feasible_changed: bool,
        redo_all: bool,
        slots: &[Slot],
    ) -> Result<(), String> {
        let &Stale { profile, cycle, journal, meter, .. } = stale;
        let mut extent = if redo_all { Extent::All } else { Extent::None };
        for (scored, &index) in self.scored.iter_mut().zip(&profile.points.score) {
            let built = &profile.plugins[index];
            let Some(score) = &built.score else { continue };
            scored.is_raw_new = false;
            if scored.skipped {
                // Its former scores no longer count.
                extent = if scored.is_redone && !scored.was_skipped { Extent::All } else { extent };
                continue;
            }
            let nodes = if scored.is_redone {
                scored.raw.resize(journal.width(), 0);
                extent = Extent::All;
                if is_by_feasible(built) { feasible } else { journal.all() }
            } else {
                stale.nodes(built.plugin.reads())
            };
            if nodes.is_empty() && !scored.is_redone {
                continue;
            }
            extent = if extent == Extent::All { extent } else { Extent::Some };
            scored.is_raw_new = true;
            meter.plugin(built.plugin.name(), ExtensionPoint::Score, || {
                score.score_all(cycle, &slots[index], nodes, &mut scored.raw);
            });
        }
        for (scored, &index) in self.scored.iter_mut().zip(&profile.points.score) {
            let built = &profile.plugins[index];
            let Some(score) = &built.score else { continue };
            let is_due = scored.is_redone || !scored.as_given && (scored.is_raw_new || feasible_changed);
            if scored.skipped || !is_due {
                continue;
            }
            scored.normalized.resize(journal.width(), 0);
            let Scored { raw, normalized, .. } = scored;
            let outcome = meter.plugin(built.plugin.name(), ExtensionPoint::ScoreExtensionNormalize, || {
                score.normalize(cycle, &slots[index], feasible, raw, normalized)
            });
            scored.as_given = outcome == Normalized::AsGiven;
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
        Ok(())
    }

    /// Runs PreScore of all plugins that must score everything again, before any of them scores.
    fn pre_score(
        &mut self,
        stale: &Stale<'_>,
        feasible: &NodeSet,
        feasible_changed: bool,
        redo_all: bool,
        slots: &mut [Slot],
    ) -> Result<(), String> {
        let &Stale { profile, journal, .. } = stale;
        for (scored, &index) in self.scored.iter_mut().zip(&profile.points.score) {
            let built = &profile.plugins[index];
            let by_feasible = is_by_feasible(built);
            scored.is_redone =
                redo_all || !scored.known || stale.redo.contains(index) || (by_feasible && feasible_changed);
            if scored.is_redone {
                let nodes = if by_feasible { feasible } else { journal.all() };
                scored.was_skipped = scored.known && scored.skipped;
                scored.known = true;
                scored.skipped = pre_score(stale, index, nodes, &mut slots[index])?;
            }
        }
        Ok(())
    }

    fn add_up(&mut self, profile: &Profile, width: usize, feasible: &NodeSet) -> Result<(), String> {
        self.totals.clear();
        self.totals.resize(width, 0);
        for (scored, &index) in self.scored.iter().zip(&profile.points.score) {
            if scored.skipped {
                continue;
            }
            let weight = profile.weights[index];
            let last = scored.last();
            // Negative if any score is below 0 or above the maximum.
            let mut range = 0;
            match u32::try_from(weight) {
                // Scores in range fit 32 bits and their products 64 bits, so several are multiplied at a time (SIMD).
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
                check_range(profile, index, last, feasible)?;
            }
        }
        Ok(())
    }

    fn total_of(&self, profile: &Profile, node: NodeId) -> i64 {
        let scored = self.scored.iter().zip(&profile.points.score).filter(|(scored, _)| !scored.skipped);
        let products = scored.map(|(scored, &index)| profile.weights[index].wrapping_mul(scored.last()[node.index()]));
        products.fold(0, i64::wrapping_add)
    }

    /// The normalised score of each plugin that did not skip, without its weight.
    pub(crate) fn of(&self, profile: &Profile, node: NodeId) -> Vec<(&'static str, i64)> {
        let scored = self.scored.iter().zip(&profile.points.score).filter(|(scored, _)| !scored.skipped);
        scored.map(|(scored, &index)| (profile.plugin_name(index), scored.last()[node.index()])).collect()
    }

    pub(crate) fn total(&self, node: NodeId) -> i64 {
        self.totals[node.index()]
    }
}

/// Whether the plugin scores feasible nodes alone.
fn is_by_feasible(built: &Built) -> bool {
    let reads_node_alone = matches!(built.plugin.reads(), Reads::Node | Reads::NodeAndItsPods);
    !reads_node_alone && built.plugin.scores_by_feasible()
}

/// Runs PreScore. Returns whether the plugin skips the pod.
fn pre_score(stale: &Stale<'_>, index: usize, feasible: &NodeSet, slot: &mut Slot) -> Result<bool, String> {
    let &Stale { profile, cycle, meter, .. } = stale;
    if !profile.points.pre_score.contains(&index) {
        return Ok(false);
    }
    let Some(plugin) = &profile.plugins[index].pre_score else { return Ok(false) };
    let name = profile.plugin_name(index);
    match meter.plugin(name, ExtensionPoint::PreScore, || plugin.pre_score(cycle, slot, feasible)) {
        Status::Success => Ok(false),
        Status::Skip => Ok(true),
        other => Err(format!("running PreScore plugin {name:?}: {}", other.describe())),
    }
}

/// A score out of range is a plugin error, in upstream's words.
fn check_range(profile: &Profile, index: usize, scores: &[i64], feasible: &NodeSet) -> Result<(), String> {
    let beyond = |score: &i64| !(0..=NODE_SCORE_MAX).contains(score);
    // The score of a node that is not feasible may have any value.
    match feasible.iter().find(|node| beyond(&scores[node.index()])) {
        None => Ok(()),
        Some(node) => Err(format!(
            "applying score defaultWeights on Score plugins: plugin {:?} returns an invalid score {}, it should in the \
             range of [0, {NODE_SCORE_MAX}] after normalizing",
            profile.plugin_name(index),
            scores[node.index()]
        )),
    }
}
