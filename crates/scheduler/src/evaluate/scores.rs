//! The score of each feasible node: PreScore, Score, normalisation, and the weighted total.
//!
//! In: the feasible nodes, and which plugins must run again on which nodes. Out: a total by node.
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
use crate::framework::status::Status;
use model::NodeSet;

/// The scores of one plugin. The vectors are indexed by node.
#[derive(Default)]
struct Scored {
    known: bool,
    /// PreScore ran in this refresh, so that Score runs on all nodes.
    redo: bool,
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

    /// Runs PreScore of the plugins whose Score must run again on all nodes, then Score.
    pub(super) fn refresh(
        &mut self,
        stale: &Stale<'_>,
        feasible: &NodeSet,
        feasible_changed: bool,
        slots: &mut [Slot],
    ) -> Result<(), String> {
        let mut extent = if self.known { Extent::None } else { Extent::All };
        let redo_all = !std::mem::take(&mut self.known);
        stale.meter.point(ExtensionPoint::PreScore, || {
            self.ask_pre_scores(stale, feasible, redo_all, feasible_changed, slots, &mut extent)
        })?;
        stale
            .meter
            .point(ExtensionPoint::Score, || self.ask_scores(stale, feasible, feasible_changed, slots, extent))?;
        self.known = true;
        Ok(())
    }

    fn ask_pre_scores(
        &mut self,
        stale: &Stale<'_>,
        feasible: &NodeSet,
        redo_all: bool,
        feasible_changed: bool,
        slots: &mut [Slot],
        extent: &mut Extent,
    ) -> Result<(), String> {
        let &Stale { profile, .. } = stale;
        for (scored, &index) in self.scored.iter_mut().zip(&profile.points.score) {
            let by_feasible = is_by_feasible(profile, index);
            scored.redo = redo_all || !scored.known || stale.redo.contains(index) || (by_feasible && feasible_changed);
            if !scored.redo {
                continue;
            }
            let was_skipped = scored.known && scored.skipped;
            scored.known = true;
            let nodes = if by_feasible { feasible } else { stale.journal.all() };
            scored.skipped = pre_score(stale, index, nodes, &mut slots[index])?;
            if !(scored.skipped && was_skipped) {
                *extent = Extent::All;
            }
        }
        Ok(())
    }

    fn ask_scores(
        &mut self,
        stale: &Stale<'_>,
        feasible: &NodeSet,
        feasible_changed: bool,
        slots: &[Slot],
        mut extent: Extent,
    ) -> Result<(), String> {
        let &Stale { profile, cycle, journal, meter, .. } = stale;
        for (scored, &index) in self.scored.iter_mut().zip(&profile.points.score) {
            let built = &profile.plugins[index];
            let Some(score) = built.score.as_ref().filter(|_| !scored.skipped) else { continue };
            let name = built.plugin.name();
            let nodes = match scored.redo {
                true if is_by_feasible(profile, index) => feasible,
                true => journal.all(),
                false => stale.nodes(built.plugin.reads()),
            };
            if scored.redo || !nodes.is_empty() {
                scored.raw.resize(journal.width(), 0);
                meter.plugin(name, ExtensionPoint::Score, || {
                    score.score_all(cycle, &slots[index], nodes, &mut scored.raw);
                });
                extent = if extent == Extent::All { extent } else { Extent::Some };
            } else if scored.as_given || !feasible_changed {
                continue;
            }
            if !scored.redo && scored.as_given {
                continue;
            }
            scored.normalized.resize(journal.width(), 0);
            let Scored { raw, normalized, .. } = scored;
            let outcome = meter.plugin(name, ExtensionPoint::ScoreExtensionNormalize, || {
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
        scored.map(|(scored, &index)| profile.weights[index] * scored.last()[node.index()]).sum()
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

/// Whether the plugin scores the feasible nodes instead of all nodes.
fn is_by_feasible(profile: &Profile, index: usize) -> bool {
    let plugin = &profile.plugins[index].plugin;
    !matches!(plugin.reads(), Reads::Node | Reads::NodeAndItsPods) && plugin.scores_by_feasible()
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
        other => Err(format!("running PreScore plugin {name:?}: {other:?}")),
    }
}

/// A score out of range is a plugin error, as upstream.
fn check_range(profile: &Profile, index: usize, scores: &[i64], feasible: &NodeSet) -> Result<(), String> {
    let beyond = |score: &i64| !(0..=NODE_SCORE_MAX).contains(score);
    // The score of a node that is not feasible may have any value.
    match feasible.iter().find(|node| beyond(&scores[node.index()])) {
        None => Ok(()),
        Some(node) => Err(format!(
            "plugin {:?} returns an invalid score {}, it should be in the range of [0, {NODE_SCORE_MAX}] after normalizing",
            profile.plugin_name(index),
            scores[node.index()]
        )),
    }
}
