//! How pods move between the states of the queue.
//!
//! Each move takes a pod out of one state and puts it into another. All counts and indexes of pods by state, by plugin
//! or by due time are updated here and nowhere else.

use std::time::Duration;

use model::PodId;

use super::arrivals::{Cause, QueueName};
use super::entry::{Held, QueueState};
use super::heap::Item;
use super::{Advice, Queue, UNSCHEDULABLE_MAX};
use crate::framework::change::Change;
use crate::framework::profile::PluginBits;

impl Queue {
    pub(super) fn is_helped(&mut self, pod: PodId, change: &Change, advice: &mut dyn Advice) -> bool {
        let Some(entry) = self.entries.get(&pod) else { return false };
        let (profile, rejectors) = (entry.profile, entry.rejectors);
        let mut asked = rejectors.iter().filter(|&plugin| self.woken_by[profile][plugin].intersects(change.kinds));
        asked.any(|plugin| {
            self.counts.hints_asked += 1;
            advice.helps((profile, plugin), pod, change)
        })
    }

    /// Lets the pod be tried again once its backoff is over.
    pub(super) fn wake(&mut self, now: Duration, pod: PodId, cause: Cause, advice: &mut dyn Advice) {
        if self.stays_held(now, pod) {
            return;
        }
        let Some(entry) = self.entries.get(&pod) else { return };
        let due = entry.backs_off_until(&self.backoff);
        if due > now && !matches!(entry.state, QueueState::Gated) {
            self.take_out(pod);
            self.arrivals.note(QueueName::PodBackoff, cause);
            let ticket = self.ticket();
            if let Some(entry) = self.entries.get_mut(&pod) {
                (entry.state, entry.ticket) = (QueueState::PodBackoff { due }, ticket);
                self.backing_off.insert((due, ticket, pod));
            }
        } else {
            self.take_out(pod);
            self.activate(now, pod, cause, advice);
        }
    }

    /// Moves the pod into the active queue, unless a PreEnqueue plugin gates it.
    pub(super) fn activate(&mut self, now: Duration, pod: PodId, cause: Cause, advice: &mut dyn Advice) {
        if self.stays_held(now, pod) {
            return;
        }
        let Some(entry) = self.entries.get(&pod) else { return };
        let (profile, was_gated) = (entry.profile, entry.is_gated);
        if let Some(plugin) = advice.gate(profile, pod) {
            let gate: PluginBits = [plugin].into_iter().collect();
            if let Some(entry) = self.entries.get_mut(&pod) {
                (entry.rejectors, entry.is_gated) = (gate, true);
            }
            if !was_gated {
                self.arrivals.note(QueueName::Unschedulable, cause);
            }
            self.count_rejected(pod, gate);
            self.park(now, pod, QueueState::Gated);
            return;
        }
        if was_gated {
            self.count_rejected(pod, PluginBits::default());
        }
        self.arrivals.note(QueueName::Active, cause);
        let ticket = self.ticket();
        let Some(entry) = self.entries.get_mut(&pod) else { return };
        // A pod that the world no longer contains is about to be dropped.
        let Some(key) = advice.sort_key(profile, pod, &entry.queued()) else { return };
        (entry.state, entry.ticket, entry.is_gated) = (QueueState::Active, ticket, false);
        entry.key = Some(key.clone());
        self.active.push(Item { key, ticket, pod });
        self.active_len += 1;
        // Pods that left early stay in the heap. Purge them before they outnumber the active pods.
        if self.active.len() > 64 && self.active.len() / 2 > self.active_len {
            let entries = &self.entries;
            self.active.retain(|item| {
                let entry = entries.get(&item.pod);
                entry.is_some_and(|entry| entry.state == QueueState::Active && entry.ticket == item.ticket)
            });
        }
    }

    /// Whether the pod is held. Notes that it should be tried afterwards.
    fn stays_held(&mut self, now: Duration, pod: PodId) -> bool {
        let Some(entry) = self.entries.get_mut(&pod).filter(|entry| entry.held != Held::No) else { return false };
        entry.held = Held::YesAndHelped;
        self.take_out(pod);
        self.park(now, pod, QueueState::Unschedulable);
        true
    }

    /// Counts the pod as waiting for these plugins.
    pub(super) fn count_rejected(&mut self, pod: PodId, plugins: PluginBits) {
        let Some(entry) = self.entries.get_mut(&pod) else { return };
        let (profile, before) = (entry.profile, std::mem::replace(&mut entry.counted, plugins));
        for plugin in before.iter() {
            if let Some(pods) = self.rejected.get_mut(&(profile, plugin)) {
                *pods -= 1;
                if *pods == 0 {
                    self.rejected.remove(&(profile, plugin));
                }
            }
        }
        for plugin in plugins.iter() {
            *self.rejected.entry((profile, plugin)).or_default() += 1;
        }
    }

    /// Puts the pod into a state in which it waits for a change.
    pub(super) fn park(&mut self, now: Duration, pod: PodId, state: QueueState) {
        let Some(entry) = self.entries.get_mut(&pod) else { return };
        entry.state = state;
        entry.flush_at = now + UNSCHEDULABLE_MAX;
        self.flush.insert((entry.flush_at, pod));
        for plugin in entry.rejectors.iter() {
            self.by_rejector.entry((entry.profile, plugin)).or_default().insert(pod);
        }
        if matches!(state, QueueState::Gated) {
            self.gated_len += 1;
        }
    }

    /// Takes the pod out of its state. The caller puts it into another.
    pub(super) fn take_out(&mut self, pod: PodId) {
        let Some(entry) = self.entries.get_mut(&pod) else { return };
        match std::mem::replace(&mut entry.state, QueueState::Binding) {
            QueueState::Active => self.active_len -= 1,
            QueueState::PodBackoff { due } => {
                self.backing_off.remove(&(due, entry.ticket, pod));
            }
            state @ (QueueState::Gated | QueueState::Unschedulable) => {
                self.gated_len -= usize::from(matches!(state, QueueState::Gated));
                self.flush.remove(&(entry.flush_at, pod));
                for plugin in entry.rejectors.iter() {
                    let listed = (entry.profile, plugin);
                    if let Some(pods) = self.by_rejector.get_mut(&listed) {
                        pods.remove(&pod);
                        if pods.is_empty() {
                            self.by_rejector.remove(&listed);
                        }
                    }
                }
            }
            QueueState::InFlight { .. } => self.in_flight.ended(),
            QueueState::Binding => {}
        }
    }

    pub(super) fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}
