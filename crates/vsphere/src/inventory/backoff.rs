//! The wait before the next attempt to connect to a vCenter.
//!
//! The limit doubles from 2 s up to 60 s. Each wait is a random time between half the limit and the limit, so that
//! several clients that lost the same vCenter do not reconnect at the same time. After a refused login the login gate
//! decides which attempts reach the vCenter; attempts go on, so that a corrected password takes effect soon.

use std::time::Duration;

use engine::runtime::{Backoff, Jitter, Retries};

const BACKOFF: Backoff = Backoff { first: Duration::from_secs(2), longest: Duration::from_secs(60) };

pub(crate) fn retries(jitter: Jitter) -> Retries {
    Retries::new(BACKOFF, jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_from_one_second_to_sixty_and_depend_only_on_the_seed() {
        for seed in 0..200 {
            let waits = |mut all: Retries| -> Vec<Duration> { (0..40).map(|_| all.failed()).collect() };
            let all = waits(retries(Jitter::from_seed(seed)));
            for (at, wait) in all.iter().enumerate() {
                let limit = Duration::from_secs(2u64.saturating_pow(u32::try_from(at).unwrap() + 1).min(60));
                assert!(*wait >= limit / 2 && *wait <= limit, "seed {seed}, attempt {at}: {wait:?}");
            }
            assert_eq!(all, waits(retries(Jitter::from_seed(seed))));
        }
    }
}
