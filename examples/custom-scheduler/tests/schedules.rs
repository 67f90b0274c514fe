//! The example schedules on a real kube-apiserver: its plugins filter, wait, work before the binding and bind; a process
//! that is killed in the middle leaves nothing behind.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::workdir::Workdir;
use testkit::{Bridger, ControlPlane, Kubectl, eventually};

const SOON: Duration = Duration::from_secs(30);

struct Stage {
    control_plane: ControlPlane,
    kubectl: Kubectl,
    workdir: Workdir,
}

impl Stage {
    async fn start() -> Result<Stage> {
        let control_plane = ControlPlane::start().await?;
        let kubectl = control_plane.kubectl();
        for node in ["n1", "n2"] {
            let resources = json!({ "cpu": "8", "memory": "16Gi", "pods": "110" });
            let manifest = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": node, "labels": { "kubernetes.io/hostname": node } },
                "status": { "capacity": resources, "allocatable": resources },
            });
            kubectl.run_with(&["create", "-f", "-"], &manifest.to_string()).await?;
            control_plane.make_schedulable(node).await?;
        }
        Ok(Stage { kubectl, control_plane, workdir: Workdir::create("custom-scheduler")? })
    }

    fn scheduler(&self, arguments: &Value) -> Result<Bridger> {
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": { "leaderElect": false },
            "profiles": [{
                "schedulerName": "custom",
                "plugins": {
                    "multiPoint": { "enabled": [{ "name": "NamespaceSpread" }, { "name": "Licences" }] },
                    "queueSort": { "enabled": [{ "name": "Licences" }], "disabled": [{ "name": "PrioritySort" }] },
                    // Before DefaultBinder, which takes every pod.
                    "bind": { "enabled": [{ "name": "Licences" }, { "name": "DefaultBinder" }] },
                },
                "pluginConfig": arguments,
            }],
        });
        let config = self.workdir.write("config.yaml", config.to_string())?;
        let kubeconfig = self.control_plane.kubeconfig().display().to_string();
        let program = Path::new(env!("CARGO_BIN_EXE_custom-scheduler"));
        let config = config.display().to_string();
        let arguments = ["--config", &config, "--port", "0"];
        Bridger::start_build(Some(program), &arguments, &[("KUBECONFIG", kubeconfig), ("NO_COLOR", "1".to_owned())])
    }

    async fn create(&self, name: &str, licences: Option<&str>) -> Result<()> {
        let labels = licences.map_or_else(|| json!({}), |licences| json!({ "example.com/licences": licences }));
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "labels": labels },
            "spec": { "schedulerName": "custom", "containers": [{ "name": "main", "image": "none" }] },
        });
        self.kubectl.run_with(&["create", "-f", "-"], &pod.to_string()).await?;
        Ok(())
    }

    async fn pod(&self, name: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl.run(&["get", "pod", name, "-o", "json"]).await?)?)
    }

    async fn is_bound(&self, name: &str) -> Result<()> {
        eventually(SOON, || async {
            let pod = self.pod(name).await?;
            ensure!(pod["spec"]["nodeName"].is_string(), "{name} is pending: {}", pod["status"]);
            Ok(())
        })
        .await
    }

    async fn waits_because(&self, name: &str, reason: &str) -> Result<()> {
        eventually(SOON, || async {
            let pod = self.pod(name).await?;
            ensure!(pod["spec"]["nodeName"].is_null(), "{name} is bound");
            ensure!(pod["status"].to_string().contains(reason), "{name}: {}", pod["status"]);
            Ok(())
        })
        .await
    }
}

fn arguments(approval_within_ms: u64) -> Value {
    json!([
        { "name": "NamespaceSpread", "args": { "podsPerNodeMax": 2 } },
        { "name": "Licences", "args": { "licences": 4, "approvalWithinMs": approval_within_ms } },
    ])
}

#[tokio::test]
async fn both_plugins_decide_and_work() -> Result<()> {
    let stage = Stage::start().await?;
    let mut scheduler = stage.scheduler(&arguments(0))?;
    scheduler.prints("Listening", SOON).await?;
    for name in ["a", "b"] {
        stage.create(name, Some("2")).await?;
        stage.is_bound(name).await?;
        let pod = stage.pod(name).await?;
        ensure!(pod["metadata"]["annotations"]["example.com/licences-checked-out"] == "2", "PreBind marks it: {pod}");
    }
    // Together, because Licences scores nodes with licensed pods higher.
    let nodes = [stage.pod("a").await?, stage.pod("b").await?].map(|pod| pod["spec"]["nodeName"].clone());
    ensure!(nodes[0] == nodes[1], "{nodes:?}");
    stage.create("c", Some("2")).await?;
    stage.waits_because("c", "2 licences are needed, 0 are free").await?;
    stage.create("odd", Some("many")).await?;
    for name in ["d", "e"] {
        stage.create(name, None).await?;
        stage.is_bound(name).await?;
    }
    // Two pods of the namespace on each node: the third filter is NamespaceSpread's.
    stage.create("f", None).await?;
    stage.waits_because("f", "node(s) already run 2 pods of the namespace").await?;
    stage.kubectl.run(&["delete", "pod", "f", "--force", "--grace-period=0"]).await?;
    // A deleted pod gives back its licences and its place.
    stage.kubectl.run(&["delete", "pod", "a", "--force", "--grace-period=0"]).await?;
    stage.is_bound("c").await?;
    ensure!(stage.pod("odd").await?["spec"]["nodeName"].is_null(), "PreEnqueue gates a pod with an invalid label");
    Ok(())
}

#[tokio::test]
async fn a_kill_while_pods_wait_or_work_leaves_nothing_behind() -> Result<()> {
    let stage = Stage::start().await?;
    // Nobody approves: the pods wait at Permit.
    let mut scheduler = stage.scheduler(&arguments(600_000))?;
    scheduler.prints("Listening", SOON).await?;
    for name in ["a", "b"] {
        stage.create(name, Some("2")).await?;
    }
    stage.create("c", Some("1")).await?;
    stage.waits_because("c", "2 wait for approval").await?;
    scheduler.kill_hard();
    // The next process decides each pod again, and counts no licence twice.
    let mut scheduler = stage.scheduler(&arguments(0))?;
    scheduler.prints("Listening", SOON).await?;
    let placed = async |names: &[&str]| {
        let mut placed = 0;
        for name in names {
            placed += usize::from(stage.pod(name).await?["spec"]["nodeName"].is_string());
        }
        anyhow::Ok(placed)
    };
    // Any two or three of them fit into four licences.
    eventually(SOON, || async {
        let placed = placed(&["a", "b", "c"]).await?;
        ensure!(placed >= 2, "{placed} pods are bound");
        Ok(())
    })
    .await?;
    for name in ["a", "b", "c"] {
        let pod = stage.pod(name).await?;
        if pod["spec"]["nodeName"].is_string() {
            let nominated = &pod["status"]["nominatedNodeName"];
            ensure!(nominated.is_null() || nominated == "", "the nomination ends with the binding: {nominated}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn arguments_are_validated() -> Result<()> {
    let stage = Stage::start().await?;
    let wrong = json!([
        { "name": "NamespaceSpread", "args": { "podsPerNodeMax": 0 } },
        { "name": "Licences", "args": { "licences": 4 } },
    ]);
    let mut scheduler = stage.scheduler(&wrong)?;
    scheduler
        .prints("profiles[0].pluginConfig[0].args: podsPerNodeMax must be at least 1", SOON)
        .await
        .context("the error names the plugin and the problem")?;
    Ok(())
}
