//! Limits failed logins, because a vCenter locks an account after a few of them (by default five within three minutes).
//!
//! In: the credentials of each login, and how it ended. Out: whether a login may be tried now. All sessions of a process
//! with one vCenter share one gate: the startup check, the inventory, and the writer of rules.
//!
//! Invariants: after a refused login, the same credentials are not sent again before a wait that doubles from two
//! minutes to an hour, so that even two replicas stay below the limit; other credentials are tried at once; a login
//! ends before the next one starts, so that several sessions do not fail at the same time. The gate stores no secret.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::client::Credentials;
use crate::error::VsphereError;

const FIRST_WAIT: Duration = Duration::from_secs(120);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The last refused login.
#[derive(Debug)]
struct Refused {
    /// A keyed hash: only equal or not equal can be read from it.
    credentials: u64,
    /// With these credentials.
    failures: u32,
    until: Instant,
}

#[derive(Debug, Default)]
pub struct LoginGate {
    hasher: RandomState,
    refused: Mutex<Option<Refused>>,
}

impl LoginGate {
    /// Logs in, unless these credentials were refused a short time ago.
    pub(crate) async fn pass<T>(
        &self,
        host: &str,
        credentials: Credentials,
        login: impl AsyncFnOnce(Credentials) -> Result<T, VsphereError>,
    ) -> Result<T, VsphereError> {
        let hash = self.hasher.hash_one((&credentials.username, &credentials.password));
        let mut refused = self.refused.lock().await;
        let earlier = refused.as_ref().filter(|refused| refused.credentials == hash);
        if let Some(refused) = earlier
            && let wait = refused.until.saturating_duration_since(Instant::now())
            && !wait.is_zero()
        {
            let seconds = wait.as_secs_f64().ceil() as u64;
            return Err(VsphereError::LoginPaused { host: host.to_owned(), failures: refused.failures, seconds });
        }
        let failures = earlier.map_or(0, |refused| refused.failures);
        let outcome = login(credentials).await;
        match &outcome {
            Err(VsphereError::InvalidLogin) => {
                let wait = FIRST_WAIT.saturating_mul(1 << failures.min(10)).min(LONGEST_WAIT);
                *refused = Some(Refused { credentials: hash, failures: failures + 1, until: Instant::now() + wait });
            }
            Ok(_) => *refused = None,
            Err(_) => (),
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn credentials(password: &str) -> Credentials {
        Credentials { username: "bridger".to_owned(), password: password.to_owned() }
    }

    /// Tries a login with this password; only `right` is accepted. Whether it was sent, and whether it succeeded.
    async fn attempt(gate: &LoginGate, password: &str) -> (bool, bool) {
        let sent = AtomicU32::new(0);
        let outcome = gate
            .pass("vc", credentials(password), async |credentials| {
                sent.fetch_add(1, Ordering::Relaxed);
                if credentials.password == "right" { Ok(()) } else { Err(VsphereError::InvalidLogin) }
            })
            .await;
        (sent.into_inner() == 1, outcome.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn number_2_a_wrong_password_is_never_sent_often_enough_to_lock_the_account() {
        let gate = LoginGate::default();
        let start = Instant::now();
        let mut sent_at = Vec::new();
        for _ in 0..20_000 {
            let (sent, succeeded) = attempt(&gate, "wrong").await;
            assert!(!succeeded);
            if sent {
                sent_at.push(start.elapsed());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let within_three_minutes =
            |from: Duration| sent_at.iter().filter(|at| (from..from + Duration::from_secs(180)).contains(at)).count();
        // Two replicas together stay below five.
        assert!(sent_at.iter().all(|from| within_three_minutes(*from) <= 2), "{sent_at:?}");
        let waits: Vec<u64> = sent_at.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
        assert_eq!(waits[..6], [120, 240, 480, 960, 1920, 3600]);
        assert!(waits[6..].iter().all(|wait| *wait == 3600), "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn number_2_other_credentials_are_tried_at_once_and_success_ends_the_wait() {
        let gate = LoginGate::default();
        assert_eq!(attempt(&gate, "wrong").await, (true, false));
        assert_eq!(attempt(&gate, "wrong").await, (false, false));
        assert_eq!(attempt(&gate, "right").await, (true, true));
        assert_eq!(attempt(&gate, "wrong").await, (true, false), "the wait has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn number_2_sessions_that_log_in_at_the_same_time_fail_once() {
        let gate = LoginGate::default();
        let sent = AtomicU32::new(0);
        let login = || {
            gate.pass("vc", credentials("wrong"), async |_| {
                sent.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(3)).await;
                Err::<(), _>(VsphereError::InvalidLogin)
            })
        };
        let outcomes = tokio::join!(login(), login(), login());
        assert_eq!(sent.load(Ordering::Relaxed), 1);
        assert!(matches!(outcomes.0, Err(VsphereError::InvalidLogin)));
        assert!(matches!(outcomes.1, Err(VsphereError::LoginPaused { failures: 1, seconds: 120, .. })));
    }
}
