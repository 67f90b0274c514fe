//! Proxies in front of the API server and vcsim that record requests, and stop at a chosen request, before it takes effect or after it, so
//! that Bridger can be killed at exactly this step.

pub mod kubernetes;
pub mod vcenter;
pub mod watches;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

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

    /// A step begins; whether and when it stops.
    fn begin(&self, step: String) -> Option<When> {
        let mut arrived = self.0.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.push((Instant::now(), step.clone()));
        let mut steps = self.lock();
        let (number, when) = steps.stop_at?;
        let is_it = steps.passed.len() == number;
        steps.passed.push(step);
        is_it.then_some(when)
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
