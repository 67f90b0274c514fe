//! The wait before the next attempt to connect to a vCenter.
//!
//! The limit doubles from 2 s up to 60 s. Each wait is a random time between half the limit and the limit, so that
//! several clients that lost the same vCenter do not reconnect at the same time. After a wrong password the wait is
//! always a full minute, because vCenter locks an account after five failures within three minutes.

use std::time::Duration;

use engine::runtime::{Backoff, Jitter, Retries};

use crate::VsphereError;

const BACKOFF: Backoff = Backoff { first: Duration::from_secs(2), longest: Duration::from_secs(60) };

pub(crate) fn retries(jitter: Jitter) -> Retries {
    Retries::new(BACKOFF, jitter)
}

/// The wait after this failure.
pub(crate) fn wait_after(retries: &mut Retries, error: &VsphereError) -> Duration {
    match error {
        VsphereError::InvalidLogin => BACKOFF.longest,
        _ => retries.failed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_from_one_second_to_sixty_and_depend_only_on_the_seed() {
        let error = VsphereError::NotAuthenticated;
        for seed in 0..200 {
            let waits = |mut all: Retries| -> Vec<Duration> { (0..40).map(|_| wait_after(&mut all, &error)).collect() };
            let all = waits(retries(Jitter::from_seed(seed)));
            for (at, wait) in all.iter().enumerate() {
                let limit = Duration::from_secs(2u64.saturating_pow(u32::try_from(at).unwrap() + 1).min(60));
                assert!(*wait >= limit / 2 && *wait <= limit, "seed {seed}, attempt {at}: {wait:?}");
            }
            assert_eq!(all, waits(retries(Jitter::from_seed(seed))));
        }
    }

    #[test]
    fn a_wrong_password_is_not_tried_often_enough_to_lock_the_account() {
        let mut retries = retries(Jitter::from_seed(1));
        for _ in 0..10 {
            assert_eq!(wait_after(&mut retries, &VsphereError::InvalidLogin), Duration::from_secs(60));
        }
        wait_after(&mut retries, &VsphereError::NotAuthenticated);
        retries.succeeded();
        assert!(wait_after(&mut retries, &VsphereError::NotAuthenticated) <= Duration::from_secs(2));
    }
}
