//! The binding cycle. PreBind and Bind are effects: a plugin decides, the engine does the work and reports the result.

use model::NodeId;

use crate::framework::cycle::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::Status;

/// Work that must be done before the pod is bound, for example attaching storage.
pub trait PreBind: Plugin {
    /// `Ok(true)`: there is work, which the engine does under the plugin's name. `Ok(false)`: there is none.
    fn pre_bind(&self, cycle: &Cycle<'_>, state: &Self::State, node: NodeId) -> Result<bool, Status>;
}

/// Binds the pod. The first plugin that accepts the pod binds it; later plugins do not run.
pub trait Bind: Plugin {
    /// Success accepts the pod: the engine binds it under the plugin's name. `Skip` leaves it to the next plugin.
    fn bind(&self, cycle: &Cycle<'_>, node: NodeId) -> Status;
}

/// Called after the pod is bound, to clean up. Nothing depends on it.
pub trait PostBind: Plugin {
    fn post_bind(&self, cycle: &Cycle<'_>, node: NodeId);
}
