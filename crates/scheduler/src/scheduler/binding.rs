//! Binding cycles: from the chosen node to a bound pod, many pods at a time.
//!
//! In: a pod that is assumed on its node, and the result of each effect. Out: the next effect: first wait for
//! permission, then the PreBind plugins one after the other, then Bind. On any failure, reservations are undone in
//! reverse order, and the pod is forgotten and returns to the queue.

use std::collections::BTreeSet;
use std::time::Duration;

use model::storage::uid::Uid;
use model::{NodeId, PodId, World};
use rustc_hash::FxHashMap;

use super::Scheduler;
use super::attempt::Failure;
use super::message;
use crate::framework::cycle::Cycle;
use crate::framework::erased::Slot;
use crate::framework::points::PermitAnswer;
use crate::framework::profile::PluginBits;
use crate::framework::status::Status;
use crate::queue::Attempts;
use crate::scheduler::effect::{AttemptResult, Effect, PodEvent, PodRef};

/// The longest time a pod waits for permission.
const PERMIT_WAIT_MAX: Duration = Duration::from_secs(15 * 60);

enum Stage {
    /// For these plugins, each with a deadline.
    WaitingForPermit(Vec<(usize, Duration)>),
    /// The plugin at this position in the profile's PreBind list is working.
    PreBinding(usize),
    Binding,
}

struct InBinding {
    pod: PodRef,
    uid: Uid,
    profile: usize,
    node: NodeId,
    node_name: String,
    attempts: Option<Attempts>,
    /// Copies of the plugin states for Reserve, Permit and PreBind, by plugin.
    slots: Vec<(usize, Slot)>,
    stage: Stage,
}

impl InBinding {
    fn slot(&mut self, nth: usize) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|(of, _)| *of == nth).map(|(_, slot)| slot)
    }
}

#[derive(Default)]
pub(super) struct Bindings {
    pods: FxHashMap<PodId, InBinding>,
    /// Permit deadlines.
    due: BTreeSet<(Duration, PodId)>,
}

impl Bindings {
    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    pub(super) fn uid(&self, pod: PodId) -> Option<&Uid> {
        self.pods.get(&pod).map(|binding| &binding.uid)
    }

    pub(super) fn due(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    fn remove(&mut self, pod: PodId) -> Option<InBinding> {
        let binding = self.pods.remove(&pod)?;
        if let Stage::WaitingForPermit(waiting) = &binding.stage {
            for (_, due) in waiting {
                self.due.remove(&(*due, pod));
            }
        }
        Some(binding)
    }

    /// `None` if a different pod now has this id.
    fn of(&mut self, pod: &PodRef) -> Option<&mut InBinding> {
        self.pods.get_mut(&pod.id).filter(|binding| binding.pod.uid == pod.uid)
    }
}

impl Scheduler {
    /// Runs Reserve and Permit for a pod that is assumed on its node, then continues the binding.
    pub(super) fn begin_binding(
        &mut self,
        now: Duration,
        world: &mut World,
        pod: PodRef,
        index: usize,
        node: NodeId,
        node_name: String,
    ) {
        let id = pod.id;
        let Some(cycle) = Cycle::of(world, id) else { return self.drop_pod(world, id) };
        let profile = &self.profiles[index];
        let points = &profile.points;
        let takes_part =
            |nth: &usize| points.reserve.contains(nth) || points.permit.contains(nth) || points.pre_bind.contains(nth);
        let mut slots = Vec::new();
        if (0..profile.plugins.len()).any(|nth| takes_part(&nth)) {
            let cached = self.classes.answers(index, profile, &cycle).slots();
            let taking_part = (0..profile.plugins.len()).filter(takes_part);
            slots.extend(taking_part.map(|nth| (nth, profile.plugins[nth].plugin.copy(&cached[nth]))));
        }
        let attempts = self.queue.attempts(id);
        let uid = cycle.pod.uid.clone();
        let stage = Stage::Binding;
        let mut binding = InBinding { pod, uid, profile: index, node, node_name, attempts, slots, stage };

        for &nth in &points.reserve {
            let (Some(plugin), Some(slot)) = (&profile.plugins[nth].reserve, binding.slot(nth)) else { continue };
            let status = plugin.reserve(&cycle, slot, node);
            if status != Status::Success {
                let failure = self.refusal(index, nth, status, "Reserve");
                return self.undo(now, world, binding, failure);
            }
        }
        let mut waiting = Vec::new();
        for &nth in &points.permit {
            let (Some(plugin), Some(slot)) = (&profile.plugins[nth].permit, binding.slot(nth)) else { continue };
            match plugin.permit(&cycle, slot, node) {
                PermitAnswer::Approve => {}
                PermitAnswer::Wait(wait) => waiting.push((nth, now + wait.min(PERMIT_WAIT_MAX))),
                PermitAnswer::Deny(status) => {
                    let failure = self.refusal(index, nth, status, "Permit");
                    return self.undo(now, world, binding, failure);
                }
            }
        }
        if waiting.is_empty() {
            self.go_on(now, world, binding, 0);
        } else {
            self.bindings.due.extend(waiting.iter().map(|(_, due)| (*due, id)));
            binding.stage = Stage::WaitingForPermit(waiting);
            self.bindings.pods.insert(id, binding);
        }
    }

    /// Runs PreBind from the plugin at this position on, then Bind.
    fn go_on(&mut self, now: Duration, world: &mut World, mut binding: InBinding, from: usize) {
        let id = binding.pod.id;
        self.queue.binding(id);
        let Some(cycle) = Cycle::of(world, id) else { return self.drop_pod(world, id) };
        let profile = &self.profiles[binding.profile];
        for (number, &nth) in profile.points.pre_bind.iter().enumerate().skip(from) {
            let node = binding.node;
            let (Some(plugin), Some(slot)) = (&profile.plugins[nth].pre_bind, binding.slot(nth)) else { continue };
            match plugin.pre_bind(&cycle, slot, node) {
                Ok(false) => {}
                Ok(true) => {
                    let plugin = profile.plugin_name(nth);
                    let (pod, node) = (binding.pod.clone(), binding.node_name.clone());
                    self.effects.push(Effect::PreBind { pod, node, plugin });
                    binding.stage = Stage::PreBinding(number);
                    self.bindings.pods.insert(id, binding);
                    return;
                }
                Err(status) => {
                    let error = format!("running PreBind plugin {:?}: {status:?}", profile.plugin_name(nth));
                    return self.undo(now, world, binding, Failure::Error(error));
                }
            }
        }
        for &nth in &profile.points.bind {
            let Some(plugin) = &profile.plugins[nth].bind else { continue };
            match plugin.bind(&cycle, binding.node) {
                Status::Success => {
                    let plugin = profile.plugin_name(nth);
                    let (pod, node) = (binding.pod.clone(), binding.node_name.clone());
                    self.effects.push(Effect::Bind { pod, node, plugin });
                    binding.stage = Stage::Binding;
                    self.bindings.pods.insert(id, binding);
                    return;
                }
                Status::Skip => {}
                status => {
                    let error = format!("running Bind plugin {:?}: {status:?}", profile.plugin_name(nth));
                    return self.undo(now, world, binding, Failure::Error(error));
                }
            }
        }
        self.undo(now, world, binding, Failure::Error("no Bind plugin accepts the pod".to_owned()));
    }

    pub(super) fn pre_bound(&mut self, now: Duration, world: &mut World, pod: &PodRef, plugin: &str) {
        let Some(binding) = self.bindings.of(pod) else { return };
        let Stage::PreBinding(number) = binding.stage else { return };
        let profile = &self.profiles[binding.profile];
        if profile.plugin_name(profile.points.pre_bind[number]) == plugin
            && let Some(binding) = self.bindings.remove(pod.id)
        {
            self.go_on(now, world, binding, number + 1);
        }
    }

    pub(super) fn bound(&mut self, world: &World, pod: &PodRef) {
        if self.bindings.of(pod).is_none() {
            return;
        }
        let Some(binding) = self.bindings.remove(pod.id) else { return };
        let profile = &self.profiles[binding.profile];
        if let Some(cycle) = Cycle::of(world, pod.id) {
            for &nth in &profile.points.post_bind {
                if let Some(plugin) = &profile.plugins[nth].post_bind {
                    plugin.post_bind(&cycle, binding.node);
                }
            }
        }
        self.queue.remove(pod.id);
        self.nominations.set(pod.id, None);
        let PodRef { namespace, name, .. } = pod;
        let message = format!("Successfully assigned {namespace}/{name} to {}", binding.node_name);
        let (profile, event) = (profile.name().to_owned(), PodEvent::Scheduled { message });
        self.effects.push(Effect::PostEvent { pod: pod.clone(), profile, event });
        self.concluded(Some(binding.profile), AttemptResult::Scheduled, binding.attempts);
    }

    pub(super) fn binding_failed(&mut self, now: Duration, world: &mut World, pod: &PodRef, error: String) {
        if self.bindings.of(pod).is_some()
            && let Some(binding) = self.bindings.remove(pod.id)
        {
            self.undo(now, world, binding, Failure::Error(error));
        }
    }

    pub(super) fn allowed(&mut self, now: Duration, world: &mut World, pod: &PodRef, plugin: &str) {
        let profiles = &self.profiles;
        let Some(binding) = self.bindings.of(pod) else { return };
        let profile = &profiles[binding.profile];
        let Stage::WaitingForPermit(waiting) = &mut binding.stage else { return };
        let Some(at) = waiting.iter().position(|(nth, _)| profile.plugin_name(*nth) == plugin) else { return };
        let (_, due) = waiting.swap_remove(at);
        let (is_last, due_again) = (waiting.is_empty(), waiting.iter().any(|(_, other)| *other == due));
        if !due_again {
            self.bindings.due.remove(&(due, pod.id));
        }
        if is_last && let Some(binding) = self.bindings.remove(pod.id) {
            self.go_on(now, world, binding, 0);
        }
    }

    pub(super) fn denied(&mut self, now: Duration, world: &mut World, pod: &PodRef, plugin: &str, reason: &str) {
        let Some(binding) = self.bindings.of(pod) else { return };
        let profile = &self.profiles[binding.profile];
        let Stage::WaitingForPermit(waiting) = &binding.stage else { return };
        let waits_for = waiting.iter().find(|(nth, _)| profile.plugin_name(*nth) == plugin);
        if let Some(&(nth, _)) = waits_for
            && let Some(binding) = self.bindings.remove(pod.id)
        {
            let by = [nth].into_iter().collect();
            self.undo(now, world, binding, Failure::Rejected { by, message: message::refused(reason) });
        }
    }

    /// Denies the pods whose Permit deadline has passed.
    pub(super) fn permits_ran_out(&mut self, now: Duration, world: &mut World) {
        while let Some(&(due, pod)) = self.bindings.due.first()
            && due <= now
        {
            self.bindings.due.pop_first();
            let Some(binding) = self.bindings.remove(pod) else { continue };
            let Stage::WaitingForPermit(waiting) = &binding.stage else { continue };
            let Some(&(nth, _)) = waiting.iter().find(|(_, other)| *other == due) else { continue };
            let name = self.profiles[binding.profile].plugin_name(nth);
            let message = message::refused(&format!("rejected due to timeout at plugin {name}"));
            let by = [nth].into_iter().collect();
            self.undo(now, world, binding, Failure::Rejected { by, message });
        }
    }

    /// The pod is gone, or another pod has its name.
    pub(super) fn give_up_binding(&mut self, pod: PodId) {
        if let Some(mut binding) = self.bindings.remove(pod) {
            self.unreserve(&mut binding);
        }
    }

    fn undo(&mut self, now: Duration, world: &mut World, mut binding: InBinding, failure: Failure) {
        self.unreserve(&mut binding);
        self.forget(now, world, &binding.pod);
        self.failed(now, world, binding.pod.id, failure);
    }

    /// Calls all Reserve plugins in reverse order, including those whose reserve did not run.
    fn unreserve(&self, binding: &mut InBinding) {
        let pod = binding.pod.id;
        let profile = &self.profiles[binding.profile];
        let node = binding.node;
        for &nth in profile.points.reserve.iter().rev() {
            if let (Some(plugin), Some(slot)) = (&profile.plugins[nth].reserve, binding.slot(nth)) {
                plugin.unreserve(slot, pod, node);
            }
        }
    }

    fn refusal(&self, index: usize, nth: usize, status: Status, point: &str) -> Failure {
        let name = self.profiles[index].plugin_name(nth);
        let error = format!("running {point} plugin {name:?}: {status:?}");
        match status.into_rejection() {
            Some(rejection) => {
                let by: PluginBits = [nth].into_iter().collect();
                Failure::Rejected { by, message: message::refused(&rejection.reasons.message()) }
            }
            None => Failure::Error(error),
        }
    }
}
