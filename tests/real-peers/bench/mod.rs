//! Benchmarks of schedulers on a real API server: a cluster of objects, pods with constraints, and rounds in which each
//! contender schedules the same pods.
//!
//! In: the size, the workloads, a selection of rounds from the command line. Out: figures for each load, workload and
//! contender. The measuring code shares the machine with the contenders and uses as little CPU as possible.

mod arrival;
pub mod attempts;
mod binds;
mod cluster;
pub mod light;
mod preemption;
mod scenes;
mod selection;
pub mod turns;
mod volumes;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use testkit::ControlPlane;

pub use arrival::{Arrival, Waits};
pub use cluster::{Cluster, Round, Setup, Until};
pub use selection::{Load, Selection};
pub use workload::{Constraint, HOST, HOSTNAME, Scene, Source, Workload, ZONE, term};

/// The size of a benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub nodes: usize,
    pub hosts: usize,
    pub zones: usize,
    /// Pods that already run in the loaded rounds.
    pub running: usize,
    /// Pods that are scheduled and counted.
    pub measured: usize,
    /// The time limit of a round.
    pub limit: Duration,
}

/// Whom the API server takes a contender for. All contenders of a comparison have the same kind of identity, because
/// an administrator's requests are not checked against roles, and so cost less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    Administrator,
    /// `system:kube-scheduler`, with the roles that Kubernetes gives it.
    Scheduler,
}

impl Identity {
    pub fn kubeconfig(self, control_plane: &ControlPlane) -> Result<PathBuf> {
        match self {
            Identity::Administrator => Ok(control_plane.kubeconfig().to_owned()),
            Identity::Scheduler => control_plane.kubeconfig_for("system:kube-scheduler", &[]),
        }
    }
}

/// One of the schedulers to compare.
pub trait Contender: Copy {
    /// The processes that must run before the pods are created. With [`Arrival::During`], this is the whole contender.
    type Beside;
    type Running: Running;

    fn name(self) -> &'static str;
    /// Whether it is measured several times, in turn with the others: see [`turns`]. This is needed if the ratio to
    /// another contender is close to its limit. Once is enough for contenders that are far behind.
    fn takes_turns(self) -> bool;
    /// Whether it can schedule these pods.
    fn takes_part(self, _: &Workload) -> bool {
        true
    }
    fn beside(self, control_plane: &ControlPlane) -> impl Future<Output = Result<Self::Beside>>;
    /// Starts scheduling. The pods already exist.
    fn start(self, beside: Self::Beside, control_plane: &ControlPlane) -> impl Future<Output = Result<Self::Running>>;
}

/// A running contender. It exits when this value is dropped.
pub trait Running {
    /// The process whose CPU time and memory count.
    fn pid(&self) -> Option<u32>;
    /// Its output, for an error message.
    fn output(&self) -> String;
    /// The text of the scheduler's `/metrics`. `None` if it has none because it cannot fail to place a pod.
    fn metrics(&self) -> impl Future<Output = Result<Option<String>>>;
}
