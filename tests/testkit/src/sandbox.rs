//! Runs `bridger sandbox` as a peer: the same binary that users run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use peers::Peers;

use crate::command::{Govc, Kubectl};
use crate::process::Process;
use crate::workdir::Workdir;

/// A running sandbox. It stops when this value is dropped.
pub struct Sandbox {
    process: Process,
    kubeconfig: PathBuf,
    govc_url: String,
    peers: Peers,
    _workdir: Workdir,
}

const READY_WITHIN: Duration = Duration::from_secs(60);

impl Sandbox {
    /// Starts it on free ports with these flags.
    pub async fn start(flags: &[&str]) -> Result<Sandbox> {
        let peers = Peers::locate()?;
        let workdir = Workdir::create("sandbox")?;
        let mut arguments: Vec<String> =
            ["sandbox", "--kubernetes-port", "0", "--vcenter-port", "0"].map(str::to_owned).to_vec();
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        let mut process = Process::start(workdir.path(), "bridger", &binary()?, &arguments)?;
        let exports = process.prints(READY_WITHIN, |log| exported(log, "KUBECONFIG").zip(exported(log, "GOVC_URL")));
        let (kubeconfig, govc_url) = exports.await.context("bridger sandbox did not start")?;
        Ok(Sandbox { process, kubeconfig: kubeconfig.into(), govc_url, peers, _workdir: workdir })
    }

    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    #[must_use]
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    #[must_use]
    pub fn govc_url(&self) -> &str {
        &self.govc_url
    }

    #[must_use]
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.peers, &self.kubeconfig)
    }

    #[must_use]
    pub fn govc(&self) -> Govc {
        Govc::new(&self.peers, &self.govc_url)
    }

    pub async fn client(&self) -> Result<kube::Client> {
        crate::control_plane::client_from(&self.kubeconfig).await
    }

    /// Calls `/simulator/<path>` on the Kubernetes port: faults, host failures, and other functions without a real API.
    pub async fn control(&self, method: &str, path: &str, body: serde_json::Value) -> Result<String> {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("/simulator/{path}"))
            .header("content-type", "application/json");
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        Ok(self.client().await?.request_text(request.body(body)?).await?)
    }

    /// Its complete output.
    #[must_use]
    pub fn output(&self) -> String {
        self.process.log()
    }

    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }
}

/// The value of an `export` line.
fn exported(log: &str, name: &str) -> Option<String> {
    let (_, rest) = log.split_once(&format!("export {name}="))?;
    // Ignores a line that is still being written.
    rest.split_once('\n').map(|(line, _)| line.split(' ').next().unwrap_or(line).to_owned())
}

/// The binary under test: `$BRIDGER_BIN`, else the one that cargo built for this test's profile.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("BRIDGER_BIN") {
        return Ok(path.into());
    }
    // For target/debug/deps/<test> this is target/debug/bridger.
    let test = std::env::current_exe().context("finding this test's own path")?;
    let built = test.parent().and_then(Path::parent).map(|folder| folder.join("bridger"));
    built.filter(|path| path.is_file()).context("bridger is not built: run `cargo build --package bridger` first")
}
