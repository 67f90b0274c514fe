//! Runs `bridger` as a process next to its peers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::command::{Finished, finish};
use crate::process::Process;
use crate::workdir::Workdir;

const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A running `bridger`. It stops when this value is dropped.
pub struct Bridger {
    process: Process,
    _workdir: Workdir,
}

impl Bridger {
    /// Starts it with these arguments and environment variables.
    pub fn start(arguments: &[&str], environment: &[(&str, String)]) -> Result<Bridger> {
        Bridger::start_build(None, arguments, environment)
    }

    /// Starts the build under test, or another build.
    pub fn start_build(program: Option<&Path>, arguments: &[&str], environment: &[(&str, String)]) -> Result<Bridger> {
        let program = program.map_or_else(crate::sandbox::binary, |program| Ok(program.to_owned()))?;
        let workdir = Workdir::create("bridger")?;
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let process = Process::start_with(workdir.path(), "bridger", &program, &arguments, environment)?;
        Ok(Bridger { process, _workdir: workdir })
    }

    /// Waits until it has printed this.
    pub async fn prints(&mut self, text: &str, within: Duration) -> Result<()> {
        let printed = self.process.prints(within, |log| log.contains(text).then_some(())).await;
        printed.with_context(|| format!("bridger has not printed {text:?}; its output:\n{}", self.process.log()))
    }

    #[must_use]
    pub fn output(&self) -> String {
        self.process.log()
    }

    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Stops it gracefully, and waits until it has exited.
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Sends it a signal, for example `-STOP`.
    pub async fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.pid().context("it runs")?.to_string();
        let status = tokio::process::Command::new("kill").args([signal, &pid]).status().await?;
        ensure!(status.success(), "kill {signal} {pid}: {status}");
        Ok(())
    }

    pub fn kill_hard(&mut self) {
        self.process.kill_hard();
    }

    /// The address of health and metrics, after `Listening   http://` or `https://` in its output.
    pub fn address(&self) -> Result<String> {
        self.printed_after("Listening   http")
    }

    /// The address of the extender, after `Extender    http://` or `https://` in its output.
    pub fn extender_address(&self) -> Result<String> {
        self.printed_after("Extender    http")
    }

    fn printed_after(&self, text: &str) -> Result<String> {
        let log = self.process.log();
        let (_, rest) = log.split_once(text).with_context(|| format!("it printed no {text:?}"))?;
        let rest = rest.strip_prefix('s').unwrap_or(rest);
        let address = rest.strip_prefix("://").and_then(|rest| rest.split_whitespace().next());
        Ok(address.with_context(|| format!("it printed no address after {text:?}"))?.to_owned())
    }
}

impl Bridger {
    /// Sends a GET request for health or metrics. Returns status line, headers and body unparsed.
    pub async fn get(&self, path: &str) -> Result<String> {
        self.send(&self.address()?, &format!("GET {path} HTTP/1.1\r\nHost: bridger\r\nConnection: close\r\n\r\n")).await
    }

    /// Posts JSON to its extender, as kube-scheduler does. Returns the JSON reply.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let answer = self.post_text(path, &body.to_string()).await?;
        let (_, body) = answer.split_once("\r\n\r\n").with_context(|| answer.clone())?;
        serde_json::from_str(body).with_context(|| answer.clone())
    }

    /// The same with any text. Returns status line, headers and body unparsed.
    pub async fn post_text(&self, path: &str, body: &str) -> Result<String> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: bridger\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.send(&self.extender_address()?, &request).await
    }

    /// Sends a raw request to one of its addresses.
    pub async fn send(&self, address: &str, request: &str) -> Result<String> {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        tokio::time::timeout(ANSWER_WITHIN, stream.read_to_string(&mut answer)).await??;
        Ok(answer)
    }
}

/// Runs `bridger` until it exits, without credentials from the test's environment.
pub async fn run_to_end(arguments: &[&str], environment: &[(&str, String)]) -> Result<Finished> {
    let program: PathBuf = crate::sandbox::binary()?;
    let mut command = Command::new(program);
    command.args(arguments);
    for name in ["KUBECONFIG", "GOVC_URL", "GOVC_USERNAME", "GOVC_PASSWORD", "GOVC_INSECURE"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    finish(command, None).await
}
