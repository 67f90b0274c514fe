//! Evaluates one pod against one state of the world: combines the model's verdicts, scores and blockers for
//! kube-scheduler.
//!
//! In: the world, a pod, nodes by name. Out: a verdict or a score for each node, and the blockers. Every term is
//! evaluated once: a lifted term between physical hosts, any other term as it is written.
//!
//! Invariant: the pod never blocks itself. If the world already has it on a node, it does not count there.

use model::affinity::{Incoming, LiftMode, Reading, Refusal, ScoreSettings, Verdicts, View};
use model::event::PodFacts;
use model::storage::uid::Uid;
use model::{NodeId, NodeSet, PodId, World};

use super::{Candidate, NodeVerdict, Reason};

/// The candidate nodes. They matter only in relaxed mode, where lifted terms are relaxed if they leave no candidate.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice<'a> {
    /// Any node of the cluster.
    All,
    Among(&'a [&'a str]),
}

const EXTENDER_SCORE_MAX: f64 = 10.0;

pub(super) struct Judge<'a> {
    world: &'a World,
    incoming: Incoming,
    view: View,
}

/// The verdict on every node, for one set of candidates.
pub(super) struct Sheet<'j, 'a> {
    judge: &'j Judge<'a>,
    verdicts: Verdicts,
}

impl<'a> Judge<'a> {
    pub(super) fn of(world: &'a World, pod: &PodFacts) -> Judge<'a> {
        let known = known(world, pod);
        // The world's pod is at least as current, and is looked up directly.
        let incoming = known.and_then(|id| Incoming::of_pod(world, id)).unwrap_or_else(|| Incoming::of(world, pod));
        let view = known.map_or_else(View::default, |id| View::default().without(id));
        Judge { world, incoming, view }
    }

    pub(super) fn verdicts(&self, choice: Choice<'_>) -> Sheet<'_, 'a> {
        let world = self.world;
        let candidates = match (world.lifting().mode, choice) {
            (LiftMode::Relaxed, Choice::Among(names)) => {
                let mut candidates: NodeSet = names.iter().filter_map(|name| world.node_id(name)).collect();
                candidates.subtract(world.nodes_refused());
                Some(candidates)
            }
            _ => None,
        };
        let verdicts = self.incoming.verdicts(world, &self.view, Reading::Lifting, candidates.as_ref());
        Sheet { judge: self, verdicts }
    }

    fn verdict_among(&self, verdicts: &Verdicts, node: NodeId) -> NodeVerdict {
        let taken = self.world.nodes_refused().contains(node);
        if !taken && verdicts.feasible.contains(node) {
            return NodeVerdict::Fits;
        }
        // A host that accepts no pods is the stronger reason, because no eviction helps.
        let refusal = verdicts.refusal(node).filter(|_| !taken);
        NodeVerdict::Fails(refusal.map_or(Reason::HostUnavailable, Reason::of))
    }

    /// A score from 0 to 10 for each node: `percent` of it by how idle its physical host is, the rest by affinity.
    pub(super) fn scores(&self, names: &[&str], percent: u8) -> Vec<i64> {
        let known: Vec<Option<NodeId>> = names.iter().map(|name| self.world.node_id(name)).collect();
        let nodes: Vec<NodeId> = known.iter().copied().flatten().collect();
        let scores = self.incoming.scores(self.world, &self.view, Reading::Lifting, &ScoreSettings::default(), &nodes);
        let mut affinity = scores.for_extender().into_iter();
        let share = f64::from(percent.min(100)) / 100.0;
        let score = |node: Option<NodeId>| {
            let Some(node) = node else { return 0 };
            let affinity = affinity.next().unwrap_or(0);
            match percent {
                0 => affinity,
                _ => (affinity as f64 * (1.0 - share) + EXTENDER_SCORE_MAX * share * self.idleness(node)) as i64,
            }
        };
        known.into_iter().map(score).collect()
    }

    /// How idle the node's physical host is. An unknown host counts as half used: neither preferred nor avoided.
    fn idleness(&self, node: NodeId) -> f64 {
        self.world.host_of(node).and_then(|host| host.idle_fraction()).unwrap_or(0.5)
    }

    /// Whether the node fits after these pods are evicted from it.
    pub(super) fn fits_without(&self, candidate: &Candidate<'_>) -> bool {
        let Some(node) = self.world.node_id(candidate.node) else { return false };
        let victims: Vec<Uid> = candidate.victims.iter().map(|uid| Uid::from(*uid)).collect();
        let mut view = self.view.clone();
        for &pod in self.world.pods_on(node) {
            if self.world.pod(pod).is_some_and(|pod| victims.contains(&pod.uid)) {
                view = view.without(pod);
            }
        }
        let verdicts = self.incoming.verdicts(self.world, &view, Reading::Lifting, None);
        self.verdict_among(&verdicts, node) == NodeVerdict::Fits
    }

    pub(super) fn host_of(&self, node: &str) -> Option<&'a str> {
        self.world.host_name_of(self.world.node_id(node)?)
    }

    /// A description of the first blocker on the node, for users of this namespace.
    pub(super) fn blocker(&self, node: &str, namespace: &str) -> Option<String> {
        let node = self.world.node_id(node)?;
        if self.world.nodes_refused().contains(node) {
            return None;
        }
        let found = self.incoming.blockers(self.world, &self.view, Reading::Lifting, node, 1);
        found.first()?.in_words_for(self.world, namespace)
    }
}

impl Sheet<'_, '_> {
    /// The lifted terms left no candidate, and are evaluated as they are written.
    pub(super) fn is_relaxed(&self) -> bool {
        self.verdicts.relaxed
    }

    pub(super) fn of(&self, node: &str) -> NodeVerdict {
        match self.judge.world.node_id(node) {
            None => NodeVerdict::Fails(Reason::NodeUnknown),
            Some(node) => self.judge.verdict_among(&self.verdicts, node),
        }
    }
}

/// The world's pod, if it has the same UID.
pub(super) fn known(world: &World, pod: &PodFacts) -> Option<PodId> {
    let id = world.pod_id(&pod.namespace, &pod.name)?;
    world.pod(id).filter(|known| known.uid == Uid::from(pod.uid.as_str())).map(|_| id)
}

impl Reason {
    const fn of(refusal: Refusal) -> Reason {
        match refusal {
            Refusal::Affinity => Reason::Affinity,
            Refusal::AntiAffinity => Reason::AntiAffinity,
            Refusal::ExistingAntiAffinity => Reason::ExistingAntiAffinity,
            Refusal::HostAntiAffinity => Reason::HostAntiAffinity,
            Refusal::HostExistingAntiAffinity => Reason::ExistingHostAntiAffinity,
        }
    }
}
