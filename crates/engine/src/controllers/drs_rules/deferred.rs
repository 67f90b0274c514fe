//! Changes that can not be carried out as they are, and wait apart so that they hold up nobody else.
//!
//! In: which changes were culprits. Out: which of a plan's changes are to be tried now. One that is another now (the VM that was deleted
//! is no longer in it) is tried at once; the same one later and later, and alone.

use std::collections::BTreeMap;

use drs::Change;
use tokio::time::Instant;

use crate::runtime::{Backoff, Jitter};

#[derive(Debug)]
struct Entry {
    change: Change,
    failures: u32,
    until: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct DeferredChanges {
    by_rule: BTreeMap<String, Entry>,
}

/// A plan's changes, sorted by what is known of them.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    /// Those that nothing is known against come first.
    pub(crate) changes: Vec<Change>,
    pub(crate) fresh: usize,
    /// When the first of those left out may be tried again.
    pub(crate) next: Option<Instant>,
}

impl DeferredChanges {
    /// Forgets what is no longer planned.
    pub(crate) fn sort(&mut self, changes: Vec<Change>, now: Instant) -> Sorted {
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

    pub(crate) fn put(&mut self, change: Change, now: Instant, backoff: &Backoff, jitter: &mut Jitter) {
        let failures = self.by_rule.get(&change.rule).map_or(0, |entry| entry.failures).saturating_add(1);
        let until = now + backoff.wait(failures, jitter);
        self.by_rule.insert(change.rule.clone(), Entry { change, failures, until });
    }

    pub(crate) fn len(&self) -> usize {
        self.by_rule.len()
    }
}
