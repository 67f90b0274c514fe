//! Statistics of the extender's requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Filter,
    Prioritize,
    Bind,
    Preempt,
}

impl Verb {
    pub const ALL: [Verb; 4] = [Verb::Filter, Verb::Prioritize, Verb::Bind, Verb::Preempt];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Verb::Filter => "filter",
            Verb::Prioritize => "prioritize",
            Verb::Bind => "bind",
            Verb::Preempt => "preempt",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    /// Reported in the response: a conflict at bind, a pod that cannot be read.
    Error,
    /// Not an extender request.
    Bad,
    /// Kubernetes is not in sync.
    NotReady,
}

impl Outcome {
    const fn name(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Error => "error",
            Outcome::Bad => "bad_request",
            Outcome::NotReady => "not_ready",
        }
    }
}

type Label = (&'static str, &'static str);

/// Upper bounds in seconds: from a simple lookup to a bind that waits for the API server.
const SECONDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.25, 1.0, 4.0, 10.0];

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

#[derive(Debug)]
pub struct ExtenderStats {
    requests: Family<[Label; 2], Counter>,
    seconds: Family<[Label; 1], Histogram, fn() -> Histogram>,
    in_flight: Gauge<i64, AtomicI64>,
}

impl Default for ExtenderStats {
    fn default() -> ExtenderStats {
        ExtenderStats {
            requests: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            in_flight: Gauge::default(),
        }
    }
}

/// Counts a request as in flight until it is dropped.
pub struct InFlight(Gauge<i64, AtomicI64>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl ExtenderStats {
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    /// Counts a request that did not reach the engine.
    pub fn rejected(&self, verb: Verb, outcome: Outcome) {
        self.requests.get_or_create(&[("verb", verb.name()), ("outcome", outcome.name())]).inc();
    }

    /// `took`: from the complete body to the response.
    pub fn finished(&self, verb: Verb, outcome: Outcome, took: Duration) {
        self.rejected(verb, outcome);
        self.seconds.get_or_create(&[("verb", verb.name())]).observe(took.as_secs_f64());
    }

    #[must_use]
    pub fn requests_in_flight(&self) -> i64 {
        self.in_flight.inner().load(Ordering::Relaxed)
    }

    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "bridger_extender_requests",
            "Requests of kube-scheduler by verb and outcome",
            self.requests.clone(),
        );
        registry.register(
            "bridger_extender_seconds",
            "Time from a complete request to its response, by verb",
            self.seconds.clone(),
        );
        registry.register("bridger_extender_in_flight", "Requests being processed", self.in_flight.clone());
    }
}
