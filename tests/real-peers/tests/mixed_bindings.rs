//! Runs one `bridger run` that is both kube-scheduler's extender and a scheduler, on a real kube-apiserver. Both place
//! pods of one app at the same time, and two of them must never share a physical host. Bridger must also not place a
//! pod on a node with room for one pod while it binds another pod there for kube-scheduler.
//!
//! This works because pods that the extender assumes are reported to the scheduling controller at once, not when the
//! watch shows them: without that report (`Runtime::deliver` in crates/engine/src/runtime/run.rs skipping the
//! controller "scheduling") this test fails. The checks read only the API server's pods and nodes.

#[path = "mixed_bindings/gatekeeper.rs"]
mod gatekeeper;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use gatekeeper::Gatekeeper;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use testkit::{Bridger, ControlPlane, Scheduler, count, eventually};

const HOSTNAME: &str = "kubernetes.io/hostname";
const HOST: &str = "alpha.cna.vmware.com/host";
const HOSTS: usize = 10;
const NODES_PER_HOST: usize = 3;
/// Bridger places half of them, kube-scheduler the others.
const REPLICAS: usize = 6;
/// How many nodes with room for one pod are bound through the extender at once; as many remain free.
const NARROW: usize = 20;
/// Half of the pods are bound through the extender. Bridger schedules the others, one of them first.
const WAVE: usize = 2 * NARROW + 1;
const OWN: &str = "bridger";
const OTHER: &str = "default-scheduler";
/// The test itself places the pods of this scheduler, as kube-scheduler would.
const MANUAL: &str = "manual";
const AT_ONCE: usize = 16;
const SOON: Duration = Duration::from_secs(30);
const ALL_WITHIN: Duration = Duration::from_secs(900);
/// Bridger responds to a bind request within 8 s, so bindings must not be held for longer. A wave that needs more time,
/// because the machine is busy, is repeated.
const HELD_MAX: Duration = Duration::from_secs(7);
const REPETITIONS_MAX: usize = 5;
const BOUND: &str = "bridger_extender_bindings_total{outcome=\"bound\"}";
const CONFLICTS: &str = "bridger_extender_bindings_total{outcome=\"conflict\"}";

struct Stage {
    control_plane: ControlPlane,
    gatekeeper: Gatekeeper,
    bridger: Bridger,
    pods: Api<Pod>,
    nodes: Api<Node>,
}

/// A node with this many milli-CPUs.
fn node(name: &str, host: &str, cpu: usize, is_narrow: bool) -> Value {
    let capacity = json!({ "cpu": format!("{cpu}m"), "memory": "64Gi", "pods": "500" });
    let taints = if is_narrow { json!([{ "key": "narrow", "effect": "NoSchedule" }]) } else { json!([]) };
    json!({
        "metadata": { "name": name, "labels": { HOSTNAME: name, HOST: host } },
        "spec": { "taints": taints },
        "status": { "capacity": capacity, "allocatable": capacity, "conditions": [{ "type": "Ready", "status": "True",
            "reason": "Test", "message": "", "lastHeartbeatTime": null, "lastTransitionTime": null }] },
    })
}

fn pod(app: &str, number: usize, scheduler: &str) -> Value {
    json!({
        "metadata": { "name": format!("{app}-{number}"), "labels": { "app": app } },
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": "none", "resources": { "requests": { "cpu": "10m" } } }],
            "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
                "topologyKey": HOSTNAME, "labelSelector": { "matchLabels": { "app": app } } }] } },
        },
    })
}

/// A pod that fits only on a narrow node. Two of them do not fit on the same one.
fn wide_pod(name: &str, scheduler: &str, wave: usize) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "wave": wave.to_string() } },
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{ "key": "narrow", "operator": "Exists" }],
            "containers": [{ "name": "main", "image": "none", "resources": { "requests": { "cpu": "700m" } } }],
            "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": HOST, "operator": "In", "values": [format!("narrow-{wave}")] }] }] } } },
        },
    })
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

impl Stage {
    async fn start() -> Result<Stage> {
        let control_plane = ControlPlane::start_with(&["--disable-admission-plugins=TaintNodesByCondition"]).await?;
        let client = control_plane.client().await?;
        let nodes: Api<Node> = Api::all(client.clone());
        for number in 0..HOSTS * NODES_PER_HOST {
            let object = node(&format!("node-{number:02}"), &format!("esx-{}", number % HOSTS), 32_000, false);
            nodes.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        }
        // Bridger connects through a proxy of the test that can delay bindings.
        let gatekeeper = Gatekeeper::start(client.clone()).await?;
        let environment = [("KUBECONFIG", gatekeeper.kubeconfig().display().to_string()), ("NO_COLOR", "1".to_owned())];
        let arguments = ["run", "--port", "0", "--listen", "127.0.0.1", "--labels", "off", "--rules", "off"];
        let parts = ["--extender-port", "0", "--scheduling", "on"];
        let names = ["--extender-scheduler-name", OTHER, "--extender-scheduler-name", MANUAL];
        let mut bridger = Bridger::start(&[&arguments[..], &parts[..], &names[..]].concat(), &environment)?;
        bridger.prints("Listening", SOON).await?;
        let stage = Stage { control_plane, gatekeeper, bridger, pods: Api::default_namespaced(client), nodes };
        eventually(SOON, || async {
            let ready = stage.bridger.get("/readyz").await?;
            ensure!(ready.starts_with("HTTP/1.1 200"), "{ready}");
            Ok(())
        })
        .await?;
        Ok(stage)
    }

    async fn create(&self, pods: impl IntoIterator<Item = Value>) -> Result<Vec<Pod>> {
        stream::iter(pods)
            .map(|pod| async move {
                anyhow::Ok(self.pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?)
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }

    /// Waits until all pods with this label are bound.
    async fn bound(&self, label: &str, wanted: usize, within: Duration) -> Result<()> {
        eventually(within, || async {
            // Listing thousands of pods twenty times a second would load the machine.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let pods = self.pods.list(&ListParams::default().labels(label)).await?.items;
            let bound = pods.iter().filter(|pod| node_of(pod).is_some()).count();
            let waits = pods.iter().find(|pod| node_of(pod).is_none()).map(|pod| (&pod.metadata.name, &pod.status));
            ensure!(bound == wanted, "{bound} of {wanted} are bound; one is pending: {waits:?}");
            Ok(())
        })
        .await
    }

    /// Like kube-scheduler: filters these nodes, then binds. Returns the reported error, or an empty string.
    async fn filter_and_bind(&self, pod: &Pod, node: &str, among: &[String]) -> Result<String> {
        let answer = self.bridger.post("/filter", &json!({ "Pod": pod, "Nodes": null, "NodeNames": among })).await?;
        let feasible = answer["NodeNames"].as_array().is_some_and(|names| names.iter().any(|name| name == node));
        ensure!(feasible, "{node} is not feasible: {answer}");
        let binding = json!({ "PodName": pod.metadata.name, "PodNamespace": pod.metadata.namespace,
            "PodUID": pod.metadata.uid, "Node": node });
        let answer = self.bridger.post("/bind", &binding).await?;
        answer["Error"].as_str().map(str::to_owned).with_context(|| answer.to_string())
    }

    /// Half of the narrow nodes are bound through the extender. While the proxy delays those bindings, so that no watch
    /// can show them, Bridger schedules as many other pods: all of them belong on the other half. If that took too
    /// long, the pods of the wave are deleted again; returns what was late.
    async fn wave(&self, wave: usize) -> Result<Option<String>> {
        let mut names: Vec<String> = (0..WAVE).map(|number| format!("narrow-{wave}-{number:02}")).collect();
        for name in &names {
            let object = node(name, &format!("narrow-{wave}"), 1000, true);
            self.nodes.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        }
        let held = (0..NARROW).map(|number| wide_pod(&format!("held-{wave}-{number:02}"), MANUAL, wave));
        let held = self.create(held).await?;
        eventually(SOON, || async {
            let answer =
                self.bridger.post("/filter", &json!({ "Pod": held[0], "Nodes": null, "NodeNames": names })).await?;
            ensure!(answer["NodeNames"].as_array().is_some_and(|known| known.len() == names.len()), "{answer}");
            Ok(())
        })
        .await
        .context("waiting until Bridger knows all nodes")?;
        // Bridger caches node verdicts for pods of the same class, so the other pods depend on the changes that it
        // observes from now on.
        self.create([wide_pod(&format!("own-{wave}-first"), OWN, wave)]).await?;
        let label = format!("wave={wave}");
        let first = eventually(SOON, || async {
            let pods = self.pods.list(&ListParams::default().labels(&label)).await?.items;
            pods.iter().find_map(node_of).map(str::to_owned).context("the first pod is pending")
        })
        .await?;
        names.retain(|name| *name != first);

        self.gatekeeper.hold("/pods/held-");
        let began = std::time::Instant::now();
        let left = || HELD_MAX.saturating_sub(began.elapsed());
        let binding = try_join_all(
            held.iter().zip(&names).map(|(pod, node)| async { self.filter_and_bind(pod, node, &names).await }),
        );
        let placing = async {
            let placed = async {
                // A delayed binding has already been assumed.
                eventually(left(), || async {
                    ensure!(self.gatekeeper.held() == NARROW, "{} bindings are delayed", self.gatekeeper.held());
                    Ok(())
                })
                .await?;
                let own = (0..NARROW).map(|number| wide_pod(&format!("own-{wave}-{number:02}"), OWN, wave));
                self.create(own).await?;
                eventually(left(), || async {
                    let pods = self.pods.list(&ListParams::default().labels(&label)).await?.items;
                    let bound = pods.iter().filter(|pod| node_of(pod).is_some()).count();
                    ensure!(bound == NARROW + 1, "{bound} are bound");
                    Ok(())
                })
                .await
            };
            let placed = placed.await;
            self.gatekeeper.release();
            placed
        };
        let (errors, placed) = futures::join!(binding, placing);
        if let Err(late) = placed {
            let only = ListParams::default().labels(&label);
            self.pods.delete_collection(&DeleteParams::default().grace_period(0), &only).await?;
            eventually(SOON, || async {
                let left = self.pods.list(&only).await?.items.len();
                ensure!(left == 0, "{left} pods of the wave are left");
                Ok(())
            })
            .await?;
            return Ok(Some(format!("{late:#}; the binds reported {errors:?}")));
        }
        let errors = errors?;
        ensure!(errors.iter().all(String::is_empty), "{errors:?}");
        self.bound(&label, WAVE, SOON).await?;
        Ok(None)
    }

    /// The value of one of Bridger's metrics.
    async fn figure(&self, name: &str) -> Result<u64> {
        let metrics = self.bridger.get("/metrics").await?;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        Ok(value.with_context(|| format!("{name} is missing:\n{metrics}"))?.trim().parse()?)
    }

    /// A line for each violation.
    async fn violations(&self) -> Result<Vec<String>> {
        let nodes = self.nodes.list(&ListParams::default()).await?.items;
        let mut hosts = BTreeMap::new();
        let mut room = BTreeMap::new();
        for node in &nodes {
            let node = serde_json::to_value(node)?;
            let name = node["metadata"]["name"].as_str().context("a name")?.to_owned();
            hosts.insert(name.clone(), node["metadata"]["labels"][HOST].as_str().context("a host")?.to_owned());
            room.insert(name, milli(&node["status"]["allocatable"]["cpu"])?);
        }
        let mut taken: BTreeSet<(String, String)> = BTreeSet::new();
        let mut used: BTreeMap<String, u64> = BTreeMap::new();
        let mut violations = Vec::new();
        for pod in self.pods.list(&ListParams::default()).await?.items {
            let pod = serde_json::to_value(&pod)?;
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let Some(node) = pod["spec"]["nodeName"].as_str() else {
                violations.push(format!("{name} is not bound"));
                continue;
            };
            *used.entry(node.to_owned()).or_default() +=
                milli(&pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])?;
            if let Some(app) = pod["metadata"]["labels"]["app"].as_str()
                && !taken.insert((app.to_owned(), hosts[node].clone()))
            {
                violations.push(format!("{name} on {node} shares {} with another pod of its app", hosts[node]));
            }
        }
        for (node, used) in used.into_iter().filter(|(node, used)| room[node] < *used) {
            violations.push(format!("{node} has {}m, and {used}m are requested on it", room[&node]));
        }
        Ok(violations)
    }
}

/// Milli-CPUs, as the API server writes them.
fn milli(value: &Value) -> Result<u64> {
    let text = value.as_str().context("an amount")?;
    Ok(match text.strip_suffix('m') {
        Some(milli) => milli.parse()?,
        None => 1000 * text.parse::<u64>()?,
    })
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn extender_and_scheduling_work_in_one_process() -> Result<()> {
    let stage = Stage::start().await?;
    let waves = count(2, 20);
    let (mut wave, mut late) = (0, Vec::new());
    while wave < waves + late.len() {
        late.extend(stage.wave(wave).await?);
        ensure!(late.len() <= REPETITIONS_MAX, "{late:#?}");
        wave += 1;
    }
    let violations = stage.violations().await?;
    ensure!(violations.is_empty(), "{} violations: {violations:#?}", violations.len());

    let url = format!("http://{}/v1", stage.bridger.extender_address()?);
    let printed = testkit::bridger::run_to_end(&["manifests", "scheduler-config", "--url", &url], &[]).await?;
    ensure!(printed.code == Some(0), "{printed:?}");
    let mut config: Value = serde_saphyr::from_str(&printed.stdout)?;
    config["clientConnection"]["qps"] = json!(1000);
    config["clientConnection"]["burst"] = json!(2000);
    let _scheduler = Scheduler::start(&stage.control_plane, Some(config)).await?;
    let apps = (count(600, 10_000) - WAVE * waves).div_ceil(REPLICAS);
    let pods = (0..apps).flat_map(|app| {
        let app = format!("app-{app:04}");
        // Alternating, so that both place replicas of one app at the same time.
        (0..REPLICAS).map(move |number| pod(&app, number, if number.is_multiple_of(2) { OWN } else { OTHER }))
    });
    let by_waves = stage.figure(BOUND).await?;
    ensure!(by_waves >= (waves * NARROW) as u64, "{by_waves} pods were bound by the extender");
    let began = std::time::Instant::now();
    stage.create(pods).await?;
    let created = began.elapsed();
    stage.bound("app", apps * REPLICAS, ALL_WITHIN).await?;
    let bound = began.elapsed();

    let violations = stage.violations().await?;
    ensure!(violations.is_empty(), "{} violations: {violations:#?}", violations.len());
    // A binding is counted when Bridger has the response, and the server shows the pod a moment earlier.
    let wanted = (apps * REPLICAS / 2) as u64;
    eventually(SOON, || async {
        let by_extender = stage.figure(BOUND).await? - by_waves;
        ensure!(by_extender == wanted, "{by_extender} pods were bound by the extender, not {wanted}");
        Ok(())
    })
    .await?;
    let conflicts = stage.figure(CONFLICTS).await?;
    println!(
        "{} pods, half by each; {conflicts} binds were rejected; created in {created:.1?}, bound in {bound:.1?}",
        WAVE * waves + apps * REPLICAS
    );
    Ok(())
}
