//! Runs a real kube-controller-manager on a [`ControlPlane`].

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpStream;

use crate::control_plane::ControlPlane;
use crate::ports;
use crate::process::Process;
use crate::workdir::Workdir;

const PROGRAM: &str = "kube-controller-manager";
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A running kube-controller-manager. It stops when this value is dropped.
pub struct ControllerManager {
    process: Process,
    _workdir: Workdir,
}

impl ControllerManager {
    /// Starts it with additional flags, as an administrator: no test is about the permissions of its controllers.
    pub async fn start(control_plane: &ControlPlane, extra: &[&str]) -> Result<ControllerManager> {
        let workdir = Workdir::create(PROGRAM)?;
        let [port] = ports::free()?;
        let mut arguments = vec![
            format!("--kubeconfig={}", control_plane.kubeconfig().display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials=false".to_owned(),
            format!("--service-account-private-key-file={}", control_plane.signing_key().display()),
            format!("--root-ca-file={}", control_plane.authority_file().display()),
        ];
        arguments.extend(extra.iter().map(|&flag| flag.to_owned()));
        let program = control_plane.peers().program(PROGRAM);
        let mut process = Process::start(workdir.path(), PROGRAM, &program, &arguments)?;
        let listening = process.until(READY_WITHIN, async |_| TcpStream::connect(("127.0.0.1", port)).await.ok());
        listening.await.with_context(|| format!("{PROGRAM} did not start"))?;
        Ok(ControllerManager { process, _workdir: workdir })
    }

    #[must_use]
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}
