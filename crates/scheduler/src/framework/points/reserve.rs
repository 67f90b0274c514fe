//! The points after a node is chosen: Reserve and Permit.

use std::time::Duration;

use model::{NodeId, PodId};

use crate::framework::cycle::Cycle;
use crate::framework::handle::Handle;
use crate::framework::plugin::Plugin;
use crate::framework::status::Status;

/// Lets a plugin keep its own state about pods that are about to be bound.
pub trait Reserve: Plugin {
    /// Called when the node is chosen. Any status but Success aborts the attempt: [`Reserve::unreserve`] of all Reserve
    /// plugins, including this one, runs in reverse order.
    fn reserve(&self, cycle: &Cycle<'_>, state: &mut Self::State, node: NodeId, handle: &mut Handle<'_>) -> Status;

    /// Undoes [`Reserve::reserve`] after any later failure. May be called without a preceding reserve, and must not
    /// fail. The pod may no longer exist in the world.
    fn unreserve(&self, state: &mut Self::State, pod: PodId, node: NodeId, handle: &mut Handle<'_>);
}

/// The result of a Permit plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermitAnswer {
    Approve,
    /// The pod goes back to the queue.
    Deny(Status),
    /// Binding waits until this plugin allows or rejects the pod through a [`Handle`]. After this time, at most 15
    /// minutes, the pod is denied.
    Wait(Duration),
}

/// May delay or deny the binding. Called at the end of the scheduling cycle.
pub trait Permit: Plugin {
    /// If several plugins return `Wait`, each must allow the pod within its own time.
    fn permit(&self, cycle: &Cycle<'_>, state: &mut Self::State, node: NodeId, handle: &mut Handle<'_>)
    -> PermitAnswer;
}
