//! Filters nodes while pods come and go: the dry runs of preemption, and nodes that are kept free for nominated pods.
//!
//! In: the cached verdicts of the pod's class, and the pods that are removed from a node, or from others that count
//! against it, and added. Out: the first plugin, in order, that rejects the node, and why.
//!
//! A plugin whose verdict no other pod changes keeps its cached verdict. A plugin with a trial of its own counts along.
//! Any other plugin runs from scratch at each step. Invariant: the result equals a run of all filters in the same view.

use model::storage::arena::DenseId;
use model::{NodeId, PodId, View};

use super::ahead::Ahead;
use super::trial::{Refused, Trial};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::Reads;
use crate::framework::points::NodeTrial;
use crate::framework::status::Rejection;
use crate::queue::Nominations;

pub(crate) struct DryRun<'a> {
    trial: &'a Trial<'a>,
    nominated: Ahead<'a>,
    /// By the indexes of the plugins, in the order of the filters; plugins that skipped are left out.
    filters: Vec<(usize, FilterTrial<'a>)>,
    node: NodeId,
    /// Of the node.
    ahead: Vec<(PodId, NodeId)>,
    view: View,
}

enum FilterTrial<'a> {
    /// The position in the profile's Filter list of a plugin whose verdict does not depend on pods.
    Cached(usize),
    Own(Box<dyn NodeTrial + 'a>),
    FromScratch,
}

impl<'a> DryRun<'a> {
    pub(crate) fn new(trial: &'a Trial<'a>, nominations: &'a Nominations) -> Self {
        let &Trial { profile, cycle, answers } = trial;
        // A trial counts the pods of one node. With preemption across a physical host they leave others, too.
        let is_on_one_node = !cycle.world.lifting().host_preemption;
        let filters = profile.points.filter.iter().enumerate().filter(|(_, index)| !answers.filters.skips(**index));
        let filters = filters.filter_map(|(position, &index)| {
            let filter = profile.plugins[index].filter.as_ref()?;
            let reads = profile.plugins[index].plugin.reads();
            let reads_pods = !matches!(reads, Reads::Node | Reads::AllNodes);
            if !reads_pods || filter.ignores_pods() {
                return Some((index, FilterTrial::Cached(position)));
            }
            let own = (is_on_one_node || reads == Reads::NodeAndItsPods)
                .then(|| filter.node_trial(cycle, &answers.slots()[index]))
                .flatten();
            Some((index, own.map_or(FilterTrial::FromScratch, FilterTrial::Own)))
        });
        Self {
            trial,
            nominated: Ahead::new(cycle, nominations),
            filters: filters.collect(),
            node: NodeId::from_index(0),
            ahead: Vec::new(),
            view: View::default(),
        }
    }

    /// The first rejection of the node as it is in the view, and the index of its plugin.
    fn refusal_now(&mut self) -> Option<(usize, Rejection)> {
        let cycle = Cycle { view: &self.view, ..*self.trial.cycle };
        let (trial, node) = (self.trial, self.node);
        self.filters.iter_mut().find_map(|(index, filter)| {
            let rejection = match filter {
                FilterTrial::Cached(position) => trial.answers.filters.rejection_at(*position, node).cloned(),
                FilterTrial::Own(own) => own.rejection(),
                FilterTrial::FromScratch => trial.refusal_by(*index, &cycle, node),
            };
            Some((*index, rejection?))
        })
    }

    /// Whether no plugin rejects the node in the view. The order does not matter here: the cheap ones come first.
    fn fits_now(&mut self) -> bool {
        let cycle = Cycle { view: &self.view, ..*self.trial.cycle };
        let (trial, node) = (self.trial, self.node);
        let fits = self.filters.iter_mut().all(|(_, filter)| match filter {
            FilterTrial::Cached(position) => trial.answers.filters.rejection_at(*position, node).is_none(),
            FilterTrial::Own(own) => own.fits(),
            FilterTrial::FromScratch => true,
        });
        fits && self.filters.iter().all(|(index, filter)| match filter {
            FilterTrial::FromScratch => trial.refusal_by(*index, &cycle, node).is_none(),
            FilterTrial::Cached(_) | FilterTrial::Own(_) => true,
        })
    }

    /// Whether the pod does not fit the node, as it is, together with the pods nominated to it.
    pub(super) fn refused_beside_nominated(&mut self, node: NodeId) -> Option<Refused> {
        self.begin(node);
        if self.ahead.is_empty() {
            return None;
        }
        self.beside_nominated(|run| {
            let (by, rejection) = run.refusal_now()?;
            Some(Refused { by, rejection, view: run.view.clone() })
        })
    }

    /// The answer with the nominated pods on the node.
    fn beside_nominated<T>(&mut self, answer: impl FnOnce(&mut Self) -> T) -> T {
        let ahead = std::mem::take(&mut self.ahead);
        ahead.iter().for_each(|(pod, on)| self.put(*pod, *on));
        let answered = answer(self);
        ahead.iter().for_each(|(pod, on)| self.take(*pod, *on));
        self.ahead = ahead;
        answered
    }

    fn put(&mut self, pod: PodId, on: NodeId) {
        self.view.put_on(pod, on);
        if on == self.node {
            self.own_trials().for_each(|own| own.add(pod));
        }
    }

    fn take(&mut self, pod: PodId, on: NodeId) {
        self.view.take_off(pod, on);
        if on == self.node {
            self.own_trials().for_each(|own| own.remove(pod));
        }
    }

    /// A pod that waits counts on the node of the trial.
    fn place_of(&self, pod: PodId) -> NodeId {
        self.trial.cycle.world.pod_node(pod).unwrap_or(self.node)
    }

    fn own_trials(&mut self) -> impl Iterator<Item = &mut Box<dyn NodeTrial + 'a>> {
        self.filters.iter_mut().filter_map(|(_, filter)| match filter {
            FilterTrial::Own(own) => Some(own),
            FilterTrial::Cached(_) | FilterTrial::FromScratch => None,
        })
    }
}

impl NodeTrial for DryRun<'_> {
    fn begin(&mut self, node: NodeId) {
        self.node = node;
        self.view = self.trial.cycle.view.clone();
        self.ahead = self.nominated.of(node);
        let (added, removed) = (self.view.added().to_vec(), self.view.removed().to_vec());
        for own in self.own_trials() {
            own.begin(node);
        }
        // The cycle itself may be about a view, for a pod that is explained.
        for (pod, _) in added.into_iter().filter(|(_, on)| *on == node) {
            self.own_trials().for_each(|own| own.add(pod));
        }
        for pod in removed {
            if self.trial.cycle.world.pod_node(pod) == Some(node) {
                self.own_trials().for_each(|own| own.remove(pod));
            }
        }
    }

    fn remove(&mut self, pod: PodId) {
        self.take(pod, self.place_of(pod));
    }

    fn add(&mut self, pod: PodId) {
        self.put(pod, self.place_of(pod));
    }

    fn rejection(&mut self) -> Option<Rejection> {
        let beside = if self.ahead.is_empty() { None } else { self.beside_nominated(Self::refusal_now) };
        Some(beside.or_else(|| self.refusal_now())?.1)
    }

    fn fits(&mut self) -> bool {
        (self.ahead.is_empty() || self.beside_nominated(Self::fits_now)) && self.fits_now()
    }
}
