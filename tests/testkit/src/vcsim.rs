//! Runs vcsim, govmomi's vCenter simulator, as an independent peer.

use std::time::Duration;

use anyhow::{Context, Result};
use peers::Peers;

use crate::command::Govc;
use crate::ports;
use crate::process::Process;
use crate::workdir::Workdir;

/// The inventory and flags of the simulated vCenter.
#[derive(Clone, Debug)]
pub struct VcsimOptions {
    pub clusters: u32,
    pub hosts_per_cluster: u32,
    pub vms_per_cluster: u32,
    pub tls: bool,
    /// Additional flags.
    pub extra: Vec<String>,
}

impl Default for VcsimOptions {
    fn default() -> Self {
        VcsimOptions { clusters: 1, hosts_per_cluster: 3, vms_per_cluster: 4, tls: true, extra: Vec::new() }
    }
}

/// A running vcsim. It stops when this value is dropped.
pub struct Vcsim {
    process: Process,
    url: String,
    port: u16,
    options: VcsimOptions,
    peers: Peers,
    workdir: Workdir,
    starts: u32,
}

pub const USERNAME: &str = "tester";
pub const PASSWORD: &str = "secret-of-the-tests";

impl Vcsim {
    pub async fn start(options: &VcsimOptions) -> Result<Vcsim> {
        let [port] = ports::free()?;
        Vcsim::start_on(options, port).await
    }

    async fn start_on(options: &VcsimOptions, port: u16) -> Result<Vcsim> {
        let peers = Peers::locate()?;
        let workdir = Workdir::create("vcsim")?;
        let (process, url) = launch(options, port, &peers, &workdir, 1).await?;
        Ok(Vcsim { process, url, port, options: options.clone(), peers, workdir, starts: 1 })
    }

    /// Kills it and starts it again on the same port, with a fresh inventory.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill_hard();
        self.starts += 1;
        (self.process, self.url) = launch(&self.options, self.port, &self.peers, &self.workdir, self.starts).await?;
        Ok(())
    }

    pub fn kill(&mut self) {
        self.process.kill_hard();
    }

    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Sends it a signal, for example `-STOP`.
    pub async fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.pid().context("it runs")?.to_string();
        let status = tokio::process::Command::new("kill").args([signal, &pid]).status().await?;
        anyhow::ensure!(status.success(), "kill {signal} {pid}: {status}");
        Ok(())
    }

    /// The URL with user and password, as govc expects it.
    #[must_use]
    pub fn govc_url(&self) -> String {
        self.url.replacen("://", &format!("://{USERNAME}:{PASSWORD}@"), 1)
    }

    #[must_use]
    pub fn govc(&self) -> Govc {
        Govc::new(&self.peers, &self.govc_url())
    }
}

async fn launch(
    options: &VcsimOptions,
    port: u16,
    peers: &Peers,
    workdir: &Workdir,
    start: u32,
) -> Result<(Process, String)> {
    let mut arguments = vec![
        format!("-l=127.0.0.1:{port}"),
        format!("-username={USERNAME}"),
        format!("-password={PASSWORD}"),
        format!("-tls={}", options.tls),
        format!("-cluster={}", options.clusters),
        format!("-host={}", options.hosts_per_cluster),
        format!("-vm={}", options.vms_per_cluster),
    ];
    arguments.extend(options.extra.iter().cloned());
    let mut process = Process::start(workdir.path(), &format!("vcsim-{start}"), &peers.program("vcsim"), &arguments)?;
    // Its first line shows that it listens. Starting takes about 40 ms per VM.
    let machines = u64::from(options.clusters * options.vms_per_cluster);
    let within = Duration::from_secs(30) + Duration::from_millis(200) * u32::try_from(machines)?;
    let url = process.prints(within, announced_url).await.context("vcsim did not start")?;
    Ok((process, url))
}

/// The address in the last `export GOVC_URL=` line, without credentials.
fn announced_url(log: &str) -> Option<String> {
    let line = log.lines().rev().find_map(|line| line.strip_prefix("export GOVC_URL="))?;
    let (scheme, rest) = line.split_once("://")?;
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    Some(format!("{scheme}://{host}"))
}

impl std::fmt::Debug for Vcsim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vcsim").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The version that govc prints.
pub fn version(peers: &Peers) -> Result<String> {
    let output = std::process::Command::new(peers.program("govc")).arg("version").output().context("running govc")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
