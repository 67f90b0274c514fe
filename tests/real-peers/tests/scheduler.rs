//! Runs `bridger scheduler` on a real kube-apiserver, together with kube-scheduler: all pods of mixed policy are
//! placed, none against its policy, each once, also when the scheduler is killed meanwhile. The policy is checked from
//! the objects, by code that shares nothing with the scheduler.

#[path = "scheduler/cluster.rs"]
mod cluster;
#[path = "scheduler/following.rs"]
mod following;
#[path = "scheduler/policy.rs"]
mod policy;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use following::Following;
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use testkit::{Bridger, ControlPlane, Scheduler, count, eventually};
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(30);
const ALL_WITHIN: Duration = Duration::from_secs(240);
const EVENTS_WITHIN: Duration = Duration::from_secs(5);
const AT_ONCE: usize = 16;

struct Stage {
    control_plane: ControlPlane,
    pods: Api<Pod>,
    nodes: Api<Node>,
    client: kube::Client,
}

impl Stage {
    async fn start() -> Result<Stage> {
        let control_plane = ControlPlane::start_with(&["--disable-admission-plugins=TaintNodesByCondition"]).await?;
        let client = control_plane.client().await?;
        let nodes: Api<Node> = Api::all(client.clone());
        for node in cluster::nodes() {
            nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        }
        Ok(Stage { control_plane, pods: Api::default_namespaced(client.clone()), nodes, client })
    }

    /// Starts Bridger with kube-scheduler's own role. Its permissions are sufficient, except for a lease of another name
    /// than kube-scheduler's.
    async fn bridger(&self) -> Result<Bridger> {
        let kubeconfig = self.control_plane.kubeconfig_for("system:kube-scheduler", &[])?;
        let environment = [("KUBECONFIG", kubeconfig.display().to_string()), ("NO_COLOR", "1".to_owned())];
        let mut bridger = Bridger::start(&["scheduler", "--port", "0", "--leader-elect=false"], &environment)?;
        bridger.prints("Listening", SOON).await?;
        Ok(bridger)
    }

    async fn create(&self, pods: impl IntoIterator<Item = Value>) -> Result<()> {
        stream::iter(pods)
            .map(|pod| async move {
                self.pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
                anyhow::Ok(())
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }

    /// Waits until `wanted` pods are bound.
    async fn bound(&self, wanted: usize, within: Duration) -> Result<()> {
        self.bound_among("", wanted, within).await
    }

    /// As [`Stage::bound`], for pods that match this field selector.
    async fn bound_among(&self, fields: &str, wanted: usize, within: Duration) -> Result<()> {
        eventually(within, || async {
            let pods = self.pods.list(&ListParams::default().fields(fields)).await?.items;
            let waiting: Vec<_> = pods.iter().filter(|pod| node_of(pod).is_none()).collect();
            let first = waiting.first().map(|pod| (&pod.metadata.name, &pod.status));
            ensure!(pods.len() - waiting.len() >= wanted, "{} pods are pending; one is {first:?}", waiting.len());
            Ok(())
        })
        .await
    }

    async fn check_policy(&self) -> Result<()> {
        let pods = self.pods.list(&ListParams::default()).await?.items;
        let nodes = self.nodes.list(&ListParams::default()).await?.items;
        let pods = pods.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        let nodes = nodes.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        let violations = policy::violations(&nodes, &pods);
        ensure!(violations.is_empty(), "{} violations: {violations:#?}", violations.len());
        Ok(())
    }

    /// The number of events with this reason, by pod.
    async fn events(&self, reason: &str) -> Result<BTreeMap<String, usize>> {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let listed = events.list(&ListParams::default().fields(&format!("reason={reason}"))).await?;
        let mut counts = BTreeMap::new();
        for event in listed.items {
            *counts.entry(event.involved_object.name.unwrap_or_default()).or_default() += 1;
        }
        Ok(counts)
    }

    /// Waits until both schedulers have posted an event with this reason: each in its own name, on the same host.
    async fn events_are_reported_as_by_kube_scheduler(&self, reason: &str) -> Result<()> {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        eventually(SOON, || async {
            let listed = events.list(&ListParams::default().fields(&format!("reason={reason}"))).await?.items;
            let reporters: BTreeMap<String, String> = listed
                .into_iter()
                .map(|it| (it.reporting_component.unwrap_or_default(), it.reporting_instance.unwrap_or_default()))
                .collect();
            let host = reporters.get("default-scheduler").and_then(|it| it.strip_prefix("default-scheduler-"));
            let host = host.with_context(|| format!("no event of kube-scheduler: {reporters:?}"))?;
            ensure!(reporters.get("bridger") == Some(&format!("bridger-{host}")), "{reporters:?}");
            Ok(())
        })
        .await
    }

    /// Waits until a pod's PodScheduled condition is false, and returns its reason and message.
    async fn unschedulable(&self, name: &str) -> Result<(String, String)> {
        eventually(SOON, || async {
            let pod = self.pods.get(name).await?;
            let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
            let condition = conditions.into_iter().find(|it| it.type_ == "PodScheduled").context("no condition yet")?;
            ensure!(condition.status == "False", "{condition:?}");
            Ok((condition.reason.unwrap_or_default(), condition.message.unwrap_or_default()))
        })
        .await
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn names(pods: &[Value]) -> BTreeSet<String> {
    pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

/// Merges both lists, each spread evenly over the whole length.
fn interleaved(own: &[Value], others: &[Value]) -> Vec<Value> {
    // The position is the middle of the pod's share of the length, times both counts.
    let with_positions = |pods: &[Value], count: usize| -> Vec<(usize, Value)> {
        pods.iter().enumerate().map(|(index, pod)| ((2 * index + 1) * count, pod.clone())).collect()
    };
    let mut all = with_positions(own, others.len());
    all.extend(with_positions(others, own.len()));
    all.sort_by_key(|(position, _)| *position);
    all.into_iter().map(|(_, pod)| pod).collect()
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn pods_of_mixed_policy_are_placed_together_with_kube_scheduler() -> Result<()> {
    let stage = Stage::start().await?;
    let bridger = stage.bridger().await?;
    let _other = Scheduler::start(&stage.control_plane, None).await?;
    let (own, others) = cluster::pods(count(190, 1250));
    let all = own.len() + others.len();
    let following = Following::start(&stage.pods).await?;
    let began = Instant::now();
    stage.create(interleaved(&own, &others)).await?;
    stage.bound(all, ALL_WITHIN).await?;
    println!("{all} pods bound {:.1} s after the first was created", began.elapsed().as_secs_f64());
    stage.check_policy().await?;

    // Each pod has exactly one event.
    let wanted = names(&own);
    eventually(EVENTS_WITHIN, || async {
        let events = stage.events("Scheduled").await?;
        let missing: Vec<_> = wanted.iter().filter(|name| !events.contains_key(*name)).collect();
        ensure!(missing.is_empty(), "{} pods without an event: {missing:?}", missing.len());
        Ok(())
    })
    .await?;
    let twice: Vec<_> = stage
        .events("Scheduled")
        .await?
        .into_iter()
        .filter(|(name, count)| wanted.contains(name) && *count > 1)
        .collect();
    ensure!(twice.is_empty(), "more than one event: {twice:?}");
    let order = following.each_placed_once(&stage.pods, all).await?;
    // Both schedulers worked at the same time.
    let others_names = names(&others);
    let of_others: Vec<usize> = (0..order.len()).filter(|index| others_names.contains(&order[*index])).collect();
    let (first, last) = (of_others.first().copied().unwrap_or(all), of_others.last().copied().unwrap_or(0));
    ensure!(first < own.len() && last >= others.len(), "kube-scheduler's pods are {first} to {last} of {all}");
    let metrics = bridger.get("/metrics").await?;
    let counted =
        format!("scheduler_schedule_attempts_total{{result=\"scheduled\",profile=\"bridger\"}} {}", own.len());
    ensure!(metrics.contains(&counted), "{counted} is missing:\n{metrics}");
    ensure!(bridger.get("/readyz").await?.starts_with("HTTP/1.1 200"), "not ready");
    Ok(())
}

#[tokio::test]
async fn an_unschedulable_pod_gets_upstreams_message_and_is_bound_when_it_fits() -> Result<()> {
    let stage = Stage::start().await?;
    let _bridger = stage.bridger().await?;
    let _other = Scheduler::start(&stage.control_plane, None).await?;
    let pod = |name: &str, scheduler: &str| {
        json!({ "metadata": { "name": name }, "spec": { "schedulerName": scheduler, "nodeSelector": { "gpu": "yes" },
            "containers": [{ "name": "main", "image": "none", "resources": { "requests": { "cpu": "1" } } }] } })
    };
    stage.create([pod("own", "bridger"), pod("other", "default-scheduler")]).await?;
    let (reason, message) = stage.unschedulable("own").await?;
    let (other_reason, other_message) = stage.unschedulable("other").await?;
    ensure!(reason == other_reason, "{reason}, {other_reason}");
    // 1.36 writes this for pods without resource claims too; 1.37 no longer does.
    let other_message = other_message.replace("no new claims to deallocate, ", "");
    ensure!(other_message == message, "{message:?}\n{other_message:?}");
    eventually(SOON, || async {
        ensure!(stage.events("FailedScheduling").await?.contains_key("own"), "no event yet");
        Ok(())
    })
    .await?;
    stage.events_are_reported_as_by_kube_scheduler("FailedScheduling").await?;
    let label = Patch::Merge(json!({ "metadata": { "labels": { "gpu": "yes" } } }));
    stage.nodes.patch(&cluster::node_name(0), &PatchParams::default(), &label).await?;
    // The node change itself triggers a retry of the pod, far sooner than the periodic retry of all pods.
    stage.bound(2, SOON).await?;
    let own = stage.pods.get("own").await?;
    ensure!(node_of(&own) == Some(cluster::node_name(0).as_str()), "{own:?}");
    let scheduled = own.status.and_then(|status| status.conditions).unwrap_or_default();
    ensure!(scheduled.iter().any(|it| it.type_ == "PodScheduled" && it.status == "True"), "{scheduled:?}");
    stage.events_are_reported_as_by_kube_scheduler("Scheduled").await
}

#[tokio::test]
async fn number_12_pods_of_a_group_are_held_back_and_pods_with_one_inline_disk_are_kept_apart() -> Result<()> {
    let stage = Stage::start().await?;
    let _bridger = stage.bridger().await?;
    let pod = |name: &str, labels: Value, volumes: Value| {
        json!({ "metadata": { "name": name, "labels": labels }, "spec": { "schedulerName": "bridger",
            "containers": [{ "name": "main", "image": "none" }], "volumes": volumes } })
    };
    let disk = || json!([{ "name": "disk", "gcePersistentDisk": { "pdName": "d" } }]);
    stage
        .create([
            pod("new-group", json!({ "scheduling.x-k8s.io/pod-group": "gang" }), json!([])),
            pod("old-group", json!({ "pod-group.scheduling.sigs.k8s.io": "gang" }), json!([])),
            pod("disk", json!({}), disk()),
            pod("same-disk", json!({}), disk()),
            pod("plain", json!({}), json!([])),
        ])
        .await?;
    for name in ["new-group", "old-group"] {
        let (_, message) = stage.unschedulable(name).await?;
        ensure!(message.contains("gang"), "{name}: {message}");
    }
    stage.bound(3, SOON).await?;
    let bound: BTreeMap<String, String> = stage
        .pods
        .list(&ListParams::default())
        .await?
        .items
        .iter()
        .filter_map(|it| Some((it.metadata.name.clone()?, node_of(it)?.to_owned())))
        .collect();
    ensure!(bound.keys().eq(["disk", "plain", "same-disk"]), "{bound:?}");
    ensure!(bound["disk"] != bound["same-disk"], "{bound:?}");
    Ok(())
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn every_pod_is_bound_once_when_bridger_is_killed_meanwhile() -> Result<()> {
    let stage = Stage::start().await?;
    let kills = count(2, 10);
    let (own, others) = cluster::pods(count(190, 1250));
    let (own_names, all) = (names(&own), interleaved(&own, &others));
    let batch = all.len().div_ceil(kills + 1);
    let following = Following::start(&stage.pods).await?;
    let _other = Scheduler::start(&stage.control_plane, None).await?;
    let mut bridger = stage.bridger().await?;
    let mut created = 0;
    for (number, pods) in all.chunks(batch).enumerate() {
        let own_of_batch = names(pods).intersection(&own_names).count();
        // Bridger is killed while pods of this batch are still being created.
        let half_bound = created + own_of_batch / 2;
        let kill = async {
            if number < kills {
                stage.bound_among("spec.schedulerName=bridger", half_bound, ALL_WITHIN).await?;
                bridger.kill_hard();
                bridger = stage.bridger().await?;
            }
            anyhow::Ok(())
        };
        tokio::try_join!(stage.create(pods.iter().cloned()), kill)?;
        created += own_of_batch;
    }
    stage.bound(all.len(), ALL_WITHIN).await?;
    stage.check_policy().await?;
    following.each_placed_once(&stage.pods, all.len()).await?;
    let events = stage.events("Scheduled").await?;
    let twice: Vec<_> = events.iter().filter(|(name, count)| own_names.contains(*name) && **count > 1).collect();
    ensure!(twice.is_empty(), "more than one event: {twice:?}");
    println!(
        "{} pods and {} of kube-scheduler's, {kills} kills; {} Scheduled events",
        own.len(),
        others.len(),
        events.len()
    );
    Ok(())
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn every_pod_is_placed_by_its_policy_when_the_api_server_is_killed_meanwhile() -> Result<()> {
    let mut stage = Stage::start().await?;
    let (own, _) = cluster::pods(1250);
    stage.create(own.iter().cloned()).await?;
    let version = stage.pods.list(&ListParams::default().limit(1)).await?.metadata.resource_version.unwrap_or_default();
    let mut watch = stage.pods.watch(&WatchParams::default(), &version).await?.boxed();
    let a_few_bound = async {
        let mut bound = 0;
        while bound < 20 {
            let event = tokio::time::timeout(SOON, watch.next()).await?.context("the watch ended")??;
            bound += usize::from(matches!(event, WatchEvent::Modified(pod) if node_of(&pod).is_some()));
        }
        anyhow::Ok(())
    };
    let (bridger, ()) = tokio::try_join!(stage.bridger(), a_few_bound)?;
    drop(watch);
    stage.control_plane.kill_apiserver();
    stage.control_plane.restart_apiserver().await?;
    stage.bound(own.len(), ALL_WITHIN).await.with_context(|| bridger.output())?;
    let unanswered = bridger.output().matches("could not bind a pod").count();
    println!("{} pods; {unanswered} bindings failed because the API server was killed", own.len());
    ensure!(unanswered > 0, "no binding was in flight when the API server was killed:\n{}", bridger.output());
    stage.check_policy().await.with_context(|| bridger.output())
}

/// Tests the check itself: pods that are all on one node violate every policy, and each violation is reported.
#[test]
fn every_kind_of_violation_is_detected() {
    let nodes = cluster::nodes();
    let (mut own, others) = cluster::pods(1250);
    for (number, pod) in own.iter_mut().enumerate() {
        // One pod of a group with affinity is on another node; all others share a slow node of kube-scheduler.
        pod["spec"]["nodeName"] = cluster::node_name(if number == 3 { 0 } else { 39 }).into();
    }
    let pods: Vec<Value> = own.into_iter().chain(others).collect();
    let violations = policy::violations(&nodes, &pods);
    for expected in [
        "is on no node",
        "cpu of",
        "memory of",
        " pods",
        "port ",
        "not disk=",
        "on tainted",
        "share",
        "differ in",
        "is spread",
    ] {
        assert!(violations.iter().any(|line| line.contains(expected)), "{expected:?} is not detected");
    }
}
