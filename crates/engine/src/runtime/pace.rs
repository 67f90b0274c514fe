//! Rate limits for writes, and backoff after failures.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tokio::time::Instant;

/// A token bucket: `per_second` on average, `burst` at once.
#[derive(Clone, Debug)]
pub struct RateLimit {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled_at: Instant,
}

impl RateLimit {
    #[must_use]
    pub fn new(per_second: u32, burst: u32, now: Instant) -> RateLimit {
        let burst = f64::from(burst.max(1));
        RateLimit { per_second: f64::from(per_second.max(1)), burst, tokens: burst, filled_at: now }
    }

    /// One token per interval, which may be longer than a second.
    #[must_use]
    pub fn with_interval(interval: Duration, burst: u32, now: Instant) -> RateLimit {
        let burst = f64::from(burst.max(1));
        RateLimit { per_second: 1.0 / interval.as_secs_f64().max(0.001), burst, tokens: burst, filled_at: now }
    }

    fn tokens_at(&self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        (self.tokens + passed * self.per_second).min(self.burst)
    }

    /// Takes a token if there is one; otherwise returns when the next one arrives.
    pub fn take(&mut self, now: Instant) -> Result<(), Instant> {
        if let Some(later) = self.opens_at(now) {
            return Err(later);
        }
        self.tokens = self.tokens_at(now) - 1.0;
        self.filled_at = now;
        Ok(())
    }

    /// How many tokens are available.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and a u32")]
    pub fn available(&self, now: Instant) -> usize {
        self.tokens_at(now) as usize
    }

    /// When the next token arrives; `None` if one is available.
    #[must_use]
    pub fn opens_at(&self, now: Instant) -> Option<Instant> {
        let tokens = self.tokens_at(now);
        if tokens >= 1.0 {
            return None;
        }
        // Timers count whole milliseconds: never wake before the token has arrived.
        let wait_ms = ((1.0 - tokens) / self.per_second * 1000.0).ceil().max(1.0);
        Some(now + Duration::from_secs_f64(wait_ms / 1000.0))
    }
}

/// A wait that doubles with each failure, reduced by a random part of up to a half so that many retries do not
/// coincide.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Backoff {
    #[must_use]
    pub fn wait(&self, failures: u32, jitter: &mut Jitter) -> Duration {
        self.without_jitter(failures).mul_f64(0.5 + 0.5 * jitter.unit())
    }

    /// For a single caller, whose retries cannot coincide with others.
    #[must_use]
    pub fn without_jitter(&self, failures: u32) -> Duration {
        let doubled = self.first.saturating_mul(1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(self.longest)
    }
}

/// A backoff that counts its failures, for an operation that is repeated forever.
#[derive(Clone, Debug)]
pub struct Retries {
    backoff: Backoff,
    jitter: Jitter,
    failures: u32,
}

impl Retries {
    #[must_use]
    pub fn new(backoff: Backoff, jitter: Jitter) -> Retries {
        Retries { backoff, jitter, failures: 0 }
    }

    /// Counts a failure and returns the wait before the next attempt.
    pub fn failed(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.backoff.wait(self.failures, &mut self.jitter)
    }

    /// Resets the count of failures.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }
}

/// Random numbers for spreading waits, from a given seed.
#[derive(Clone, Debug)]
pub struct Jitter(ChaCha8Rng);

impl Jitter {
    #[must_use]
    pub fn from_seed(seed: u64) -> Jitter {
        Jitter(ChaCha8Rng::seed_from_u64(seed))
    }

    /// One of many independent streams from the same seed.
    #[must_use]
    pub fn stream(seed: u64, number: u64) -> Jitter {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(number);
        Jitter(random)
    }

    #[allow(clippy::cast_precision_loss)]
    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Sleeps until this moment; forever if it is `None`.
pub(crate) async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let start = Instant::now();
        let mut limit = RateLimit::new(10, 5, start);
        let mut now = start;
        let mut sent = 0;
        while now < start + Duration::from_secs(10) {
            match limit.take(now) {
                Ok(()) => sent += 1,
                Err(later) => now = later,
            }
        }
        assert!((104..=106).contains(&sent), "{sent}");
    }

    #[test]
    fn waits_grow_stay_bounded_and_differ() {
        let backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(60) };
        let mut jitter = Jitter::from_seed(1);
        for failures in 1..200 {
            let wait = backoff.wait(failures, &mut jitter);
            assert!(wait <= Duration::from_secs(60) && wait >= Duration::from_millis(250), "{failures}: {wait:?}");
        }
        assert!(backoff.wait(20, &mut jitter) >= Duration::from_secs(30));
        assert_ne!(backoff.wait(5, &mut jitter), backoff.wait(5, &mut jitter));
    }
}
