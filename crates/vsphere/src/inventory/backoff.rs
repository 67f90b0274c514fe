//! How long to wait before the next attempt at a vCenter.
//!
//! Waits double from 1 s up to 60 s, each somewhere between half of its limit and all of it, so that several that lost
//! the same vCenter do not come back in step. A wrong password waits the full minute from the first time on, because
//! vCenter locks an account after five failures within three minutes.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

use crate::VsphereError;

const FIRST_LIMIT_MS: u64 = 2_000;
const LAST_LIMIT_MS: u64 = 60_000;

#[derive(Debug)]
pub(crate) struct Backoff {
    jitter: ChaCha8Rng,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(jitter: ChaCha8Rng) -> Backoff {
        Backoff { jitter, failures: 0 }
    }

    /// All has gone well for a while.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    pub(crate) fn next(&mut self, error: &VsphereError) -> Duration {
        let limit_ms = match error {
            VsphereError::InvalidLogin => return Duration::from_millis(LAST_LIMIT_MS),
            _ => FIRST_LIMIT_MS.saturating_mul(1 << self.failures.min(16)).min(LAST_LIMIT_MS),
        };
        self.failures = self.failures.saturating_add(1);
        Duration::from_millis(limit_ms / 2 + self.jitter.next_u64() % (limit_ms / 2 + 1))
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn waits_grow_from_one_second_to_sixty_and_repeat_by_seed() {
        let error = VsphereError::NotAuthenticated;
        for seed in 0..200 {
            let waits = |mut backoff: Backoff| -> Vec<Duration> { (0..40).map(|_| backoff.next(&error)).collect() };
            let all = waits(Backoff::new(ChaCha8Rng::seed_from_u64(seed)));
            for (at, wait) in all.iter().enumerate() {
                let limit = Duration::from_secs(2u64.saturating_pow(u32::try_from(at).unwrap() + 1).min(60));
                assert!(*wait >= limit / 2 && *wait <= limit, "seed {seed}, attempt {at}: {wait:?}");
            }
            assert_eq!(all, waits(Backoff::new(ChaCha8Rng::seed_from_u64(seed))));
        }
    }

    #[test]
    fn a_wrong_password_is_not_tried_often_enough_to_lock_the_account() {
        let mut backoff = Backoff::new(ChaCha8Rng::seed_from_u64(1));
        for _ in 0..10 {
            assert_eq!(backoff.next(&VsphereError::InvalidLogin), Duration::from_secs(60));
        }
        backoff.next(&VsphereError::NotAuthenticated);
        backoff.reset();
        assert!(backoff.next(&VsphereError::NotAuthenticated) <= Duration::from_secs(2));
    }
}
