//! The scheduler: a state machine that places pods.
//!
//! In: inputs, each with the moment it comes at. Out: effects. `Scheduler::step` does nothing but compute: it reads no clock, waits for
//! nobody, and draws its randomness from the seed it was given.
//!
//! - `attempt`: the scheduling cycle, one pod at a time. `binding`: binding cycles, many at a time. `advice`: what the queue asks.
//!
//! Invariants: a pod is assumed on its node (an event of the world) before anybody binds it, and forgotten when that fails; what
//! was reserved is then undone in reverse. A pod that somebody else bound is accepted, a deleted one dropped.

mod advice;
mod attempt;
mod binding;
pub(crate) mod effect;
pub(crate) mod message;
pub mod observe;

use std::time::Duration;

use model::{NodeId, PodId, World};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use self::advice::PluginAdvice;
use self::binding::Bindings;
use self::effect::{Effect, Input, PodRef};
use self::observe::Changes;
use crate::config::Configuration;
use crate::evaluate::Scratch;
use crate::evaluate::classes::Classes;
use crate::evaluate::journal::{Aspect, Journal};
use crate::framework::change::ChangeKinds;
use crate::framework::profile::Profile;
use crate::queue::{Arrivals, Newcomer, Nominations, Pending, Queue, QueueCounts};

pub struct Scheduler {
    profiles: Vec<Profile>,
    queue: Queue,
    nominations: Nominations,
    journal: Journal,
    classes: Classes,
    bindings: Bindings,
    random: ChaCha8Rng,
    scratch: Scratch,
    best: Vec<NodeId>,
    wake_at: Option<Duration>,
    cache: CacheSizes,
    /// Effects of the step under way.
    effects: Vec<Effect>,
}

/// Figures for metrics and tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub pending: Pending,
    pub queue: QueueCounts,
    pub arrivals: Arrivals,
    /// A pod counts for each plugin that rejected it.
    pub unschedulable: Vec<UnschedulableBy>,
    pub cache: CacheSizes,
    /// Pods that are being bound, or wait for permission.
    pub binding: usize,
    pub nominated: usize,
    /// How often a pod shared the answers of an equal one.
    pub shared_answers: u64,
}

/// Pods that wait because this plugin rejected them when they were last tried, or keeps them out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnschedulableBy {
    pub profile: String,
    pub plugin: &'static str,
    pub pods: usize,
}

/// What is known of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheSizes {
    pub nodes: usize,
    /// Pods that take room on a node, assumed ones too.
    pub pods: usize,
    /// Pods that were given a node, and are not yet seen bound to it.
    pub assumed_pods: usize,
}

impl Scheduler {
    /// `seed` decides between nodes that are equally good.
    pub fn new(configuration: Configuration, seed: u64) -> Self {
        let profiles = configuration.profiles;
        let woken_by = profiles
            .iter()
            .map(|profile| profile.plugins.iter().map(|built| built.plugin.woken_by()).collect())
            .collect();
        Self {
            queue: Queue::new(configuration.order, configuration.backoff, woken_by),
            profiles,
            nominations: Nominations::default(),
            journal: Journal::default(),
            classes: Classes::default(),
            bindings: Bindings::default(),
            random: ChaCha8Rng::seed_from_u64(seed),
            scratch: Scratch::default(),
            best: Vec::new(),
            wake_at: None,
            cache: CacheSizes::default(),
            effects: Vec::new(),
        }
    }

    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    pub fn figures(&self) -> Figures {
        Figures {
            pending: self.queue.pending(),
            queue: self.queue.counts(),
            arrivals: self.queue.arrivals(),
            unschedulable: self.unschedulable(),
            cache: self.cache,
            binding: self.bindings.len(),
            nominated: self.nominations.len(),
            shared_answers: self.classes.hits(),
        }
    }

    fn unschedulable(&self) -> Vec<UnschedulableBy> {
        let rejected = self.queue.rejected().map(|((profile, plugin), pods)| {
            let profile = &self.profiles[profile];
            UnschedulableBy { profile: profile.name().to_owned(), plugin: profile.plugin_name(plugin), pods }
        });
        rejected.collect()
    }

    /// Whether [`Input::Schedule`] has a pod to try.
    pub fn has_work(&self) -> bool {
        self.queue.pending().active > 0
    }

    /// Takes in what changed in the world, which is already as it is after that. Changes that this scheduler made itself, in a
    /// step, are not among them.
    pub fn observe(&mut self, now: Duration, world: &World, changes: &Changes) -> Vec<Effect> {
        self.changed(now, world, changes);
        self.end_step(world)
    }

    /// Takes one input in. The world is changed by assuming and forgetting pods alone; everything else about it comes with
    /// [`Scheduler::observe`].
    pub fn step(&mut self, now: Duration, world: &mut World, input: Input) -> Vec<Effect> {
        match input {
            Input::Schedule { at_most } => {
                for _ in 0..at_most {
                    if !self.try_next(now, world) {
                        break;
                    }
                }
            }
            Input::Time => {
                self.permits_ran_out(now, world);
                let mut advice = PluginAdvice { profiles: &self.profiles, world };
                self.queue.tick(now, &mut advice);
            }
            Input::Bound { pod } => self.bound(world, &pod),
            Input::Failed { pod, error } => self.binding_failed(now, world, &pod, error),
            Input::PreBound { pod, plugin } => self.pre_bound(now, world, &pod, plugin),
            Input::Allowed { pod, plugin } => self.allowed(now, world, &pod, plugin),
            Input::Denied { pod, plugin, reason } => self.denied(now, world, &pod, plugin, &reason),
        }
        self.end_step(world)
    }

    fn end_step(&mut self, world: &World) -> Vec<Effect> {
        self.ask_to_be_woken();
        self.cache = CacheSizes {
            nodes: world.node_count(),
            pods: world.resources().pods_in_all(),
            assumed_pods: world.assumed_pod_count(),
        };
        std::mem::take(&mut self.effects)
    }

    fn ask_to_be_woken(&mut self) {
        let due = [self.queue.due(), self.bindings.due()].into_iter().flatten().min();
        if due != self.wake_at {
            self.wake_at = due;
            self.effects.extend(due.map(Effect::WakeAt));
        }
    }

    fn changed(&mut self, now: Duration, world: &World, changes: &Changes) {
        note(&mut self.journal, world, changes);
        for &node in &changes.removed_nodes {
            self.nominations.remove_node(node);
        }
        if changes.everything {
            self.look_at_everything(now, world);
        }
        for &pod in &changes.removed_pods {
            self.drop_pod(world, pod);
        }
        for &pod in &changes.pods {
            self.look_at_pod(now, world, pod);
        }
        let mut advice = PluginAdvice { profiles: &self.profiles, world };
        for change in &changes.changes {
            self.queue.changed(now, change, &mut advice);
        }
    }

    /// After a relist: what is to be placed is found anew, and whatever waits for a change is tried again.
    fn look_at_everything(&mut self, now: Duration, world: &World) {
        let known = self.queue.pods().chain(self.nominations.pods());
        let mut known: Vec<PodId> = known.filter(|pod| world.pod(*pod).is_none()).collect();
        known.sort_unstable();
        for pod in known {
            self.drop_pod(world, pod);
        }
        let all: Vec<PodId> = world.pods().map(|(id, _)| id).collect();
        for pod in all {
            self.look_at_pod(now, world, pod);
        }
        let mut advice = PluginAdvice { profiles: &self.profiles, world };
        self.queue.everything_changed(now, &mut advice);
    }

    /// A pod is new, or changed: it is to be placed, or it is not.
    fn look_at_pod(&mut self, now: Duration, world: &World, id: PodId) {
        let Some(pod) = world.pod(id) else { return self.drop_pod(world, id) };
        let name = pod.scheduling.as_ref().map_or("", |facts| facts.scheduler_name.as_str());
        let profile = self.profiles.iter().position(|profile| profile.name() == name);
        // One that is bound, as far as we know, only waits for the watch to tell so.
        let is_on_its_way = pod.is_assumed() && self.bindings.uid(id).is_none();
        let waits = pod.node().is_none() && !is_on_its_way && !pod.finished;
        let nominated = world.nominated_node(id).and_then(|name| world.node_id(name));
        let Some(profile) = profile.filter(|_| waits && !pod.terminating) else {
            // Not tried any more, but the room that is made for it stays its own until it is gone, as upstream has it.
            let keeps_room = profile.is_some() && waits && pod.terminating;
            self.drop_pod(world, id);
            return self.nominations.set(id, nominated.filter(|_| keeps_room));
        };
        if self.bindings.uid(id).is_some_and(|uid| *uid != pod.uid) {
            // Another pod of the same name.
            self.drop_pod(world, id);
        }
        let Some(pod) = world.pod(id) else { return };
        let priority = pod.scheduling.as_ref().map_or(0, |facts| facts.priority);
        let newcomer = Newcomer { pod: id, uid: pod.uid.clone(), profile, priority };
        self.nominations.set(id, nominated);
        let mut advice = PluginAdvice { profiles: &self.profiles, world };
        self.queue.apply(now, newcomer, &mut advice);
    }

    /// Nothing more is to be done for the pod.
    fn drop_pod(&mut self, world: &World, pod: PodId) {
        self.queue.remove(pod);
        self.nominations.set(pod, None);
        // One that is seen on its node while its binding is under way is let finish: the answer is still to come.
        let is_bound = world.pod(pod).is_some_and(|pod| pod.node().is_some());
        if !is_bound {
            self.give_up_binding(pod);
        }
    }

    fn pod_ref(world: &World, id: PodId) -> Option<PodRef> {
        let pod = world.pod(id)?;
        Some(PodRef {
            id,
            namespace: world.interner().text(pod.namespace).to_owned(),
            name: pod.name.to_string(),
            uid: pod.uid.to_string(),
        })
    }
}

/// Notes which nodes changed.
pub(crate) fn note(journal: &mut Journal, world: &World, changes: &Changes) {
    if changes.everything || changes.nodes_came_or_went {
        journal.everything_changed(world);
    }
    for change in &changes.changes {
        if let Some(node) = change.node {
            let is_described_anew = change.kinds.intersects(ChangeKinds::NODE);
            journal.changed(node, if is_described_anew { Aspect::Description } else { Aspect::Pods });
        }
    }
}

#[cfg(test)]
mod hint_tests;
#[cfg(test)]
mod profile_tests;
#[cfg(test)]
mod room_tests;
#[cfg(test)]
mod tests;
