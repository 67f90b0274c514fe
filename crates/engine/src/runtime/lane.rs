//! Limits a controller's actions: how many are in flight, how many wait, and how many start per second. A full lane
//! rejects more.
//!
//! In: actions, in order. Out: the next action as soon as one in flight has finished and the rate allows it. All three
//! numbers are bounded.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::pace::RateLimit;

/// The index of one of a controller's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneId(pub usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSettings {
    pub in_flight_max: usize,
    /// In addition to those that can start now.
    pub waiting_max: usize,
    /// How many may start per second, and in one burst; `None`: limited only by `in_flight_max`.
    pub rate: Option<Rate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub per_second: u32,
    pub burst: u32,
}

impl LaneSettings {
    /// For actions that are computed when they can start: nothing waits.
    #[must_use]
    pub const fn without_queue(in_flight_max: usize) -> LaneSettings {
        LaneSettings { in_flight_max, waiting_max: 0, rate: None }
    }

    #[must_use]
    pub const fn with_queue(in_flight_max: usize, waiting_max: usize) -> LaneSettings {
        LaneSettings { in_flight_max, waiting_max, rate: None }
    }
}

#[derive(Debug)]
pub(super) struct Lane<A> {
    settings: LaneSettings,
    waiting: VecDeque<A>,
    in_flight: usize,
    rate: Option<RateLimit>,
}

impl<A> Lane<A> {
    pub(super) fn new(settings: LaneSettings, now: Instant) -> Lane<A> {
        let settings = LaneSettings { in_flight_max: settings.in_flight_max.max(1), ..settings };
        let rate = settings.rate.map(|rate| RateLimit::new(rate.per_second, rate.burst, now));
        Lane { settings, waiting: VecDeque::new(), in_flight: 0, rate }
    }

    /// Returns the action if the queue is full.
    pub(super) fn push(&mut self, action: A, now: Instant) -> Result<(), A> {
        if self.room(now) == 0 && self.waiting.len() >= self.settings.waiting_max {
            return Err(action);
        }
        self.waiting.push_back(action);
        Ok(())
    }

    /// The next action, which is then in flight.
    pub(super) fn begin(&mut self, now: Instant) -> Option<A> {
        if self.waiting.is_empty() || self.in_flight >= self.settings.in_flight_max {
            return None;
        }
        if let Some(rate) = &mut self.rate {
            rate.take(now).ok()?;
        }
        self.in_flight += 1;
        self.waiting.pop_front()
    }

    pub(super) fn finished(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// How many more actions could start now.
    pub(super) fn room(&self, now: Instant) -> usize {
        let free = self.settings.in_flight_max.saturating_sub(self.in_flight);
        let allowed = self.rate.as_ref().map_or(free, |rate| free.min(rate.available(now)));
        allowed.saturating_sub(self.waiting.len())
    }

    /// When the rate limit lets the next action start; `None` if the rate limit is not what delays it.
    pub(super) fn opens_at(&self, now: Instant) -> Option<Instant> {
        let is_free = self.in_flight < self.settings.in_flight_max;
        self.rate.as_ref().filter(|_| is_free)?.opens_at(now)
    }

    /// An action waits, and only the rate limit can delay it.
    pub(super) fn can_begin(&self) -> bool {
        !self.waiting.is_empty() && self.in_flight < self.settings.in_flight_max
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_numbers_in_flight_and_waiting_are_bounded() {
        let now = Instant::now();
        let mut lane = Lane::new(LaneSettings::with_queue(2, 3), now);
        assert_eq!((1..=6).filter(|action| lane.push(*action, now).is_ok()).count(), 3);
        assert_eq!((lane.begin(now), lane.begin(now), lane.begin(now)), (Some(1), Some(2), None));
        assert_eq!(lane.room(now), 0);
        lane.finished();
        assert_eq!((lane.begin(now), lane.room(now)), (Some(3), 0));
        lane.finished();
        lane.finished();
        assert_eq!((lane.begin(now), lane.room(now)), (None, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_queue_an_action_that_cannot_start_is_rejected() {
        let now = Instant::now();
        let mut lane = Lane::new(LaneSettings::without_queue(1), now);
        assert_eq!((lane.push(1, now), lane.push(2, now)), (Ok(()), Err(2)));
        assert_eq!((lane.begin(now), lane.push(3, now)), (Some(1), Err(3)));
        lane.finished();
        assert_eq!(lane.push(4, now), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_limit_holds_and_says_when_the_next_action_may_start() {
        let now = Instant::now();
        let rate = Some(Rate { per_second: 10, burst: 2 });
        let mut lane = Lane::new(LaneSettings { in_flight_max: 9, waiting_max: 9, rate }, now);
        assert_eq!(lane.room(now), 2);
        (0..4).for_each(|action| assert!(lane.push(action, now).is_ok()));
        assert_eq!((lane.begin(now), lane.begin(now), lane.begin(now)), (Some(0), Some(1), None));
        let opens = lane.opens_at(now).expect("the rate limit delays the next action");
        assert!(opens > now && opens <= now + Duration::from_millis(101), "{opens:?}");
        assert_eq!((lane.begin(opens), lane.begin(opens)), (Some(2), None));
    }
}
