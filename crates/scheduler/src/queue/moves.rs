//! How pods move between the places of the queue.
//!
//! Each move takes a pod out of the place it is in and puts it into another; whatever counts pods by place, by plugin or by when
//! they are due is kept up here, and nowhere else.

use std::time::Duration;

use model::PodId;

use super::heap::Item;
use super::incoming::{Cause, Into};
use super::places::Place;
use super::{Advice, Queue, UNSCHEDULABLE_MAX};
use crate::change::Change;
use crate::points::QueuedPod;
use crate::profile::PluginBits;

impl Queue {
    pub(super) fn is_helped(&mut self, pod: PodId, change: &Change, advice: &mut dyn Advice) -> bool {
        let Some(entry) = self.entries.get(&pod) else { return false };
        let (profile, rejectors) = (entry.profile, entry.rejectors);
        let mut asked = rejectors.iter().filter(|&place| self.woken_by[profile][place].intersects(change.kinds));
        asked.any(|place| {
            self.counts.hints_asked += 1;
            advice.helps((profile, place), pod, change)
        })
    }

    /// The pod is to be tried again, once its backoff is over.
    pub(super) fn wake(&mut self, now: Duration, pod: PodId, cause: Cause, advice: &mut dyn Advice) {
        let Some(entry) = self.entries.get(&pod) else { return };
        let due = entry.backs_off_until(&self.backoff);
        if due > now && !matches!(entry.place, Place::Gated) {
            self.take_out(pod);
            self.incoming.note(Into::Backoff, cause);
            let ticket = self.ticket();
            if let Some(entry) = self.entries.get_mut(&pod) {
                (entry.place, entry.ticket) = (Place::Backoff { due }, ticket);
                self.backing_off.insert((due, ticket, pod));
            }
        } else {
            self.take_out(pod);
            self.activate(now, pod, cause, advice);
        }
    }

    /// Into the active queue, unless a plugin keeps it out.
    pub(super) fn activate(&mut self, now: Duration, pod: PodId, cause: Cause, advice: &mut dyn Advice) {
        let Some(entry) = self.entries.get(&pod) else { return };
        let (profile, was_gated) = (entry.profile, entry.is_gated);
        if let Some(plugin) = advice.gate(profile, pod) {
            let gate: PluginBits = [plugin].into_iter().collect();
            if let Some(entry) = self.entries.get_mut(&pod) {
                (entry.rejectors, entry.is_gated) = (gate, true);
            }
            if !was_gated {
                self.incoming.note(Into::Unschedulable, cause);
            }
            self.count_rejected(pod, gate);
            self.put_by(now, pod, Place::Gated);
            return;
        }
        if was_gated {
            self.count_rejected(pod, PluginBits::default());
        }
        self.incoming.note(Into::Active, cause);
        let ticket = self.ticket();
        let Some(entry) = self.entries.get_mut(&pod) else { return };
        (entry.place, entry.ticket, entry.is_gated) = (Place::Active, ticket, false);
        let key = QueuedPod { priority: entry.priority, queued_at: entry.queued_at };
        self.active.push(Item { key, ticket, pod });
        self.active_len += 1;
        // What left early stays behind in the heap; it must not outgrow what is really there.
        if self.active.len() > 64 && self.active.len() / 2 > self.active_len {
            let entries = &self.entries;
            self.active.retain(|item| {
                let entry = entries.get(&item.pod);
                entry.is_some_and(|entry| entry.place == Place::Active && entry.ticket == item.ticket)
            });
        }
    }

    /// These plugins are what the pod waits for.
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

    /// Where it waits for a change.
    pub(super) fn put_by(&mut self, now: Duration, pod: PodId, place: Place) {
        let Some(entry) = self.entries.get_mut(&pod) else { return };
        entry.place = place;
        entry.flush_at = now + UNSCHEDULABLE_MAX;
        self.flush.insert((entry.flush_at, pod));
        for plugin in entry.rejectors.iter() {
            self.by_rejector.entry((entry.profile, plugin)).or_default().insert(pod);
        }
        if matches!(place, Place::Gated) {
            self.gated_len += 1;
        }
    }

    /// Out of the place it is in; the caller puts it elsewhere.
    pub(super) fn take_out(&mut self, pod: PodId) {
        let Some(entry) = self.entries.get_mut(&pod) else { return };
        match std::mem::replace(&mut entry.place, Place::Binding) {
            Place::Active => self.active_len -= 1,
            Place::Backoff { due } => {
                self.backing_off.remove(&(due, entry.ticket, pod));
            }
            place @ (Place::Gated | Place::Unschedulable) => {
                self.gated_len -= usize::from(matches!(place, Place::Gated));
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
            Place::InFlight { .. } => self.in_flight.ended(),
            Place::Binding => {}
        }
    }

    pub(super) fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}
