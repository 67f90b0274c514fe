//! The processes that change the inventory: operations as tasks that take time, DRS, HA, maintenance mode, demand.
//!
//! In: the operations that clients call ([`operations`]), and due steps of the vCenter's timeline. Out: changes of the
//! inventory, happenings for the chronicle, events for the event history.
//!
//! Invariants:
//! - An operation's effect is applied in one step, when its task succeeds; a failed task has no effect.
//! - A VM takes part in at most one operation that moves it or changes its power.
//! - All random values are drawn from the seed, in an order that depends only on the requests and their times.

mod cluster_config;
mod demand;
pub mod drs;
mod events;
mod ha;
mod maintenance;
mod migration;
pub mod operations;
mod populate;
mod rule_conflict;
mod tasks;
mod vm_work;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub use operations::{Actor, ClusterChange, Edit, RuleSpec, VmChange, VmSpec};

use super::Vcenter;
use super::inventory::{ClusterId, HostId, TaskId, VmId};
use crate::clock::SimTime;
use crate::seed::{Seed, Stream};
use crate::timeline::Timeline;

/// A scheduled step of the vCenter.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    StartTask(TaskId),
    AdvanceTask {
        task: TaskId,
        percent: i32,
    },
    FinishTask(TaskId),
    MaintenanceCheck(TaskId),
    MaintenanceDeadline(TaskId),
    /// The periodic DRS pass, which schedules the next one.
    DrsPeriod(ClusterId),
    /// An additional pass, soon after a change.
    DrsSoon(ClusterId),
    ShiftDemand,
    HostFallsSilent {
        host: HostId,
        failure: u64,
    },
    /// HA restarts the VMs that are due in this cluster.
    HaRound(ClusterId),
    HostBooted {
        host: HostId,
        failure: u64,
    },
    StartAfterBoot {
        vm: VmId,
        host: HostId,
    },
}

/// State that is not part of the inventory.
#[derive(Debug)]
pub struct Physics {
    pub(super) timeline: Timeline<Step>,
    operations: BTreeMap<TaskId, tasks::Operation>,
    finished_tasks: VecDeque<TaskId>,
    /// The task that currently moves a VM or changes its power.
    busy_vms: BTreeMap<VmId, TaskId>,
    migrations: migration::Slots,
    failures: BTreeMap<HostId, ha::Failure>,
    failures_so_far: u64,
    ha_rounds: ha::Rounds,
    demand: demand::Demand,
    timing: Stream,
    uuids: Stream,
    placement: Stream,
    addresses_given: u32,
    recommendations_made: u32,
}

impl Physics {
    #[must_use]
    pub fn new(seed: Seed) -> Physics {
        Physics {
            timeline: Timeline::default(),
            operations: BTreeMap::new(),
            finished_tasks: VecDeque::new(),
            busy_vms: BTreeMap::new(),
            migrations: migration::Slots::default(),
            failures: BTreeMap::new(),
            failures_so_far: 0,
            ha_rounds: ha::Rounds::new(),
            demand: demand::Demand::new(seed),
            timing: seed.stream("vcenter timing"),
            uuids: seed.stream("vcenter uuid"),
            placement: seed.stream("vcenter initial placement"),
            addresses_given: 0,
            recommendations_made: 0,
        }
    }

    /// A random duration between two bounds.
    fn draw(&mut self, from: Duration, to: Duration) -> Duration {
        let spread_ms = u64::try_from(to.saturating_sub(from).as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        from + Duration::from_millis(self.timing.below(spread_ms))
    }

    fn draw_seconds(&mut self, from: f64, to: f64) -> Duration {
        self.draw(Duration::from_secs_f64(from), Duration::from_secs_f64(to))
    }

    /// The next address of the node network: `10.1.0.1`, `10.1.0.2`, ...
    fn next_address(&mut self) -> String {
        let n = self.addresses_given;
        self.addresses_given += 1;
        format!("10.{}.{}.{}", 1 + (n / (254 * 256)) % 254, (n / 254) % 256, 1 + n % 254)
    }
}

impl Vcenter {
    pub(super) fn perform(&mut self, step: Step, now: SimTime) {
        match step {
            Step::StartTask(task) => self.start_task(task, now),
            Step::AdvanceTask { task, percent } => self.advance_task(task, percent, now),
            Step::FinishTask(task) => self.finish_task(task, now),
            Step::MaintenanceCheck(task) => self.check_maintenance_task(task, now),
            Step::MaintenanceDeadline(task) => self.maintenance_deadline(task, now),
            Step::DrsPeriod(cluster) => {
                self.drs_pass(cluster, now);
                let next = now.after(self.config.drs_period.max(Duration::from_secs(1)));
                self.physics.timeline.schedule(next, Step::DrsPeriod(cluster));
            }
            Step::DrsSoon(cluster) => self.drs_pass(cluster, now),
            Step::ShiftDemand => self.shift_demand(now),
            Step::HostFallsSilent { host, failure } => self.host_falls_silent(host, failure, now),
            Step::HaRound(cluster) => self.ha_round(cluster, now),
            Step::HostBooted { host, failure } => self.host_booted(host, failure, now),
            Step::StartAfterBoot { vm, host } => self.start_after_boot(vm, host, now),
        }
    }

    fn schedule_in(&mut self, now: SimTime, wait: Duration, step: Step) {
        self.physics.timeline.schedule(now.after(wait), step);
    }
}

#[cfg(test)]
mod chaos_tests;
#[cfg(test)]
mod history_tests;

#[cfg(test)]
pub(super) mod testing {
    //! A vCenter that tests drive step by step.

    use super::*;
    use crate::vcenter::inventory::{RuleKind, TaskState};
    use crate::vcenter::vim_fault::VimFault;
    use crate::vcenter::{Config, DrsLevel, Happening};

    pub struct Bench {
        pub vcenter: Vcenter,
        pub now: SimTime,
        /// All happenings since the start.
        pub log: Vec<(SimTime, Happening)>,
    }

    /// A small cluster with constant demand, so that only the test itself moves VMs.
    pub fn quiet(hosts: u32, nodes: u32, drs: DrsLevel) -> Bench {
        let day = Duration::from_secs(24 * 3600);
        Bench::new(&Config { hosts, nodes, drs, demand_period: day * 365, ..Config::default() }, 1)
    }

    impl Bench {
        pub fn new(config: &Config, seed: u64) -> Bench {
            let now = SimTime::VIRTUAL_START;
            let vcenter = Vcenter::new(config, Seed(seed), now);
            let mut bench = Bench { vcenter, now, log: Vec::new() };
            bench.collect();
            bench
        }

        fn collect(&mut self) {
            for happening in self.vcenter.take_happenings() {
                self.log.push((self.now, happening));
            }
        }

        pub fn run(&mut self, seconds: u64) {
            let end = self.now.after(Duration::from_secs(seconds));
            self.collect();
            while let Some(due) = self.vcenter.next_due().filter(|due| *due <= end) {
                self.now = self.vcenter.step(due);
                self.collect();
            }
            self.now = end;
        }

        /// Lets time pass until the task ends, at most an hour.
        pub fn await_task(&mut self, task: TaskId) -> Result<(), VimFault> {
            for _ in 0..36_000 {
                match self.vcenter.inventory.task(task).map(|task| task.state.clone()) {
                    Some(TaskState::Success) => return Ok(()),
                    Some(TaskState::Error(fault)) => return Err(fault),
                    _ => {
                        self.now = self.now.after(Duration::from_millis(100));
                        self.run(0);
                    }
                }
            }
            panic!("{task} did not end within an hour");
        }

        pub fn vm(&self, name: &str) -> VmId {
            self.vcenter.inventory.vms().find(|(_, vm)| vm.name == name).map(|(id, _)| id).unwrap()
        }

        pub fn host(&self, name: &str) -> HostId {
            self.vcenter.inventory.hosts().find(|(_, host)| host.name == name).map(|(id, _)| id).unwrap()
        }

        pub fn cluster(&self) -> ClusterId {
            self.vcenter.inventory.clusters().next().map(|(id, _)| id).unwrap()
        }

        pub fn host_of(&self, vm: VmId) -> HostId {
            self.vcenter.inventory.vm(vm).unwrap().host
        }

        /// Assigns VMs to hosts directly: `("node-1", "esx-2.lab")`.
        pub fn place(&mut self, layout: &[(&str, &str)]) {
            for (vm, host) in layout {
                let (vm, host) = (self.vm(vm), self.host(host));
                self.vcenter.inventory.place_vm(vm, host);
            }
        }

        pub fn add_rule(&mut self, name: &str, kind: RuleKind, mandatory: bool) -> Result<(), VimFault> {
            let rule = RuleSpec {
                name: Some(name.to_owned()),
                enabled: Some(true),
                mandatory: Some(mandatory),
                kind: Some(kind),
                ..RuleSpec::default()
            };
            self.reconfigure(ClusterChange { rules: vec![Edit::Add(rule)], ..ClusterChange::default() })
        }

        pub fn reconfigure(&mut self, change: ClusterChange) -> Result<(), VimFault> {
            let cluster = self.cluster();
            let task = self.vcenter.reconfigure_cluster(cluster, change, &Bench::actor(), self.now)?;
            self.await_task(task)
        }

        pub fn actor() -> Actor {
            Actor { user: "tester".to_owned() }
        }

        pub fn lines(&self) -> Vec<String> {
            self.log.iter().map(|(moment, happening)| format!("{moment} {happening}")).collect()
        }

        pub fn happened(&self, wanted: impl Fn(&Happening) -> bool) -> usize {
            self.log.iter().filter(|(_, happening)| wanted(happening)).count()
        }
    }
}
