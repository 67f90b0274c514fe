//! `cargo xtask bench sandbox`: startup time, memory and simulation speed of the embedded world.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::report::Report;
use crate::workspace::succeed;

/// The embedded world: start-up time and memory at 5000 nodes, and a simulated day.
///
/// Start-up lasts from the start of the process to the first complete list of nodes. The reference is vcsim, per VM.
#[derive(clap::Args)]
pub struct Arguments {
    /// Kubernetes nodes, each a VM
    #[arg(long, default_value_t = 5000)]
    nodes: u32,
    /// Physical hosts
    #[arg(long, default_value_t = 500)]
    hosts: u32,
    /// VMs of the vcsim to compare with, which needs about 40 ms for each
    #[arg(long, default_value_t = 300)]
    vcsim_vms: u32,
}

const START_SECONDS_MAX: f64 = 10.0;
const MEMORY_MIB_MAX: f64 = 1000.0;
const DAY_SECONDS_MAX: f64 = 20.0;

pub fn run(arguments: &Arguments) -> Result<Report> {
    let peers = crate::peers::build()?;
    let built = super::build()?;
    let mut report = Report::new("sandbox");

    println!("bench: starting {} nodes on {} hosts", arguments.nodes, arguments.hosts);
    let (seconds, mib) = sandbox(&built.join("bridger"), &peers.program("kubectl"), arguments)?;
    let size = format!("{} nodes / {} hosts", arguments.nodes, arguments.hosts);
    report.limit(format!("start of {size}"), seconds, "s", START_SECONDS_MAX);
    report.limit(format!("memory of {size}, peak"), mib, "MiB", MEMORY_MIB_MAX);

    println!("bench: a simulated day of 12 nodes");
    let day = day(&built.join("examples/day"))?;
    report.limit("a simulated day of 12 nodes", day, "s", DAY_SECONDS_MAX);

    println!("bench: vcsim with {} VMs", arguments.vcsim_vms);
    let vcsim = vcsim(&peers.program("vcsim"), arguments.vcsim_vms)?;
    report.beside(
        "start, per VM",
        seconds * 1000.0 / f64::from(arguments.nodes),
        "ms",
        "vcsim",
        vcsim * 1000.0 / f64::from(arguments.vcsim_vms),
    );
    Ok(report)
}

/// Kills the child on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server, waits for the line that begins with `prefix`, and returns the rest of the line.
fn start(command: &mut Command, prefix: &str) -> Result<(Running, String)> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("starting a server")?;
    let stdout = child.stdout.take().context("its output")?;
    let running = Running(child);
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next().transpose().context("reading its output")? {
        if let Some(rest) = line.strip_prefix(prefix) {
            let rest = rest.to_owned();
            // A thread keeps reading, because a full pipe would block the server.
            std::thread::spawn(move || lines.for_each(drop));
            return Ok((running, rest));
        }
    }
    bail!("the server exited before it printed {prefix:?}")
}

fn sandbox(bridger: &Path, kubectl: &Path, arguments: &Arguments) -> Result<(f64, f64)> {
    let started = Instant::now();
    let mut command = Command::new(bridger);
    command.args(["sandbox", "--kubernetes-port", "0", "--vcenter-port", "0"]);
    command.args(["--nodes", &arguments.nodes.to_string(), "--hosts", &arguments.hosts.to_string()]);
    let (running, kubeconfig) = start(&mut command, "export KUBECONFIG=")?;
    let listed = Command::new(kubectl)
        .args(["get", "nodes", "-o", "name"])
        .env("KUBECONFIG", kubeconfig)
        .output()
        .context("running kubectl")?;
    let seconds = started.elapsed().as_secs_f64();
    let count = String::from_utf8_lossy(&listed.stdout).lines().count();
    if count != arguments.nodes as usize {
        bail!("{count} nodes were listed, not {}: {}", arguments.nodes, String::from_utf8_lossy(&listed.stderr));
    }
    Ok((seconds, peak_memory_mib(running.0.id())?))
}

fn vcsim(program: &Path, vms: u32) -> Result<f64> {
    let started = Instant::now();
    let mut command = Command::new(program);
    command.args(["-l=127.0.0.1:0", "-cluster=1", "-host=10", &format!("-vm={vms}")]);
    let (_running, _) = start(&mut command, "export GOVC_URL=")?;
    Ok(started.elapsed().as_secs_f64())
}

fn day(program: &Path) -> Result<f64> {
    let started = Instant::now();
    // Only the time counts here, not the history that it prints.
    succeed(Command::new(program).stdout(Stdio::null()))?;
    Ok(started.elapsed().as_secs_f64())
}

fn peak_memory_mib(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("reading the process's memory")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM in /proc")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").trim().parse().context("a number of kB")?;
    Ok(kib / 1024.0)
}
