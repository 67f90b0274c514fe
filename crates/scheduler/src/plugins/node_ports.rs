//! NodePorts: the pod's host ports must be free on the node.

use std::borrow::Cow;

use model::scheduling::HostPort;
use model::{NodeId, NodeSet, PodId};

use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{Filter, PreFilter};
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::{Rejection, Rejections, Status};

const TAKEN: Rejection =
    Rejection::unschedulable(&[Cow::Borrowed("node(s) didn't have free ports for the requested pod ports")]);

pub struct NodePorts;

/// The nodes on which a wanted port is taken, including the pods of a trial's view.
fn conflicts(cycle: &Cycle<'_>) -> NodeSet {
    let wanted = &cycle.facts().host_ports;
    let mut nodes = cycle.world.port_conflicts(wanted);
    let view = cycle.view;
    let shifted = view.added().iter().map(|&(_, node)| node);
    let shifted = shifted.chain(view.removed().iter().filter_map(|&pod| cycle.world.pod_node(pod)));
    for node in shifted {
        nodes.set(node, is_taken_on(cycle, node, wanted));
    }
    nodes
}

fn is_taken_on(cycle: &Cycle<'_>, node: NodeId, wanted: &[HostPort]) -> bool {
    let there = cycle.world.pods_on(node).iter().copied().filter(|pod| !cycle.view.removed().contains(pod));
    let added = cycle.view.added().iter().filter(|(_, on)| *on == node).map(|&(pod, _)| pod);
    there.chain(added).any(|pod: PodId| {
        let pod = cycle.world.pod(pod).filter(|pod| !pod.finished);
        let facts = pod.and_then(|pod| pod.scheduling.as_deref());
        facts.is_some_and(|facts| facts.host_ports.iter().any(|port| wanted.iter().any(|it| it.conflicts_with(port))))
    })
}

impl Plugin for NodePorts {
    const NAME: &'static str = "NodePorts";
    type State = ();

    fn reads(&self) -> Reads {
        Reads::NodeAndItsPods
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NODE_ADDED | ChangeKinds::POD_LEFT
    }

    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        change.node.is_none_or(|node| !conflicts(waiting).contains(node))
    }
}

impl PreFilter for NodePorts {
    fn pre_filter(&self, cycle: &Cycle<'_>, (): &mut ()) -> Result<Option<NodeSet>, Status> {
        if cycle.facts().host_ports.is_empty() { Err(Status::Skip) } else { Ok(None) }
    }
}

impl Filter for NodePorts {
    fn filter_all(&self, cycle: &Cycle<'_>, (): &(), nodes: &NodeSet, rejections: &mut Rejections) {
        let mut taken = conflicts(cycle);
        taken.intersect_with(nodes);
        if !taken.is_empty() {
            let id = rejections.id(TAKEN);
            rejections.reject_all(&taken, id);
        }
    }
}

impl Register for NodePorts {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_filter().filter()
    }
}
