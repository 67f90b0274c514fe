//! Once a node is chosen: reserving, and giving permission.

use std::time::Duration;

use model::{NodeId, PodId};

use crate::framework::cycle::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::Status;

/// Keeps a plugin's own account of what is about to be bound.
pub trait Reserve: Plugin {
    /// Called when the node is chosen. Anything but Success gives the attempt up: all Reserve plugins, this one too, are
    /// called to undo, in reverse order.
    fn reserve(&self, cycle: &Cycle<'_>, state: &mut Self::State, node: NodeId) -> Status;

    /// Undoes [`Reserve::reserve`], after any later failure. May be called without it, and must not fail. The pod may be gone
    /// from the world.
    fn unreserve(&self, state: &mut Self::State, pod: PodId, node: NodeId);
}

/// A Permit plugin's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermitAnswer {
    Approve,
    /// The pod goes back to the queue.
    Deny(Status),
    /// Binding waits until this plugin allows or rejects the pod, and is denied after this long.
    Wait(Duration),
}

/// The last word before binding; called at the end of the scheduling cycle.
pub trait Permit: Plugin {
    /// Where several plugins want to wait, each must allow the pod before its own time is up.
    fn permit(&self, cycle: &Cycle<'_>, state: &mut Self::State, node: NodeId) -> PermitAnswer;
}
