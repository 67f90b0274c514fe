//! One node, with other pods on it than there are: would it do then?
//!
//! In: the answers for the pod's class, and a view of which pods are added or gone. Out: who refuses the node, if anybody. Used for
//! nominated pods, and for victims that might go.

use model::{NodeId, NodeSet, PodId, View};

use super::Answers;
use crate::cycle::Cycle;
use crate::points::Trials;
use crate::profile::Profile;
use crate::queue::Nominations;
use crate::status::{Rejection, Rejections, Status};

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
}

impl Trial<'_> {
    /// Who refuses the node in this view; `None` when it would do.
    pub(crate) fn refuses(&self, node: NodeId, view: &View) -> Option<Refused> {
        let cycle = Cycle { view, ..*self.cycle };
        let nodes: NodeSet = [node].into_iter().collect();
        let world = cycle.world;
        let mut rejections = Rejections::default();
        for &place in &self.profile.points.filter {
            let built = &self.profile.plugins[place];
            // A plugin that PreFilter left out stays out, as upstream has it.
            let Some(filter) = built.filter.as_ref().filter(|_| !self.answers.filters.skips(place)) else { continue };
            let mut slot = built.plugin.copy(&self.answers.slots()[place]);
            if let Some(plugin) = &built.pre_filter {
                let mut status = Status::Success;
                for &(added, on) in view.added() {
                    status = plugin.add_pod(&cycle, &mut slot, added, on);
                }
                for &removed in view.removed() {
                    let on = world.pod(removed).and_then(|pod| pod.placed_on());
                    let on = on.and_then(|name| world.node_id(world.interner().text(name)));
                    status = plugin.remove_pod(&cycle, &mut slot, removed, on.unwrap_or(node));
                }
                match status {
                    Status::Success | Status::Wait => {}
                    // In this view it has nothing to say.
                    Status::Skip => continue,
                    status => return Some(refused(place, status)),
                }
            }
            rejections.reset(self.answers.width());
            filter.filter_all(&cycle, &slot, &nodes, &mut rejections);
            if let Some(rejection) = rejections.of(node) {
                return Some(Refused { by: place, rejection: rejection.clone() });
            }
        }
        None
    }
}

fn refused(by: usize, status: Status) -> Refused {
    let told = format!("{status:?}");
    let rejection = status
        .into_rejection()
        .unwrap_or_else(|| Rejection { resolvable: false, reasons: crate::status::Reasons::one(told) });
    Refused { by, rejection }
}

impl Trials for Trial<'_> {
    fn fits_without(&mut self, node: NodeId, removed: &[PodId]) -> bool {
        let view = removed.iter().fold(View::default(), |view, pod| view.without(*pod));
        self.refuses(node, &view).is_none()
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
            Some((node, trial.refuses(node, &view)?))
        })
        .collect();
    refused.sort_unstable_by_key(|(node, _)| *node);
    refused
}
