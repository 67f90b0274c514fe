//! Units that can not be carried out as they are, and wait apart so that they hold up nobody else.
//!
//! In: which units were culprits. Out: which of a plan's units are to be tried now. A unit that has changed since (the VM
//! that was deleted is no longer in it) is tried at once; an unchanged one later and later, and alone.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::planner::Unit;
use crate::runtime::{Backoff, Jitter};

#[derive(Debug)]
struct Entry {
    unit: Unit,
    failures: u32,
    until: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Aside {
    by_rule: BTreeMap<String, Entry>,
}

/// A plan's units, sorted by what is known of them.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    /// Those that nothing is known against come first.
    pub(crate) units: Vec<Unit>,
    pub(crate) fresh: usize,
    /// When the first of those left out may be tried again.
    pub(crate) next: Option<Instant>,
}

impl Aside {
    /// Forgets what is no longer planned.
    pub(crate) fn sort(&mut self, units: Vec<Unit>, now: Instant) -> Sorted {
        self.by_rule.retain(|_, entry| units.contains(&entry.unit));
        let mut sorted = Sorted::default();
        let mut again = Vec::new();
        for unit in units {
            match self.by_rule.get(&unit.rule) {
                None => sorted.units.push(unit),
                Some(entry) if entry.until <= now => again.push(unit),
                Some(entry) => sorted.next = Some(sorted.next.map_or(entry.until, |next| next.min(entry.until))),
            }
        }
        sorted.fresh = sorted.units.len();
        sorted.units.append(&mut again);
        sorted
    }

    pub(crate) fn put(&mut self, unit: Unit, now: Instant, backoff: &Backoff, jitter: &mut Jitter) {
        let failures = self.by_rule.get(&unit.rule).map_or(0, |entry| entry.failures).saturating_add(1);
        let until = now + backoff.wait(failures, jitter);
        self.by_rule.insert(unit.rule.clone(), Entry { unit, failures, until });
    }

    pub(crate) fn len(&self) -> usize {
        self.by_rule.len()
    }
}
