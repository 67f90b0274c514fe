//! A cluster of real programs in which kwok does what kubelets do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use peers::{Peers, Scope};
use serde_json::{Value, json};
use testkit::process::Process;
use testkit::workdir::Workdir;
use testkit::{Bridger, ControlPlane, ControllerManager, Kubectl, Scheduler, eventually, ports};

const SOON: Duration = Duration::from_secs(60);
/// With more, the test of asynchronous preemption takes longer than the grace period that it sets.
const NODES: usize = 4;
const ZONES: usize = 2;
/// The tests of the Workload and PodGroup API are about an alpha API.
const FEATURES: &str = "--feature-gates=GenericWorkload=true";
const APISERVER: &[&str] =
    &[FEATURES, "--runtime-config=scheduling.k8s.io/v1alpha2=true", "--enable-admission-plugins=ServiceAccount"];
const STAGES: &str = include_str!("../manifests/stages.yaml");
const SYSTEM_PODS: &str = include_str!("../manifests/system-pods.yaml");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerKind {
    Bridger,
    KubeScheduler,
}

impl SchedulerKind {
    #[must_use]
    pub fn named(name: &str) -> Option<SchedulerKind> {
        [SchedulerKind::Bridger, SchedulerKind::KubeScheduler].into_iter().find(|kind| kind.name() == name)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SchedulerKind::Bridger => "bridger",
            SchedulerKind::KubeScheduler => "kube-scheduler",
        }
    }
}

/// A running cluster. Its processes stop when this value is dropped.
pub struct Cluster {
    // Fields drop in this order.
    _scheduler: Running,
    _kwok: Process,
    _controllers: ControllerManager,
    control_plane: ControlPlane,
    peers: Peers,
    workdir: Workdir,
}

enum Running {
    Bridger { _process: Bridger },
    KubeScheduler { _process: Scheduler },
}

impl Cluster {
    /// With nodes that are ready, and the pods on each that the suite waits for.
    pub async fn start(scheduler: SchedulerKind) -> Result<Cluster> {
        let peers = Peers::locate_for(Scope::E2e)?;
        let workdir = Workdir::create("e2e")?;
        let control_plane = ControlPlane::start_with(APISERVER).await?;
        let controllers = ControllerManager::start(&control_plane, &[FEATURES]).await?;
        let kwok = kwok(&peers, &workdir, &control_plane)?;
        let scheduler = Running::start(scheduler, &control_plane).await?;
        let cluster =
            Cluster { _scheduler: scheduler, _kwok: kwok, _controllers: controllers, control_plane, peers, workdir };
        cluster.create_nodes().await.context("creating nodes")?;
        Ok(cluster)
    }

    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        self.control_plane.kubeconfig()
    }

    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.peers.program(name)
    }

    #[must_use]
    pub fn workdir(&self) -> &Workdir {
        &self.workdir
    }

    fn kubectl(&self) -> Kubectl {
        self.control_plane.kubectl()
    }

    async fn create_nodes(&self) -> Result<()> {
        let nodes: Vec<Value> = (1..=NODES).map(node).collect();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": nodes }).to_string();
        self.kubectl().run_with(&["create", "-f", "-"], &list).await?;
        self.kubectl().run(&["wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s"]).await?;
        // The node lifecycle controller removes the taint of a new node when it is ready.
        eventually(SOON, || async {
            let taints = self.kubectl().run(&["get", "nodes", "-o", "jsonpath={.items[*].spec.taints}"]).await?;
            ensure!(taints.is_empty(), "{taints}");
            Ok(())
        })
        .await?;
        self.kubectl().run_with(&["create", "-f", "-"], SYSTEM_PODS).await?;
        self.kubectl().run(&["rollout", "status", "daemonset", "-n", "kube-system", "--timeout=60s"]).await?;
        Ok(())
    }
}

impl Running {
    async fn start(kind: SchedulerKind, control_plane: &ControlPlane) -> Result<Running> {
        if kind == SchedulerKind::KubeScheduler {
            return Ok(Running::KubeScheduler { _process: Scheduler::start(control_plane, None).await? });
        }
        // With kube-scheduler's own roles.
        let kubeconfig = control_plane.kubeconfig_for("system:kube-scheduler", &[])?;
        let environment = [("KUBECONFIG", kubeconfig.display().to_string()), ("NO_COLOR", "1".to_owned())];
        let arguments = [
            "scheduler",
            "--scheduler-name",
            "default-scheduler",
            "--lift",
            "none",
            "--leader-elect=false",
            "--port",
            "0",
        ];
        let mut bridger = Bridger::start(&arguments, &environment)?;
        bridger.prints("Listening", SOON).await?;
        Ok(Running::Bridger { _process: bridger })
    }
}

fn kwok(peers: &Peers, workdir: &Workdir, control_plane: &ControlPlane) -> Result<Process> {
    let stages = workdir.write("stages.yaml", STAGES)?;
    let [port] = ports::free()?;
    let arguments = [
        format!("--kubeconfig={}", control_plane.kubeconfig().display()),
        format!("--config={}", stages.display()),
        format!("--server-address=127.0.0.1:{port}"),
        "--manage-all-nodes".to_owned(),
        "--node-lease-duration-seconds=40".to_owned(),
        "--cidr=10.1.0.0/16".to_owned(),
        "--node-ip=127.0.0.1".to_owned(),
    ];
    // It would read further settings from there.
    let home = [("HOME", workdir.path().display().to_string())];
    Ok(Process::start_with(workdir.path(), "kwok", &peers.program("kwok"), &arguments, &home)?)
}

fn node(number: usize) -> Value {
    let name = format!("node-{number}");
    let capacity = json!({ "cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi" });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/region": "region",
            "topology.kubernetes.io/zone": format!("zone-{}", number % ZONES),
        } },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": format!("127.0.1.{number}") }, { "type": "Hostname", "address": name }],
            "capacity": capacity,
            "allocatable": capacity,
            "nodeInfo": { "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.36.4", "bootID": "",
                "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "osImage": "",
                "systemUUID": "" },
        },
    })
}
