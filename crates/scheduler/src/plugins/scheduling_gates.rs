//! SchedulingGates: a pod with scheduling gates waits until they are removed.

use crate::framework::change::ChangeKinds;
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::PreEnqueue;
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::Status;

pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    const NAME: &'static str = "SchedulingGates";
    type State = ();

    fn reads(&self) -> Reads {
        Reads::Node
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::SELF_UPDATED
    }
}

impl PreEnqueue for SchedulingGates {
    fn pre_enqueue(&self, cycle: &Cycle<'_>) -> Status {
        let gates = &cycle.facts().gates;
        if gates.is_empty() {
            Status::Success
        } else {
            Status::unresolvable(format!("waiting for scheduling gates: [{}]", gates.join(" ")))
        }
    }
}

impl Register for SchedulingGates {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_enqueue()
    }
}
