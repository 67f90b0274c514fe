//! Migrations: a VM runs on its source host until the switch-over at the end, then on the target.
//!
//! Invariants: a host takes part in at most [`PER_HOST_MAX`] hot migrations at once, others are queued in order; if the
//! source or target fails during a migration, it fails and leaves the VM on its source.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::Step;
use super::events::About;
use super::operations::Actor;
use super::tasks::Admission;
use crate::clock::SimTime;
use crate::vcenter::inventory::{ConnectionState, HostId, Maintenance, PowerState, TaskId, VmId};
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::{Happening, MoveReason, Vcenter};

/// Concurrent hot migrations per host: vSphere's limit on a fast network.
pub(super) const PER_HOST_MAX: u32 = 8;

#[derive(Debug, Default)]
pub(super) struct Slots {
    waiting: VecDeque<TaskId>,
    /// Source and target of each running hot migration.
    running: BTreeMap<TaskId, [HostId; 2]>,
    per_host: BTreeMap<HostId, u32>,
}

impl Slots {
    fn free_on(&self, hosts: [HostId; 2]) -> bool {
        hosts.iter().all(|host| self.per_host.get(host).is_none_or(|count| *count < PER_HOST_MAX))
    }

    fn take(&mut self, task: TaskId, hosts: [HostId; 2]) {
        self.running.insert(task, hosts);
        for host in hosts {
            *self.per_host.entry(host).or_default() += 1;
        }
    }

    fn release(&mut self, task: TaskId) {
        self.waiting.retain(|waiting| *waiting != task);
        for host in self.running.remove(&task).into_iter().flatten() {
            if let Some(count) = self.per_host.get_mut(&host) {
                *count = count.saturating_sub(1);
            }
        }
    }
}

#[cfg(test)]
impl Slots {
    /// Only active migrations hold or wait for slots.
    pub fn assert_matches(&self, operations: &BTreeMap<TaskId, super::tasks::Operation>) {
        let tasks = self.waiting.iter().chain(self.running.keys());
        assert!(tasks.clone().all(|task| operations.contains_key(task)), "{self:?}");
        let held: u32 = self.per_host.values().sum();
        assert_eq!(held as usize, self.running.len() * 2, "{self:?}");
    }
}

/// The resources of an ended migration.
pub(super) struct Held {
    pub task: TaskId,
    pub vm: VmId,
    pub from: HostId,
    pub to: HostId,
    pub running: bool,
}

impl Vcenter {
    pub(super) fn admit_migration(
        &mut self,
        task: TaskId,
        vm_id: VmId,
        [from, to]: [HostId; 2],
        actor: &Actor,
        now: SimTime,
    ) -> Result<Admission, VimFault> {
        let vm = self.inventory.vm(vm_id).ok_or(VimFault::ManagedObjectNotFound(vm_id.into()))?;
        let (hot, name) = (vm.power == PowerState::On, vm.name.clone());
        if vm.host != from {
            // HA restarted the VM elsewhere while the task was queued.
            return Err(VimFault::InvalidState);
        }
        // Copying memory takes most of the time; pages that change during the copy are copied again.
        #[allow(clippy::cast_precision_loss)]
        let memory_gib = vm.memory_mib as f64 / 1024.0;
        self.check_migration(vm_id, from, to)?;
        if from == to || !hot {
            return Ok(Admission::Run(self.physics.draw_seconds(0.5, 1.5)));
        }
        if !self.physics.migrations.free_on([from, to]) {
            self.physics.migrations.waiting.push_back(task);
            return Ok(Admission::Wait);
        }
        self.physics.migrations.take(task, [from, to]);
        if let Some(vm) = self.inventory.vm_mut(vm_id) {
            vm.moving_to = Some(to);
        }
        let message = format!("Migrating {name} off host {} to {}", self.name_of(from.into()), self.name_of(to.into()));
        let about = About { host: Some(from), ..About::vm(vm_id) };
        self.post("VmBeingHotMigratedEvent", about, &actor.user, now, message);
        let seconds = (4.0 + memory_gib * (0.10 + 0.12 * self.physics.timing.unit())).min(20.0);
        Ok(Admission::Run(Duration::from_secs_f64(seconds)))
    }

    fn check_migration(&self, vm: VmId, from: HostId, to: HostId) -> Result<(), VimFault> {
        for id in [from, to] {
            let host = self.inventory.host(id).ok_or(VimFault::ManagedObjectNotFound(id.into()))?;
            if host.connection != ConnectionState::Connected || self.physics.failures.contains_key(&id) {
                return Err(VimFault::HostNotConnected);
            }
        }
        let cluster = |id| self.inventory.host(id).map(|host| host.cluster);
        if cluster(from) != cluster(to) {
            // A VM that changes clusters needs a resource pool there, and none was given.
            return Err(VimFault::InvalidArgument { property: "spec.pool".to_owned() });
        }
        let maintenance = self.inventory.host(to).map(|host| host.maintenance);
        if from != to && maintenance != Some(Maintenance::No) {
            return Err(VimFault::InvalidState);
        }
        // A user may violate a VM-VM rule; a mandatory VM-Host rule applies to everyone.
        match self.rule_against(vm, to, false) {
            Some(rule) if from != to => Err(VimFault::RuleViolation(format!("rule {rule} forbids it"))),
            _ => Ok(()),
        }
    }

    pub(super) fn switch_over(
        &mut self,
        vm: VmId,
        from: HostId,
        to: HostId,
        reason: MoveReason,
        actor: &Actor,
        now: SimTime,
    ) -> Result<(), VimFault> {
        self.check_migration(vm, from, to)?;
        if from == to {
            return Ok(());
        }
        // A rule may have been added while the migration ran. DRS respects it; a user's migration continues.
        if reason != MoveReason::Requested
            && let Some(rule) = self.rule_against(vm, to, true)
        {
            return Err(VimFault::RuleViolation(format!("rule {rule} forbids it")));
        }
        self.inventory.place_vm(vm, to);
        let (name, source, target) = (self.name_of(vm.into()), self.name_of(from.into()), self.name_of(to.into()));
        let type_name = if reason == MoveReason::Requested { "VmMigratedEvent" } else { "DrsVmMigratedEvent" };
        let message = format!("Migrated {name} from {source} to {target}");
        self.post(type_name, About { source_host: Some(from), ..About::vm(vm) }, &actor.user, now, message);
        self.happenings.push(Happening::VmMoved { vm, name, from: source, to: target, reason });
        Ok(())
    }

    /// Releases the resources of a migration and starts the ones that waited for them.
    pub(super) fn release_migration(&mut self, held: &Held, failed: bool, now: SimTime) {
        self.physics.migrations.release(held.task);
        let was_moving = held.running && self.inventory.vm(held.vm).is_some_and(|vm| vm.moving_to.is_some());
        if was_moving && let Some(vm) = self.inventory.vm_mut(held.vm) {
            vm.moving_to = None;
        }
        if failed && held.running {
            let message = format!(
                "Failed to migrate {} from {} to {}",
                self.name_of(held.vm.into()),
                self.name_of(held.from.into()),
                self.name_of(held.to.into())
            );
            self.post("VmFailedMigrateEvent", About::vm(held.vm), &Actor::system().user, now, message);
        }
        let mut still_waiting = VecDeque::new();
        for task in std::mem::take(&mut self.physics.migrations.waiting) {
            let hosts = self.physics.operations.get(&task).and_then(|operation| operation.work.migration_hosts());
            match hosts {
                Some(hosts) if !self.physics.migrations.free_on(hosts) => still_waiting.push_back(task),
                // Several may compete for the same slot; the others wait again.
                Some(_) => self.physics.timeline.schedule(now, Step::StartTask(task)),
                None => (),
            }
        }
        self.physics.migrations.waiting = still_waiting;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, quiet};
    use crate::vcenter::inventory::{ConnectionState, TaskState};
    use crate::vcenter::vim_fault::VimFault;
    use crate::vcenter::{Config, DrsLevel, Happening, MoveReason};

    #[test]
    fn a_vm_stays_on_its_source_until_the_switch_over() {
        let mut bench = quiet(2, 2, DrsLevel::Off);
        bench.place(&[("node-1", "esx-1.lab"), ("node-2", "esx-1.lab")]);
        let (vm, from, to) = (bench.vm("node-1"), bench.host("esx-1.lab"), bench.host("esx-2.lab"));
        let task = bench.vcenter.relocate_vm(vm, to, &Bench::actor(), bench.now).unwrap();
        assert_eq!(bench.vcenter.inventory().task(task).unwrap().state, TaskState::Queued);
        bench.run(3);
        assert_eq!(bench.vcenter.inventory().task(task).unwrap().state, TaskState::Running);
        assert_eq!((bench.host_of(vm), bench.vcenter.inventory().vm(vm).unwrap().moving_to), (from, Some(to)));
        let version = bench.vcenter.version();
        bench.await_task(task).unwrap();
        assert_eq!((bench.host_of(vm), bench.vcenter.inventory().vm(vm).unwrap().moving_to), (to, None));
        let touched = bench.vcenter.inventory().touched_since(version).unwrap();
        for object in [vm.into(), from.into(), to.into(), task.into()] {
            assert!(touched.contains(&object), "{object} shows the move");
        }
        assert_eq!(
            bench.happened(|h| matches!(h, Happening::VmMoved { reason: MoveReason::Requested, .. })),
            1,
            "{:?}",
            bench.lines()
        );
        let types: Vec<_> = bench.vcenter.inventory().events().iter().rev().take(2).map(|e| e.type_name).collect();
        assert_eq!(types, ["VmMigratedEvent", "VmBeingHotMigratedEvent"]);
    }

    #[test]
    fn a_second_migration_of_a_vm_is_rejected() {
        let mut bench = quiet(2, 1, DrsLevel::Off);
        bench.place(&[("node-1", "esx-1.lab")]);
        let (vm, to) = (bench.vm("node-1"), bench.host("esx-2.lab"));
        let first = bench.vcenter.relocate_vm(vm, to, &Bench::actor(), bench.now).unwrap();
        let second = bench.vcenter.relocate_vm(vm, to, &Bench::actor(), bench.now).unwrap();
        assert_eq!(bench.await_task(second), Err(VimFault::InvalidState));
        assert_eq!(bench.await_task(first), Ok(()));
        let third = bench.vcenter.relocate_vm(vm, bench.host("esx-1.lab"), &Bench::actor(), bench.now).unwrap();
        assert_eq!(bench.await_task(third), Ok(()), "the lock was released");
    }

    #[test]
    fn unsuitable_targets_are_rejected() {
        let config = Config { clusters: 2, hosts: 4, nodes: 2, drs: DrsLevel::Off, ..Config::default() };
        let mut bench = Bench::new(&config, 1);
        bench.place(&[("node-1", "esx-1.lab")]);
        let vm = bench.vm("node-1");
        let maintained = bench.host("esx-3.lab");
        let task = bench.vcenter.enter_maintenance(maintained, 0, &Bench::actor(), bench.now).unwrap();
        bench.await_task(task).unwrap();
        let relocate = |bench: &mut Bench, to| {
            let task = bench.vcenter.relocate_vm(vm, to, &Bench::actor(), bench.now).unwrap();
            bench.await_task(task)
        };
        assert_eq!(relocate(&mut bench, maintained), Err(VimFault::InvalidState));
        let other_cluster = bench.host("esx-2.lab");
        assert!(matches!(relocate(&mut bench, other_cluster), Err(VimFault::InvalidArgument { .. })));
        bench.vcenter.inventory.host_mut(maintained).unwrap().connection = ConnectionState::Disconnected;
        assert_eq!(relocate(&mut bench, maintained), Err(VimFault::HostNotConnected));
    }

    #[test]
    fn no_host_exceeds_its_migration_limit() {
        let mut bench = quiet(2, 12, DrsLevel::Off);
        let to = bench.host("esx-2.lab");
        let mut tasks = Vec::new();
        for n in 1..=12 {
            bench.place(&[(&format!("node-{n}"), "esx-1.lab")]);
            let vm = bench.vm(&format!("node-{n}"));
            tasks.push(bench.vcenter.relocate_vm(vm, to, &Bench::actor(), bench.now).unwrap());
        }
        bench.run(2);
        let running = tasks
            .iter()
            .filter(|task| bench.vcenter.inventory().task(**task).is_some_and(|task| task.state == TaskState::Running));
        assert_eq!(running.count(), 8);
        for task in tasks {
            bench.await_task(task).unwrap();
        }
        assert_eq!(bench.vcenter.inventory().vms_on(to).count(), 12);
    }

    #[test]
    fn a_migration_fails_if_a_host_fails_or_by_fault_injection() {
        for lost in ["esx-1.lab", "esx-2.lab", ""] {
            let mut bench = quiet(2, 1, DrsLevel::Off);
            bench.place(&[("node-1", "esx-1.lab")]);
            let (vm, from, to) = (bench.vm("node-1"), bench.host("esx-1.lab"), bench.host("esx-2.lab"));
            let task = bench.vcenter.relocate_vm(vm, to, &Bench::actor(), bench.now).unwrap();
            if lost.is_empty() {
                bench.vcenter.fail_task_halfway(task);
            } else {
                bench.run(2);
                bench.vcenter.fail_host(bench.host(lost), bench.now).unwrap();
            }
            assert!(bench.await_task(task).is_err(), "lost: {lost:?}");
            assert_eq!((bench.host_of(vm), bench.vcenter.inventory().vm(vm).unwrap().moving_to), (from, None));
        }
    }

    #[test]
    fn a_cancelled_migration_leaves_the_vm_on_its_source() {
        let mut bench = quiet(2, 1, DrsLevel::Off);
        bench.place(&[("node-1", "esx-1.lab")]);
        let (vm, to) = (bench.vm("node-1"), bench.host("esx-2.lab"));
        let task = bench.vcenter.relocate_vm(vm, to, &Bench::actor(), bench.now).unwrap();
        bench.run(2);
        bench.vcenter.cancel_task(task, bench.now).unwrap();
        assert_eq!(bench.await_task(task), Err(VimFault::RequestCanceled));
        assert_eq!(bench.vcenter.cancel_task(task, bench.now), Err(VimFault::InvalidState));
        bench.run(60);
        assert_eq!(bench.host_of(vm), bench.host("esx-1.lab"));
    }
}
