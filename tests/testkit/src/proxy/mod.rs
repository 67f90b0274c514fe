//! Proxies in front of the API server and vcsim that record requests, and stop at a chosen request, before it takes effect or after it, so
//! that Bridger can be killed at exactly this step; or hold a request and deliver it later; or refuse requests.

pub mod hold;
pub mod kubernetes;
pub mod vcenter;
pub mod watches;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::hold::Held;

/// When a request stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// It does not reach the peer.
    Before,
    /// The peer has answered, and the answer is not delivered.
    After,
}

/// The steps since [`Points::arm`], and the one to stop at.
#[derive(Clone, Debug, Default)]
pub struct Points(Arc<State>);

#[derive(Debug, Default)]
struct State {
    steps: Mutex<Steps>,
    reached: Notify,
    /// Every step, with the time at which it arrived.
    arrived: Mutex<Vec<(Instant, String)>>,
    holds: Mutex<Vec<Held>>,
    /// The steps that begin like this are answered with this status.
    refusals: Mutex<Vec<(String, u16)>>,
}

/// What becomes of a step.
#[derive(Debug)]
enum Fate {
    Passes,
    Stops(When),
    IsHeld(Held),
    IsRefused(u16),
}

#[derive(Debug, Default)]
struct Steps {
    stop_at: Option<(usize, When)>,
    passed: Vec<String>,
}

impl Points {
    /// From now on requests are counted, and the one with this number stops.
    pub fn arm(&self, number: usize, when: When) {
        *self.lock() = Steps { stop_at: Some((number, when)), passed: Vec::new() };
    }

    /// The steps so far.
    #[must_use]
    pub fn passed(&self) -> Vec<String> {
        self.lock().passed.clone()
    }

    /// Completes when the chosen step was reached.
    pub async fn reached(&self) {
        self.0.reached.notified().await;
    }

    /// Every step so far, with the time at which it arrived.
    #[must_use]
    pub fn arrived(&self) -> Vec<(Instant, String)> {
        self.0.arrived.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The next request whose step contains this is held.
    #[must_use]
    pub fn hold(&self, matching: &str) -> Held {
        let held = Held::new(matching);
        self.0.holds.lock().unwrap_or_else(PoisonError::into_inner).push(held.clone());
        held
    }

    /// From now on steps that begin like this do not reach the peer, and are answered with this HTTP status.
    pub fn refuse(&self, beginning: &str, status: u16) {
        self.0.refusals.lock().unwrap_or_else(PoisonError::into_inner).push((beginning.to_owned(), status));
    }

    /// Nothing is refused any more.
    pub fn refuse_nothing(&self) {
        self.0.refusals.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// A step begins.
    fn begin(&self, step: String) -> Fate {
        let holds = self.0.holds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = holds.iter().find(|held| held.takes(&step)) {
            return Fate::IsHeld(held.clone());
        }
        let mut arrived = self.0.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.push((Instant::now(), step.clone()));
        let refusals = self.0.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, status)) = refusals.iter().find(|(beginning, _)| step.starts_with(beginning)) {
            return Fate::IsRefused(*status);
        }
        let mut steps = self.lock();
        let Some((number, when)) = steps.stop_at else { return Fate::Passes };
        let is_it = steps.passed.len() == number;
        steps.passed.push(step);
        if is_it { Fate::Stops(when) } else { Fate::Passes }
    }

    /// Never returns: Bridger gets no answer.
    async fn stop<T>(&self) -> T {
        self.0.reached.notify_one();
        std::future::pending().await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Steps> {
        self.0.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
