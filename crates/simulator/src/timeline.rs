//! Scheduled steps of one side's state machine, ordered by time.
//!
//! Invariant: steps due at the same time are taken in the order in which they were scheduled, so that a run is
//! repeatable.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::SimTime;

#[derive(Debug)]
pub struct Timeline<S> {
    pending: BinaryHeap<Reverse<Entry<S>>>,
    next_number: u64,
}

#[derive(Debug)]
struct Entry<S> {
    due: SimTime,
    number: u64,
    step: S,
}

impl<S> PartialEq for Entry<S> {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.number) == (other.due, other.number)
    }
}
impl<S> Eq for Entry<S> {}
impl<S> PartialOrd for Entry<S> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<S> Ord for Entry<S> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl<S> Default for Timeline<S> {
    fn default() -> Self {
        Timeline { pending: BinaryHeap::new(), next_number: 0 }
    }
}

impl<S> Timeline<S> {
    pub fn schedule(&mut self, due: SimTime, step: S) {
        self.pending.push(Reverse(Entry { due, number: self.next_number, step }));
        self.next_number += 1;
    }

    #[must_use]
    pub fn next_due(&self) -> Option<SimTime> {
        self.pending.peek().map(|Reverse(entry)| entry.due)
    }

    /// Removes and returns the next step that is due at or before `now`.
    pub fn take_due(&mut self, now: SimTime) -> Option<S> {
        if self.next_due()? > now {
            return None;
        }
        self.pending.pop().map(|Reverse(entry)| entry.step)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_taken_by_time_then_by_scheduling_order() {
        let at = |unix_ms| SimTime { unix_ms };
        let mut timeline = Timeline::default();
        timeline.schedule(at(5), "late");
        timeline.schedule(at(3), "first");
        timeline.schedule(at(3), "second");
        assert_eq!(timeline.take_due(at(2)), None);
        assert_eq!(timeline.take_due(at(9)), Some("first"));
        assert_eq!(timeline.take_due(at(9)), Some("second"));
        assert_eq!(timeline.take_due(at(9)), Some("late"));
        assert!(timeline.is_empty());
    }
}
