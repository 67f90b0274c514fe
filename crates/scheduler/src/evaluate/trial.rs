//! One node, with other pods on it than there are: would it do then?
//!
//! In: the answers for the pod's class, and a view of which pods are added or gone. Out: who refuses the node, if anybody, and for
//! people which pod is in the way. Used for nominated pods, and for victims that might go.

use model::{NodeId, NodeSet, PodId, View};

use super::Answers;
use crate::framework::cycle::Cycle;
use crate::framework::erased::Slot;
use crate::framework::points::Trials;
use crate::framework::profile::Profile;
use crate::framework::status::{Rejection, Rejections, Status};
use crate::queue::Nominations;

pub(crate) struct Trial<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) cycle: &'a Cycle<'a>,
    pub(crate) answers: &'a Answers,
}

/// A plugin refuses the node.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) by: usize,
    pub(crate) rejection: Rejection,
    /// In which it was asked.
    pub(crate) view: View,
}

impl Trial<'_> {
    /// Who refuses the node in this view; `None` when it would do.
    pub(crate) fn refuses(&self, node: NodeId, view: View) -> Option<Refused> {
        let (by, rejection) = self.refusal(&Cycle { view: &view, ..*self.cycle }, node)?;
        Some(Refused { by, rejection, view })
    }

    fn refusal(&self, cycle: &Cycle<'_>, node: NodeId) -> Option<(usize, Rejection)> {
        let nodes: NodeSet = [node].into_iter().collect();
        let mut rejections = Rejections::default();
        for &place in &self.profile.points.filter {
            // A plugin that PreFilter left out stays out, as upstream has it.
            let filter = self.profile.plugins[place].filter.as_ref().filter(|_| !self.answers.filters.skips(place));
            let Some(filter) = filter else { continue };
            let slot = match self.slot(cycle, place, node) {
                Ok(slot) => slot,
                // In this view it has nothing to say.
                Err(Status::Skip) => continue,
                Err(status) => return Some((place, rejection_of(status))),
            };
            rejections.reset(self.answers.width());
            filter.filter_all(cycle, &slot, &nodes, &mut rejections);
            if let Some(rejection) = rejections.of(node) {
                return Some((place, rejection.clone()));
            }
        }
        None
    }

    /// The plugin's state in the cycle's view, which may differ from the world on this node. `Err` is its word on the pod as a
    /// whole.
    fn slot(&self, cycle: &Cycle<'_>, place: usize, node: NodeId) -> Result<Slot, Status> {
        let (built, world) = (&self.profile.plugins[place], cycle.world);
        let mut slot = built.plugin.copy(&self.answers.slots()[place]);
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

    /// For people: which pod is in the way on a node that was refused.
    pub(crate) fn blocker(&self, node: NodeId, refused: &Refused) -> Option<String> {
        let cycle = Cycle { view: &refused.view, ..*self.cycle };
        let slot = self.slot(&cycle, refused.by, node).ok()?;
        let filter = self.profile.plugins[refused.by].filter.as_ref()?;
        let found = filter.blockers(&cycle, &slot, &[node].into_iter().collect());
        found.into_iter().next().map(|(_, blocker)| blocker)
    }
}

fn rejection_of(status: Status) -> Rejection {
    let told = format!("{status:?}");
    status
        .into_rejection()
        .unwrap_or_else(|| Rejection { resolvable: false, reasons: crate::framework::status::Reasons::one(told) })
}

impl Trials for Trial<'_> {
    fn fits_without(&mut self, node: NodeId, removed: &[PodId]) -> bool {
        let view = removed.iter().fold(View::default(), |view, pod| view.without(*pod));
        self.refuses(node, view).is_none()
    }
}

/// Nodes that do not do together with the pods for which room is being made there, unless these matter less; of those that are
/// `in_question`, in the order of ids.
pub(crate) fn kept_free(
    nominations: &Nominations,
    trial: &Trial<'_>,
    in_question: impl Fn(NodeId) -> bool,
) -> Vec<(NodeId, Refused)> {
    let cycle = trial.cycle;
    let own = cycle.facts().priority;
    let is_ahead = |id: PodId| {
        // One that is on its way to a node counts there already.
        let waiting = cycle.world.pod(id).filter(|pod| id != cycle.pod_id && pod.placed_on().is_none());
        waiting.is_some_and(|pod| pod.scheduling.as_ref().map_or(0, |facts| facts.priority) >= own)
    };
    let mut refused: Vec<(NodeId, Refused)> = nominations
        .nodes()
        .filter(|(node, _)| in_question(*node))
        .filter_map(|(node, pods)| {
            let ahead = pods.iter().filter(|pod| is_ahead(**pod));
            let mut ahead = ahead.peekable();
            ahead.peek()?;
            let view = ahead.fold(cycle.view.clone(), |view, pod| view.with(*pod, node));
            Some((node, trial.refuses(node, view)?))
        })
        .collect();
    refused.sort_unstable_by_key(|(node, _)| *node);
    refused
}
