//! What the plugins of a profile say of one class of pods, kept up to date.
//!
//! In: a cycle and the journal. Out: which nodes are feasible, why the others are not, and what each feasible one is worth.
//!
//! - `filters`: PreFilter and Filter. `scores`: PreScore, Score and the totals. `trial`: one node, with other pods on it.
//!
//! Pods of one class are told apart by no plugin, so an answer serves the next one too; only what changed since is asked again:
//! a plugin that reads the node alone is asked about the nodes that changed, one that reads the whole world is asked again unless
//! it says that nothing it rests on has changed. Invariant: what is kept equals what asking everything again would give.

mod filters;
mod scores;
mod trial;

use model::NodeId;
use model::arena::DenseId;

pub(crate) use self::filters::{Filters, Outcome, names};
pub(crate) use self::scores::Scores;
pub(crate) use self::trial::{Refused, Trial};
use crate::cycle::Cycle;
use crate::erased::Slot;
use crate::journal::{Journal, Position, Since};
use crate::plugin::Reads;
use crate::profile::{PluginBits, Profile};
use model::NodeSet;

/// The answers for one class of pods.
pub(crate) struct Answers {
    /// By plugin.
    slots: Vec<Slot>,
    seen: Option<Position>,
    width: usize,
    pub(crate) filters: Filters,
    pub(crate) scores: Scores,
}

/// What must be asked again, and of whom.
pub(crate) struct Stale<'a> {
    profile: &'a Profile,
    cycle: &'a Cycle<'a>,
    journal: &'a Journal,
    pub(crate) since: &'a Since,
    /// Plugins whose state is to be made anew, and all nodes with it.
    pub(crate) anew: PluginBits,
    none: NodeSet,
}

impl Stale<'_> {
    /// The nodes that this plugin is to be asked about again, where its state still holds.
    pub(crate) fn nodes(&self, reads: Reads) -> &NodeSet {
        match reads {
            Reads::Node => &self.since.described,
            Reads::NodeAndItsPods => &self.since.either,
            // These are made anew as a whole, or not at all.
            Reads::AllNodes | Reads::World => &self.none,
        }
    }
}

/// Work space that is used again and again.
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
        }
    }

    /// Makes the answers for another class, in the room they have.
    pub(crate) fn reset(&mut self) {
        self.seen = None;
    }

    /// One more than the greatest index of a node, when this was last brought up to date.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Brings everything up to date for the pod of this cycle. With `score`, feasible nodes are scored too. An `Err` is a
    /// plugin's error: nothing is kept then.
    pub(crate) fn refresh(
        &mut self,
        profile: &Profile,
        cycle: &Cycle<'_>,
        journal: &Journal,
        score: bool,
        scratch: &mut Scratch,
    ) -> Result<(), String> {
        let seen = self.seen.take();
        match seen {
            Some(seen) => journal.since(seen, &mut scratch.since),
            None => scratch.since.everything = true,
        }
        let since = &scratch.since;
        let anew: PluginBits = (0..profile.plugins.len())
            .filter(|&place| {
                let plugin = &profile.plugins[place].plugin;
                since.everything
                    || match plugin.reads() {
                        Reads::Node | Reads::NodeAndItsPods => false,
                        Reads::AllNodes => !since.described.is_empty(),
                        Reads::World => !plugin.still_holds(cycle, &self.slots[place]),
                    }
            })
            .collect();
        for place in anew.iter() {
            profile.plugins[place].plugin.reset(&mut self.slots[place]);
        }
        let stale = Stale { profile, cycle, journal, since, anew, none: NodeSet::default() };
        let feasible_changed = self.filters.refresh(&stale, &mut self.slots)?;
        if score && !self.filters.feasible().is_empty() {
            let feasible = self.filters.feasible();
            self.scores.refresh(&stale, feasible, feasible_changed, &mut self.slots)?;
        } else {
            // What was not asked now is out of date at the next pod.
            self.scores.forget();
        }
        self.seen = Some(journal.position());
        self.width = journal.width();
        Ok(())
    }

    /// The best nodes but for those left out, each as good as the others, in the order of ids.
    pub(crate) fn best(&self, left_out: &NodeSet, best: &mut Vec<NodeId>) {
        best.clear();
        let totals = self.scores.totals();
        let mut highest = i64::MIN;
        for node in self.filters.feasible().iter().filter(|node| !left_out.contains(*node)) {
            let total = totals[node.index()];
            if total > highest {
                highest = total;
                best.clear();
            }
            if total == highest {
                best.push(node);
            }
        }
    }
}

#[cfg(test)]
mod tests;
