//! The nominated pods that a pod must leave room for.
//!
//! In: a pod and the nominations. Out: for a node, the pods that count there as if they ran, each with its node: those of
//! higher or equal priority that still wait. As in kube-scheduler these are the pods nominated to the node itself. With
//! preemption across the nodes of a physical host also those on its other nodes that may not share the host with the
//! pod: otherwise the room that evictions made on a host would be taken before the nominated pod gets it.

use model::{Incoming, NodeId, NodeSet, PodId};

use crate::framework::cycle::Cycle;
use crate::queue::Nominations;

pub(crate) struct Ahead<'a> {
    cycle: &'a Cycle<'a>,
    nominations: &'a Nominations,
    /// The pod, if nominations count on a whole host.
    on_hosts: Option<Incoming>,
}

impl<'a> Ahead<'a> {
    pub(crate) fn new(cycle: &'a Cycle<'a>, nominations: &'a Nominations) -> Self {
        let across = cycle.world.lifting().host_preemption && nominations.len() > 0;
        let on_hosts = across.then(|| Incoming::of_pod(cycle.world, cycle.pod_id)).flatten();
        Self { cycle, nominations, on_hosts }
    }

    /// The nodes on which nominated pods may count, in the order of ids.
    pub(crate) fn nodes(&self) -> NodeSet {
        let mut nodes: NodeSet = self.nominations.nodes().map(|(node, _)| node).collect();
        if self.on_hosts.is_some() {
            for (node, _) in self.nominations.nodes() {
                nodes.union_with(&self.cycle.world.nodes_beside(node));
            }
        }
        nodes
    }

    pub(crate) fn of(&self, node: NodeId) -> Vec<(PodId, NodeId)> {
        let mut ahead: Vec<_> = self.waiting_for(node).map(|pod| (pod, node)).collect();
        if let Some(incoming) = &self.on_hosts {
            let conflicts = incoming.host_conflicts(self.cycle.world);
            for beside in self.cycle.world.nodes_beside(node).iter() {
                ahead.extend(self.waiting_for(beside).filter(|pod| conflicts.with(*pod)).map(|pod| (pod, beside)));
            }
        }
        ahead
    }

    /// A pod that is assumed or bound already counts on its node.
    fn waiting_for(&self, node: NodeId) -> impl Iterator<Item = PodId> {
        let (cycle, own) = (self.cycle, self.cycle.facts().priority);
        let is_ahead = move |id: PodId| {
            let waiting = cycle.world.pod(id).filter(|pod| id != cycle.pod_id && pod.placed_on().is_none());
            waiting.is_some_and(|pod| pod.scheduling.as_ref().map_or(0, |facts| facts.priority) >= own)
        };
        self.nominations.on(node).iter().copied().filter(move |pod| is_ahead(*pod))
    }
}
