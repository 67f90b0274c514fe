//! The scheduler: a state machine that places pods.
//!
//! In: inputs, each with the current time. Out: effects. `Scheduler::step` only computes: it reads no clock, never
//! blocks, and takes its randomness from the given seed.
//!
//! - `attempt`: the scheduling cycle, one pod at a time. `binding`: binding cycles, many at a time; `waiting`: the wait
//!   for permission. `preemption`: evicts pods to make room. `advice`: what the queue asks the plugins. `requests`:
//!   what plugins ask of the scheduler. `timing`: how long binding cycles take.
//!
//! Invariants: a pod is assumed on its node (an event of the world) before it is bound. If the binding fails, the pod
//! is forgotten and reservations are undone in reverse order. A pod that another client bound is accepted; a deleted
//! pod is dropped.

mod advice;
mod attempt;
mod binding;
pub(crate) mod effect;
pub(crate) mod message;
pub mod observe;
mod preemption;
mod requests;
mod timing;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use model::storage::uid::Uid;
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
use crate::framework::handle::Request;
use crate::framework::probe::{Probe, Sampler};
use crate::framework::profile::Profile;
use crate::queue::{Arrivals, Newcomer, Nominations, Pending, Queue, QueueCounts};

pub struct Scheduler {
    profiles: Vec<Profile>,
    queue: Queue,
    nominations: Nominations,
    journal: Journal,
    classes: Classes,
    bindings: Bindings,
    /// What plugins asked for and has not been done yet.
    requests: Vec<Request>,
    /// How often DefaultPreemption was asked.
    preemption_attempts: u64,
    random: ChaCha8Rng,
    /// Has randomness of its own, so that measuring changes no decision.
    sampler: Sampler,
    scratch: Scratch,
    best: Vec<NodeId>,
    wake_at: Option<Duration>,
    cache: CacheSizes,
    /// Effects of the current step.
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
    pub preemption_attempts: u64,
    /// How often a pod reused the cached verdicts of its class.
    pub class_hits: u64,
}

/// The pods that wait because this plugin rejected them in their last attempt, or gates them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnschedulableBy {
    pub profile: String,
    pub plugin: &'static str,
    pub pods: usize,
}

/// The size of the known cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheSizes {
    pub nodes: usize,
    /// Pods that take resources on a node, including assumed pods.
    pub pods: usize,
    /// Pods that have a node but that the watch has not shown as bound yet.
    pub assumed_pods: usize,
}

impl Scheduler {
    /// `seed` decides between nodes with equal totals.
    pub fn new(configuration: Configuration, seed: u64) -> Self {
        let profiles = configuration.profiles;
        let woken_by = profiles
            .iter()
            .map(|profile| profile.plugins.iter().map(|built| built.plugin.woken_by()).collect())
            .collect();
        Self {
            queue: Queue::new(configuration.backoff, woken_by),
            profiles,
            nominations: Nominations::default(),
            journal: Journal::default(),
            classes: Classes::default(),
            bindings: Bindings::default(),
            requests: Vec::new(),
            preemption_attempts: 0,
            random: ChaCha8Rng::seed_from_u64(seed),
            sampler: Sampler::off(!seed),
            scratch: Scratch::default(),
            best: Vec::new(),
            wake_at: None,
            cache: CacheSizes::default(),
            effects: Vec::new(),
        }
    }

    /// Measures plugins from now on.
    #[must_use]
    pub fn measured_by(mut self, probe: Arc<dyn Probe>) -> Self {
        self.sampler.report_to(probe);
        self
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
            preemption_attempts: self.preemption_attempts,
            class_hits: self.classes.hits(),
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

    /// The condition of a pod could not be written: the next failed attempt reports it, also with the same message.
    pub fn report_again(&mut self, world: &World, namespace: &str, name: &str, uid: &str) {
        if let Some(pod) = world.pod_id(namespace, name)
            && world.pod(pod).is_some_and(|known| known.uid == Uid::from(uid))
        {
            self.queue.report_again(pod);
        }
    }

    /// Processes changes that the world already contains. They must not include the changes that this scheduler made
    /// itself in a step.
    pub fn observe(&mut self, now: Duration, world: &World, changes: &Changes) -> Vec<Effect> {
        self.changed(now, world, changes);
        self.end_step(now, world)
    }

    /// Processes one input. It changes the world only by assuming and forgetting pods; all other changes arrive through
    /// [`Scheduler::observe`].
    pub fn step(&mut self, now: Duration, world: &mut World, input: Input) -> Vec<Effect> {
        match input {
            Input::Schedule { at_most } => {
                for _ in 0..at_most {
                    if !self.try_next(now, world) {
                        break;
                    }
                    self.carry_out_requests(now, world);
                }
            }
            Input::Time => {
                self.permits_ran_out(now, world);
                let mut advice = PluginAdvice { profiles: &self.profiles, world, sampler: &mut self.sampler };
                self.queue.tick(now, &mut advice);
            }
            Input::Bound { pod } => self.bound(now, world, &pod),
            Input::Declined { pod, plugin } => self.declined(now, world, &pod, plugin),
            Input::Failed { pod, error } => self.binding_failed(now, world, &pod, error),
            Input::Rejected { pod, plugin, reason } => self.binding_rejected(now, world, &pod, plugin, &reason),
            Input::PreBound { pod, plugin } => self.pre_bound(now, world, &pod, plugin),
            Input::Evicted { pod, node, victims, error } => {
                self.evicted(now, world, &pod, &node, victims, error.is_some());
            }
            Input::Message { plugin, message } => self.message(now, world, plugin, &message),
            Input::LeaseLost => self.give_up_all(now, world),
        }
        self.carry_out_requests(now, world);
        self.end_step(now, world)
    }

    fn end_step(&mut self, now: Duration, world: &World) -> Vec<Effect> {
        self.ask_to_be_woken(now);
        self.cache = CacheSizes {
            nodes: world.node_count(),
            pods: world.resources().pods_in_all(),
            assumed_pods: world.assumed_pod_count(),
        };
        std::mem::take(&mut self.effects)
    }

    fn ask_to_be_woken(&mut self, now: Duration) {
        // What plugins asked for while changes were observed waits for a step that may change the world.
        let requested = (!self.requests.is_empty()).then_some(now);
        let due = [self.queue.due(), self.bindings.due(), requested].into_iter().flatten().min();
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
            self.drop_pod(now, world, pod);
        }
        for &pod in &changes.pods {
            self.look_at_pod(now, world, pod);
        }
        let mut advice = PluginAdvice { profiles: &self.profiles, world, sampler: &mut self.sampler };
        for change in &changes.changes {
            self.queue.changed(now, change, &mut advice);
        }
        self.victims_left(now, world, changes);
    }

    /// After a relist: finds the pods to place again, and wakes all pods that wait for a change.
    fn look_at_everything(&mut self, now: Duration, world: &World) {
        let known = self.queue.pods().chain(self.nominations.pods());
        let mut known: Vec<PodId> = known.filter(|pod| world.pod(*pod).is_none()).collect();
        known.sort_unstable();
        for pod in known {
            self.drop_pod(now, world, pod);
        }
        let all: Vec<PodId> = world.pods().map(|(id, _)| id).collect();
        for pod in all {
            self.look_at_pod(now, world, pod);
        }
        let mut advice = PluginAdvice { profiles: &self.profiles, world, sampler: &mut self.sampler };
        self.queue.everything_changed(now, &mut advice);
    }

    /// A pod was added or changed: puts it into the queue, or drops it if there is nothing to place.
    fn look_at_pod(&mut self, now: Duration, world: &World, id: PodId) {
        let Some(pod) = world.pod(id) else { return self.drop_pod(now, world, id) };
        let name = pod.scheduling.as_ref().map_or("", |facts| facts.scheduler_name.as_str());
        let profile = self.profiles.iter().position(|profile| profile.name() == name);
        // The pod is already bound; only the watch has not shown it yet.
        let is_on_its_way = pod.is_assumed() && self.bindings.uid(id).is_none();
        let waits = pod.node().is_none() && !is_on_its_way && !pod.finished;
        let nominated = world.nominated_node(id).and_then(|name| world.node_id(name));
        let Some(profile) = profile.filter(|_| waits && !pod.terminating) else {
            // The pod is no longer tried, but it keeps its nomination until it is gone, as upstream.
            let keeps_room = profile.is_some() && waits && pod.terminating;
            self.drop_pod(now, world, id);
            return self.set_nomination(id, nominated.filter(|_| keeps_room));
        };
        if self.bindings.uid(id).is_some_and(|uid| *uid != pod.uid) {
            // Another pod with the same name.
            self.drop_pod(now, world, id);
        }
        let Some(pod) = world.pod(id) else { return };
        let newcomer = Newcomer { pod: id, uid: pod.uid.clone(), profile };
        self.set_nomination(id, nominated);
        let mut advice = PluginAdvice { profiles: &self.profiles, world, sampler: &mut self.sampler };
        self.queue.apply(now, newcomer, &mut advice);
    }

    /// Stops all work for the pod.
    fn drop_pod(&mut self, now: Duration, world: &World, pod: PodId) {
        self.queue.remove(pod);
        self.set_nomination(pod, None);
        // If the watch shows the pod on a node during its binding, the binding continues: its result is still to come.
        let is_bound = world.pod(pod).is_some_and(|pod| pod.node().is_some());
        if !is_bound {
            self.give_up_binding(now, world, pod);
        }
    }

    /// The pod was placed, perhaps elsewhere, or forgotten: it does or does not need the room that is kept for it.
    fn note_nomination(&mut self, pod: PodId) {
        if let Some(node) = self.nominations.node_of(pod) {
            self.journal.changed(node, Aspect::DryRun);
        }
    }

    /// Nominates the pod to a node, or clears its nomination. Called also if the pod itself changed.
    fn set_nomination(&mut self, pod: PodId, node: Option<NodeId>) {
        let before = self.nominations.node_of(pod);
        self.nominations.set(pod, node);
        for node in before.into_iter().chain(node) {
            self.journal.changed(node, Aspect::DryRun);
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

/// Records in the journal which nodes changed.
pub(crate) fn note(journal: &mut Journal, world: &World, changes: &Changes) {
    if changes.everything || changes.nodes_added_or_removed {
        journal.everything_changed(world);
    }
    for change in &changes.changes {
        if let Some(node) = change.node {
            let description_changed = change.kinds.intersects(ChangeKinds::NODE);
            journal.changed(node, if description_changed { Aspect::Description } else { Aspect::Pods });
        }
    }
    for &node in &changes.started {
        journal.changed(node, Aspect::DryRun);
    }
}

#[cfg(test)]
mod handle_tests;
#[cfg(test)]
mod hint_tests;
#[cfg(test)]
mod kept_results_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod preemption_tests;
#[cfg(test)]
mod probe_tests;
#[cfg(test)]
mod profile_tests;
#[cfg(test)]
mod room_tests;
#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod volume_tests;
