//! The binding cycle. PreBind and Bind are work: a plugin decides what is to be done, its executor does it.

use std::fmt;

use model::NodeId;

use crate::framework::cycle::Cycle;
use crate::framework::handle::Handle;
use crate::framework::plugin::Plugin;
use crate::framework::status::Status;

/// Work that must be done before the pod is bound, for example attaching storage. Plugins work one after the other.
pub trait PreBind: Plugin {
    /// What its executor does.
    type Work: fmt::Debug + Send + Sync + 'static;

    /// Called before the pod waits for permission. `Skip`: there is no work, and [`PreBind::pre_bind`] is not called.
    /// `Success`: there is, and the pod's nominated node is written, so that others see where the pod will run while the
    /// work takes its time. Any other status is an error.
    fn pre_bind_pre_flight(&self, _cycle: &Cycle<'_>, _state: &Self::State, _node: NodeId) -> Status {
        Status::Success
    }

    /// The work for its executor, or `None`. An `Err` aborts the binding.
    fn pre_bind(&self, cycle: &Cycle<'_>, state: &Self::State, node: NodeId) -> Result<Option<Self::Work>, Status>;
}

/// Binds the pod. The first plugin that takes the pod binds it; later plugins do not run.
pub trait Bind: Plugin {
    /// What its executor does. The executor may still decline; then the next plugin runs.
    type Work: fmt::Debug + Send + Sync + 'static;

    /// `Ok(None)` leaves the pod to the next plugin. An `Err` aborts the binding.
    fn bind(&self, cycle: &Cycle<'_>, state: &Self::State, node: NodeId) -> Result<Option<Self::Work>, Status>;
}

/// Called after the pod is bound, to clean up. Nothing depends on it.
pub trait PostBind: Plugin {
    fn post_bind(&self, cycle: &Cycle<'_>, state: &Self::State, node: NodeId, handle: &mut Handle<'_>);
}
