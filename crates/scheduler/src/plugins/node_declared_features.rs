//! NodeDeclaredFeatures: a pod that requires a kubelet feature fits only nodes that declare it.

use std::borrow::Cow;

use model::NodeSet;

use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{Filter, PreFilter};
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::{Rejection, Rejections, Status};

const LACKING: Rejection = Rejection::unresolvable(&[Cow::Borrowed("node(s) didn't match Pod's required features")]);

pub struct NodeDeclaredFeatures;

fn has_all(cycle: &Cycle<'_>, declared: &[String]) -> bool {
    cycle.facts().required_features.iter().all(|feature| declared.contains(feature))
}

impl Plugin for NodeDeclaredFeatures {
    const NAME: &'static str = "NodeDeclaredFeatures";
    type State = ();

    fn reads(&self) -> Reads {
        Reads::Node
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NODE_ADDED | ChangeKinds::NODE_DECLARED_FEATURES | ChangeKinds::SELF_UPDATED
    }

    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        let declared = |node| waiting.world.declared_features().of(node);
        change.node.is_none_or(|node| declared(node).is_some_and(|declared| has_all(waiting, declared)))
    }
}

impl PreFilter for NodeDeclaredFeatures {
    fn pre_filter(&self, cycle: &Cycle<'_>, (): &mut ()) -> Result<Option<NodeSet>, Status> {
        if cycle.facts().required_features.is_empty() { Err(Status::Skip) } else { Ok(None) }
    }
}

impl Filter for NodeDeclaredFeatures {
    fn filter_all(&self, cycle: &Cycle<'_>, (): &(), nodes: &NodeSet, rejections: &mut Rejections) {
        let id = rejections.id(LACKING);
        for (declared, having) in cycle.world.declared_features().iter() {
            if !has_all(cycle, declared) {
                let mut lacking = having.clone();
                lacking.intersect_with(nodes);
                rejections.reject_all(&lacking, id);
            }
        }
    }
}

impl Register for NodeDeclaredFeatures {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_filter().filter()
    }
}
