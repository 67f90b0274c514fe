//! Work that waits for its turn: so much at once, so much in line, the rest is refused.
//!
//! In: jobs, in order. Out: the next one as soon as one of those under way has finished. Both numbers are bounded.

use std::collections::VecDeque;

pub(super) struct Lane<T> {
    waiting: VecDeque<T>,
    waiting_max: usize,
    under_way: usize,
    under_way_max: usize,
}

impl<T> Lane<T> {
    pub(super) fn new(under_way_max: usize, waiting_max: usize) -> Lane<T> {
        Lane { waiting: VecDeque::new(), waiting_max, under_way: 0, under_way_max: under_way_max.max(1) }
    }

    /// `false` when the line is full.
    #[must_use]
    pub(super) fn push(&mut self, job: T) -> bool {
        let has_room = self.waiting.len() < self.waiting_max;
        if has_room {
            self.waiting.push_back(job);
        }
        has_room
    }

    /// The next job, which is then under way.
    pub(super) fn begin(&mut self) -> Option<T> {
        if self.under_way >= self.under_way_max {
            return None;
        }
        let job = self.waiting.pop_front()?;
        self.under_way += 1;
        Some(job)
    }

    pub(super) fn finished(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// How many more could begin at once.
    pub(super) fn room(&self) -> usize {
        self.under_way_max.saturating_sub(self.under_way + self.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_allowed_are_under_way_or_wait() {
        let mut lane = Lane::new(2, 3);
        assert_eq!((1..=5).map(|job| lane.push(job)).filter(|taken| *taken).count(), 3);
        assert_eq!((lane.begin(), lane.begin(), lane.begin()), (Some(1), Some(2), None));
        assert_eq!(lane.room(), 0);
        lane.finished();
        assert_eq!((lane.begin(), lane.room()), (Some(3), 0));
        lane.finished();
        lane.finished();
        assert_eq!((lane.begin(), lane.room()), (None, 2));
    }
}
