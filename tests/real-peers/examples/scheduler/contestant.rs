//! A scheduler under measurement: how it is started, and what it has used.

use anyhow::{Context, Result};
use serde_json::json;
use testkit::{Bridger, ControlPlane, Scheduler};

/// The schedulerName of all pods that are measured.
pub const SCHEDULER_NAME: &str = "measured";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    KubeScheduler,
    NullBinder,
    Bridger,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::KubeScheduler, Kind::NullBinder, Kind::Bridger];

    pub const fn name(self) -> &'static str {
        match self {
            Kind::KubeScheduler => "kube-scheduler",
            Kind::NullBinder => "null binder",
            Kind::Bridger => "bridger",
        }
    }
}

/// Ends with this value.
pub enum Contestant {
    KubeScheduler(Scheduler),
    NullBinder(tokio::process::Child),
    Bridger(Bridger),
}

impl Contestant {
    pub async fn start(kind: Kind, control_plane: &ControlPlane) -> Result<Contestant> {
        Ok(match kind {
            Kind::KubeScheduler => {
                let config = json!({
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "clientConnection": { "qps": 10_000, "burst": 20_000 },
                    "profiles": [{ "schedulerName": SCHEDULER_NAME }],
                });
                Contestant::KubeScheduler(Scheduler::start(control_plane, Some(config)).await?)
            }
            Kind::NullBinder => {
                let mut command = tokio::process::Command::new(std::env::current_exe()?);
                command.arg("null-binder").arg(control_plane.kubeconfig()).kill_on_drop(true);
                Contestant::NullBinder(command.spawn().context("starting the null binder")?)
            }
            Kind::Bridger => {
                let environment = [("KUBECONFIG", control_plane.kubeconfig().display().to_string())];
                // Terms hold as they are written, as they do for the others.
                let arguments = ["scheduler", "--scheduler-name", SCHEDULER_NAME, "--port", "0", "--lift", "none"];
                Contestant::Bridger(Bridger::start(&arguments, &environment)?)
            }
        })
    }

    fn pid(&self) -> Result<u32> {
        let pid = match self {
            Contestant::KubeScheduler(scheduler) => scheduler.pid(),
            Contestant::NullBinder(child) => child.id(),
            Contestant::Bridger(bridger) => bridger.pid(),
        };
        pid.context("the scheduler has ended")
    }

    /// CPU time so far, in seconds.
    pub fn cpu_s(&self) -> Result<f64> {
        /// The kernel's unit for it, on every Linux.
        const TICKS_PER_SECOND: f64 = 100.0;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()?))?;
        // The name, in parentheses, may hold anything; fields 14 and 15 are user and system time.
        let (_, fields) = stat.rsplit_once(')').context("a stat line")?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
        Ok(ticks.sum::<Result<f64, _>>()? / TICKS_PER_SECOND)
    }

    pub fn peak_mib(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
        let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024.0)
    }

    pub fn output(&self) -> String {
        match self {
            Contestant::KubeScheduler(scheduler) => scheduler.log_tail(),
            Contestant::NullBinder(_) => String::new(),
            Contestant::Bridger(bridger) => bridger.output(),
        }
    }
}
