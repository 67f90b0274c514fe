//! What a plugin can see and ask for while it runs, besides its answer.
//!
//! In: the scheduler's state, to read. Out: requests, which the scheduler carries out when the plugin has returned and
//! the pod at hand has been dealt with; so a plugin never sees a state that changes under it.
//!
//! Invariants: a request names a pod by its UID as well, so that it never affects a later pod of the same name. A
//! plugin decides for itself alone: it cannot allow a pod in another plugin's name.

use std::time::Duration;

use model::storage::uid::Uid;
use model::volumes::VolumeObject;
use model::{NodeId, PodId, View, World};

use crate::framework::erased::Slot;
use crate::framework::plugin::Plugin;
use crate::framework::registry::Built;
use crate::framework::status::Rejection;

/// A pod that has a node and waits for permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPod {
    pub pod: PodId,
    pub node: NodeId,
    /// The plugins that have not allowed it yet, in the order of their deadlines.
    pub plugins: Vec<&'static str>,
    /// Since when it waits, on the scheduler's clock.
    pub since: Duration,
}

/// Why a plugin rejects a node in a hypothetical placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRefusal {
    pub plugin: &'static str,
    pub rejection: Rejection,
}

/// What the scheduler shows to a plugin.
pub(crate) trait Surroundings {
    fn waiting_pods(&self) -> Vec<WaitingPod>;

    fn refusal(&self, pod: PodId, node: NodeId, view: &View) -> Option<NodeRefusal>;
}

/// The states of a profile's plugins in the current cycle.
pub(crate) enum States<'a> {
    None,
    /// By plugin.
    All(&'a [Slot]),
    /// Of some plugins, each with its index.
    Some(&'a [(usize, Slot)]),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) pod: PodId,
    pub(crate) uid: Uid,
    pub(crate) what: Wish,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Allow { plugin: &'static str },
    Reject { plugin: &'static str, reason: String },
    Activate,
    Nominate(Option<NodeId>),
    AssumeVolumes(Vec<VolumeObject>),
}

/// Passed to a plugin at Reserve, Permit, PostFilter, PostBind, and with its own messages.
pub struct Handle<'a> {
    pub(crate) world: &'a World,
    pub(crate) plugin: &'static str,
    pub(crate) now: Duration,
    pub(crate) surroundings: &'a dyn Surroundings,
    pub(crate) plugins: &'a [Built],
    pub(crate) states: States<'a>,
    pub(crate) requests: &'a mut Vec<Request>,
}

impl Handle<'_> {
    /// The time on the scheduler's clock.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The pods of all profiles that wait for permission, those that wait longest first.
    pub fn waiting_pods(&self) -> Vec<WaitingPod> {
        self.surroundings.waiting_pods()
    }

    /// Allows a waiting pod in the name of this plugin. When all plugins have allowed it, its binding goes on.
    pub fn allow(&mut self, pod: PodId) {
        let plugin = self.plugin;
        self.ask(pod, Wish::Allow { plugin });
    }

    /// Rejects a waiting pod: it goes back to the queue, rejected by this plugin.
    pub fn reject(&mut self, pod: PodId, reason: impl Into<String>) {
        let (plugin, reason) = (self.plugin, reason.into());
        self.ask(pod, Wish::Reject { plugin, reason });
    }

    /// Lets a pending pod be tried without a change and without its backoff. PreEnqueue still applies.
    pub fn activate(&mut self, pod: PodId) {
        self.ask(pod, Wish::Activate);
    }

    /// Keeps room on the node free for a pending pod, or no longer does. Other pods of lower or equal priority see the
    /// pod as if it ran there.
    pub fn nominate(&mut self, pod: PodId, node: Option<NodeId>) {
        self.ask(pod, Wish::Nominate(node));
    }

    /// Claims and volumes are about to be changed like this for a pod that has a node: from the next attempt on they count
    /// as changed, until the watch shows another version of them or the pod loses its node.
    pub fn assume_volumes(&mut self, pod: PodId, objects: Vec<VolumeObject>) {
        self.ask(pod, Wish::AssumeVolumes(objects));
    }

    /// The first plugin of the pod's profile that rejects the node in this view of the pods on it; `None` if the pod
    /// fits. Pods of higher or equal priority that are nominated to the node count as if they ran there, except those
    /// that the view adds or removes. All filters run, nothing is cached: this is not meant for thousands of nodes.
    pub fn refusal(&self, pod: PodId, node: NodeId, view: &View) -> Option<NodeRefusal> {
        self.surroundings.refusal(pod, node, view)
    }

    /// The state of another plugin in this cycle; `None` if it does not run in this profile, or after its message.
    pub fn state<P: Plugin>(&self) -> Option<&P::State> {
        let index = self.plugins.iter().position(|built| built.plugin.name() == P::NAME)?;
        match &self.states {
            States::None => None,
            States::All(slots) => slots.get(index)?.try_get::<P>(),
            States::Some(slots) => slots.iter().find(|(of, _)| *of == index)?.1.try_get::<P>(),
        }
    }

    fn ask(&mut self, pod: PodId, what: Wish) {
        if let Some(known) = self.world.pod(pod) {
            self.requests.push(Request { pod, uid: known.uid.clone(), what });
        }
    }
}
