//! Filters one node as if other pods ran on it.
//!
//! In: the cached verdicts of the pod's class, and a view with the pods that are added or removed. Out: the plugin that
//! rejects the node, if any, and for messages the pod that blocks it. Used for nominated pods, and by PostFilter plugins.

use std::cell::RefCell;

use model::{NodeId, NodeSet, PodId, View};

use super::Answers;
use super::ahead::Ahead;
use super::dry_run::DryRun;
use crate::framework::cycle::Cycle;
use crate::framework::erased::Slot;
use crate::framework::points::{Doubt, NodeTrial, RejectedNodes};
use crate::framework::profile::Profile;
use crate::framework::status::{Rejection, Rejections, Status};
use crate::plugins::default_preemption::Examined;
use crate::queue::Nominations;

pub(crate) struct Trial<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) cycle: &'a Cycle<'a>,
    pub(crate) answers: &'a Answers,
}

/// A plugin rejects the node.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) by: usize,
    pub(crate) rejection: Rejection,
    /// The view in which the plugin ran.
    pub(crate) view: View,
}

impl Trial<'_> {
    /// The plugin that rejects the node in this view, with every filter from scratch. `None` if the pod fits.
    #[cfg(test)]
    pub(crate) fn refuses(&self, node: NodeId, view: View) -> Option<Refused> {
        let (by, rejection) = self.refusal(&Cycle { view: &view, ..*self.cycle }, node)?;
        Some(Refused { by, rejection, view })
    }

    #[cfg(test)]
    fn refusal(&self, cycle: &Cycle<'_>, node: NodeId) -> Option<(usize, Rejection)> {
        let filters = self.profile.points.filter.iter();
        filters.copied().find_map(|index| Some((index, self.refusal_by(index, cycle, node)?)))
    }

    /// Why this plugin rejects the node in the cycle's view.
    pub(super) fn refusal_by(&self, index: usize, cycle: &Cycle<'_>, node: NodeId) -> Option<Rejection> {
        // A plugin that skipped at PreFilter stays skipped, as upstream.
        let filter = self.profile.plugins[index].filter.as_ref().filter(|_| !self.answers.filters.skips(index))?;
        let slot = match self.slot(cycle, index, node) {
            Ok(slot) => slot,
            // The plugin does not apply in this view.
            Err(Status::Skip) => return None,
            Err(status) => return Some(rejection_of(status)),
        };
        let mut rejections = Rejections::default();
        rejections.reset(self.answers.width());
        filter.filter_all(cycle, &slot, &[node].into_iter().collect(), &mut rejections);
        verdict_of(&rejections, node)
    }

    /// The plugin's state in the cycle's view, which may differ from the world on this node. `Err` is the plugin's
    /// status for the pod as a whole.
    fn slot(&self, cycle: &Cycle<'_>, index: usize, node: NodeId) -> Result<Slot, Status> {
        let (built, world) = (&self.profile.plugins[index], cycle.world);
        let mut slot = built.plugin.copy(&self.answers.slots()[index]);
        let Some(plugin) = &built.pre_filter else { return Ok(slot) };
        let mut status = Status::Success;
        for &(added, on) in cycle.view.added() {
            status = plugin.add_pod(cycle, &mut slot, added, on);
        }
        for &removed in cycle.view.removed() {
            let on = world.pod(removed).and_then(|pod| pod.placed_on());
            let on = on.and_then(|name| world.node_id(world.interner().text(name)));
            status = plugin.remove_pod(cycle, &mut slot, removed, on.unwrap_or(node));
        }
        match status {
            Status::Success | Status::Wait => Ok(slot),
            status => Err(status),
        }
    }

    /// Why the pod may not work on a node that it fits.
    pub(crate) fn doubts(&self, node: NodeId) -> Vec<Doubt> {
        let filters = self.profile.points.filter.iter().filter(|index| !self.answers.filters.skips(**index));
        let doubt = |&index: &usize| {
            let filter = self.profile.plugins[index].filter.as_ref()?;
            filter.doubt(self.cycle, &self.answers.slots()[index], node)
        };
        filters.filter_map(doubt).collect()
    }

    /// For messages: the pod that blocks a node that was rejected.
    pub(crate) fn blocker(&self, node: NodeId, refused: &Refused) -> Option<String> {
        let cycle = Cycle { view: &refused.view, ..*self.cycle };
        let slot = self.slot(&cycle, refused.by, node).ok()?;
        let filter = self.profile.plugins[refused.by].filter.as_ref()?;
        let found = filter.blockers(&cycle, &slot, &[node].into_iter().collect());
        found.into_iter().next().map(|(_, blocker)| blocker)
    }
}

/// What a plugin says about one node. A failure rejects it: whether the pod fits is not known.
pub(super) fn verdict_of(rejections: &Rejections, node: NodeId) -> Option<Rejection> {
    match rejections.error() {
        Some(error) => Some(rejection_of(Status::Error(error.to_owned()))),
        None => rejections.of(node).cloned(),
    }
}

pub(super) fn rejection_of(status: Status) -> Rejection {
    let text = status.describe();
    status
        .into_rejection()
        .unwrap_or_else(|| Rejection { resolvable: false, reasons: crate::framework::status::Reasons::one(text) })
}

/// What PostFilter plugins see of the nodes that were rejected.
pub(crate) struct RejectedInCycle<'a> {
    pub(crate) trial: Trial<'a>,
    pub(crate) nominations: &'a Nominations,
    pub(crate) resolvable: &'a NodeSet,
    /// The nodes that are rejected together with the pods nominated to them, in the order of ids.
    pub(crate) kept: &'a [(NodeId, Refused)],
    /// Of the pod's class.
    pub(crate) examined: RefCell<Examined>,
}

/// The nodes where removing pods may help. What `kept` says of a node counts more than what the filters say.
pub(crate) fn resolvable(trial: &Trial<'_>, all: &NodeSet, kept: &[(NodeId, Refused)]) -> NodeSet {
    let mut resolvable = trial.answers.filters.resolvable(trial.profile, all);
    for (node, refused) in kept {
        resolvable.set(*node, refused.rejection.resolvable);
    }
    resolvable
}

impl RejectedNodes for RejectedInCycle<'_> {
    fn resolvable(&self) -> &NodeSet {
        self.resolvable
    }

    fn rejection(&self, node: NodeId) -> Option<Rejection> {
        if let Ok(index) = self.kept.binary_search_by_key(&node, |(node, _)| *node) {
            return Some(self.kept[index].1.rejection.clone());
        }
        let verdict = self.trial.answers.filters.verdict(self.trial.profile, node)?;
        Some(verdict.rejection.clone())
    }

    fn trial(&self) -> Box<dyn NodeTrial + '_> {
        Box::new(DryRun::new(&self.trial, self.nominations))
    }

    fn examined(&self) -> Option<&RefCell<Examined>> {
        Some(&self.examined)
    }

    fn blockers_elsewhere(&self, node: NodeId) -> Vec<PodId> {
        let Trial { profile, cycle, answers } = self.trial;
        let mut found = Vec::new();
        for &index in profile.points.filter.iter().filter(|index| !answers.filters.skips(**index)) {
            let Some(filter) = &profile.plugins[index].filter else { continue };
            let blockers = filter.blockers_elsewhere(cycle, &answers.slots()[index], node);
            found.extend(blockers.into_iter().filter(|pod| !cycle.view.removed().contains(pod)));
        }
        // Two plugins may name one pod.
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The nodes `in_question` that the pod does not fit together with the pods nominated to them, in the order of ids.
/// Nominated pods of lower priority do not count.
pub(crate) fn kept_free(
    nominations: &Nominations,
    trial: &Trial<'_>,
    in_question: impl Fn(NodeId) -> bool,
) -> Vec<(NodeId, Refused)> {
    let nodes = Ahead::new(trial.cycle, nominations).nodes();
    // Most pods meet no nominated node in question, so the trial is built for the first one.
    let mut run: Option<DryRun<'_>> = None;
    let refused = nodes.iter().filter(|node| in_question(*node)).filter_map(|node| {
        let run = run.get_or_insert_with(|| DryRun::new(trial, nominations));
        Some((node, run.refused_beside_nominated(node)?))
    });
    refused.collect()
}
