//! Statistics of the runtime: how long each controller held the loop, and which actions the gate refused. Metrics read
//! them; decisions never do.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::gate::Closed;
use crate::counters::Counter;

/// What a controller was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    Observe,
    Advance,
    Completed,
}

impl Step {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Step::Observe => "observe",
            Step::Advance => "advance",
            Step::Completed => "completed",
        }
    }
}

/// The upper bounds of the buckets, in seconds; one more bucket has no bound. No step should take more than 10 ms.
pub const STEP_BUCKETS: [f64; 9] = [0.000_01, 0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25];

/// How long steps took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    pub count: u64,
    pub sum_seconds: f64,
    /// By [`STEP_BUCKETS`], not cumulative; the last bucket holds all longer steps.
    pub buckets: [u64; STEP_BUCKETS.len() + 1],
    pub longest: Duration,
}

#[derive(Debug, Default)]
pub struct RuntimeStats {
    pub events_applied: Counter,
    steps: Mutex<BTreeMap<(&'static str, Step), StepTimes>>,
    refused: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

impl RuntimeStats {
    pub(super) fn step(&self, controller: &'static str, step: Step, took: Duration) {
        let mut steps = lock(&self.steps);
        let times = steps.entry((controller, step)).or_default();
        let seconds = took.as_secs_f64();
        times.count += 1;
        times.sum_seconds += seconds;
        times.longest = times.longest.max(took);
        let bucket = STEP_BUCKETS.iter().position(|bound| seconds <= *bound).unwrap_or(STEP_BUCKETS.len());
        times.buckets[bucket] += 1;
    }

    pub(super) fn refused(&self, controller: &'static str, closed: Closed) {
        *lock(&self.refused).entry((controller, closed.as_str())).or_default() += 1;
    }

    /// By controller and step.
    #[must_use]
    pub fn steps(&self) -> BTreeMap<(&'static str, Step), StepTimes> {
        lock(&self.steps).clone()
    }

    /// Actions that the gate refused, by controller and reason.
    #[must_use]
    pub fn refusals(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        lock(&self.refused).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_fall_into_their_buckets() {
        let stats = RuntimeStats::default();
        for micros in [5, 10, 11, 6_000, 300_000] {
            stats.step("c", Step::Advance, Duration::from_micros(micros));
        }
        let times = stats.steps()[&("c", Step::Advance)];
        assert_eq!(times.buckets, [2, 1, 0, 0, 0, 0, 1, 0, 0, 1]);
        assert_eq!((times.count, times.longest), (5, Duration::from_millis(300)));
    }
}
