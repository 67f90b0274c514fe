//! Work in flight: so much at once, so much in line, so much per second; the rest is refused.
//!
//! In: actions, in order. Out: the next one as soon as one of those in flight has finished and the rate allows it. All three
//! numbers are bounded.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::pace::RateLimit;

/// Which of a controller's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneId(pub usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSettings {
    pub in_flight_max: usize,
    /// Beyond those that can begin at once.
    pub waiting_max: usize,
    /// How many may begin in a second, and at once; `None`: as many as there is room for.
    pub rate: Option<Rate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub per_second: u32,
    pub burst: u32,
}

impl LaneSettings {
    /// Actions that are worked out at the moment they can begin: nothing waits in line.
    #[must_use]
    pub const fn without_line(in_flight_max: usize) -> LaneSettings {
        LaneSettings { in_flight_max, waiting_max: 0, rate: None }
    }

    #[must_use]
    pub const fn with_line(in_flight_max: usize, waiting_max: usize) -> LaneSettings {
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

    /// Gives the action back when the line is full.
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

    /// How many more could begin at once.
    pub(super) fn room(&self, now: Instant) -> usize {
        let free = self.settings.in_flight_max.saturating_sub(self.in_flight);
        let allowed = self.rate.as_ref().map_or(free, |rate| free.min(rate.available(now)));
        allowed.saturating_sub(self.waiting.len())
    }

    /// When the rate alone lets the next one begin; `None` while it is not the rate that is waited for.
    pub(super) fn opens_at(&self, now: Instant) -> Option<Instant> {
        let is_free = self.in_flight < self.settings.in_flight_max;
        self.rate.as_ref().filter(|_| is_free)?.opens_at(now)
    }

    /// Something waits, and only the rate may keep it from beginning.
    pub(super) fn can_begin(&self) -> bool {
        !self.waiting.is_empty() && self.in_flight < self.settings.in_flight_max
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_more_than_allowed_are_in_flight_or_wait() {
        let now = Instant::now();
        let mut lane = Lane::new(LaneSettings::with_line(2, 3), now);
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
    async fn without_a_line_only_what_can_begin_is_taken() {
        let now = Instant::now();
        let mut lane = Lane::new(LaneSettings::without_line(1), now);
        assert_eq!((lane.push(1, now), lane.push(2, now)), (Ok(()), Err(2)));
        assert_eq!((lane.begin(now), lane.push(3, now)), (Some(1), Err(3)));
        lane.finished();
        assert_eq!(lane.push(4, now), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_is_kept_and_its_next_moment_known() {
        let now = Instant::now();
        let rate = Some(Rate { per_second: 10, burst: 2 });
        let mut lane = Lane::new(LaneSettings { in_flight_max: 9, waiting_max: 9, rate }, now);
        assert_eq!(lane.room(now), 2);
        (0..4).for_each(|action| assert!(lane.push(action, now).is_ok()));
        assert_eq!((lane.begin(now), lane.begin(now), lane.begin(now)), (Some(0), Some(1), None));
        let opens = lane.opens_at(now).expect("the rate is what is waited for");
        assert!(opens > now && opens <= now + Duration::from_millis(101), "{opens:?}");
        assert_eq!((lane.begin(opens), lane.begin(opens)), (Some(2), None));
    }
}
