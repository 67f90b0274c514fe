//! What plugins asked for through their handles.
//!
//! In: requests, after the plugin that made them has returned. Out: waiting pods go on or go back, pods are activated or
//! nominated. A request may lead to further ones (a rejected pod's Unreserve rejects its group). Each step takes a pod
//! out of the waiting ones or runs no plugin with a handle, so this ends.

use std::time::Duration;

use model::event::Event;
use model::{NodeId, PodId, View, World};

use super::Scheduler;
use super::advice::PluginAdvice;
use super::binding::Bindings;
use super::observe;
use crate::evaluate::{Ahead, hypothetical};
use crate::framework::cycle::Cycle;
use crate::framework::handle::{Handle, NodeRefusal, Request, States, Surroundings, WaitingPod, Wish};
use crate::framework::profile::Profile;
use crate::framework::work::Work;
use crate::queue::Nominations;
use crate::scheduler::effect::{Effect, NominationWrite, PodRef};

/// The parts of the scheduler that a plugin can see.
pub(super) struct Around<'a> {
    pub(super) profiles: &'a [Profile],
    pub(super) bindings: &'a Bindings,
    pub(super) nominations: &'a Nominations,
    pub(super) world: &'a World,
}

impl Surroundings for Around<'_> {
    fn waiting_pods(&self) -> Vec<WaitingPod> {
        self.bindings.waiting(self.profiles)
    }

    fn refusal(&self, pod: PodId, node: NodeId, view: &View) -> Option<NodeRefusal> {
        let cycle = Cycle { view, ..Cycle::of(self.world, pod)? };
        let profile = self.profiles.iter().find(|profile| profile.name() == cycle.facts().scheduler_name)?;
        // A pod that the plugin moves in its view has the place that it has there.
        let is_moved = |pod: &PodId| view.removed().contains(pod) || view.added().iter().any(|(added, _)| added == pod);
        let ahead = Ahead::new(&cycle, self.nominations).of(node).into_iter();
        let mut ahead = ahead.filter(|(pod, _)| !is_moved(pod)).peekable();
        if ahead.peek().is_some() {
            let view = ahead.fold(view.clone(), |view, (pod, on)| view.with(pod, on));
            if let Some(refusal) = hypothetical::refusal(profile, &Cycle { view: &view, ..cycle }, node) {
                return Some(refusal);
            }
        }
        // Also without them, as upstream: affinity to them must not count, because they may end up elsewhere.
        hypothetical::refusal(profile, &cycle, node)
    }
}

impl Scheduler {
    /// Passes a message to a plugin, in every profile that has it.
    pub(super) fn message(&mut self, now: Duration, world: &World, plugin: &'static str, message: &Work) {
        let surroundings =
            Around { profiles: &self.profiles, bindings: &self.bindings, nominations: &self.nominations, world };
        for profile in &self.profiles {
            let found = profile.plugins.iter().find(|built| built.plugin.name() == plugin);
            let Some(notified) = found.and_then(|built| built.notified.as_ref()) else { continue };
            let mut handle = Handle {
                world,
                plugin,
                now,
                surroundings: &surroundings,
                plugins: &profile.plugins,
                states: States::None,
                requests: &mut self.requests,
            };
            notified.notified(world, message, &mut handle);
        }
    }

    /// Carries out the requests, and those that follow from them.
    pub(super) fn carry_out_requests(&mut self, now: Duration, world: &mut World) {
        while !self.requests.is_empty() {
            for Request { pod, uid, what } in std::mem::take(&mut self.requests) {
                if world.pod(pod).is_some_and(|known| known.uid == uid) {
                    self.carry_out(now, world, pod, what);
                }
            }
        }
    }

    fn carry_out(&mut self, now: Duration, world: &mut World, pod: PodId, what: Wish) {
        match what {
            Wish::Allow { plugin } => self.allowed(now, world, pod, plugin),
            Wish::Reject { plugin, reason } => self.denied(now, world, pod, plugin, &reason),
            Wish::Activate => {
                let mut advice = PluginAdvice { profiles: &self.profiles, world, sampler: &mut self.sampler };
                self.queue.force(now, pod, &mut advice);
            }
            Wish::AssumeVolumes(objects) => {
                // If the pod was forgotten in the meantime, this has no effect.
                let Some(PodRef { namespace, name, uid, .. }) = Self::pod_ref(world, pod) else { return };
                let changes = observe::apply(world, Event::VolumesAssumed { namespace, name, uid, objects });
                self.noted(now, world, &changes);
            }
            Wish::Nominate(node) => {
                // A pod that has a node needs no room elsewhere.
                let is_pending = world.pod(pod).is_some_and(|pod| pod.placed_on().is_none());
                if is_pending && self.queue.profile(pod).is_some() {
                    self.nominate(world, pod, node);
                }
            }
        }
    }

    /// Nominates the pod to a node, or clears its nomination, here and in the API.
    pub(super) fn nominate(&mut self, world: &World, pod: PodId, node: Option<NodeId>) {
        let node = match self.nominate_here(world, pod, node) {
            NominationWrite::Nothing => return,
            NominationWrite::Clear => None,
            NominationWrite::Set(node) => Some(node),
        };
        if let Some(pod) = Self::pod_ref(world, pod) {
            self.effects.push(Effect::Nominate { pod, node });
        }
    }

    /// The same, but leaves the write to the caller.
    pub(super) fn nominate_here(&mut self, world: &World, pod: PodId, node: Option<NodeId>) -> NominationWrite {
        let name = node.and_then(|node| world.node_name(node));
        let is_known = self.nominations.node_of(pod) == node && world.nominated_node(pod) == name;
        self.set_nomination(pod, node);
        match name {
            _ if is_known => NominationWrite::Nothing,
            None => NominationWrite::Clear,
            Some(name) => NominationWrite::Set(name.to_owned()),
        }
    }
}
