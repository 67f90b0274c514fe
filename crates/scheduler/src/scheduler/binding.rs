//! Binding cycles: from the chosen node to a bound pod, many pods at a time.
//!
//! In: a pod that is assumed on its node, and the result of each effect. Out: the next effect: first wait for
//! permission (`waiting`), then the PreBind plugins one after the other, then the first Bind plugin that takes the pod.
//! On any failure, reservations are undone in reverse order, and the pod is forgotten and returns to the queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::storage::uid::Uid;
use model::{NodeId, PodId, World};
use rustc_hash::FxHashMap;

use super::Scheduler;
use super::attempt::Failure;
use super::message;
use super::requests::Around;
use crate::framework::cycle::Cycle;
use crate::framework::erased::Slot;
use crate::framework::handle::{Handle, States};
use crate::framework::points::Nomination;
use crate::framework::probe::{Began, ExtensionPoint, Meter, Outcome, Probe};
use crate::framework::profile::PluginBits;
use crate::framework::status::Status;
use crate::queue::Attempts;
use crate::scheduler::effect::{AttemptResult, Effect, PodEvent, PodRef};

/// A pod and the node on which it is assumed.
pub(super) struct Placed {
    pub(super) pod: PodRef,
    pub(super) profile: usize,
    pub(super) node: NodeId,
    pub(super) node_name: String,
}

pub(super) enum Stage {
    /// Reserve and Permit run.
    Beginning,
    /// Since when, and for which plugins, each with a deadline.
    WaitingForPermit { since: Duration, plugins: Vec<(usize, Duration)> },
    /// The executor of the plugin at this position in the profile's PreBind list is working.
    PreBinding(usize),
    /// The executor of the plugin at this position in the profile's Bind list is working.
    Binding(usize),
}

pub(super) struct InBinding {
    pub(super) placed: Placed,
    uid: Uid,
    attempts: Option<Attempts>,
    /// Copies of the states of the plugins that take part from Reserve on, by plugin.
    slots: Vec<(usize, Slot)>,
    pub(super) stage: Stage,
    /// PreBind plugins that have nothing to do for this pod.
    skipped: PluginBits,
    /// Its nominated node was written.
    is_nominated: bool,
    /// The pod's cycle is measured.
    pub(super) probe: Option<Arc<dyn Probe>>,
    /// If it is: when PreBind or Bind began, and the plugin whose executor is working.
    pub(super) point_began: Option<Began>,
    pub(super) work_began: Option<Began>,
}

#[derive(Default)]
pub(super) struct Bindings {
    pub(super) pods: FxHashMap<PodId, InBinding>,
    /// Permit deadlines.
    pub(super) due: BTreeSet<(Duration, PodId)>,
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

    pub(super) fn remove(&mut self, pod: PodId) -> Option<InBinding> {
        let binding = self.pods.remove(&pod)?;
        if let Stage::WaitingForPermit { plugins, .. } = &binding.stage {
            for (_, due) in plugins {
                self.due.remove(&(*due, pod));
            }
        }
        Some(binding)
    }

    /// `None` if a different pod now has this id.
    fn of(&self, pod: &PodRef) -> Option<&InBinding> {
        self.pods.get(&pod.id).filter(|binding| binding.placed.pod.uid == pod.uid)
    }
}

impl Scheduler {
    /// Runs Reserve and Permit for a pod that is assumed on its node, then continues the binding.
    pub(super) fn begin_binding(
        &mut self,
        now: Duration,
        world: &mut World,
        placed: Placed,
        probe: Option<Arc<dyn Probe>>,
    ) {
        let id = placed.pod.id;
        let Some(cycle) = Cycle::of(world, id) else { return self.drop_pod(now, world, id) };
        let profile = &self.profiles[placed.profile];
        let mut slots = Vec::new();
        if profile.points.after_the_choice().next().is_some() {
            let cached = self.classes.answers(placed.profile, profile, &cycle).slots();
            let taking_part: PluginBits = profile.points.after_the_choice().collect();
            slots.extend(taking_part.iter().map(|nth| (nth, profile.plugins[nth].plugin.copy(&cached[nth]))));
        }
        let mut binding = InBinding {
            placed,
            uid: cycle.pod.uid.clone(),
            attempts: self.queue.attempts(id),
            slots,
            stage: Stage::Beginning,
            skipped: PluginBits::default(),
            is_nominated: false,
            probe,
            point_began: None,
            work_began: None,
        };
        match self.reserve_and_permit(now, &cycle, &mut binding) {
            Ok(plugins) => self.wait_or_go_on(now, world, binding, plugins),
            Err(failure) => self.undo(now, world, binding, failure),
        }
    }

    /// Calls a plugin with its own state and a handle.
    pub(super) fn call<R: Outcome>(
        &mut self,
        now: Duration,
        world: &World,
        binding: &mut InBinding,
        (nth, point): (usize, ExtensionPoint),
        call: impl FnOnce(&mut Slot, &mut Handle<'_>) -> R,
    ) -> R {
        let profile = &self.profiles[binding.placed.profile];
        let name = profile.plugin_name(nth);
        let position = binding.slots.iter().position(|(of, _)| *of == nth);
        // While the plugin has its own state, others are there to be read.
        let mut own = match position {
            Some(position) => std::mem::replace(&mut binding.slots[position].1, Slot::empty()),
            None => profile.plugins[nth].plugin.slot(),
        };
        let mut handle = Handle {
            world,
            plugin: name,
            now,
            surroundings: &Around {
                profiles: &self.profiles,
                bindings: &self.bindings,
                nominations: &self.nominations,
                world,
            },
            plugins: &profile.plugins,
            states: States::Some(&binding.slots),
            requests: &mut self.requests,
        };
        let meter = Meter::new(binding.probe.as_deref(), profile.name());
        let outcome = meter.plugin(name, point, || call(&mut own, &mut handle));
        if let Some(position) = position {
            binding.slots[position].1 = own;
        }
        outcome
    }

    /// The slot of a plugin that reads its state only.
    fn slot(binding: &InBinding, nth: usize) -> Option<&Slot> {
        binding.slots.iter().find(|(of, _)| *of == nth).map(|(_, slot)| slot)
    }

    /// Asks the PreBind plugins whether they have anything to do. Returns whether any has.
    pub(super) fn pre_flight(&self, cycle: &Cycle<'_>, binding: &mut InBinding) -> Result<bool, Failure> {
        let profile = &self.profiles[binding.placed.profile];
        let began = self.begin_point(binding);
        let mut any = false;
        for &nth in &profile.points.pre_bind {
            let (Some(plugin), Some(slot)) = (&profile.plugins[nth].pre_bind, Self::slot(binding, nth)) else {
                continue;
            };
            let meter = binding.meter(profile);
            let (name, node) = (profile.plugin_name(nth), binding.placed.node);
            let ask = || plugin.pre_bind_pre_flight(cycle, slot, node);
            match meter.plugin(name, ExtensionPoint::PreBindPreFlight, ask) {
                Status::Success => any = true,
                Status::Skip => binding.skipped.insert(nth),
                status => {
                    self.end_point(binding, ExtensionPoint::PreBindPreFlight, "Error", began);
                    let error = format!("running PreBindPreFlight {name:?}: {}", status.describe());
                    return Err(Failure::Error(error));
                }
            }
        }
        let status = if any { Status::Success } else { Status::Skip };
        self.end_point(binding, ExtensionPoint::PreBindPreFlight, status.as_str(), began);
        Ok(any)
    }

    /// Writes the pod's nominated node before something that takes time, so that others see where it will run.
    pub(super) fn announce(&mut self, binding: &mut InBinding) {
        binding.is_nominated = true;
        let (pod, node) = (binding.placed.pod.clone(), Some(binding.placed.node_name.clone()));
        self.effects.push(Effect::Nominate { pod, node });
    }

    /// Runs PreBind from the plugin at this position on, then Bind.
    pub(super) fn pre_bind(&mut self, now: Duration, world: &mut World, mut binding: InBinding, from: usize) {
        let id = binding.placed.pod.id;
        self.queue.binding(id);
        let Some(cycle) = Cycle::of(world, id) else { return self.drop_pod(now, world, id) };
        let profile = &self.profiles[binding.placed.profile];
        if from == 0 {
            binding.point_began = self.begin_point(&binding);
        }
        for (position, &nth) in profile.points.pre_bind.iter().enumerate().skip(from) {
            let (Some(plugin), Some(slot)) = (&profile.plugins[nth].pre_bind, Self::slot(&binding, nth)) else {
                continue;
            };
            if binding.skipped.contains(nth) {
                continue;
            }
            let meter = binding.meter(profile);
            let (name, node) = (profile.plugin_name(nth), binding.placed.node);
            let began = meter.begin();
            match plugin.pre_bind(&cycle, slot, node) {
                Ok(None) => meter.plugin_ended(name, ExtensionPoint::PreBind, "Success", began),
                Ok(Some(work)) => {
                    binding.work_began = began;
                    let (pod, node) = (binding.placed.pod.clone(), binding.placed.node_name.clone());
                    self.effects.push(Effect::PreBind { pod, node, plugin: name, work });
                    binding.stage = Stage::PreBinding(position);
                    self.bindings.pods.insert(id, binding);
                    return;
                }
                Err(status) => {
                    meter.plugin_ended(name, ExtensionPoint::PreBind, status.as_str(), began);
                    meter.point_ended(ExtensionPoint::PreBind, status.as_str(), binding.point_began);
                    let failure = self.refusal(binding.placed.profile, nth, status, ExtensionPoint::PreBind);
                    return self.undo(now, world, binding, failure);
                }
            }
        }
        self.end_point(&binding, ExtensionPoint::PreBind, "Success", binding.point_began);
        self.bind(now, world, binding, 0);
    }

    /// Asks the Bind plugins from the one at this position on.
    fn bind(&mut self, now: Duration, world: &mut World, mut binding: InBinding, from: usize) {
        let id = binding.placed.pod.id;
        let Some(cycle) = Cycle::of(world, id) else { return self.drop_pod(now, world, id) };
        let profile = &self.profiles[binding.placed.profile];
        if from == 0 {
            binding.point_began = self.begin_point(&binding);
        }
        for (position, &nth) in profile.points.bind.iter().enumerate().skip(from) {
            let (Some(plugin), Some(slot)) = (&profile.plugins[nth].bind, Self::slot(&binding, nth)) else { continue };
            let meter = binding.meter(profile);
            let (name, node) = (profile.plugin_name(nth), binding.placed.node);
            let began = meter.begin();
            match plugin.bind(&cycle, slot, node) {
                Ok(None) => meter.plugin_ended(name, ExtensionPoint::Bind, "Skip", began),
                Ok(Some(work)) => {
                    binding.work_began = began;
                    let (pod, node) = (binding.placed.pod.clone(), binding.placed.node_name.clone());
                    self.effects.push(Effect::Bind { pod, node, plugin: name, work });
                    binding.stage = Stage::Binding(position);
                    self.bindings.pods.insert(id, binding);
                    return;
                }
                Err(status) => {
                    meter.plugin_ended(name, ExtensionPoint::Bind, status.as_str(), began);
                    meter.point_ended(ExtensionPoint::Bind, status.as_str(), binding.point_began);
                    let failure = self.refusal(binding.placed.profile, nth, status, ExtensionPoint::Bind);
                    return self.undo(now, world, binding, failure);
                }
            }
        }
        self.end_point(&binding, ExtensionPoint::Bind, "Skip", binding.point_began);
        // kube-scheduler says nothing here, and the pod is retried without a trace.
        self.undo(now, world, binding, Failure::Error("no Bind plugin takes the pod".to_owned()));
    }

    pub(super) fn pre_bound(&mut self, now: Duration, world: &mut World, pod: &PodRef, plugin: &str) {
        let Some(InBinding { stage: Stage::PreBinding(position), placed, .. }) = self.bindings.of(pod) else { return };
        let (position, profile) = (*position, &self.profiles[placed.profile]);
        if profile.plugin_name(profile.points.pre_bind[position]) == plugin
            && let Some(binding) = self.bindings.remove(pod.id)
        {
            self.work_ended(&binding, "Success", false);
            self.pre_bind(now, world, binding, position + 1);
        }
    }

    pub(super) fn declined(&mut self, now: Duration, world: &mut World, pod: &PodRef, plugin: &str) {
        let Some(InBinding { stage: Stage::Binding(position), placed, .. }) = self.bindings.of(pod) else { return };
        let (position, profile) = (*position, &self.profiles[placed.profile]);
        if profile.plugin_name(profile.points.bind[position]) == plugin
            && let Some(binding) = self.bindings.remove(pod.id)
        {
            self.work_ended(&binding, "Skip", false);
            self.bind(now, world, binding, position + 1);
        }
    }

    pub(super) fn bound(&mut self, now: Duration, world: &World, pod: &PodRef) {
        if self.bindings.of(pod).is_none() {
            return;
        }
        let Some(mut binding) = self.bindings.remove(pod.id) else { return };
        self.work_ended(&binding, "Success", true);
        let index = binding.placed.profile;
        if let Some(cycle) = Cycle::of(world, pod.id) {
            let began = self.begin_point(&binding);
            for position in 0..self.profiles[index].points.post_bind.len() {
                let nth = self.profiles[index].points.post_bind[position];
                let Some(plugin) = self.profiles[index].plugins[nth].post_bind.clone() else { continue };
                let node = binding.placed.node;
                self.call(now, world, &mut binding, (nth, ExtensionPoint::PostBind), |slot, handle| {
                    plugin.post_bind(&cycle, slot, node, handle);
                });
            }
            self.end_point(&binding, ExtensionPoint::PostBind, "Success", began);
        }
        self.queue.remove(pod.id);
        self.set_nomination(pod.id, None);
        let PodRef { namespace, name, .. } = pod;
        let message = format!("Successfully assigned {namespace}/{name} to {}", binding.placed.node_name);
        let (profile, event) = (self.profiles[index].name().to_owned(), PodEvent::Scheduled { message });
        self.effects.push(Effect::PostEvent { pod: pod.clone(), profile, event });
        self.concluded(Some(index), AttemptResult::Scheduled, binding.attempts);
    }

    pub(super) fn binding_failed(&mut self, now: Duration, world: &mut World, pod: &PodRef, error: String) {
        if self.bindings.of(pod).is_some()
            && let Some(binding) = self.bindings.remove(pod.id)
        {
            self.work_ended(&binding, "Error", true);
            self.undo(now, world, binding, Failure::Error(error));
        }
    }

    /// An executor rejects the pod.
    pub(super) fn binding_rejected(
        &mut self,
        now: Duration,
        world: &mut World,
        pod: &PodRef,
        plugin: &str,
        reason: &str,
    ) {
        let Some(InBinding { stage, placed, .. }) = self.bindings.of(pod) else { return };
        let profile = &self.profiles[placed.profile];
        let nth = match stage {
            Stage::PreBinding(position) => profile.points.pre_bind[*position],
            Stage::Binding(position) => profile.points.bind[*position],
            Stage::Beginning | Stage::WaitingForPermit { .. } => return,
        };
        if profile.plugin_name(nth) == plugin
            && let Some(binding) = self.bindings.remove(pod.id)
        {
            self.work_ended(&binding, "Unschedulable", true);
            self.undo(now, world, binding, Failure::refused_by_work(reason));
        }
    }

    /// The pod is gone, or another pod has its name.
    pub(super) fn give_up_binding(&mut self, now: Duration, world: &World, pod: PodId) {
        if let Some(mut binding) = self.bindings.remove(pod) {
            self.wait_ended(&binding, "Unschedulable", now);
            self.unreserve(now, world, &mut binding);
            self.cancel(&binding);
        }
    }

    /// This process no longer leads. A binding that was sent continues: its result is still to come.
    pub(super) fn give_up_all(&mut self, now: Duration, world: &mut World) {
        let is_sent = |binding: &InBinding| matches!(binding.stage, Stage::Binding(_));
        let mut pods: Vec<PodId> =
            self.bindings.pods.iter().filter(|(_, binding)| !is_sent(binding)).map(|(pod, _)| *pod).collect();
        pods.sort_unstable();
        for pod in pods {
            if let Some(binding) = self.bindings.remove(pod) {
                self.cancel(&binding);
                self.undo(now, world, binding, Failure::Error("this process no longer leads".to_owned()));
            }
        }
    }

    pub(super) fn cancel(&mut self, binding: &InBinding) {
        if matches!(binding.stage, Stage::PreBinding(_)) {
            self.effects.push(Effect::Cancel { pod: binding.placed.pod.clone() });
        }
    }

    pub(super) fn undo(&mut self, now: Duration, world: &mut World, mut binding: InBinding, failure: Failure) {
        self.unreserve(now, world, &mut binding);
        let PodRef { id, .. } = binding.placed.pod;
        self.forget(now, world, &binding.placed.pod);
        if binding.is_nominated && world.nominated_node(id).is_none() {
            // The watch has not shown the nomination yet, so that clearing it would not be noticed as needed.
            self.effects.push(Effect::Nominate { pod: binding.placed.pod.clone(), node: None });
        }
        self.failed(now, world, id, failure, Nomination::Clear);
    }

    /// Calls all Reserve plugins in reverse order, including those whose reserve did not run.
    fn unreserve(&mut self, now: Duration, world: &World, binding: &mut InBinding) {
        let (index, pod, node) = (binding.placed.profile, binding.placed.pod.id, binding.placed.node);
        let began = self.begin_point(binding);
        for position in (0..self.profiles[index].points.reserve.len()).rev() {
            let nth = self.profiles[index].points.reserve[position];
            let Some(plugin) = self.profiles[index].plugins[nth].reserve.clone() else { continue };
            self.call(now, world, binding, (nth, ExtensionPoint::Unreserve), |slot, handle| {
                plugin.unreserve(slot, pod, node, handle);
            });
        }
        self.end_point(binding, ExtensionPoint::Unreserve, "Success", began);
    }

    /// Why a status other than Success at this point ends the attempt.
    pub(super) fn refusal(&self, index: usize, nth: usize, status: Status, point: ExtensionPoint) -> Failure {
        let name = self.profiles[index].plugin_name(nth);
        let error = format!("running {} plugin {name:?}: {}", point.as_str(), status.describe());
        match (point, status.into_rejection()) {
            (_, None) => Failure::Error(error),
            (ExtensionPoint::Reserve | ExtensionPoint::Permit, Some(rejection)) => {
                let by: PluginBits = [nth].into_iter().collect();
                Failure::Rejected { by, message: message::refused(&rejection.reasons.message()) }
            }
            (_, Some(rejection)) => Failure::refused_by_work(&rejection.reasons.message()),
        }
    }
}

impl Failure {
    /// As upstream, no plugin counts as the rejector: the pod is tried again after a backoff instead of after a change,
    /// because what PreBind and Bind work on is seldom something that the world contains. The message is the reason
    /// alone, without a count of nodes.
    fn refused_by_work(reason: &str) -> Self {
        Self::Rejected { by: PluginBits::default(), message: reason.to_owned() }
    }
}
