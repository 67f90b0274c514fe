//! Carrying the decision out. PreBind and Bind are effects: a plugin says what is to be done, the engine does it and reports back.

use model::NodeId;

use crate::framework::cycle::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::Status;

/// Work that must be done before the pod is bound, such as attaching storage.
pub trait PreBind: Plugin {
    /// `Ok(true)`: there is work to do, which the engine carries out under the plugin's name. `Ok(false)`: nothing to do.
    fn pre_bind(&self, cycle: &Cycle<'_>, state: &Self::State, node: NodeId) -> Result<bool, Status>;
}

/// Binds the pod. The first plugin that takes the pod binds it; the others are not asked.
pub trait Bind: Plugin {
    /// Success takes the pod: the engine binds it under the plugin's name. `Skip` leaves it to the next plugin.
    fn bind(&self, cycle: &Cycle<'_>, node: NodeId) -> Status;
}

/// Told after the pod is bound, to clean up. Nothing depends on it.
pub trait PostBind: Plugin {
    fn post_bind(&self, cycle: &Cycle<'_>, node: NodeId);
}
