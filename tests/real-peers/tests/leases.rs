//! Two instances at once, as in any rollout, on a real kube-apiserver: one leads, the other follows and takes over.

#[path = "leases/failovers.rs"]
mod failovers;
#[path = "leases/handing_over.rs"]
mod handing_over;
#[path = "leases/kill_points.rs"]
mod kill_points;
#[path = "leases/late_writes.rs"]
mod late_writes;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::{Bridger, ControlPlane, eventually};

const SOON: Duration = Duration::from_secs(30);
const HOSTS: usize = 3;
const NODES_PER_HOST: usize = 2;
const PAIRS: usize = 15;
const HOST_LABEL: &str = "alpha.cna.vmware.com/host";
const LEASE: &str = "bridger-scheduler-bridger";
/// How long a killed leader is waited for: an attempt that sees its last renewal, the lease (3 s) from then on, an attempt that
/// acquires it (0.5 s each), and a second for the rest.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(5);
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(3);

const SHORT: [&str; 3] =
    ["--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"];

struct Stage {
    control_plane: ControlPlane,
    pods: Api<Pod>,
    leases: Api<Lease>,
}

impl Stage {
    async fn start() -> Result<Stage> {
        Stage::start_with(&[]).await
    }

    /// With more flags of the API server.
    async fn start_with(flags: &[&str]) -> Result<Stage> {
        let flags = [&["--disable-admission-plugins=TaintNodesByCondition"], flags].concat();
        let control_plane = ControlPlane::start_with(&flags).await?;
        let client = control_plane.client().await?;
        let nodes: Api<Node> = Api::all(client.clone());
        for number in 0..HOSTS * NODES_PER_HOST {
            nodes.create(&PostParams::default(), &serde_json::from_value(node(number))?).await?;
        }
        let leases = Api::namespaced(client.clone(), "kube-system");
        Ok(Stage { control_plane, pods: Api::default_namespaced(client), leases })
    }

    /// Starts an instance and waits until its sources are in sync.
    async fn instance(&self, flags: &[&str]) -> Result<Bridger> {
        self.instance_of(self.control_plane.kubeconfig(), flags).await
    }

    async fn instance_of(&self, kubeconfig: &Path, flags: &[&str]) -> Result<Bridger> {
        let kubeconfig = kubeconfig.display().to_string();
        let arguments = [&["scheduler", "--port", "0"], flags].concat();
        let mut bridger = Bridger::start(&arguments, &[("KUBECONFIG", kubeconfig), ("NO_COLOR", "1".to_owned())])?;
        bridger.prints("Listening", SOON).await?;
        eventually(SOON, || async {
            let ready = bridger.get("/readyz").await?;
            ensure!(ready.starts_with("HTTP/1.1 200"), "{ready}");
            Ok(())
        })
        .await?;
        Ok(bridger)
    }

    async fn holder(&self) -> Result<String> {
        let lease = self.leases.get(LEASE).await?;
        lease.spec.and_then(|spec| spec.holder_identity).context("a holder")
    }

    async fn create(&self, name: &str, app: &str) -> Result<()> {
        self.pods.create(&PostParams::default(), &serde_json::from_value(pod(name, app))?).await?;
        Ok(())
    }

    /// The node of each pod, once all are bound.
    async fn bound(&self) -> Result<BTreeMap<String, String>> {
        eventually(SOON, || async {
            let mut nodes = BTreeMap::new();
            for pod in self.pods.list(&ListParams::default()).await? {
                let name = pod.metadata.name.context("a name")?;
                let node = pod.spec.and_then(|spec| spec.node_name).with_context(|| format!("{name} is pending"))?;
                nodes.insert(name, node);
            }
            Ok(nodes)
        })
        .await
    }

    async fn is_bound(&self, name: &str) -> Result<()> {
        eventually(SOON, || async {
            let node = self.pods.get(name).await?.spec.and_then(|spec| spec.node_name);
            ensure!(node.is_some(), "{name} is pending");
            Ok(())
        })
        .await
    }
}

fn node(number: usize) -> Value {
    let name = format!("n{number}");
    let capacity = json!({ "cpu": "64", "memory": "64Gi", "pods": "110" });
    let ready = json!([{ "type": "Ready", "status": "True", "reason": "Test", "message": "",
        "lastHeartbeatTime": null, "lastTransitionTime": null }]);
    let labels = json!({ "kubernetes.io/hostname": name, HOST_LABEL: format!("esx-{}", host_of(&name)) });
    json!({ "metadata": { "name": name, "labels": labels },
        "status": { "capacity": capacity, "allocatable": capacity, "conditions": ready } })
}

fn host_of(node: &str) -> usize {
    node[1..].parse::<usize>().map_or(usize::MAX, |number| number / NODES_PER_HOST)
}

fn pod(name: &str, app: &str) -> Value {
    let term = json!({ "topologyKey": HOST_LABEL, "labelSelector": { "matchLabels": { "app": app } } });
    json!({ "metadata": { "name": name, "labels": { "app": app } }, "spec": {
        "schedulerName": "bridger",
        "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } },
        "containers": [{ "name": "main", "image": "none" }] } })
}

async fn leads(bridger: &Bridger) -> Result<bool> {
    holds(bridger, LEASE).await
}

async fn holds(bridger: &Bridger, lease: &str) -> Result<bool> {
    let metrics = bridger.get("/metrics").await?;
    let line = |value: u8| format!("leader_election_master_status{{name=\"{lease}\"}} {value}\n");
    ensure!(metrics.contains(&line(0)) || metrics.contains(&line(1)), "{metrics}");
    Ok(metrics.contains(&line(1)))
}

/// How many pods it has bound.
async fn bound_by(bridger: &Bridger) -> Result<u64> {
    let metrics = bridger.get("/metrics").await?;
    let is_counted =
        |line: &&str| line.starts_with("scheduler_schedule_attempts_total{") && line.contains("\"scheduled\"");
    let line = metrics.lines().find(is_counted);
    Ok(line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0))
}

/// No pair shares a host.
fn check_pairs(nodes: &BTreeMap<String, String>) -> Result<()> {
    for number in 0..PAIRS {
        let host = |side: &str| nodes.get(&format!("{side}{number}")).map(|node| host_of(node));
        ensure!(host("a") != host("b"), "pair {number} shares a host: {nodes:?}");
    }
    Ok(())
}

#[tokio::test]
async fn number_6_of_two_instances_one_binds_and_pairs_created_at_once_share_no_host() -> Result<()> {
    let stage = Stage::start().await?;
    let (first, second) = (stage.instance(&[]).await?, stage.instance(&[]).await?);
    eventually(SOON, || async {
        ensure!(leads(&first).await? && !leads(&second).await?, "{}\n{}", first.output(), second.output());
        Ok(())
    })
    .await?;
    let names: Vec<(String, String)> = (0..PAIRS)
        .flat_map(|number| ["a", "b"].map(|side| (format!("{side}{number}"), format!("app{number}"))))
        .collect();
    try_join_all(names.iter().map(|(name, app)| stage.create(name, app))).await?;
    check_pairs(&stage.bound().await?)?;
    ensure!(bound_by(&first).await? == 2 * PAIRS as u64, "{}", first.get("/metrics").await?);
    ensure!(bound_by(&second).await? == 0, "{}", second.get("/metrics").await?);
    Ok(())
}

#[tokio::test]
async fn number_6_a_clean_stop_hands_over_at_once_and_a_kill_within_the_lease() -> Result<()> {
    let stage = Stage::start().await?;
    // The default durations, where they matter: a clean stop does not wait for the lease to expire.
    let mut first = stage.instance(&[]).await?;
    let second = stage.instance(&[]).await?;
    stage.create("before", "x").await?;
    stage.is_bound("before").await?;
    let holder = stage.holder().await?;
    first.stop();
    let stopped = Instant::now();
    stage.create("after-stop", "x").await?;
    stage.is_bound("after-stop").await?;
    let took = stopped.elapsed();
    ensure!(took < HANDED_OVER_WITHIN, "{took:?}\n{}", second.output());
    ensure!(stage.holder().await? != holder);
    drop(second);

    let mut third = stage.instance(&SHORT).await?;
    eventually(SOON, || async {
        ensure!(leads(&third).await?, "{}", third.output());
        Ok(())
    })
    .await?;
    let fourth = stage.instance(&SHORT).await?;
    third.kill_hard();
    let killed = Instant::now();
    stage.create("after-kill", "y").await?;
    stage.is_bound("after-kill").await?;
    let took = killed.elapsed();
    ensure!(took < TAKEN_OVER_WITHIN, "{took:?}\n{}", fourth.output());
    Ok(())
}

#[tokio::test]
async fn number_6_the_extender_is_ready_on_its_leader_alone() -> Result<()> {
    let stage = Stage::start().await?;
    let start = async || {
        let kubeconfig = stage.control_plane.kubeconfig().display().to_string();
        let mut bridger = Bridger::start(
            &["run", "--port", "0", "--extender-port", "0"],
            &[("KUBECONFIG", kubeconfig), ("NO_COLOR", "1".to_owned())],
        )?;
        bridger.prints("Listening", SOON).await?;
        anyhow::Ok(bridger)
    };
    let ready = async |bridger: &Bridger, expected: &str| {
        eventually(SOON, || async {
            let ready = bridger.get("/readyz").await?;
            ensure!(ready.contains(expected), "{ready}\n{}", bridger.output());
            Ok(())
        })
        .await
    };
    let mut first = start().await?;
    ready(&first, "200 OK").await?;
    let second = start().await?;
    ready(&second, " leads").await?;
    ready(&second, "503 ").await?;
    first.stop();
    ready(&second, "200 OK").await
}

#[tokio::test]
async fn an_instance_with_both_parts_leads_the_extender_only_while_it_leads_scheduling() -> Result<()> {
    const EXTENDER: &str = "bridger-extender";
    let stage = Stage::start().await?;
    let start = async || {
        let kubeconfig = stage.control_plane.kubeconfig().display().to_string();
        let parts = ["run", "--port", "0", "--extender-port", "0", "--scheduling", "on"];
        let environment = [("KUBECONFIG", kubeconfig), ("NO_COLOR", "1".to_owned())];
        let mut bridger = Bridger::start(&[&parts[..], &SHORT[..]].concat(), &environment)?;
        bridger.prints("Listening", SOON).await?;
        anyhow::Ok(bridger)
    };
    let leads_both = async |bridger: &Bridger| anyhow::Ok((leads(bridger).await?, holds(bridger, EXTENDER).await?));
    let first = start().await?;
    eventually(SOON, || async {
        ensure!(leads_both(&first).await? == (true, true), "{}", first.output());
        Ok(())
    })
    .await?;
    let second = start().await?;

    // Someone else takes the lease for scheduling, and does not renew it.
    let taken = json!({ "spec": { "holderIdentity": "someone-else", "leaseDurationSeconds": 15 } });
    stage.leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(taken)).await?;
    eventually(Duration::from_secs(10), || async {
        ensure!(leads_both(&first).await? == (false, false), "{}", first.output());
        ensure!(leads_both(&second).await? == (false, false), "{}", second.output());
        let ready = first.get("/readyz").await?;
        ensure!(ready.starts_with("HTTP/1.1 503") && ready.contains("someone-else leads"), "{ready}");
        Ok(())
    })
    .await?;
    eventually(2 * SOON, || async {
        let both = [leads_both(&first).await?, leads_both(&second).await?];
        ensure!(both == [(true, true), (false, false)] || both == [(false, false), (true, true)], "{both:?}");
        Ok(())
    })
    .await
}
