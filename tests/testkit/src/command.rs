//! Runs kubectl and govc as a user would.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use peers::Peers;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// The time limit of a command.
const LIMIT: Duration = Duration::from_secs(90);

/// The result of a command.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command until it exits, with a time limit.
pub async fn finish(mut command: Command, input: Option<&str>) -> Result<Finished> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that reads no input may have exited by now. Its output and exit code still count.
        let _ = stdin.write_all(input.unwrap_or_default().as_bytes()).await;
    }
    let output = tokio::time::timeout(LIMIT, child.wait_with_output())
        .await
        .with_context(|| format!("{command:?} took longer than {} s", LIMIT.as_secs()))??;
    Ok(Finished {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

async fn succeed(command: Command, input: Option<&str>) -> Result<String> {
    let shown = format!("{:?}", command.as_std().get_args().collect::<Vec<_>>());
    let finished = finish(command, input).await?;
    if finished.code != Some(0) {
        bail!("{shown} exited with {:?}:\n{}{}", finished.code, finished.stdout, finished.stderr);
    }
    Ok(finished.stdout)
}

/// kubectl with one kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    #[must_use]
    pub fn new(peers: &Peers, kubeconfig: &Path) -> Kubectl {
        Kubectl { program: peers.program("kubectl"), kubeconfig: kubeconfig.to_owned() }
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).env_remove("KUBECTL_COMMAND_HEADERS");
        // kubectl caches discovery in the home folder by server address, and ports are reused.
        command.env("KUBECACHEDIR", self.kubeconfig.with_extension("cache"));
        command
    }

    /// Runs it. Returns its stdout, or an error with its output if it fails.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        succeed(self.command(arguments), None).await
    }

    /// As [`Kubectl::run`], with a manifest on its standard input (`-f -`).
    pub async fn run_with(&self, arguments: &[&str], manifest: &str) -> Result<String> {
        succeed(self.command(arguments), Some(manifest)).await
    }

    /// Runs it and returns the result, also if it fails.
    pub async fn try_run(&self, arguments: &[&str]) -> Result<Finished> {
        finish(self.command(arguments), None).await
    }
}

/// govc with one vCenter. The certificate is not checked: no test is about govc's TLS.
#[derive(Clone, Debug)]
pub struct Govc {
    program: PathBuf,
    url: String,
}

impl Govc {
    #[must_use]
    pub fn new(peers: &Peers, url: &str) -> Govc {
        Govc { program: peers.program("govc"), url: url.to_owned() }
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("GOVC_URL", &self.url).env("GOVC_INSECURE", "1");
        // Each call logs in and out, so that tests do not share sessions through the home folder.
        command.env("GOVC_PERSIST_SESSION", "false");
        for other in ["GOVC_USERNAME", "GOVC_PASSWORD", "GOVC_DATACENTER", "GOVC_CLUSTER", "GOVC_HOST"] {
            command.env_remove(other);
        }
        command
    }

    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        succeed(self.command(arguments), None).await
    }

    pub async fn try_run(&self, arguments: &[&str]) -> Result<Finished> {
        finish(self.command(arguments), None).await
    }
}
