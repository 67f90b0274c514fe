//! How long single pods wait: kube-scheduler and Bridger in turn, with all plugins on, in a loaded cluster.
//!
//! A few pods are bound first, so that the start of a scheduler does not count. Then pods arrive at a constant rate that
//! both can keep up with.

use anyhow::Result;
use real_peers::bench::{Arrival, Constraint, Contender, Identity, Setup, Size, Workload};
use testkit::ControlPlane;

use crate::contestant::{Contestant, Kind};

/// Pairs of turns. Odd, so that there is a median.
pub const PAIRS: usize = 3;
const PER_SECOND: u32 = 10;
/// Pods whose wait is measured in each turn.
const EVENLY_FULL: usize = 300;
const EVENLY_QUICK: usize = 30;
/// Pods that are bound before.
const FIRST: usize = 20;

pub fn workloads(size: &Size) -> Vec<Workload> {
    vec![
        Workload::new("basic", Constraint::Nothing, Workload::ONE_GROUP),
        Workload::new("anti-affinity by node", Constraint::AntiAffinityByNode, size.nodes / 2),
    ]
}

pub fn setup(setup: Setup, quick: bool) -> Setup {
    let evenly = if quick { EVENLY_QUICK } else { EVENLY_FULL };
    let size = Size { measured: FIRST, ..setup.size };
    Setup { size, arrival: Arrival::During { evenly, per_second: PER_SECOND }, ..setup }
}

/// A scheduler that takes as many turns as the other one.
#[derive(Clone, Copy, Debug)]
pub struct Single(Kind<'static>);

impl Single {
    pub fn both() -> [Single; 2] {
        [Kind::KubeScheduler, Kind::Bridger(Identity::Scheduler)].map(Single)
    }
}

impl Contender for Single {
    type Beside = ();
    type Running = Contestant;

    fn name(self) -> &'static str {
        self.0.name()
    }

    fn takes_turns(self) -> bool {
        true
    }

    async fn beside(self, control_plane: &ControlPlane) -> Result<()> {
        self.0.beside(control_plane).await
    }

    async fn start(self, beside: (), control_plane: &ControlPlane) -> Result<Contestant> {
        self.0.start(beside, control_plane).await
    }
}
