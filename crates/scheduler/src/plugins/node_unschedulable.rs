//! NodeUnschedulable: a cordoned node accepts only pods that tolerate its taint.

use std::borrow::Cow;

use model::NodeSet;
use model::scheduling::{Taint, TaintEffect, Toleration};

use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::Filter;
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::{Rejection, Rejections};

const CORDONED: Rejection = Rejection::unresolvable(&[Cow::Borrowed("node(s) were unschedulable")]);

pub struct NodeUnschedulable {
    /// The taint that stands for a cordoned node.
    taint: Taint,
}

impl NodeUnschedulable {
    fn is_tolerated(&self, tolerations: &[Toleration]) -> bool {
        tolerations.iter().any(|toleration| toleration.tolerates(&self.taint))
    }
}

impl Plugin for NodeUnschedulable {
    const NAME: &'static str = "NodeUnschedulable";
    type State = ();

    fn reads(&self) -> Reads {
        Reads::Node
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NODE_ADDED | ChangeKinds::NODE_TAINTS | ChangeKinds::SELF_UPDATED
    }

    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        match change.node {
            Some(node) => !waiting.node_facts(node).unschedulable,
            None => self.is_tolerated(&waiting.facts().tolerations),
        }
    }
}

impl Filter for NodeUnschedulable {
    fn filter_all(&self, cycle: &Cycle<'_>, (): &(), nodes: &NodeSet, rejections: &mut Rejections) {
        let cordoned = cycle.world.unschedulable_nodes();
        if cordoned.is_disjoint(nodes) || self.is_tolerated(&cycle.facts().tolerations) {
            return;
        }
        let id = rejections.id(CORDONED);
        cordoned.iter().filter(|node| nodes.contains(*node)).for_each(|node| rejections.reject(node, id));
    }
}

impl Register for NodeUnschedulable {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        let key = "node.kubernetes.io/unschedulable".to_owned();
        Ok(Self { taint: Taint { key, value: String::new(), effect: TaintEffect::NoSchedule } })
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.filter()
    }
}
