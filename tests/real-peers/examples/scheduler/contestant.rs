//! A scheduler under measurement: how it is started.

use anyhow::{Context, Result};
use real_peers::bench::{Contender, Running};
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
    /// In the order of their turns.
    pub const ALL: [Kind; 3] = [Kind::KubeScheduler, Kind::NullBinder, Kind::Bridger];
}

impl Contender for Kind {
    type Beside = ();
    type Running = Contestant;

    fn name(self) -> &'static str {
        match self {
            Kind::KubeScheduler => "kube-scheduler",
            Kind::NullBinder => "null binder",
            Kind::Bridger => "bridger",
        }
    }

    fn takes_turns(self) -> bool {
        matches!(self, Kind::Bridger | Kind::NullBinder)
    }

    async fn beside(self, _: &ControlPlane) -> Result<()> {
        Ok(())
    }

    async fn start(self, (): (), control_plane: &ControlPlane) -> Result<Contestant> {
        Contestant::start(self, control_plane).await
    }
}

/// `bridger scheduler`.
pub fn scheduler_alone(control_plane: &ControlPlane) -> Result<Bridger> {
    let environment = [("KUBECONFIG", control_plane.kubeconfig().display().to_string())];
    // Terms hold as they are written, as they do for the others.
    let arguments = ["scheduler", "--scheduler-name", SCHEDULER_NAME, "--port", "0", "--lift", "none"];
    Bridger::start(&arguments, &environment)
}

/// Ends with this value.
pub enum Contestant {
    KubeScheduler(Scheduler),
    NullBinder(tokio::process::Child),
    Bridger(Bridger),
}

impl Contestant {
    async fn start(kind: Kind, control_plane: &ControlPlane) -> Result<Contestant> {
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
            Kind::Bridger => Contestant::Bridger(scheduler_alone(control_plane)?),
        })
    }
}

impl Running for Contestant {
    fn pid(&self) -> Option<u32> {
        match self {
            Contestant::KubeScheduler(scheduler) => scheduler.pid(),
            Contestant::NullBinder(child) => child.id(),
            Contestant::Bridger(bridger) => bridger.pid(),
        }
    }

    fn output(&self) -> String {
        match self {
            Contestant::KubeScheduler(scheduler) => scheduler.log_tail(),
            Contestant::NullBinder(_) => String::new(),
            Contestant::Bridger(bridger) => bridger.output(),
        }
    }
}
