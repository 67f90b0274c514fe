//! NodeName: a pod with a node name fits only that node.

use std::borrow::Cow;

use model::NodeSet;

use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::Filter;
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::{Rejection, Rejections};

const OTHER_NODE: Rejection = Rejection::unresolvable(&[Cow::Borrowed("node(s) didn't match the requested node name")]);

pub struct NodeName;

impl Plugin for NodeName {
    const NAME: &'static str = "NodeName";
    type State = ();

    fn reads(&self) -> Reads {
        // Pods of one class may name different nodes. But a pod with a node name is only explained, never placed.
        Reads::Node
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NODE_ADDED
    }

    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        let Some(named) = waiting.pod.node() else { return true };
        change.node.and_then(|node| waiting.world.node(node)).is_some_and(|node| node.name == named)
    }
}

impl Filter for NodeName {
    fn filter_all(&self, cycle: &Cycle<'_>, (): &(), nodes: &NodeSet, rejections: &mut Rejections) {
        let Some(named) = cycle.pod.node() else { return };
        let other = rejections.id(OTHER_NODE);
        for node in nodes.iter() {
            if cycle.world.node(node).is_none_or(|node| node.name != named) {
                rejections.reject(node, other);
            }
        }
    }
}

impl Register for NodeName {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.filter()
    }
}
