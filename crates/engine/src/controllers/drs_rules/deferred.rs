//! Defers changes that vCenter rejected, so that they do not block the other changes.
//!
//! In: the rejected changes. Out: which of a plan's changes to try now. A deferred change that differs in the new plan
//! (the deleted VM is no longer in it) is tried immediately. An identical one is retried with growing intervals, and
//! alone.

use std::collections::BTreeMap;

use drs::RuleChange;
use tokio::time::Instant;

use crate::runtime::{Backoff, Jitter};

#[derive(Debug)]
struct Entry {
    change: RuleChange,
    failures: u32,
    until: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct DeferredChanges {
    by_rule: BTreeMap<String, Entry>,
}

/// The changes of a plan to try now.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    /// The `fresh` changes, which were not rejected before, come first.
    pub(crate) changes: Vec<RuleChange>,
    pub(crate) fresh: usize,
    /// When the first of the changes left out may be retried.
    pub(crate) next: Option<Instant>,
}

impl DeferredChanges {
    /// Forgets deferred changes that are no longer planned.
    pub(crate) fn sort(&mut self, changes: Vec<RuleChange>, now: Instant) -> Sorted {
        self.by_rule.retain(|_, entry| changes.iter().any(|change| change.is_same_write(&entry.change)));
        let mut sorted = Sorted::default();
        let mut again = Vec::new();
        for change in changes {
            match self.by_rule.get(&change.rule) {
                None => sorted.changes.push(change),
                Some(entry) if entry.until <= now => again.push(change),
                Some(entry) => sorted.next = Some(sorted.next.map_or(entry.until, |next| next.min(entry.until))),
            }
        }
        sorted.fresh = sorted.changes.len();
        sorted.changes.append(&mut again);
        sorted
    }

    pub(crate) fn put(&mut self, change: RuleChange, now: Instant, backoff: &Backoff, jitter: &mut Jitter) {
        let failures = self.by_rule.get(&change.rule).map_or(0, |entry| entry.failures).saturating_add(1);
        let until = now + backoff.wait(failures, jitter);
        self.by_rule.insert(change.rule.clone(), Entry { change, failures, until });
    }

    pub(crate) fn len(&self) -> usize {
        self.by_rule.len()
    }
}
