//! Starts a scheduler to measure.

use std::path::Path;

use anyhow::{Context, Result};
use real_peers::bench::{Contender, Identity, Running, Scene, Workload};
use serde_json::json;
use testkit::{Bridger, ControlPlane, Scheduler};

/// The `schedulerName` of all measured pods.
pub const SCHEDULER_NAME: &str = "measured";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    KubeScheduler,
    /// The program that is it, with the argument `null-binder`.
    NullBinder(&'a Path),
    Bridger(Identity),
    /// Another build of Bridger.
    Before(&'a Path),
}

impl<'a> Kind<'a> {
    /// In the order of their turns. `own`: this program.
    pub fn all(own: &'a Path, before: Option<&'a Path>) -> Vec<Kind<'a>> {
        match before {
            None => vec![Kind::KubeScheduler, Kind::NullBinder(own), Kind::Bridger(Identity::Scheduler)],
            // The other build may need more permissions than a scheduler has.
            Some(program) => vec![Kind::Before(program), Kind::Bridger(Identity::Administrator)],
        }
    }
}

impl Contender for Kind<'_> {
    type Beside = ();
    type Running = Contestant;

    fn name(self) -> &'static str {
        match self {
            Kind::KubeScheduler => "kube-scheduler",
            Kind::NullBinder(_) => "null binder",
            Kind::Bridger(_) => "bridger",
            Kind::Before(_) => "before",
        }
    }

    fn takes_turns(self) -> bool {
        self != Kind::KubeScheduler
    }

    fn takes_part(self, workload: &Workload) -> bool {
        // The null binder neither makes room nor chooses volumes.
        workload.scene == Scene::Plain || !matches!(self, Kind::NullBinder(_))
    }

    async fn beside(self, _: &ControlPlane) -> Result<()> {
        Ok(())
    }

    async fn start(self, (): (), control_plane: &ControlPlane) -> Result<Contestant> {
        Contestant::start(self, control_plane).await
    }
}

/// Starts `bridger scheduler` without lifting and without leader election, like the other schedulers.
pub fn scheduler_alone(control_plane: &ControlPlane, identity: Identity) -> Result<Bridger> {
    let environment = [("KUBECONFIG", identity.kubeconfig(control_plane)?.display().to_string())];
    Bridger::start_build(None, &[&ALONE[..], &["--leader-elect=false"]].concat(), &environment)
}

/// Starts the null binder, which runs until the result is dropped.
pub fn null_binder(program: &Path, kubeconfig: &Path) -> Result<tokio::process::Child> {
    let mut command = tokio::process::Command::new(program);
    command.arg("null-binder").arg(kubeconfig).kill_on_drop(true);
    command.spawn().context("starting the null binder")
}

/// Another build, which may know no leader election.
fn scheduler_before(control_plane: &ControlPlane, program: &Path) -> Result<Bridger> {
    let environment = [("KUBECONFIG", control_plane.kubeconfig().display().to_string())];
    Bridger::start_build(Some(program), &ALONE, &environment)
}

pub const ALONE: [&str; 7] = ["scheduler", "--scheduler-name", SCHEDULER_NAME, "--port", "0", "--lift", "none"];

/// A running scheduler. It exits when this value is dropped.
pub enum Contestant {
    KubeScheduler(Scheduler),
    NullBinder(tokio::process::Child),
    Bridger(Bridger),
}

impl Contestant {
    async fn start(kind: Kind<'_>, control_plane: &ControlPlane) -> Result<Contestant> {
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
            Kind::NullBinder(program) => {
                let kubeconfig = Identity::Scheduler.kubeconfig(control_plane)?;
                Contestant::NullBinder(null_binder(program, &kubeconfig)?)
            }
            Kind::Bridger(identity) => Contestant::Bridger(scheduler_alone(control_plane, identity)?),
            Kind::Before(program) => Contestant::Bridger(scheduler_before(control_plane, program)?),
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

    async fn metrics(&self) -> Result<Option<String>> {
        match self {
            Contestant::KubeScheduler(scheduler) => scheduler.metrics().await.map(Some),
            // It decides nothing: each attempt places its pod.
            Contestant::NullBinder(_) => Ok(None),
            Contestant::Bridger(bridger) => bridger.get("/metrics").await.map(Some),
        }
    }
}
