//! The verdicts and scores of a profile's plugins for one pod class, cached and kept up to date.
//!
//! In: a cycle and the journal. Out: the feasible nodes with their scores, and why each other node is rejected.
//!
//! - `filters`: PreFilter and Filter. `scores`: PreScore, Score and the totals. `trial`: one node with other pods.
//!   `dry_run`: many such steps on many nodes. `ahead`: the nominated pods that count in both.
//!   `hypothetical`: the same for any pod, without a cache. `one_node`: some filters on one node, without a profile.
//!
//! No plugin can distinguish pods of one class, so the next pod of the class reuses the result. Only what changed since
//! is recomputed: a plugin that reads only the node runs again on the changed nodes; a plugin that reads the whole
//! world runs again unless it reports that nothing it depends on has changed.
//! Invariant: the cached result equals a full recomputation.

mod ahead;
pub(crate) mod classes;
mod dry_run;
mod filters;
pub(crate) mod hypothetical;
pub(crate) mod journal;
pub(crate) mod one_node;
mod scores;
mod trial;

use model::NodeId;
use model::storage::arena::DenseId;

pub(crate) use self::ahead::Ahead;
pub(crate) use self::filters::{Filters, Outcome, names};
pub(crate) use self::scores::Scores;
pub(crate) use self::trial::{Refused, RejectedInCycle, Trial, kept_free, resolvable};
use crate::evaluate::journal::{Journal, Position, Since};
use crate::framework::cycle::Cycle;
use crate::framework::erased::Slot;
use crate::framework::plugin::Reads;
use crate::framework::points::extremes;
use crate::framework::probe::Meter;
use crate::framework::profile::{PluginBits, Profile};
use crate::plugins::default_preemption::Examined;
use model::NodeSet;

/// The cached verdicts and scores of one pod class.
pub(crate) struct Answers {
    /// By plugin.
    slots: Vec<Slot>,
    seen: Option<Position>,
    width: usize,
    pub(crate) filters: Filters,
    pub(crate) scores: Scores,
    /// The feasible nodes that are not kept free for nominated pods, as scored now and as scored in the refresh before.
    suited: NodeSet,
    suited_before: NodeSet,
    /// What preemption found out for pods of the class.
    pub(crate) examined: Examined,
}

/// Which plugins must run again, and on which nodes.
pub(crate) struct Stale<'a> {
    profile: &'a Profile,
    cycle: &'a Cycle<'a>,
    journal: &'a Journal,
    pub(crate) since: &'a Since,
    /// Plugins whose state must be recomputed, and with it the results for all nodes.
    pub(crate) redo: PluginBits,
    none: NodeSet,
    meter: Meter<'a>,
}

impl Stale<'_> {
    /// The nodes on which a plugin must run again if its state is still valid.
    pub(crate) fn nodes(&self, reads: Reads) -> &NodeSet {
        match reads {
            Reads::Node => &self.since.described,
            Reads::NodeAndItsPods => &self.since.either,
            // These are recomputed as a whole, or not at all.
            Reads::AllNodes | Reads::World => &self.none,
        }
    }
}

/// Buffers that are reused for every pod.
#[derive(Default)]
pub(crate) struct Scratch {
    since: Since,
}

impl Answers {
    pub(crate) fn new(profile: &Profile) -> Self {
        Self {
            slots: profile.plugins.iter().map(|built| built.plugin.slot()).collect(),
            seen: None,
            width: 0,
            filters: Filters::new(profile),
            scores: Scores::new(profile),
            suited: NodeSet::default(),
            suited_before: NodeSet::default(),
            examined: Examined::default(),
        }
    }

    /// Invalidates everything, so that another class can reuse the memory.
    pub(crate) fn reset(&mut self) {
        self.seen = None;
    }

    /// One more than the greatest node index at the last refresh.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Updates everything for the pod of this cycle. `kept_free` runs after the filters and returns the nodes that are
    /// kept free for other pods; these are not scored. An `Err` is a plugin error; nothing is cached then.
    pub(crate) fn refresh<K>(
        &mut self,
        profile: &Profile,
        cycle: &Cycle<'_>,
        journal: &Journal,
        scratch: &mut Scratch,
        meter: Meter<'_>,
        kept_free: impl FnOnce(&Trial<'_>) -> Vec<(NodeId, K)>,
    ) -> Result<Vec<(NodeId, K)>, String> {
        let seen = self.seen.take();
        match seen {
            Some(seen) => journal.since(seen, &mut scratch.since),
            None => scratch.since.everything = true,
        }
        let since = &scratch.since;
        let yielded = self.filters.yielded();
        let redo: PluginBits = (0..profile.plugins.len())
            .filter(|&index| {
                let plugin = &profile.plugins[index].plugin;
                since.everything
                    || yielded == Some(index)
                    || match plugin.reads() {
                        Reads::Node | Reads::NodeAndItsPods => false,
                        Reads::AllNodes => !since.described.is_empty(),
                        Reads::World => !plugin.still_holds(cycle, &self.slots[index]),
                    }
            })
            .collect();
        for index in redo.iter() {
            profile.plugins[index].plugin.reset(&mut self.slots[index]);
        }
        let stale = Stale { profile, cycle, journal, since, redo, none: NodeSet::default(), meter };
        self.filters.refresh(&stale, &mut self.slots)?;
        self.width = journal.width();
        self.update_examined(&stale);
        let kept_free = kept_free(&Trial { profile, cycle, answers: self });
        std::mem::swap(&mut self.suited, &mut self.suited_before);
        self.suited.copy_from(self.filters.feasible());
        for (node, _) in &kept_free {
            self.suited.remove(*node);
        }
        if self.suited.is_empty() {
            // Score does not run for this pod, so its results are out of date for the next one.
            self.scores.forget();
        } else {
            let others = self.suited != self.suited_before;
            self.scores.refresh(&stale, &self.suited, others, &mut self.slots)?;
        }
        self.seen = Some(journal.position());
        Ok(kept_free)
    }

    /// Forgets the results of dry runs that may have changed.
    fn update_examined(&mut self, stale: &Stale<'_>) {
        let plugins = &stale.profile.plugins;
        let mut filters = stale.profile.points.filter.iter().filter(|index| !self.filters.skips(**index));
        let is_local = filters.all(|&index| !matches!(plugins[index].plugin.reads(), Reads::World))
            && self.filters.yielded().is_none();
        self.examined.keep_if(is_local);
        let is_redone =
            |index: &usize| stale.redo.contains(*index) && plugins[*index].plugin.reads() == Reads::AllNodes;
        if stale.since.everything || stale.profile.points.filter.iter().any(is_redone) {
            self.examined.forget_all();
        } else {
            self.examined.forget(&stale.since.any);
        }
    }

    /// The nodes on which the pod may be placed.
    pub(crate) fn suited(&self) -> &NodeSet {
        &self.suited
    }

    /// The nodes with the highest total, in the order of ids.
    pub(crate) fn best(&self, best: &mut Vec<NodeId>) {
        best.clear();
        let totals = self.scores.totals();
        let Some((_, highest)) = extremes(&self.suited, totals) else { return };
        self.suited.iter().filter(|node| totals[node.index()] == highest).for_each(|node| best.push(node));
    }
}

#[cfg(test)]
mod tests;
