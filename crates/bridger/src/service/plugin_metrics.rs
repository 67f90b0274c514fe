//! How long plugins take: the scheduler's probe.
//!
//! In: durations of the measured cycles, one in ten. Out: metric families with kube-scheduler's names, labels and
//! buckets. The wait for permission is observed for every pod.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use scheduler::{Probe, Run};

/// Arrays, because there are dozens in each measured cycle: none is allocated.
type Texts<const N: usize> = [(&'static str, &'static str); N];
type PointLabels = [(&'static str, Cow<'static, str>); 3];
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Debug)]
pub struct PluginMetrics {
    start: Instant,
    plugin_seconds: Histograms<Texts<3>>,
    point_seconds: Histograms<PointLabels>,
    permit_seconds: Histograms<Texts<1>>,
}

impl Default for PluginMetrics {
    fn default() -> PluginMetrics {
        PluginMetrics {
            start: Instant::now(),
            plugin_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_01, 1.5, 20))),
            point_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_1, 2.0, 12))),
            permit_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 15))),
        }
    }
}

impl PluginMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "scheduler_plugin_execution_duration_seconds",
            "Time for running a plugin at an extension point, in one of ten cycles",
            self.plugin_seconds.clone(),
        );
        registry.register(
            "scheduler_framework_extension_point_duration_seconds",
            "Time for running all plugins of an extension point, in one of ten cycles",
            self.point_seconds.clone(),
        );
        registry.register(
            "scheduler_permit_wait_duration_seconds",
            "Time that pods waited for permission, by result",
            self.permit_seconds.clone(),
        );
    }
}

impl Probe for PluginMetrics {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn plugin_ran(&self, run: &Run<'_>, plugin: &'static str) {
        let labels = [("plugin", plugin), ("extension_point", run.point.as_str()), ("status", run.status)];
        self.plugin_seconds.get_or_create(&labels).observe(run.took.as_secs_f64());
    }

    fn point_ran(&self, run: &Run<'_>) {
        let labels = [
            ("extension_point", run.point.as_str().into()),
            ("status", run.status.into()),
            ("profile", run.profile.to_owned().into()),
        ];
        self.point_seconds.get_or_create(&labels).observe(run.took.as_secs_f64());
    }

    fn permit_waited(&self, result: &'static str, waited: Duration) {
        self.permit_seconds.get_or_create(&[("result", result)]).observe(waited.as_secs_f64());
    }
}
