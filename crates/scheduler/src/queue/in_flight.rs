//! Changes that happened while pods were in flight, so that none is lost on a pod that comes back.
//!
//! In: changes, and pods that set out and come back. Out: the changes since a pod set out. Bounded: what does not fit is
//! remembered as "too much to tell". Invariant: while nothing is in flight nothing is kept.

use std::collections::VecDeque;

use model::PodId;

use crate::framework::change::Change;

const CHANGES_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct InFlight {
    pods: usize,
    /// A change of a waiting pod itself concerns that pod alone.
    changes: VecDeque<(Change, Option<PodId>)>,
    /// The number of the first change kept.
    start: u64,
}

impl InFlight {
    /// Notes a pod that sets out; returns the number of the next change.
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

    /// More happened than can be told.
    pub(super) fn overflow(&mut self) {
        self.start += self.changes.len() as u64 + 1;
        self.changes.clear();
    }

    /// What concerns the pod since the change of this number; `None` when that is not known any more.
    pub(super) fn since(&self, from: u64, pod: PodId) -> Option<Vec<Change>> {
        let skipped = from.checked_sub(self.start)?;
        let changes = self.changes.iter().skip(usize::try_from(skipped).ok()?);
        let concerned = changes.filter(|(_, concerns)| concerns.is_none_or(|only| only == pod));
        Some(concerned.map(|(change, _)| change.clone()).collect())
    }
}
