//! Metrics of the scheduler, with the names that dashboards for kube-scheduler use.
//!
//! In: attempts and figures from the engine's scheduling controller. Out: metric families in a registry. Buckets and
//! labels equal those of kube-scheduler, except the buckets of the algorithm duration, so that queries work for both.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::runtime::EventCounts;
use engine::scheduling::{Attempt, SchedulingMetrics};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use scheduler::{Arrivals, AttemptResult, Figures, Probe, UnschedulableBy};

use super::plugin_metrics::PluginMetrics;

type Labels = Vec<(&'static str, String)>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Pods with more attempts share one label value.
const ATTEMPTS_MAX: u32 = 15;

#[derive(Debug)]
pub struct SchedulerMetrics {
    attempts: Family<Labels, Counter>,
    attempt_seconds: Histograms,
    algorithm_seconds: Histogram,
    sli_seconds: Histograms,
    pod_attempts: Histogram,
    pending: Family<Labels, Gauge>,
    incoming: Family<Labels, Counter>,
    unschedulable: Family<Labels, Gauge>,
    cache_size: Family<Labels, Gauge>,
    /// The figures of the last update, so that only changed figures are processed.
    last: Mutex<Figures>,
    preemption_attempts: Counter,
    preemption_victims: Histogram,
    binding: Gauge,
    goroutines: Family<Labels, Gauge>,
    woken: Gauge,
    events: Family<Labels, Counter>,
    dropped: Family<Labels, Counter>,
    findings: Family<Labels, Counter>,
    plugins: Arc<PluginMetrics>,
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
            // Decisions take microseconds: kube-scheduler's buckets start at 1 ms and would show nothing.
            algorithm_seconds: Histogram::new(exponential_buckets(0.000_01, 2.0, 22)),
            sli_seconds: Family::new_with_constructor(of_pods),
            pod_attempts: Histogram::new(exponential_buckets(1.0, 2.0, 5)),
            pending: Family::default(),
            incoming: Family::default(),
            unschedulable: Family::default(),
            cache_size: Family::default(),
            last: Mutex::default(),
            preemption_attempts: Counter::default(),
            preemption_victims: Histogram::new(exponential_buckets(1.0, 2.0, 7)),
            binding: Gauge::default(),
            goroutines: Family::default(),
            woken: Gauge::default(),
            events: Family::default(),
            dropped: Family::default(),
            findings: Family::default(),
            plugins: Arc::default(),
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
            "Time from the decision to the end of the binding, by result and profile",
            self.attempt_seconds.clone(),
        );
        registry.register(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Time to decide on a node",
            self.algorithm_seconds.clone(),
        );
        registry.register(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from when a pod was first observed to its binding, by attempts",
            self.sli_seconds.clone(),
        );
        registry.register(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to schedule a pod",
            self.pod_attempts.clone(),
        );
        registry.register("scheduler_pending_pods", "Pending pods by queue", self.pending.clone());
        registry.register(
            "scheduler_queue_incoming_pods",
            "Number of pods added to scheduling queues by event and queue type",
            self.incoming.clone(),
        );
        registry.register(
            "scheduler_unschedulable_pods",
            "The number of unschedulable pods broken down by plugin name; a pod counts for all plugins that rejected it",
            self.unschedulable.clone(),
        );
        registry.register(
            "scheduler_cache_size",
            "Number of nodes, pods, and assumed (bound) pods in the scheduler cache",
            self.cache_size.clone(),
        );
        registry.register(
            "scheduler_preemption_attempts",
            "Total preemption attempts in the cluster till now",
            self.preemption_attempts.clone(),
        );
        registry.register(
            "scheduler_preemption_victims",
            "Number of selected preemption victims",
            self.preemption_victims.clone(),
        );
        registry.register("bridger_scheduler_binding", "Pods being bound", self.binding.clone());
        registry.register(
            "scheduler_goroutines",
            "Running tasks split by the work they do; only binding is concurrent here",
            self.goroutines.clone(),
        );
        registry.register(
            "bridger_scheduler_woken",
            "How often a change moved an unschedulable pod back to the queue",
            self.woken.clone(),
        );
        registry.register("bridger_scheduler_events", "Kubernetes events by outcome", self.events.clone());
        registry.register(
            "bridger_scheduler_dropped",
            "Events and status updates dropped because a queue was full, by kind",
            self.dropped.clone(),
        );
        registry.register(
            "bridger_scheduler_findings",
            "Pods that were placed where they may not work, by finding",
            self.findings.clone(),
        );
        self.plugins.register(registry);
    }
}

impl SchedulerMetrics {
    /// Copies the event counts of this controller from the event recorder.
    pub fn count_events(&self, counts: EventCounts) {
        // Locked: two concurrent scrapes must not both add the difference.
        let _last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let set = |family: &Family<Labels, Counter>, name: &'static str, value: &str, total: u64| {
            if total > 0 {
                let counter = family.get_or_create(&vec![(name, value.to_owned())]);
                counter.inc_by(total.saturating_sub(counter.get()));
            }
        };
        set(&self.events, "outcome", "posted", counts.posted);
        set(&self.events, "outcome", "lost", counts.failed);
        set(&self.dropped, "kind", "event", counts.dropped);
    }

    fn update_incoming(&self, before: &Arrivals, now: &Arrivals) {
        if before == now {
            return;
        }
        for (queue, event, count) in now.iter() {
            let labels = vec![("queue", queue.to_owned()), ("event", event.to_owned())];
            let counter = self.incoming.get_or_create(&labels);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    fn update_unschedulable(&self, before: &[UnschedulableBy], now: &[UnschedulableBy]) {
        if before == now {
            return;
        }
        let set = |by: &UnschedulableBy, pods: usize| {
            let labels = vec![("plugin", by.plugin.to_owned()), ("profile", by.profile.clone())];
            self.unschedulable.get_or_create(&labels).set(i64::try_from(pods).unwrap_or(i64::MAX));
        };
        // A plugin that no longer rejects a pod is missing in `now`.
        before.iter().for_each(|by| set(by, 0));
        now.iter().for_each(|by| set(by, by.pods));
    }
}

impl SchedulingMetrics for SchedulerMetrics {
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
        self.goroutines.get_or_create(&vec![("operation", "binding".to_owned())]).set(number(figures.binding));
        self.woken.set(i64::try_from(figures.queue.woken).unwrap_or(i64::MAX));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.update_incoming(&last.arrivals, &figures.arrivals);
        self.update_unschedulable(&last.unschedulable, &figures.unschedulable);
        let cache = &figures.cache;
        for (kind, count) in [("nodes", cache.nodes), ("pods", cache.pods), ("assumed_pods", cache.assumed_pods)] {
            self.cache_size.get_or_create(&vec![("type", kind.to_owned())]).set(number(count));
        }
        self.preemption_attempts.inc_by(figures.preemption_attempts.saturating_sub(last.preemption_attempts));
        last.clone_from(figures);
    }

    fn preempted(&self, victims: usize) {
        self.preemption_victims.observe(victims as f64);
    }

    fn doubted(&self, reason: &'static str) {
        self.findings.get_or_create(&vec![("finding", reason.to_owned())]).inc();
    }

    fn status_dropped(&self) {
        self.dropped.get_or_create(&vec![("kind", "status".to_owned())]).inc();
    }

    fn probe(&self) -> Option<Arc<dyn Probe>> {
        Some(self.plugins.clone())
    }
}

#[cfg(test)]
mod tests {
    use model::World;
    use model::event::{Event, NodeFacts, PodFacts};
    use model::scheduling::{NodeSchedulingFacts, PodSchedulingFacts};
    use scheduler::{Configuration, Input, Scheduler, observe};

    use super::*;

    fn text_of(metrics: &SchedulerMetrics) -> String {
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        text
    }

    /// A scheduler with one node for 4 pods, and `pods` pods to place.
    fn scheduled(pods: usize) -> (Scheduler, World) {
        let configuration = Configuration::with_name("bridger", &scheduler::plugins::standard()).expect("a profile");
        let (mut scheduler, mut world) = (Scheduler::new(configuration, 1), World::default());
        let facts = NodeSchedulingFacts { allowed_pods: 4, ..NodeSchedulingFacts::default() };
        let node = NodeFacts { name: "n1".to_owned(), scheduling: Some(Arc::new(facts)), ..NodeFacts::default() };
        let mut apply = |event| {
            let changes = observe::apply(&mut world, event);
            scheduler.observe(Duration::ZERO, &world, &changes);
        };
        apply(Event::NodeApplied(node));
        for number in 0..pods {
            let facts = PodSchedulingFacts { scheduler_name: "bridger".to_owned(), ..PodSchedulingFacts::default() };
            apply(Event::PodApplied(PodFacts {
                namespace: "default".to_owned(),
                name: format!("web-{number}"),
                uid: format!("uid-{number}"),
                scheduling: Some(Arc::new(facts)),
                ..PodFacts::default()
            }));
        }
        scheduler.step(Duration::ZERO, &mut world, Input::Schedule { at_most: pods });
        (scheduler, world)
    }

    #[test]
    fn figures_are_counted_once_and_reset() {
        let (mut scheduler, mut world) = scheduled(6);
        let metrics = SchedulerMetrics::default();
        metrics.figures(&scheduler.figures());
        // A second update with the same figures counts nothing twice.
        metrics.figures(&scheduler.figures());
        let text = text_of(&metrics);
        for expected in [
            "scheduler_cache_size{type=\"nodes\"} 1",
            "scheduler_cache_size{type=\"pods\"} 4",
            "scheduler_cache_size{type=\"assumed_pods\"} 4",
            "scheduler_queue_incoming_pods_total{queue=\"active\",event=\"UnscheduledPodAdd\"} 6",
            "scheduler_queue_incoming_pods_total{queue=\"unschedulable\",event=\"ScheduleAttemptFailure\"} 2",
            "scheduler_unschedulable_pods{plugin=\"NodeResourcesFit\",profile=\"bridger\"} 2",
            "# TYPE scheduler_queue_incoming_pods counter",
            "# TYPE scheduler_unschedulable_pods gauge",
        ] {
            assert!(text.contains(expected), "{expected} is missing:\n{text}");
        }
        // One pod is deleted: both unschedulable pods are queued again, and one is placed. The other still counts.
        let gone = Event::PodDeleted { namespace: "default".to_owned(), name: "web-0".to_owned() };
        let changes = observe::apply(&mut world, gone);
        scheduler.observe(Duration::from_secs(60), &world, &changes);
        scheduler.step(Duration::from_secs(60), &mut world, Input::Schedule { at_most: 1 });
        metrics.figures(&scheduler.figures());
        let text = text_of(&metrics);
        for expected in [
            "scheduler_queue_incoming_pods_total{queue=\"active\",event=\"AssignedPodDelete\"} 2",
            "scheduler_unschedulable_pods{plugin=\"NodeResourcesFit\",profile=\"bridger\"} 1",
        ] {
            assert!(text.contains(expected), "{expected} is missing:\n{text}");
        }
        for name in ["web-4", "web-5"] {
            let event = Event::PodDeleted { namespace: "default".to_owned(), name: name.to_owned() };
            let changes = observe::apply(&mut world, event);
            scheduler.observe(Duration::from_secs(60), &world, &changes);
        }
        metrics.figures(&scheduler.figures());
        let none = "scheduler_unschedulable_pods{plugin=\"NodeResourcesFit\",profile=\"bridger\"} 0";
        let text = text_of(&metrics);
        assert!(text.contains(none), "{text}");
    }

    #[test]
    fn names_and_labels_equal_those_of_kube_scheduler() {
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
        metrics.count_events(EventCounts { posted: 1, ..EventCounts::default() });
        metrics.status_dropped();
        let text = text_of(&metrics);
        for expected in [
            "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"bridger\"} 1",
            "scheduler_schedule_attempts_total{result=\"unschedulable\",profile=\"bridger\"} 1",
            "scheduler_scheduling_attempt_duration_seconds_count{result=\"scheduled\",profile=\"bridger\"} 1",
            "scheduler_pod_scheduling_sli_duration_seconds_count{attempts=\"15+\"} 1",
            "scheduler_pending_pods{queue=\"unschedulable\"} 0",
            "scheduler_pod_scheduling_attempts_count 1",
            "scheduler_goroutines{operation=\"binding\"} 0",
            "bridger_scheduler_events_total{outcome=\"posted\"} 1",
        ] {
            assert!(text.contains(expected), "{expected} is missing:\n{text}");
        }
    }

    #[test]
    fn plugin_durations_have_kube_schedulers_names_and_labels() {
        use scheduler::{ExtensionPoint, Run};
        let metrics = SchedulerMetrics::default();
        let probe = metrics.probe().expect("a probe");
        let (profile, took) = ("bridger", Duration::from_micros(150));
        probe.plugin_ran(&Run { profile, point: ExtensionPoint::Filter, status: "Success", took }, "NodeName");
        probe.point_ran(&Run { profile, point: ExtensionPoint::PreBindPreFlight, status: "Skip", took });
        probe.permit_waited("Unschedulable", Duration::from_secs(1));
        let text = text_of(&metrics);
        for expected in [
            "scheduler_plugin_execution_duration_seconds_count{plugin=\"NodeName\",extension_point=\"Filter\",status=\"Success\"} 1",
            "scheduler_framework_extension_point_duration_seconds_count{extension_point=\"PreBindPreFlight\",status=\"Skip\",profile=\"bridger\"} 1",
            "scheduler_framework_extension_point_duration_seconds_bucket{le=\"0.0001\",extension_point=\"PreBindPreFlight\",status=\"Skip\",profile=\"bridger\"} 0",
            "scheduler_permit_wait_duration_seconds_count{result=\"Unschedulable\"} 1",
        ] {
            assert!(text.contains(expected), "{expected} is missing:\n{text}");
        }
    }
}
