//! What the plugins of a profile say of one class of pods, kept up to date.
//!
//! In: a cycle and the journal. Out: which nodes are feasible, why the others are not, and what each feasible one is worth.
//!
//! - `filters`: PreFilter and Filter. `scores`: PreScore, Score and the totals. `trial`: one node, with other pods on it.
//!
//! Pods of one class are told apart by no plugin, so an answer serves the next one too; only what changed since is asked again:
//! a plugin that reads the node alone is asked about the nodes that changed, one that reads the whole world is asked again unless
//! it says that nothing it rests on has changed. Invariant: what is kept equals what asking everything again would give.

pub(crate) mod classes;
mod filters;
pub(crate) mod journal;
mod scores;
mod trial;

use model::NodeId;
use model::storage::arena::DenseId;

pub(crate) use self::filters::{Filters, Outcome, names};
pub(crate) use self::scores::Scores;
pub(crate) use self::trial::{Refused, Trial, kept_free};
use crate::evaluate::journal::{Journal, Position, Since};
use crate::framework::cycle::Cycle;
use crate::framework::erased::Slot;
use crate::framework::plugin::Reads;
use crate::framework::points::extremes;
use crate::framework::profile::{PluginBits, Profile};
use model::NodeSet;

/// The answers for one class of pods.
pub(crate) struct Answers {
    /// By plugin.
    slots: Vec<Slot>,
    seen: Option<Position>,
    width: usize,
    pub(crate) filters: Filters,
    pub(crate) scores: Scores,
    /// The feasible nodes that are not kept free for others: those that were scored, and those scored before.
    suited: NodeSet,
    suited_before: NodeSet,
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
            suited: NodeSet::default(),
            suited_before: NodeSet::default(),
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

    /// Brings everything up to date for the pod of this cycle. `kept_free` says, once the filters have been asked, which nodes
    /// others have a right to: these are not scored. An `Err` is a plugin's error: nothing is kept then.
    pub(crate) fn refresh<K>(
        &mut self,
        profile: &Profile,
        cycle: &Cycle<'_>,
        journal: &Journal,
        scratch: &mut Scratch,
        kept_free: impl FnOnce(&Trial<'_>) -> Vec<(NodeId, K)>,
    ) -> Result<Vec<(NodeId, K)>, String> {
        let seen = self.seen.take();
        match seen {
            Some(seen) => journal.since(seen, &mut scratch.since),
            None => scratch.since.everything = true,
        }
        let since = &scratch.since;
        let yielded = self.filters.yielded();
        let anew: PluginBits = (0..profile.plugins.len())
            .filter(|&place| {
                let plugin = &profile.plugins[place].plugin;
                since.everything
                    || yielded == Some(place)
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
        self.filters.refresh(&stale, &mut self.slots)?;
        self.width = journal.width();
        let kept_free = kept_free(&Trial { profile, cycle, answers: self });
        std::mem::swap(&mut self.suited, &mut self.suited_before);
        self.suited.copy_from(self.filters.feasible());
        for (node, _) in &kept_free {
            self.suited.remove(*node);
        }
        if self.suited.is_empty() {
            // What was not asked now is out of date at the next pod.
            self.scores.forget();
        } else {
            let others = self.suited != self.suited_before;
            self.scores.refresh(&stale, &self.suited, others, &mut self.slots)?;
        }
        self.seen = Some(journal.position());
        Ok(kept_free)
    }

    /// The nodes that can have the pod.
    pub(crate) fn suited(&self) -> &NodeSet {
        &self.suited
    }

    /// The best nodes, each as good as the others, in the order of ids.
    pub(crate) fn best(&self, best: &mut Vec<NodeId>) {
        best.clear();
        let totals = self.scores.totals();
        let Some((_, highest)) = extremes(&self.suited, totals) else { return };
        self.suited.iter().filter(|node| totals[node.index()] == highest).for_each(|node| best.push(node));
    }
}

#[cfg(test)]
mod tests;
