//! The metrics of a running `bridger scheduler` beside those of a real kube-scheduler, after the same pods: for each family
//! that both have, the same type, labels and values of labels.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use serde_json::json;
use testkit::{Bridger, ControlPlane, Scheduler, eventually};

use super::{ANY, Metrics, parsed};

const SOON: Duration = Duration::from_secs(120);
/// Of each scheduler. A cycle of Bridger's is measured with a probability of 1 to 10: of so many cycles all points are.
const FITTING: usize = 200;
const HUGE: usize = 120;
const GATED: usize = 120;

/// Stable and beta families of kube-scheduler that Bridger does not have; docs/scheduler.md says why.
const LACKING: &[&str] =
    &["scheduler_plugin_evaluation", "scheduler_preemption_attempts", "scheduler_preemption_victims"];

/// Labels of a family whose values differ on purpose; docs/scheduler.md says why.
const DIFFERING: &[(&str, &str)] = &[
    // Decisions take microseconds.
    ("scheduler_scheduling_algorithm_duration_seconds", "le"),
    // Bridger lacks some plugins, and has one that kube-scheduler lacks.
    ("scheduler_plugin_execution_duration_seconds", "plugin"),
    ("scheduler_unschedulable_pods", "plugin"),
    // kube-scheduler names filters and its own plugins; nothing but binding is concurrent in Bridger.
    ("scheduler_goroutines", "operation"),
    // What happens first in a cluster depends on the order of the watches.
    ("scheduler_queue_incoming_pods", "event"),
];

/// Values of labels that Bridger does not have.
const ABSENT: &[(&str, &str)] = &[
    // Of the batching of equal pods.
    ("scheduler_framework_extension_point_duration_seconds", "Sign"),
    ("scheduler_plugin_execution_duration_seconds", "Sign"),
    // Bridger has no plugin at these points: only the points are measured.
    ("scheduler_plugin_execution_duration_seconds", "PostFilter"),
    ("scheduler_plugin_execution_duration_seconds", "PreBind"),
    ("scheduler_plugin_execution_duration_seconds", "PreBindPreFlight"),
    ("scheduler_plugin_execution_duration_seconds", "Reserve"),
    ("scheduler_plugin_execution_duration_seconds", "Unreserve"),
    // One Filter call for all nodes succeeds, and a rejection is about a node.
    ("scheduler_plugin_execution_duration_seconds", "Unschedulable"),
];

fn pod(name: &str, scheduler: &str, cpu: &str, is_gated: bool) -> Result<Pod> {
    let gates = if is_gated { json!([{ "name": "example.com/later" }]) } else { json!([]) };
    let requests = json!({ "cpu": cpu, "memory": "10Mi", "ephemeral-storage": "1Mi" });
    Ok(serde_json::from_value(json!({
        // No two pods are equal, because equal pods share what PreFilter and PreScore found out.
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "schedulerName": scheduler, "schedulingGates": gates, "priority": 0,
            "containers": [{ "name": "c", "image": "none", "resources": { "requests": requests } }],
        },
    }))?)
}

struct Stage {
    control_plane: ControlPlane,
    client: kube::Client,
    upstream: Scheduler,
    bridger: Bridger,
}

impl Stage {
    async fn start() -> Result<Stage> {
        let control_plane = ControlPlane::start().await?;
        let client = control_plane.client().await?;
        let nodes: Api<Node> = Api::all(client.clone());
        for number in 0..5 {
            let name = format!("node-{number}");
            let resources = json!({ "cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "100Gi" });
            let node = json!({
                "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
                "status": { "capacity": resources, "allocatable": resources },
            });
            nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
            control_plane.make_schedulable(&name).await?;
        }
        let upstream = Scheduler::start(&control_plane, None).await?;
        let kubeconfig = control_plane.kubeconfig().display().to_string();
        let environment = [("KUBECONFIG", kubeconfig), ("NO_COLOR", "1".to_owned())];
        let mut bridger = Bridger::start(&["scheduler", "--port", "0", "--leader-elect=false"], &environment)?;
        bridger.prints("Listening", SOON).await?;
        Ok(Stage { control_plane, client, upstream, bridger })
    }

    /// The same pods for both: some fit, some fit on no node, some are gated.
    async fn schedule(&self) -> Result<()> {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let mut all = Vec::new();
        for (scheduler, prefix) in [("default-scheduler", "upstream"), ("bridger", "bridger")] {
            for (kind, count, cpu) in [("gated", GATED, "10m"), ("huge", HUGE, "1000"), ("fits", FITTING, "10m")] {
                for number in 0..count {
                    all.push(pod(&format!("{prefix}-{kind}-{number}"), scheduler, cpu, kind == "gated")?);
                }
            }
        }
        let create = |pod: Pod| {
            let pods = pods.clone();
            async move { pods.create(&PostParams::default(), &pod).await }
        };
        futures::stream::iter(all).map(create).buffer_unordered(8).try_collect::<Vec<_>>().await?;
        eventually(SOON, || async {
            let all = pods.list(&kube::api::ListParams::default()).await?;
            let bound = all.iter().filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())).count();
            ensure!(bound == 2 * FITTING, "{bound} pods are bound");
            let is_refused = |pod: &&Pod| {
                let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
                conditions.into_iter().flatten().any(|it| it.reason.as_deref() == Some("Unschedulable"))
            };
            let refused = all.iter().filter(is_refused).count();
            ensure!(refused == 2 * HUGE, "{refused} pods are unschedulable");
            Ok(())
        })
        .await
    }
}

/// The values of a label, so that both programs write the same: numbers as numbers.
fn values(metrics: &Metrics, family: &str, label: &str) -> BTreeSet<String> {
    let values = metrics.get(family).and_then(|metric| metric.labels.get(label)).into_iter().flatten();
    let alike = |value: &String| match value.parse::<f64>() {
        Ok(number) if label == "le" && number.is_finite() => format!("{number:.6e}"),
        _ => value.clone(),
    };
    values.map(alike).collect()
}

/// What differs between families that both have.
fn differences(upstream: &Metrics, own: &Metrics) -> Vec<String> {
    let mut differences = Vec::new();
    for (family, theirs) in upstream.iter().filter(|(family, _)| family.starts_with("scheduler_")) {
        let Some(ours) = own.get(family) else { continue };
        if theirs.r#type != ours.r#type {
            differences.push(format!("{family} is a {}, upstream a {}", ours.r#type, theirs.r#type));
        }
        let (theirs, ours): (BTreeSet<_>, BTreeSet<_>) = (theirs.labels.keys().collect(), ours.labels.keys().collect());
        if theirs != ours {
            differences.push(format!("{family} has the labels {ours:?}, upstream {theirs:?}"));
        }
        for label in theirs {
            if DIFFERING.contains(&(family.as_str(), label.as_str())) {
                continue;
            }
            let (theirs, ours) = (values(upstream, family, label), values(own, family, label));
            let is_lost = |value: &&String| !ours.contains(*value) && !ABSENT.contains(&(family, value));
            let lost: Vec<_> = theirs.iter().filter(is_lost).collect();
            if !lost.is_empty() {
                differences.push(format!("{family}{{{label}}} lacks {lost:?}"));
            }
        }
    }
    differences
}

/// The stable and beta families of kube-scheduler's text that Bridger does not have.
fn lacking(upstream: &str, own: &Metrics) -> BTreeSet<String> {
    let promised = upstream.lines().filter_map(|line| {
        let (name, help) = line.strip_prefix("# HELP ")?.split_once(' ')?;
        let is_promised = help.starts_with("[STABLE]") || help.starts_with("[BETA]");
        (name.starts_with("scheduler_") && is_promised).then(|| name.strip_suffix("_total").unwrap_or(name))
    });
    promised.filter(|name| !own.contains_key(*name)).map(str::to_owned).collect()
}

/// Each pod's requests: labels and value of each sample.
fn requests(text: &str) -> Result<BTreeSet<(String, String)>> {
    let lines = text.lines().filter(|line| line.starts_with("kube_pod_resource_request{"));
    let requests = lines.map(|line| {
        let (labels, value) = line.rsplit_once(' ').expect("a value");
        let mut labels: Vec<&str> =
            labels.trim_start_matches("kube_pod_resource_request{").trim_end_matches('}').split(',').collect();
        labels.sort_unstable();
        Ok((labels.join(","), format!("{:.6e}", value.parse::<f64>()?)))
    });
    requests.collect()
}

#[tokio::test]
async fn families_that_kube_scheduler_has_as_well_are_alike() -> Result<()> {
    let stage = Stage::start().await?;
    stage.schedule().await?;
    let varying = ["profile"];
    eventually(SOON, || async {
        let text = stage.upstream.metrics().await?;
        let upstream = parsed(&text, &varying)?;
        let own = parsed(&stage.bridger.get("/metrics").await?, &varying)?;
        let points = values(&upstream, "scheduler_framework_extension_point_duration_seconds", "extension_point");
        ensure!(points.len() >= 11, "kube-scheduler has measured {points:?}");
        let differences = differences(&upstream, &own);
        ensure!(differences.is_empty(), "{differences:#?}");
        let lacking = lacking(&text, &own);
        ensure!(lacking.iter().all(|name| LACKING.contains(&name.as_str())), "lacking: {lacking:?}");
        ensure!(values(&own, "scheduler_schedule_attempts", "profile") == [ANY.to_owned()].into(), "{own:?}");
        Ok(())
    })
    .await?;
    eventually(SOON, || async {
        let upstream = requests(&stage.upstream.get("/metrics/resources").await?)?;
        let own = requests(&stage.bridger.get("/metrics/resources").await?)?;
        let differ: Vec<_> = upstream.symmetric_difference(&own).take(10).collect();
        ensure!(differ.is_empty(), "kube_pod_resource_request: {differ:#?}");
        // CPU, memory and ephemeral storage of each pod.
        ensure!(upstream.len() == 3 * 2 * (FITTING + HUGE + GATED), "{} values", upstream.len());
        Ok(())
    })
    .await?;
    drop(stage.control_plane);
    Ok(())
}

#[test]
fn differences_are_found() -> Result<()> {
    let metrics = |text: &str| parsed(text, &[]);
    let upstream = metrics("# TYPE scheduler_x_total counter\nscheduler_x_total{a=\"1\",b=\"2\"} 1\n")?;
    let alike = metrics("# TYPE scheduler_x counter\nscheduler_x_total{b=\"2\",a=\"1\"} 1\n")?;
    assert_eq!(differences(&upstream, &alike), Vec::<String>::new());
    for text in [
        "# TYPE scheduler_x gauge\nscheduler_x{a=\"1\",b=\"2\"} 1\n",
        "# TYPE scheduler_x counter\nscheduler_x_total{a=\"1\"} 1\n",
        "# TYPE scheduler_x counter\nscheduler_x_total{a=\"1\",b=\"3\"} 1\n",
    ] {
        assert_ne!(differences(&upstream, &metrics(text)?), Vec::<String>::new(), "{text}");
    }
    let help = "# HELP scheduler_x_total [STABLE] X\n# HELP scheduler_y [ALPHA] Y\n# HELP scheduler_z [BETA] Z\n";
    assert_eq!(lacking(help, &alike), ["scheduler_z".to_owned()].into());
    Ok(())
}
