//! Changes that happened while pods were in flight. A pod that returns to the queue must not miss one.
//!
//! In: changes, and pods that start and end an attempt. Out: the changes since a pod's attempt started. Bounded: on
//! overflow, the answer is "unknown". Invariant: while no pod is in flight, nothing is stored.

use std::collections::VecDeque;

use model::PodId;

use crate::framework::change::Change;

const CHANGES_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct InFlight {
    pods: usize,
    /// With a pod if the change is an update of that pod and concerns only it.
    changes: VecDeque<(Change, Option<PodId>)>,
    /// The number of the first stored change.
    start: u64,
}

impl InFlight {
    /// A pod's attempt starts. Returns the number of the next change.
    pub(super) fn began(&mut self) -> u64 {
        self.pods += 1;
        self.start + self.changes.len() as u64
    }

    pub(super) fn ended(&mut self) {
        self.pods -= 1;
        if self.pods == 0 {
            self.start += self.changes.len() as u64;
            self.changes.clear();
        }
    }

    pub(super) fn note(&mut self, change: Change, concerns: Option<PodId>) {
        if self.pods == 0 {
            return;
        }
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
            self.start += 1;
        }
        self.changes.push_back((change, concerns));
    }

    /// Unknown changes happened: all pods in flight get the answer "unknown".
    pub(super) fn overflow(&mut self) {
        self.start += self.changes.len() as u64 + 1;
        self.changes.clear();
    }

    /// The changes from this number on that concern the pod. `None` if they are no longer known.
    pub(super) fn since(&self, from: u64, pod: PodId) -> Option<Vec<Change>> {
        let skipped = from.checked_sub(self.start)?;
        let changes = self.changes.iter().skip(usize::try_from(skipped).ok()?);
        let concerned = changes.filter(|(_, concerns)| concerns.is_none_or(|only| only == pod));
        Some(concerned.map(|(change, _)| change.clone()).collect())
    }
}
