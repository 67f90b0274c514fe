//! Simulated time.
//!
//! [`SimTime`] is a point in time of the simulated world. [`Clock`] maps the runtime's clock onto it. On a paused tokio
//! clock, simulated time is virtual and jumps ahead when every task waits. On the real clock, it runs `speed` times as
//! fast as the wall clock.
//!
//! There are two kinds of waiting, and code must not mix them. Processes of the *world* (a migration, a grace period,
//! the DRS period) are measured in [`SimTime`]. Limits of a *connection* (the timeout of a watch or of
//! WaitForUpdatesEx, the idle time of a session) are in the client's time: plain `tokio::time`, or
//! [`Clock::simulated`]. In virtual time the two coincide.

use std::fmt;
use std::time::Duration;

/// Milliseconds since the Unix epoch, in the simulated world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SimTime {
    pub unix_ms: u64,
}

impl SimTime {
    /// The start of virtual time. It is fixed, so that runs can be compared byte for byte.
    pub const VIRTUAL_START: SimTime = SimTime { unix_ms: 1_767_225_600_000 }; // 2026-01-01T00:00:00Z

    #[must_use]
    pub fn after(self, wait: Duration) -> SimTime {
        SimTime { unix_ms: self.unix_ms.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)) }
    }

    #[must_use]
    pub fn since(self, earlier: SimTime) -> Duration {
        Duration::from_millis(self.unix_ms.saturating_sub(earlier.unix_ms))
    }

    fn timestamp(self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(i64::try_from(self.unix_ms).unwrap_or(i64::MAX))
            .unwrap_or(jiff::Timestamp::MAX)
    }

    /// `2026-01-01T00:00:00Z`, as Kubernetes writes `metav1.Time`.
    #[must_use]
    pub fn rfc3339_seconds(self) -> String {
        self.timestamp().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// `2026-01-01T00:00:00.000000Z`, as Kubernetes writes `metav1.MicroTime` and vSphere writes `xsd:dateTime`.
    #[must_use]
    pub fn rfc3339_micros(self) -> String {
        self.timestamp().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
    }
}

/// `2026-01-01T00:00:00.000Z`.
impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.timestamp().strftime("%Y-%m-%dT%H:%M:%S.%3fZ"))
    }
}

/// Derives simulated time from the tokio runtime's clock.
#[derive(Clone, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
    start: SimTime,
    speed: f64,
}

impl Clock {
    /// A clock that shows `start` now and runs `speed` times as fast as the runtime's clock.
    #[must_use]
    pub fn starting_at(start: SimTime, speed: f64) -> Clock {
        assert!(speed.is_finite() && speed > 0.0, "speed is a positive number");
        Clock { origin: tokio::time::Instant::now(), start, speed }
    }

    /// For a runtime with a paused clock: starts at [`SimTime::VIRTUAL_START`].
    #[must_use]
    pub fn virtual_time() -> Clock {
        Clock::starting_at(SimTime::VIRTUAL_START, 1.0)
    }

    #[must_use]
    pub fn now(&self) -> SimTime {
        self.start.after(self.origin.elapsed().mul_f64(self.speed))
    }

    /// How much simulated time passes while a client waits for `wait`.
    #[must_use]
    pub fn simulated(&self, wait: Duration) -> Duration {
        Duration::try_from_secs_f64(wait.as_secs_f64() * self.speed).unwrap_or(Duration::MAX)
    }

    /// Waits until the simulated time reaches `moment`. Returns at once if it has passed.
    pub async fn sleep_until(&self, moment: SimTime) {
        let wait = moment.since(self.start).div_f64(self.speed);
        // Rounding can leave `now` a millisecond before `moment`, so wait until it is reached.
        tokio::time::sleep_until(self.origin + wait).await;
        while self.now() < moment {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_the_format_of_kubernetes_and_vsphere() {
        let moment = SimTime::VIRTUAL_START.after(Duration::from_millis(61_007));
        assert_eq!(moment.rfc3339_seconds(), "2026-01-01T00:01:01Z");
        assert_eq!(moment.rfc3339_micros(), "2026-01-01T00:01:01.007000Z");
        assert_eq!(moment.to_string(), "2026-01-01T00:01:01.007Z");
    }

    #[tokio::test(start_paused = true)]
    async fn sleep_until_on_a_fast_clock_reaches_the_requested_moment() {
        let clock = Clock::starting_at(SimTime::VIRTUAL_START, 60.0);
        let noon = SimTime::VIRTUAL_START.after(Duration::from_secs(43_200));
        let before = tokio::time::Instant::now();
        clock.sleep_until(noon).await;
        assert!(clock.now() >= noon);
        assert!(before.elapsed() < Duration::from_secs(721));
    }
}
