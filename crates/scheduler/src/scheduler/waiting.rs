//! From Reserve to the end of the wait for permission.
//!
//! In: a pod that is assumed on its node; later what Permit plugins decide, or their deadlines. Out: the binding goes on
//! with PreBind, or is undone. A waiting pod keeps its place; each plugin that made it wait has its own deadline.

use std::time::Duration;

use model::{PodId, World};

use super::Scheduler;
use super::attempt::Failure;
use super::binding::{Bindings, InBinding, Stage};
use super::message;
use crate::config::go_duration;
use crate::framework::cycle::Cycle;
use crate::framework::handle::WaitingPod;
use crate::framework::points::PermitAnswer;
use crate::framework::probe::ExtensionPoint;
use crate::framework::profile::Profile;
use crate::framework::status::Status;

/// The longest time a pod waits for permission.
const PERMIT_WAIT_MAX: Duration = Duration::from_secs(15 * 60);

impl Bindings {
    /// The pods that wait for permission, those that wait longest first.
    pub(super) fn waiting(&self, profiles: &[Profile]) -> Vec<WaitingPod> {
        let waiting = self.pods.iter().filter_map(|(&pod, binding)| {
            let Stage::WaitingForPermit { since, plugins } = &binding.stage else { return None };
            let mut plugins = plugins.clone();
            plugins.sort_by_key(|(_, due)| *due);
            let profile = profiles.get(binding.placed.profile)?;
            let plugins = plugins.iter().map(|(nth, _)| profile.plugin_name(*nth)).collect();
            Some(WaitingPod { pod, node: binding.placed.node, plugins, since: *since })
        });
        let mut waiting: Vec<WaitingPod> = waiting.collect();
        waiting.sort_unstable_by_key(|waiting| (waiting.since, waiting.pod));
        waiting
    }
}

impl Scheduler {
    /// Runs Reserve and Permit. Returns the plugins that make the pod wait, each with its deadline.
    pub(super) fn reserve_and_permit(
        &mut self,
        now: Duration,
        cycle: &Cycle<'_>,
        binding: &mut InBinding,
    ) -> Result<Vec<(usize, Duration)>, Failure> {
        self.reserve(now, cycle, binding)?;
        let waiting = self.permit(now, cycle, binding)?;
        let has_work = self.pre_flight(cycle, binding)?;
        if has_work || !waiting.is_empty() {
            self.announce(binding);
        }
        Ok(waiting)
    }

    fn reserve(&mut self, now: Duration, cycle: &Cycle<'_>, binding: &mut InBinding) -> Result<(), Failure> {
        let (index, node) = (binding.placed.profile, binding.placed.node);
        let began = self.begin_point(binding);
        for position in 0..self.profiles[index].points.reserve.len() {
            let nth = self.profiles[index].points.reserve[position];
            let Some(plugin) = self.profiles[index].plugins[nth].reserve.clone() else { continue };
            let at = (nth, ExtensionPoint::Reserve);
            let status =
                self.call(now, cycle.world, binding, at, |slot, handle| plugin.reserve(cycle, slot, node, handle));
            if status != Status::Success {
                self.end_point(binding, ExtensionPoint::Reserve, status.as_str(), began);
                return Err(self.refusal(index, nth, status, ExtensionPoint::Reserve));
            }
        }
        self.end_point(binding, ExtensionPoint::Reserve, "Success", began);
        Ok(())
    }

    fn permit(
        &mut self,
        now: Duration,
        cycle: &Cycle<'_>,
        binding: &mut InBinding,
    ) -> Result<Vec<(usize, Duration)>, Failure> {
        let (index, node) = (binding.placed.profile, binding.placed.node);
        let began = self.begin_point(binding);
        let mut waiting = Vec::new();
        for position in 0..self.profiles[index].points.permit.len() {
            let nth = self.profiles[index].points.permit[position];
            let Some(plugin) = self.profiles[index].plugins[nth].permit.clone() else { continue };
            let at = (nth, ExtensionPoint::Permit);
            match self.call(now, cycle.world, binding, at, |slot, handle| plugin.permit(cycle, slot, node, handle)) {
                PermitAnswer::Approve => {}
                PermitAnswer::Wait(wait) => waiting.push((nth, now + wait.min(PERMIT_WAIT_MAX))),
                PermitAnswer::Deny(status) => {
                    self.end_point(binding, ExtensionPoint::Permit, status.as_str(), began);
                    return Err(self.refusal(index, nth, status, ExtensionPoint::Permit));
                }
            }
        }
        let status = if waiting.is_empty() { Status::Success } else { Status::Wait };
        self.end_point(binding, ExtensionPoint::Permit, status.as_str(), began);
        Ok(waiting)
    }

    pub(super) fn wait_or_go_on(
        &mut self,
        now: Duration,
        world: &mut World,
        mut binding: InBinding,
        plugins: Vec<(usize, Duration)>,
    ) {
        if plugins.is_empty() {
            return self.pre_bind(now, world, binding, 0);
        }
        let id = binding.placed.pod.id;
        self.bindings.due.extend(plugins.iter().map(|(_, due)| (*due, id)));
        binding.stage = Stage::WaitingForPermit { since: now, plugins };
        self.bindings.pods.insert(id, binding);
    }

    pub(super) fn allowed(&mut self, now: Duration, world: &mut World, pod: PodId, plugin: &str) {
        let Some(InBinding { stage: Stage::WaitingForPermit { plugins, .. }, placed, .. }) =
            self.bindings.pods.get_mut(&pod)
        else {
            return;
        };
        let profile = &self.profiles[placed.profile];
        let Some(at) = plugins.iter().position(|(nth, _)| profile.plugin_name(*nth) == plugin) else { return };
        let (_, due) = plugins.swap_remove(at);
        let (is_last, due_again) = (plugins.is_empty(), plugins.iter().any(|(_, other)| *other == due));
        if !due_again {
            self.bindings.due.remove(&(due, pod));
        }
        if is_last && let Some(binding) = self.bindings.remove(pod) {
            self.wait_ended(&binding, "Success", now);
            self.pre_bind(now, world, binding, 0);
        }
    }

    pub(super) fn denied(&mut self, now: Duration, world: &mut World, pod: PodId, plugin: &str, reason: &str) {
        let Some(InBinding { stage: Stage::WaitingForPermit { .. }, placed, .. }) = self.bindings.pods.get(&pod) else {
            return;
        };
        let profile = &self.profiles[placed.profile];
        // Any plugin of the profile may reject a waiting pod, as upstream; it is the one that must help the pod later.
        let Some(nth) = (0..profile.plugins.len()).find(|nth| profile.plugin_name(*nth) == plugin) else { return };
        self.end_wait(now, world, pod, nth, reason);
    }

    /// Denies the pods whose Permit deadline has passed.
    pub(super) fn permits_ran_out(&mut self, now: Duration, world: &mut World) {
        while let Some(&(due, pod)) = self.bindings.due.first()
            && due <= now
        {
            self.bindings.due.pop_first();
            let Some(InBinding { stage: Stage::WaitingForPermit { since, plugins }, placed, .. }) =
                self.bindings.pods.get(&pod)
            else {
                continue;
            };
            let Some(&(nth, _)) = plugins.iter().find(|(_, other)| *other == due) else { continue };
            let name = self.profiles[placed.profile].plugin_name(nth);
            let limit = go_duration::display(due.saturating_sub(*since));
            let reason = format!("rejected due to timeout after waiting {limit} at plugin {name}");
            self.end_wait(now, world, pod, nth, &reason);
        }
    }

    fn end_wait(&mut self, now: Duration, world: &mut World, pod: PodId, nth: usize, reason: &str) {
        let Some(binding) = self.bindings.remove(pod) else { return };
        self.wait_ended(&binding, "Unschedulable", now);
        let by = [nth].into_iter().collect();
        self.undo(now, world, binding, Failure::Rejected { by, message: message::refused(reason) });
    }
}
