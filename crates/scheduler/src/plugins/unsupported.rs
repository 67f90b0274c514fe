//! Unsupported: a pod that requires something this scheduler does not support (a resource claim, a scheduling group)
//! is never placed. It waits, with a reason that names what it requires.

use crate::framework::change::ChangeKinds;
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::PreFilter;
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::Status;
use model::NodeSet;

pub struct Unsupported;

impl Plugin for Unsupported {
    const NAME: &'static str = "Unsupported";
    type State = ();

    fn reads(&self) -> Reads {
        Reads::Node
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::SELF_UPDATED
    }
}

impl PreFilter for Unsupported {
    fn pre_filter(&self, cycle: &Cycle<'_>, _: &mut ()) -> Result<Option<NodeSet>, Status> {
        let unsupported = &cycle.facts().unsupported;
        if unsupported.is_empty() {
            return Err(Status::Skip);
        }
        let needs: Vec<String> = unsupported.iter().map(ToString::to_string).collect();
        Err(Status::unresolvable(format!("this scheduler does not support what the pod needs: {}", needs.join(", "))))
    }
}

impl Register for Unsupported {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_filter()
    }
}
