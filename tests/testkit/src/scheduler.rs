//! Runs a real kube-scheduler on a [`ControlPlane`] or on a [`Sandbox`], or a program with its command line.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use peers::Peers;
use tokio::net::TcpStream;

use crate::control_plane::{ControlPlane, client_of, http_get};
use crate::ports;
use crate::process::Process;
use crate::sandbox::Sandbox;
use crate::workdir::Workdir;

const PROGRAM: &str = "kube-scheduler";
const READY_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A running kube-scheduler. It stops when this value is dropped.
pub struct Scheduler {
    process: Process,
    port: u16,
    _workdir: Workdir,
}

impl Scheduler {
    /// Starts it with its own identity (`system:kube-scheduler`), so that RBAC applies, and with a
    /// KubeSchedulerConfiguration if given: JSON without `clientConnection.kubeconfig`, which is filled in.
    pub async fn start(control_plane: &ControlPlane, config: Option<serde_json::Value>) -> Result<Scheduler> {
        let kubeconfig = control_plane.kubeconfig_for("system:kube-scheduler", &[])?;
        Scheduler::start_as(control_plane, &kubeconfig, PROGRAM, config).await
    }

    /// Starts another peer instead, which is kube-scheduler with further plugins.
    pub async fn start_program(
        control_plane: &ControlPlane,
        program: &str,
        config: serde_json::Value,
    ) -> Result<Scheduler> {
        let kubeconfig = control_plane.kubeconfig_for("system:kube-scheduler", &[])?;
        Scheduler::start_as(control_plane, &kubeconfig, program, Some(config)).await
    }

    /// Starts it with this kubeconfig, for example that of a proxy.
    pub async fn start_through(
        control_plane: &ControlPlane,
        kubeconfig: &Path,
        config: serde_json::Value,
    ) -> Result<Scheduler> {
        Scheduler::start_as(control_plane, kubeconfig, PROGRAM, Some(config)).await
    }

    /// Starts it on a sandbox, which has to run without its own placer.
    pub async fn start_on(sandbox: &Sandbox) -> Result<Scheduler> {
        let kubeconfig = sandbox.kubeconfig();
        Scheduler::start_with(sandbox.peers(), kubeconfig, kubeconfig, PROGRAM, None).await
    }

    async fn start_as(
        control_plane: &ControlPlane,
        kubeconfig: &Path,
        program: &str,
        config: Option<serde_json::Value>,
    ) -> Result<Scheduler> {
        let reviews = control_plane.kubeconfig();
        Scheduler::start_with(control_plane.peers(), reviews, kubeconfig, program, config).await
    }

    /// `reviews` is the kubeconfig for questions about the program's own clients.
    async fn start_with(
        peers: &Peers,
        reviews: &Path,
        kubeconfig: &Path,
        program: &str,
        config: Option<serde_json::Value>,
    ) -> Result<Scheduler> {
        let workdir = Workdir::create(program)?;
        let [port] = ports::free()?;
        let mut arguments = vec![
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            "--leader-elect=false".to_owned(),
            format!("--authentication-kubeconfig={}", reviews.display()),
            format!("--authorization-kubeconfig={}", reviews.display()),
            // The default paths, and two more: no test is about who may read metrics.
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics,/metrics/resources".to_owned(),
        ];
        match config {
            None => arguments.push(format!("--kubeconfig={}", kubeconfig.display())),
            Some(mut config) => {
                config["clientConnection"]["kubeconfig"] = serde_json::json!(kubeconfig);
                config["leaderElection"]["leaderElect"] = serde_json::json!(false);
                let file = workdir.write("config.json", config.to_string())?;
                arguments.push(format!("--config={}", file.display()));
            }
        }
        let path = peers.program(program);
        let mut process = Process::start(workdir.path(), program, &path, &arguments)?;
        let listening = process.until(READY_WITHIN, async |_| TcpStream::connect(("127.0.0.1", port)).await.ok());
        listening.await.with_context(|| format!("{program} did not start"))?;
        Ok(Scheduler { process, port, _workdir: workdir })
    }

    /// The text of its metrics.
    pub async fn metrics(&self) -> Result<String> {
        self.get("/metrics").await
    }

    /// The text of a page.
    pub async fn get(&self, path: &str) -> Result<String> {
        let mut config = kube::Config::new(format!("https://127.0.0.1:{}", self.port).parse()?);
        // Its certificate is one that it made when it started.
        config.accept_invalid_certs = true;
        let client = client_of(config)?;
        let answer = tokio::time::timeout(ANSWER_WITHIN, client.request_text(http_get(path)?)).await;
        answer.context("kube-scheduler did not answer")?.with_context(|| format!("{path} of kube-scheduler"))
    }

    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    #[must_use]
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}
