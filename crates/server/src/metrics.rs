//! Metrics as text for Prometheus.
//!
//! The numbers are in the engine and the world; each request reads them, so that no second copy has to be kept in sync.

use std::fmt;

use engine::controllers::scheduling::controller as scheduling;
use engine::counters::RuleCounters;
use engine::runtime::stats::STEP_BUCKETS;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::Shown;

struct Family<'a> {
    name: &'a str,
    help: &'a str,
    kind: MetricType,
    /// The label's name; `values` has a number per label value. Without a label `values` has one number.
    label: Option<&'a str>,
    values: Vec<(String, u64)>,
}

/// Reads all numbers on each request.
struct Reader(Shown);

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

impl Collector for Reader {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        encode_runtime(&self.0, &mut encoder)?;
        for family in families(&self.0) {
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, family.kind)?;
            let Some(label) = family.label else {
                // A family with no labels at all would read `name{}`.
                if let Some((_, number)) = family.values.first() {
                    encode_number(family.kind, *number, metric)?;
                }
                continue;
            };
            for (value, number) in &family.values {
                encode_number(family.kind, *number, metric.encode_family(&[(label, value.as_str())])?)?;
            }
        }
        Ok(())
    }
}

/// How long each controller held the loop, by step; and the actions that the gate refused.
fn encode_runtime(shown: &Shown, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let help = "How long a controller held the loop; no step should take more than 10 ms.";
    let kind = MetricType::Histogram;
    let mut metric = encoder.encode_descriptor("bridger_controller_step_seconds", help, None, kind)?;
    for ((controller, step), times) in shown.runtime.steps() {
        let bounds = STEP_BUCKETS.into_iter().chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds.zip(times.buckets).collect();
        let labels = [("controller", controller), ("step", step.as_str())];
        metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
            times.sum_seconds,
            times.count,
            &buckets,
            None,
        )?;
    }
    let help = "Actions that were not sent because the gate was closed, by controller and reason.";
    let mut metric = encoder.encode_descriptor("bridger_gate_refusals", help, None, MetricType::Counter)?;
    for ((controller, why), count) in shown.runtime.refusals() {
        let labels = [("controller", controller), ("reason", why)];
        encode_number(MetricType::Counter, count, metric.encode_family(&labels)?)?;
    }
    let help = "Whether this process leads, by lease.";
    let mut metric = encoder.encode_descriptor("leader_election_master_status", help, None, MetricType::Gauge)?;
    for (object, lease) in &shown.leases {
        let name = object.rsplit('/').next().unwrap_or(object);
        let is_held = u64::from(lease.is_held(Instant::now()));
        encode_number(MetricType::Gauge, is_held, metric.encode_family(&[("name", name)])?)?;
    }
    Ok(())
}

fn encode_number(kind: MetricType, number: u64, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
    match kind {
        MetricType::Counter => ConstCounter::new(number).encode(encoder),
        _ => ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX)).encode(encoder),
    }
}

/// All metrics, in the OpenMetrics text format.
pub fn text(shown: &Shown) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Reader(shown.clone())));
    if let Some(extender) = &shown.extender {
        extender.stats().register(&mut registry);
    }
    if let Some(register) = &shown.more_metrics {
        register(&mut registry);
    }
    let mut document = String::new();
    text::encode(&mut document, &registry)?;
    Ok(document)
}

fn families(shown: &Shown) -> Vec<Family<'static>> {
    let counters = &shown.counters;
    let (report, summary) = {
        let world = shown.world.read();
        (world.matches(), world.summary())
    };
    let labelled = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let one = |value: u64| vec![(String::new(), value)];
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let vcenters = (shown.vcenters)();
    // The events of the scheduler have separate metrics, and those of the extender were never counted here.
    let (posted, lost) =
        events(shown, |controller| controller != scheduling::NAME && controller != engine::extender::NAME);
    let mut families = extender_families(shown);
    families.extend(rule_families(&counters.rules));
    families.extend([
        Family {
            name: "bridger_events_applied",
            help: "Events received from Kubernetes and the vCenters.",
            kind: MetricType::Counter,
            label: None,
            values: one(shown.runtime.events_applied.get()),
        },
        Family {
            name: "bridger_label_writes",
            help: "Writes of node labels by outcome.",
            kind: MetricType::Counter,
            label: Some("outcome"),
            values: labelled(&[
                ("ok", counters.label_writes.get()),
                ("passing", counters.label_writes_failed_transient.get()),
                ("gone", counters.label_writes_failed_not_found.get()),
                ("refused", counters.label_writes_failed_permanent.get()),
            ]),
        },
        Family {
            name: "bridger_labels_changed_by_others",
            help: "Correct labels that another client changed.",
            kind: MetricType::Counter,
            label: None,
            values: one(counters.labels_changed_by_others.get()),
        },
        Family {
            name: "bridger_audit_lines_lost",
            help: "Lines of the audit log that could not be written.",
            kind: MetricType::Counter,
            label: None,
            values: one(counters.audit_lines_lost.get()),
        },
        Family {
            name: "bridger_notices",
            help: "Kubernetes events by outcome.",
            kind: MetricType::Counter,
            label: Some("outcome"),
            values: labelled(&[("posted", posted), ("lost", lost)]),
        },
        Family {
            name: "bridger_nodes",
            help: "Nodes by whether their VM was found in a vCenter.",
            kind: MetricType::Gauge,
            label: Some("machine"),
            values: labelled(&[
                ("found", count(report.matched())),
                ("not_found", count(report.unmatched)),
                ("ambiguous", count(report.ambiguous)),
                ("contested", count(report.contested)),
                ("unconfirmed", count(report.unconfirmed)),
            ]),
        },
        Family {
            name: "bridger_pods",
            help: "Known pods.",
            kind: MetricType::Gauge,
            label: None,
            values: one(count(summary.pods)),
        },
        Family {
            name: "bridger_vcenter_in_sync",
            help: "1 while the inventory of a vCenter is up to date.",
            kind: MetricType::Gauge,
            label: Some("vcenter"),
            values: vcenters
                .iter()
                .map(|(_, vcenter)| (vcenter.host.clone(), u64::from(vcenter.trouble.is_none())))
                .collect(),
        },
        Family {
            name: "bridger_vcenter_insecure",
            help: "1 if the connection to a vCenter is not verified or not encrypted.",
            kind: MetricType::Gauge,
            label: Some("vcenter"),
            values: vcenters.into_iter().map(|(_, vcenter)| (vcenter.host, u64::from(vcenter.is_insecure))).collect(),
        },
        Family {
            name: "bridger_http_connections",
            help: "Connections by whether they were within the limit.",
            kind: MetricType::Counter,
            label: Some("outcome"),
            values: labelled(&[("accepted", shown.connections.accepted()), ("refused", shown.connections.refused())]),
        },
    ]);
    families
}

/// Kubernetes Events of the selected controllers: posted, and lost.
fn events(shown: &Shown, is_selected: impl Fn(&str) -> bool) -> (u64, u64) {
    let counts = shown.events.all_counts();
    let selected = counts.iter().filter(|(controller, _)| is_selected(controller)).map(|(_, counts)| counts);
    selected.fold((0, 0), |(posted, lost), counts| (posted + counts.posted, lost + counts.failed + counts.dropped))
}

fn rule_families(rules: &RuleCounters) -> Vec<Family<'static>> {
    let labelled = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let family = |name, help, kind, label, values| Family { name, help, kind, label, values };
    let one = |value: u64| vec![(String::new(), value)];
    let (counter, gauge) = (MetricType::Counter, MetricType::Gauge);
    let changes =
        labelled(&[("create", rules.created.get()), ("edit", rules.edited.get()), ("delete", rules.deleted.get())]);
    let failures = labelled(&[
        ("passing", rules.failures_transient.get()),
        ("gone", rules.failures_not_found.get()),
        ("refused", rules.failures_permanent.get()),
        ("faulty", rules.failures_invalid.get()),
    ]);
    let findings = rules.findings().into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    vec![
        family("bridger_rules_owned", "DRS rules that Bridger owns.", gauge, None, one(rules.owned())),
        family(
            "bridger_rules_passes",
            "Passes started; a pass executes one plan for one cluster.",
            counter,
            None,
            one(rules.passes.get()),
        ),
        family("bridger_rules_changes", "Changes that were made and confirmed.", counter, Some("kind"), changes),
        family("bridger_rules_failures", "Failed calls by kind of error.", counter, Some("reason"), failures),
        family("bridger_rules_findings", "Findings of the last plan.", gauge, Some("name"), findings),
        family(
            "bridger_rules_behind_seconds",
            "How long there have been planned changes that are not applied.",
            gauge,
            None,
            one(rules.behind_seconds()),
        ),
        family(
            "bridger_rules_watch_lags",
            "How often the watch was behind a direct read.",
            counter,
            None,
            one(rules.lags.get()),
        ),
    ]
}

fn extender_families(shown: &Shown) -> Vec<Family<'static>> {
    let Some(routes) = &shown.extender else { return Vec::new() };
    let extender = routes.extender();
    let counts = extender.counts();
    vec![
        Family {
            name: "bridger_extender_assumed",
            help: "Pods bound or being bound by the extender that the watch does not show as bound yet.",
            kind: MetricType::Gauge,
            label: None,
            values: vec![(String::new(), u64::try_from(counts.assumed()).unwrap_or(u64::MAX))],
        },
        Family {
            name: "bridger_extender_bindings",
            help: "Bindings by outcome.",
            kind: MetricType::Counter,
            label: Some("outcome"),
            values: [
                ("bound", counts.bound.get()),
                ("conflict", counts.conflicts.get()),
                ("failed", counts.failed.get()),
                ("rejected", counts.rejected.get()),
                ("unclear", counts.unclear.get()),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .to_vec(),
        },
    ]
}
