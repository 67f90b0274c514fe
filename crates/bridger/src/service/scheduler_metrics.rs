//! What the scheduler counts, under the names that dashboards for kube-scheduler already use.
//!
//! In: attempts and figures as the engine's driver tells them. Out: families of a registry. Buckets and labels are upstream's, so
//! that a query for one reads the other.

use std::time::Duration;

use engine::scheduling::{Attempt, Dropped, Recorder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use scheduler::{AttemptResult, Figures};

type Labels = Vec<(&'static str, String)>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Pods that took more attempts are counted together.
const ATTEMPTS_MAX: u32 = 15;

#[derive(Debug)]
pub struct SchedulerMetrics {
    attempts: Family<Labels, Counter>,
    attempt_seconds: Histograms,
    algorithm_seconds: Histogram,
    sli_seconds: Histograms,
    pod_attempts: Histogram,
    pending: Family<Labels, Gauge>,
    binding: Gauge,
    woken: Gauge,
    events: Family<Labels, Counter>,
    dropped: Family<Labels, Counter>,
}

fn of_attempts() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

fn of_pods() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 20))
}

impl Default for SchedulerMetrics {
    fn default() -> SchedulerMetrics {
        SchedulerMetrics {
            attempts: Family::default(),
            attempt_seconds: Family::new_with_constructor(of_attempts),
            // Decisions here take microseconds: upstream's buckets from 1 ms on would show nothing.
            algorithm_seconds: Histogram::new(exponential_buckets(0.000_01, 2.0, 22)),
            sli_seconds: Family::new_with_constructor(of_pods),
            pod_attempts: Histogram::new(exponential_buckets(1.0, 2.0, 5)),
            pending: Family::default(),
            binding: Gauge::default(),
            woken: Gauge::default(),
            events: Family::default(),
            dropped: Family::default(),
        }
    }
}

impl SchedulerMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods by result and profile",
            self.attempts.clone(),
        );
        registry.register(
            "scheduler_scheduling_attempt_duration_seconds",
            "From the decision to the end of the binding, by result and profile",
            self.attempt_seconds.clone(),
        );
        registry.register(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Time to decide on a node",
            self.algorithm_seconds.clone(),
        );
        registry.register(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From when a pod was first seen to its binding, by attempts",
            self.sli_seconds.clone(),
        );
        registry.register(
            "scheduler_pod_scheduling_attempts",
            "Attempts it took to schedule a pod",
            self.pod_attempts.clone(),
        );
        registry.register("scheduler_pending_pods", "Pods that wait, by queue", self.pending.clone());
        registry.register("bridger_scheduler_binding", "Pods being bound", self.binding.clone());
        registry.register(
            "bridger_scheduler_woken",
            "How often a change let a pod be tried again since the start",
            self.woken.clone(),
        );
        registry.register("bridger_scheduler_events", "Kubernetes events by outcome", self.events.clone());
        registry.register(
            "bridger_scheduler_dropped",
            "What was not written because too much waited, by kind",
            self.dropped.clone(),
        );
    }
}

impl Recorder for SchedulerMetrics {
    fn attempted(&self, attempt: &Attempt<'_>) {
        let labels: Labels =
            vec![("result", attempt.result.as_str().to_owned()), ("profile", attempt.profile.to_owned())];
        self.attempts.get_or_create(&labels).inc();
        self.attempt_seconds.get_or_create(&labels).observe(attempt.took.as_secs_f64());
        if attempt.result == AttemptResult::Scheduled {
            let count = match attempt.count {
                count if count > ATTEMPTS_MAX => format!("{ATTEMPTS_MAX}+"),
                count => count.to_string(),
            };
            self.sli_seconds.get_or_create(&vec![("attempts", count)]).observe(attempt.waited.as_secs_f64());
            self.pod_attempts.observe(f64::from(attempt.count));
        }
    }

    fn decided(&self, took: Duration) {
        self.algorithm_seconds.observe(took.as_secs_f64());
    }

    fn figures(&self, figures: &Figures) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let pending = &figures.pending;
        for (queue, count) in [
            ("active", pending.active),
            ("backoff", pending.backoff),
            ("unschedulable", pending.unschedulable),
            ("gated", pending.gated),
        ] {
            self.pending.get_or_create(&vec![("queue", queue.to_owned())]).set(number(count));
        }
        self.binding.set(number(figures.binding));
        self.woken.set(i64::try_from(figures.queue.woken).unwrap_or(i64::MAX));
    }

    fn notice(&self, posted: bool) {
        let outcome = if posted { "posted" } else { "lost" };
        self.events.get_or_create(&vec![("outcome", outcome.to_owned())]).inc();
    }

    fn dropped(&self, what: Dropped) {
        let kind = match what {
            Dropped::Notice => "event",
            Dropped::Status => "status",
        };
        self.dropped.get_or_create(&vec![("kind", kind.to_owned())]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_upstreams() {
        let metrics = SchedulerMetrics::default();
        let attempt = Attempt {
            profile: "bridger",
            result: AttemptResult::Scheduled,
            count: 20,
            took: Duration::from_millis(3),
            waited: Duration::from_secs(1),
        };
        metrics.attempted(&attempt);
        metrics.attempted(&Attempt { result: AttemptResult::Unschedulable, ..attempt });
        metrics.decided(Duration::from_micros(30));
        metrics.figures(&Figures::default());
        metrics.notice(true);
        metrics.dropped(Dropped::Status);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        for expected in [
            "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"bridger\"} 1",
            "scheduler_schedule_attempts_total{result=\"unschedulable\",profile=\"bridger\"} 1",
            "scheduler_scheduling_attempt_duration_seconds_count{result=\"scheduled\",profile=\"bridger\"} 1",
            "scheduler_pod_scheduling_sli_duration_seconds_count{attempts=\"15+\"} 1",
            "scheduler_pending_pods{queue=\"unschedulable\"} 0",
            "scheduler_pod_scheduling_attempts_count 1",
            "bridger_scheduler_events_total{outcome=\"posted\"} 1",
        ] {
            assert!(text.contains(expected), "{expected} is missing:\n{text}");
        }
    }
}
