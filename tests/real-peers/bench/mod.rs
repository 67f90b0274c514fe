//! Benchmarks of schedulers on a real API server: a cluster of objects, pods that ask for something, and rounds in which each
//! contender schedules the same pods.
//!
//! In: how large it is, the workloads, a selection of rounds from the command line. Out: a figure for each load, workload and
//! contender. What shares the machine with those who are measured does as little as it can.

mod arrival;
mod binds;
mod cluster;
mod selection;
pub mod turns;
mod workload;

use std::time::Duration;

use anyhow::Result;
use testkit::ControlPlane;

pub use arrival::{Arrival, Waits};
pub use cluster::{Cluster, Round, Setup, Until};
pub use selection::{Load, Selection};
pub use workload::{Ask, HOST, HOSTNAME, Workload, ZONE, term};

/// How large everything is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub nodes: usize,
    pub hosts: usize,
    pub zones: usize,
    /// Pods that run already, in the loaded rounds.
    pub running: usize,
    /// Pods that are scheduled and counted.
    pub measured: usize,
    /// No round takes longer.
    pub limit: Duration,
}

/// One of those that are measured beside each other.
pub trait Contender: Copy {
    /// What must run before the pods are there: all of it, where they come while it is at work.
    type Beside;
    type Running: Running;

    fn name(self) -> &'static str;
    /// Whether it is measured several times, in turn with the others: see [`turns`]. Those whose ratio has little room are; once
    /// is enough for those that are far behind.
    fn takes_turns(self) -> bool;
    fn beside(self, control_plane: &ControlPlane) -> impl Future<Output = Result<Self::Beside>>;
    /// Begins to schedule; the pods wait already.
    fn start(self, beside: Self::Beside, control_plane: &ControlPlane) -> impl Future<Output = Result<Self::Running>>;
}

/// A contender at work. It ends with its value.
pub trait Running {
    /// The process whose CPU time and memory count.
    fn pid(&self) -> Option<u32>;
    /// What it has printed, for a message.
    fn output(&self) -> String;
}
