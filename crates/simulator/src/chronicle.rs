//! The history of the simulated world: one line per thing that happened, with its moment.
//!
//! It is what `bridger sandbox` prints, what the demo's observer reads, and what two runs of one seed are compared by.

use std::collections::VecDeque;
use std::fmt;

use crate::clock::SimTime;
use crate::{kubernetes, vcenter};

#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    Kubernetes(kubernetes::Happening),
    Vcenter(vcenter::Happening),
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::Kubernetes(happening) => happening.fmt(f),
            Happening::Vcenter(happening) => happening.fmt(f),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Counts from 0 over the whole life of the world, also when old entries have been dropped.
    pub number: u64,
    pub moment: SimTime,
    pub happening: Happening,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.moment, self.happening)
    }
}

/// A bounded window on what happened; the oldest entries make room for new ones.
#[derive(Debug)]
pub struct Chronicle {
    entries: VecDeque<Entry>,
    entries_max: usize,
    next_number: u64,
}

impl Chronicle {
    #[must_use]
    pub fn new(entries_max: usize) -> Chronicle {
        Chronicle { entries: VecDeque::new(), entries_max, next_number: 0 }
    }

    pub fn record(&mut self, moment: SimTime, happening: Happening) {
        if self.entries.len() == self.entries_max {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry { number: self.next_number, moment, happening });
        self.next_number += 1;
    }

    /// The entries from `number` on that are still kept.
    pub fn since(&self, number: u64) -> impl Iterator<Item = &Entry> {
        let first = self.entries.front().map_or(self.next_number, |entry| entry.number);
        let skip = usize::try_from(number.saturating_sub(first)).unwrap_or(usize::MAX);
        self.entries.iter().skip(skip)
    }

    /// The number that the next entry will have.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.next_number
    }
}
