//! The controllers' work queue. Each target is queued once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Step;
use crate::clock::SimTime;
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::store::ObjectKey;
use crate::timeline::Timeline;

/// A target of a controller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Deployment(ObjectKey),
    ReplicaSet(ObjectKey),
    StatefulSet(ObjectKey),
    Budget(ObjectKey),
    Namespace(String),
    NodeTaints(String),
    /// The pods of a node with NoExecute taints.
    Evictions(String),
    Claim(ObjectKey),
    Volume(String),
    /// The volumes attached to a node.
    Attachments(String),
    /// The claims of a pod's ephemeral volumes.
    EphemeralClaims(ObjectKey),
    /// An object whose owners or dependents are gone or terminating.
    Garbage(KindId, ObjectKey),
}

/// About ten times the cost of checking one member.
const MEMBER_DELAY: Duration = Duration::from_micros(100);

/// The year 3000: steps due later are not scheduled.
const NEVER: SimTime = SimTime { unix_ms: 32_503_680_000_000 };

#[derive(Debug)]
pub(crate) struct Queue {
    delay: Duration,
    marked: BTreeSet<Target>,
    /// The earliest time of the next reconcile.
    later: BTreeMap<Target, SimTime>,
    /// Nodes without an object, with the time at which their pods are checked.
    orphans: BTreeMap<String, SimTime>,
}

impl Queue {
    pub(crate) fn new(delay: Duration) -> Queue {
        Queue { delay, marked: BTreeSet::new(), later: BTreeMap::new(), orphans: BTreeMap::new() }
    }

    pub(crate) fn mark(&mut self, timeline: &mut Timeline<Step>, now: SimTime, target: Target) {
        if self.marked.insert(target.clone()) {
            timeline.schedule(now.after(self.delay), Step::Reconcile(target));
        }
    }

    /// Marks a target whose reconcile takes longer the more members it has, so that a large set is not reconciled after
    /// each change of a member.
    pub(crate) fn mark_large(&mut self, timeline: &mut Timeline<Step>, now: SimTime, target: Target, members: usize) {
        let delay = MEMBER_DELAY.saturating_mul(u32::try_from(members).unwrap_or(u32::MAX));
        self.mark(timeline, now.after(delay), target);
    }

    pub(crate) fn later(&mut self, timeline: &mut Timeline<Step>, moment: SimTime, target: Target) {
        if moment > NEVER {
            return;
        }
        if self.later.get(&target).is_none_or(|known| moment < *known) {
            self.later.insert(target.clone(), moment);
            timeline.schedule(moment, Step::Reconcile(target));
        }
    }

    /// The target is being reconciled: from now on it can be marked again.
    pub(crate) fn taken(&mut self, target: &Target, now: SimTime) {
        self.marked.remove(target);
        if self.later.get(target).is_some_and(|moment| *moment <= now) {
            self.later.remove(target);
        }
    }

    /// Checks the pods of a missing node after the grace period.
    pub(crate) fn collect_orphans(&mut self, timeline: &mut Timeline<Step>, now: SimTime, node: &str, grace: Duration) {
        if self.orphans.get(node).is_none_or(|due| *due <= now) {
            let due = now.after(grace);
            self.orphans.insert(node.to_owned(), due);
            timeline.schedule(due, Step::CollectOrphans { node: node.to_owned() });
        }
    }

    pub(crate) fn orphans_collected(&mut self, node: &str) {
        self.orphans.remove(node);
    }
}
