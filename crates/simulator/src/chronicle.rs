//! The history of the simulated world: one timestamped line per event.
//!
//! `bridger sandbox` prints it, the demo's observer reads it, and tests compare two runs with the same seed by it.

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
    /// Counts from 0 over the whole life of the world, even after old entries are dropped.
    pub number: u64,
    pub moment: SimTime,
    pub happening: Happening,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.moment, self.happening)
    }
}

/// A bounded window of recorded events. New entries displace the oldest ones.
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

    /// The retained entries with this number or a higher one.
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
