//! The scheduling queue: the pending pods, and when each is tried next.
//!
//! In: added, changed and deleted pods, changes in the world, and the result of each attempt. Out: the next pod to try,
//! and the next time at which something is due.
//!
//! ```text
//!           add ──> gated <──┐ (PreEnqueue, each time)
//!                     │      │
//!                     └──> active ──pop──> in flight ──> binding ──> gone
//!                            ▲  ▲              │            │
//!                  time is up│  └──── backoff <┴──(error)───┘
//!                            │           ▲     │ rejected
//!                            └───────────┴── unschedulable     moved by changes that can help
//! ```
//! Invariants: a pod is in exactly one state. A rejected pod is tried again after a change that can help according to
//! one of the plugins that rejected it, or after five minutes, and never before its backoff is over. Changes while a
//! pod is in flight also count.

mod arrivals;
mod entry;
mod heap;
mod in_flight;
mod moves;
mod nominations;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::PodId;
use model::storage::uid::Uid;
use rustc_hash::FxHashMap;

pub use self::arrivals::Arrivals;
use self::arrivals::{Cause, QueueName};
use self::entry::{Entry, Held, QueueState};
use self::heap::Heap;
use self::in_flight::InFlight;
pub(crate) use self::nominations::Nominations;
use crate::config::PodBackoff;
use crate::framework::change::{Change, ChangeKinds};
use crate::framework::points::QueuedPod;
use crate::framework::profile::PluginBits;
use crate::framework::sort_key::SortKey;

/// A pod that no change helped is tried again after this time, because a hint may be wrong.
const UNSCHEDULABLE_MAX: Duration = Duration::from_secs(300);

/// A plugin, as profile index and plugin index.
pub(crate) type PluginPosition = (usize, usize);

/// What the queue asks of the plugins.
pub(crate) trait Advice {
    /// The PreEnqueue plugin that gates the pod, if any.
    fn gate(&mut self, profile: usize, pod: PodId) -> Option<usize>;

    /// The pod's place in the order of the QueueSort plugin; `None` if the pod is unknown.
    fn sort_key(&mut self, profile: usize, pod: PodId, queued: &QueuedPod) -> Option<SortKey>;

    /// Whether the change can help the pod, which this plugin rejected.
    fn helps(&mut self, plugin: PluginPosition, pod: PodId, change: &Change) -> bool;
}

/// What the queue must know about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Newcomer {
    pub(crate) pod: PodId,
    pub(crate) uid: Uid,
    pub(crate) profile: usize,
}

/// The scheduling attempts of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    pub count: u32,
    /// When the pod was added to the queue.
    pub since: Duration,
}

/// The number of pending pods by queue. The names are those of kube-scheduler's metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
}

/// Counters for metrics and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Calls of plugins to find out whether a change helps a pod.
    pub hints_asked: u64,
    /// Pods that a change woke.
    pub woken: u64,
    /// Pods that were tried again only because of the five-minute limit.
    pub flushed: u64,
}

pub(crate) struct Queue {
    backoff: PodBackoff,
    /// By profile and plugin.
    woken_by: Vec<Vec<ChangeKinds>>,
    entries: FxHashMap<PodId, Entry>,
    active: Heap,
    active_len: usize,
    backing_off: BTreeSet<(Duration, u64, PodId)>,
    /// Gated and unschedulable pods, by the time at which they are tried again even without a change.
    flush: BTreeSet<(Duration, PodId)>,
    /// Gated and unschedulable pods, by each plugin that rejected them.
    by_rejector: BTreeMap<PluginPosition, BTreeSet<PodId>>,
    gated_len: usize,
    in_flight: InFlight,
    next_ticket: u64,
    counts: QueueCounts,
    arrivals: Arrivals,
    /// The number of pods that wait because a plugin rejected or gates them.
    rejected: BTreeMap<PluginPosition, usize>,
}

impl Queue {
    pub(crate) fn new(backoff: PodBackoff, woken_by: Vec<Vec<ChangeKinds>>) -> Self {
        Self {
            backoff,
            woken_by,
            entries: FxHashMap::default(),
            active: Heap::default(),
            active_len: 0,
            backing_off: BTreeSet::new(),
            flush: BTreeSet::new(),
            by_rejector: BTreeMap::new(),
            gated_len: 0,
            in_flight: InFlight::default(),
            next_ticket: 0,
            counts: QueueCounts::default(),
            arrivals: Arrivals::default(),
            rejected: BTreeMap::new(),
        }
    }

    pub(crate) fn counts(&self) -> QueueCounts {
        self.counts
    }

    pub(crate) fn arrivals(&self) -> Arrivals {
        self.arrivals
    }

    /// The number of waiting pods by rejecting plugin. A pod counts for each such plugin until it is tried again.
    pub(crate) fn rejected(&self) -> impl Iterator<Item = (PluginPosition, usize)> {
        self.rejected.iter().map(|(&plugin, &pods)| (plugin, pods))
    }

    pub(crate) fn pending(&self) -> Pending {
        Pending {
            active: self.active_len,
            backoff: self.backing_off.len(),
            unschedulable: self.flush.len() - self.gated_len,
            gated: self.gated_len,
        }
    }

    pub(crate) fn profile(&self, pod: PodId) -> Option<usize> {
        self.entries.get(&pod).map(|entry| entry.profile)
    }

    pub(crate) fn attempts(&self, pod: PodId) -> Option<Attempts> {
        self.entries.get(&pod).map(|entry| Attempts { count: entry.attempts, since: entry.since })
    }

    /// All pods in the queue, in no particular order.
    pub(crate) fn pods(&self) -> impl Iterator<Item = PodId> {
        self.entries.keys().copied()
    }

    /// The pods that are tried again only after a change.
    #[cfg(test)]
    pub(crate) fn awaiting_change(&self) -> impl Iterator<Item = PodId> {
        self.flush.iter().map(|(_, pod)| *pod)
    }

    /// Adds a pod, or takes in its update.
    pub(crate) fn apply(&mut self, now: Duration, newcomer: Newcomer, advice: &mut dyn Advice) {
        let pod = newcomer.pod;
        match self.entries.get(&pod) {
            Some(entry) if entry.uid == newcomer.uid && entry.profile == newcomer.profile => {
                self.updated(now, pod, advice);
            }
            _ => {
                self.remove(pod);
                self.entries.insert(pod, Entry::new(newcomer, now));
                self.activate(now, pod, Cause::ADDED, advice);
            }
        }
    }

    fn updated(&mut self, now: Duration, pod: PodId, advice: &mut dyn Advice) {
        let Some(entry) = self.entries.get(&pod) else { return };
        let change = Change { kinds: ChangeKinds::SELF_UPDATED, ..Change::default() };
        match entry.state {
            QueueState::Active => {
                let key = advice.sort_key(entry.profile, pod, &entry.queued());
                let is_reordered = match (&entry.key, &key) {
                    (Some(before), Some(key)) => before.compare(key) != Ordering::Equal,
                    _ => false,
                };
                if is_reordered {
                    self.take_out(pod);
                    self.activate(now, pod, Cause::UPDATED, advice);
                }
            }
            QueueState::PodBackoff { .. } | QueueState::Binding => {}
            QueueState::InFlight { .. } => self.in_flight.note(change, Some(pod)),
            QueueState::Gated => {
                self.take_out(pod);
                self.activate(now, pod, Cause::UPDATED, advice);
            }
            QueueState::Unschedulable => {
                if self.is_helped(pod, &change, advice) {
                    self.counts.woken += 1;
                    self.wake(now, pod, Cause::UPDATED, advice);
                }
            }
        }
    }

    /// The pod can be tried again, whatever the plugins that rejected it say.
    pub(crate) fn helped(&mut self, now: Duration, pod: PodId, kinds: ChangeKinds, advice: &mut dyn Advice) {
        match self.entries.get(&pod).map(|entry| entry.state) {
            Some(QueueState::Unschedulable) => {
                self.counts.woken += 1;
                self.wake(now, pod, Cause::of(kinds), advice);
            }
            Some(QueueState::InFlight { .. }) => {
                self.in_flight.note(Change { kinds: ChangeKinds::ALL, ..Change::default() }, Some(pod));
            }
            _ => {}
        }
    }

    /// The pod is bound, deleted, or has another scheduler.
    pub(crate) fn remove(&mut self, pod: PodId) {
        self.take_out(pod);
        self.count_rejected(pod, PluginBits::default());
        self.entries.remove(&pod);
    }

    /// Takes the next pod to try. It is in flight from now on.
    pub(crate) fn pop(&mut self) -> Option<PodId> {
        while let Some(item) = self.active.pop() {
            let Some(entry) = self.entries.get_mut(&item.pod) else { continue };
            if entry.state != QueueState::Active || entry.ticket != item.ticket {
                continue;
            }
            self.active_len -= 1;
            entry.attempts += 1;
            entry.state = QueueState::InFlight { from: self.in_flight.began() };
            self.count_rejected(item.pod, PluginBits::default());
            return Some(item.pod);
        }
        None
    }

    /// The pod has a node. Only an error returns it to the queue.
    pub(crate) fn binding(&mut self, pod: PodId) {
        self.take_out(pod);
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.state = QueueState::Binding;
        }
    }

    /// The attempt failed. `rejectors` are the plugins that rejected the pod; empty means an error.
    pub(crate) fn failed(&mut self, now: Duration, pod: PodId, rejectors: PluginBits, advice: &mut dyn Advice) {
        let Some(entry) = self.entries.get_mut(&pod) else { return };
        entry.queued_at = now;
        entry.rejectors = rejectors;
        if rejectors.is_empty() {
            entry.errors = entry.errors.saturating_add(1);
        } else {
            entry.errors = 0;
            entry.rejections = entry.rejections.saturating_add(1);
        }
        let missed = match entry.state {
            QueueState::InFlight { from } => self.in_flight.since(from, pod),
            _ => Some(Vec::new()),
        };
        let is_helped = match missed {
            _ if rejectors.is_empty() => true,
            // Not all changes were stored: some of them may have helped.
            None => true,
            Some(changes) => changes.iter().any(|change| change.kinds.is_all() || self.is_helped(pod, change, advice)),
        };
        self.count_rejected(pod, rejectors);
        if is_helped {
            self.wake(now, pod, Cause::ATTEMPT_FAILED, advice);
        } else {
            self.take_out(pod);
            self.arrivals.note(QueueName::Unschedulable, Cause::ATTEMPT_FAILED);
            self.park(now, pod, QueueState::Unschedulable);
        }
    }

    /// Whether the message differs from the last one reported about the pod. Records it as the last one.
    pub(crate) fn is_new_message(&mut self, pod: PodId, message: &str) -> bool {
        let Some(entry) = self.entries.get_mut(&pod) else { return false };
        let is_new = entry.reported.as_deref() != Some(message);
        if is_new {
            entry.reported = Some(message.into());
        }
        is_new
    }

    /// The next message about the pod is reported, also if it is the same as the last one.
    pub(crate) fn report_again(&mut self, pod: PodId) {
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.reported = None;
        }
    }

    /// The pod is not tried before [`Queue::release`].
    pub(crate) fn hold(&mut self, pod: PodId) {
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.held = Held::Yes;
        }
    }

    /// What the pod was held for has ended. It is tried again after its backoff, if something that can help happened meanwhile or if
    /// that has failed.
    pub(crate) fn release(&mut self, now: Duration, pod: PodId, has_failed: bool, advice: &mut dyn Advice) {
        let Some(entry) = self.entries.get_mut(&pod) else { return };
        match std::mem::take(&mut entry.held) {
            Held::YesAndHelped => self.wake(now, pod, Cause::ATTEMPT_FAILED, advice),
            Held::Yes if has_failed => self.wake(now, pod, Cause::ATTEMPT_FAILED, advice),
            Held::Yes | Held::No => {}
        }
    }

    /// A plugin asks for the pod to be tried at once: its backoff is passed over.
    pub(crate) fn force(&mut self, now: Duration, pod: PodId, advice: &mut dyn Advice) {
        let Some(entry) = self.entries.get(&pod) else { return };
        match entry.state {
            QueueState::PodBackoff { .. } | QueueState::Unschedulable | QueueState::Gated => {
                self.take_out(pod);
                self.activate(now, pod, Cause::FORCED, advice);
            }
            // All kinds at once stand for this request: the pod is tried again when its attempt has failed.
            QueueState::InFlight { .. } => {
                self.in_flight.note(Change { kinds: ChangeKinds::ALL, ..Change::default() }, Some(pod));
            }
            QueueState::Active | QueueState::Binding => {}
        }
    }

    /// Something changed: wakes the pods that it can help.
    pub(crate) fn changed(&mut self, now: Duration, change: &Change, advice: &mut dyn Advice) {
        self.in_flight.note(change.clone(), None);
        if self.by_rejector.is_empty() {
            return;
        }
        let mut helped = BTreeSet::new();
        for (&plugin, pods) in &self.by_rejector {
            if !self.woken_by[plugin.0][plugin.1].intersects(change.kinds) {
                continue;
            }
            for &pod in pods {
                if !helped.contains(&pod) {
                    self.counts.hints_asked += 1;
                    if advice.helps(plugin, pod, change) {
                        helped.insert(pod);
                    }
                }
            }
        }
        self.counts.woken += helped.len() as u64;
        for pod in helped {
            self.wake(now, pod, Cause::of(change.kinds), advice);
        }
    }

    /// It is unknown what changed: wakes all pods that wait for a change.
    pub(crate) fn everything_changed(&mut self, now: Duration, advice: &mut dyn Advice) {
        self.in_flight.overflow();
        let waiting: Vec<PodId> = self.flush.iter().map(|(_, pod)| *pod).collect();
        for pod in waiting {
            self.wake(now, pod, Cause::RELISTED, advice);
        }
    }

    /// Moves the pods that are due.
    pub(crate) fn tick(&mut self, now: Duration, advice: &mut dyn Advice) {
        while let Some(&(due, _, pod)) = self.backing_off.first()
            && due <= now
        {
            self.take_out(pod);
            self.activate(now, pod, Cause::BACKOFF_OVER, advice);
        }
        while let Some(&(due, pod)) = self.flush.first()
            && due <= now
        {
            self.counts.flushed += 1;
            self.wake(now, pod, Cause::WAITED_LONG, advice);
        }
    }

    /// When [`Queue::tick`] is due next.
    pub(crate) fn due(&self) -> Option<Duration> {
        let backoff = self.backing_off.first().map(|(due, ..)| *due);
        let flush = self.flush.first().map(|(due, _)| *due);
        [backoff, flush].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
