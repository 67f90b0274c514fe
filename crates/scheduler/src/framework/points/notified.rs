//! A plugin's own events.

use model::World;

use crate::framework::handle::Handle;
use crate::framework::plugin::Plugin;

/// Receives messages from outside the scheduler: from the plugin's executor, or from a task of its own that watches
/// something the world does not contain.
///
/// kube-scheduler has no such point: its plugins start tasks that call the framework from any thread. Here such a task
/// sends a message, and the plugin reacts in its turn.
pub trait Notified: Plugin {
    type Message: 'static;

    fn notified(&self, world: &World, message: &Self::Message, handle: &mut Handle<'_>);
}
