//! Tasks: queued, running with progress, then success or error.
//!
//! In: a [`Work`] item and the requesting user. Out: a `Task` in the inventory that changes its state as time passes,
//! and the effect of the work if it succeeds.
//!
//! Invariants: a task ends exactly once; steps after its end do nothing; at most `TASKS_MAX` finished tasks are
//! retained.

use std::time::Duration;

use super::operations::{Actor, ClusterChange, VmChange, VmSpec};
use super::{Step, migration};
use crate::clock::SimTime;
use crate::vcenter::inventory::{ClusterId, HostId, MoRef, TASKS_MAX, Task, TaskId, TaskState, VmId};
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::{Happening, MoveReason, Vcenter};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PowerChange {
    On,
    Off,
    Reset,
    Suspend,
}

/// The work of a task.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Migrate {
        vm: VmId,
        from: HostId,
        to: HostId,
        reason: MoveReason,
    },
    Power {
        vm: VmId,
        change: PowerChange,
    },
    CreateVm(Box<VmSpec>),
    DestroyVm(VmId),
    ReconfigureVm {
        vm: VmId,
        change: Box<VmChange>,
    },
    EnterMaintenance {
        host: HostId,
        timeout: Option<Duration>,
        /// How many VMs ran on the host when the task started.
        vms_at_first: usize,
        /// The stalled evacuation has been reported.
        stalled: bool,
    },
    ExitMaintenance(HostId),
    DisconnectHost(HostId),
    ReconnectHost(HostId),
    ReconfigureCluster {
        cluster: ClusterId,
        change: Box<ClusterChange>,
    },
    Rename {
        object: MoRef,
        name: String,
    },
}

impl Work {
    /// The method that starts it, its id in the task descriptions, and its target object.
    fn naming(&self) -> (&'static str, &'static str, MoRef) {
        match self {
            Work::Migrate { vm, reason: MoveReason::Requested, .. } => {
                ("RelocateVM_Task", "VirtualMachine.relocate", (*vm).into())
            }
            Work::Migrate { vm, .. } => ("MigrateVM_Task", "Drm.ExecuteVMotionLRO", (*vm).into()),
            Work::Power { vm, change } => match change {
                PowerChange::On => ("PowerOnVM_Task", "VirtualMachine.powerOn", (*vm).into()),
                PowerChange::Off => ("PowerOffVM_Task", "VirtualMachine.powerOff", (*vm).into()),
                PowerChange::Reset => ("ResetVM_Task", "VirtualMachine.reset", (*vm).into()),
                PowerChange::Suspend => ("SuspendVM_Task", "VirtualMachine.suspend", (*vm).into()),
            },
            Work::CreateVm(spec) => ("CreateVM_Task", "Folder.createVm", spec.folder.into()),
            Work::DestroyVm(vm) => ("Destroy_Task", "VirtualMachine.destroy", (*vm).into()),
            Work::ReconfigureVm { vm, .. } => ("ReconfigVM_Task", "VirtualMachine.reconfigure", (*vm).into()),
            Work::EnterMaintenance { host, .. } => {
                ("EnterMaintenanceMode_Task", "HostSystem.enterMaintenanceMode", (*host).into())
            }
            Work::ExitMaintenance(host) => {
                ("ExitMaintenanceMode_Task", "HostSystem.exitMaintenanceMode", (*host).into())
            }
            Work::DisconnectHost(host) => ("DisconnectHost_Task", "HostSystem.disconnect", (*host).into()),
            Work::ReconnectHost(host) => ("ReconnectHost_Task", "HostSystem.reconnect", (*host).into()),
            Work::ReconfigureCluster { cluster, .. } => {
                ("ReconfigureComputeResource_Task", "ComputeResource.reconfigureEx", (*cluster).into())
            }
            Work::Rename { object, .. } => ("Rename_Task", "ManagedEntity.rename", *object),
        }
    }

    /// The VM that is locked for other such work.
    fn exclusive_vm(&self) -> Option<VmId> {
        match self {
            Work::Migrate { vm, .. } | Work::Power { vm, .. } | Work::DestroyVm(vm) => Some(*vm),
            _ => None,
        }
    }

    /// The source and target of a migration.
    pub fn migration_hosts(&self) -> Option<[HostId; 2]> {
        match self {
            Work::Migrate { from, to, .. } => Some([*from, *to]),
            _ => None,
        }
    }

    fn cancelable(&self) -> bool {
        matches!(self, Work::Migrate { .. } | Work::EnterMaintenance { .. })
    }
}

#[derive(Debug)]
pub(super) struct Operation {
    pub work: Work,
    pub actor: Actor,
    pub running: bool,
    fails_halfway: bool,
    /// The VM was locked by another task when this one was created.
    refused: bool,
}

/// How a task starts.
pub(super) enum Admission {
    /// Runs for this long.
    Run(Duration),
    /// Stays queued until the hosts have a free slot.
    Wait,
    /// Runs until its condition is met.
    UntilDone,
}

impl Vcenter {
    pub(super) fn begin(&mut self, work: Work, actor: &Actor, now: SimTime) -> TaskId {
        let (method, description_id, entity) = work.naming();
        let task = self.inventory.add_task(Task {
            method: method.to_owned(),
            description_id: description_id.to_owned(),
            entity,
            entity_name: self.name_of(entity),
            state: TaskState::Queued,
            progress_percent: None,
            user: actor.user.clone(),
            queued_at: now,
            started_at: None,
            completed_at: None,
            result: None,
            cancel_requested: false,
        });
        // The object shows its recent tasks.
        self.inventory.touch(entity);
        let refused = work.exclusive_vm().is_some_and(|vm| *self.physics.busy_vms.entry(vm).or_insert(task) != task);
        let operation = Operation { work, actor: actor.clone(), running: false, fails_halfway: false, refused };
        self.physics.operations.insert(task, operation);
        let wait = self.physics.draw_seconds(0.01, 0.06);
        self.schedule_in(now, wait, Step::StartTask(task));
        task
    }

    /// Whether the task is queued or running.
    #[must_use]
    pub fn is_under_way(&self, task: TaskId) -> bool {
        self.physics.operations.contains_key(&task)
    }

    /// Fault injection: the task runs half its time, then fails; its effect is not applied.
    pub fn fail_task_halfway(&mut self, task: TaskId) {
        if let Some(operation) = self.physics.operations.get_mut(&task) {
            operation.fails_halfway = true;
        }
    }

    pub fn cancel_task(&mut self, task: TaskId, now: SimTime) -> Result<(), VimFault> {
        if !self.inventory.exists(task.into()) {
            return Err(VimFault::ManagedObjectNotFound(task.into()));
        }
        let Some(operation) = self.physics.operations.get(&task) else { return Err(VimFault::InvalidState) };
        if operation.running && !operation.work.cancelable() {
            return Err(VimFault::NotSupported);
        }
        if let Some(task) = self.inventory.task_mut(task) {
            task.cancel_requested = true;
        }
        self.end_task(task, Err(VimFault::RequestCanceled), now);
        Ok(())
    }

    pub(super) fn start_task(&mut self, task: TaskId, now: SimTime) {
        let Some(operation) = self.physics.operations.get(&task).filter(|operation| !operation.running) else { return };
        if operation.refused {
            self.end_task(task, Err(VimFault::InvalidState), now);
            return;
        }
        let (work, actor) = (operation.work.clone(), operation.actor.clone());
        let admission = match &work {
            Work::Migrate { vm, from, to, .. } => self.admit_migration(task, *vm, [*from, *to], &actor, now),
            Work::EnterMaintenance { host, timeout, .. } => self.admit_maintenance(task, *host, *timeout, &actor, now),
            Work::Power { vm, change } => self.admit_power(*vm, *change),
            Work::CreateVm(_) => Ok(Admission::Run(self.physics.draw_seconds(1.0, 3.0))),
            Work::DestroyVm(_) => Ok(Admission::Run(self.physics.draw_seconds(0.5, 1.5))),
            Work::ReconfigureVm { .. } | Work::ReconfigureCluster { .. } => {
                Ok(Admission::Run(self.physics.draw_seconds(0.2, 0.6)))
            }
            Work::Rename { .. } => Ok(Admission::Run(self.physics.draw_seconds(0.05, 0.2))),
            Work::ExitMaintenance(_) | Work::DisconnectHost(_) | Work::ReconnectHost(_) => {
                Ok(Admission::Run(self.physics.draw_seconds(1.0, 3.0)))
            }
        };
        let duration = match admission {
            Err(fault) => return self.end_task(task, Err(fault), now),
            Ok(Admission::Wait) => return,
            Ok(Admission::UntilDone) => None,
            Ok(Admission::Run(duration)) => Some(duration),
        };
        let Some(operation) = self.physics.operations.get_mut(&task) else { return };
        operation.running = true;
        let fails_halfway = operation.fails_halfway;
        if let Some(task) = self.inventory.task_mut(task) {
            task.state = TaskState::Running;
            task.started_at = Some(now);
            task.progress_percent = Some(0);
        }
        match duration {
            Some(duration) => {
                let stops: &[i32] = if duration > Duration::from_secs(3) { &[25, 50, 75] } else { &[50] };
                for &percent in stops {
                    let wait = duration.mul_f64(f64::from(percent) / 100.0);
                    self.schedule_in(now, wait, Step::AdvanceTask { task, percent });
                }
                self.schedule_in(now, duration, Step::FinishTask(task));
            }
            // The task has no fixed duration to halve, so it fails after three seconds.
            None if fails_halfway => {
                self.schedule_in(now, Duration::from_secs(3), Step::AdvanceTask { task, percent: 50 });
            }
            None => (),
        }
    }

    pub(super) fn advance_task(&mut self, task: TaskId, percent: i32, now: SimTime) {
        let Some(operation) = self.physics.operations.get(&task) else { return };
        if operation.fails_halfway && percent >= 50 {
            self.end_task(task, Err(failed_halfway()), now);
        } else if let Some(task) = self.inventory.task_mut(task) {
            task.progress_percent = Some(percent);
        }
    }

    pub(super) fn finish_task(&mut self, task: TaskId, now: SimTime) {
        let Some(operation) = self.physics.operations.get(&task) else { return };
        let (work, actor) = (operation.work.clone(), operation.actor.clone());
        let outcome = if operation.fails_halfway { Err(failed_halfway()) } else { self.execute(work, &actor, now) };
        self.end_task(task, outcome, now);
    }

    /// Applies the effect of finished work. Returns the object that it created.
    fn execute(&mut self, work: Work, actor: &Actor, now: SimTime) -> Result<Option<MoRef>, VimFault> {
        match work {
            Work::Migrate { vm, from, to, reason } => self.switch_over(vm, from, to, reason, actor, now)?,
            Work::Power { vm, change } => self.change_power(vm, change, actor, now)?,
            Work::CreateVm(spec) => return self.make_vm(*spec, actor, now).map(|vm| Some(vm.into())),
            Work::DestroyVm(vm) => self.unmake_vm(vm, actor, now)?,
            Work::ReconfigureVm { vm, change } => self.change_vm(vm, *change, actor, now)?,
            Work::EnterMaintenance { host, .. } => self.host_is_in_maintenance(host, actor, now),
            Work::ExitMaintenance(host) => self.leave_maintenance(host, actor, now)?,
            Work::DisconnectHost(host) => self.let_go_of_host(host, actor, now)?,
            Work::ReconnectHost(host) => self.take_back_host(host, actor, now)?,
            Work::ReconfigureCluster { cluster, change } => self.change_cluster(cluster, *change, actor, now)?,
            Work::Rename { object, name } => self.change_name(object, &name, actor, now)?,
        }
        Ok(None)
    }

    /// Ends a task and releases what it holds: the VM's lock, migration slots, a partly entered maintenance mode.
    pub(super) fn end_task(&mut self, task: TaskId, outcome: Result<Option<MoRef>, VimFault>, now: SimTime) {
        let Some(operation) = self.physics.operations.remove(&task) else { return };
        if let Some(vm) = operation.work.exclusive_vm()
            && self.physics.busy_vms.get(&vm) == Some(&task)
        {
            self.physics.busy_vms.remove(&vm);
        }
        if let Err(fault) = &outcome {
            self.happenings.push(Happening::TaskFailed {
                task: task.to_string(),
                what: self.inventory.task(task).map_or_else(String::new, |task| {
                    format!("{} of {}", task.method.trim_end_matches("_Task"), task.entity_name)
                }),
                fault: fault.to_string(),
            });
        }
        let failed = outcome.is_err();
        if let Some(task) = self.inventory.task_mut(task) {
            task.completed_at = Some(now);
            match outcome {
                Ok(result) => {
                    task.result = result;
                    task.progress_percent = Some(100);
                    task.state = TaskState::Success;
                }
                Err(fault) => task.state = TaskState::Error(fault),
            }
        }
        if let Some(entity) = self.inventory.task(task).map(|task| task.entity)
            && self.inventory.exists(entity)
        {
            self.inventory.touch(entity);
        }
        self.keep_finished(task);
        match operation.work {
            Work::Migrate { vm, from, to, .. } => {
                let held = migration::Held { task, vm, from, to, running: operation.running };
                self.release_migration(&held, failed, now);
                self.check_maintenance(from, now);
            }
            Work::EnterMaintenance { host, .. } if failed && operation.running => self.revert_maintenance(host),
            Work::Power { vm, .. } | Work::DestroyVm(vm) => {
                if let Some(host) = self.inventory.vm(vm).map(|vm| vm.host) {
                    self.check_maintenance(host, now);
                }
            }
            _ => (),
        }
    }

    /// Retains a finished task for queries, and drops the oldest.
    fn keep_finished(&mut self, task: TaskId) {
        self.physics.finished_tasks.push_back(task);
        while self.physics.finished_tasks.len() > TASKS_MAX
            && let Some(oldest) = self.physics.finished_tasks.pop_front()
        {
            self.inventory.remove_task(oldest);
        }
    }

    /// A task for an operation that completed immediately.
    pub fn finished_task(
        &mut self,
        method: &str,
        entity: MoRef,
        entity_name: String,
        actor: &Actor,
        now: SimTime,
    ) -> TaskId {
        let short = method.trim_end_matches("_Task");
        let mut letters = short.chars();
        let first = letters.next().map(|letter| letter.to_ascii_lowercase()).unwrap_or_default();
        let task = self.inventory.add_task(Task {
            method: method.to_owned(),
            description_id: format!("{}.{first}{}", entity.type_name(), letters.as_str()),
            entity,
            entity_name,
            state: TaskState::Success,
            progress_percent: None,
            user: actor.user.clone(),
            queued_at: now,
            started_at: Some(now),
            completed_at: Some(now),
            result: None,
            cancel_requested: false,
        });
        self.keep_finished(task);
        task
    }

    pub(super) fn name_of(&self, object: MoRef) -> String {
        let inventory = &self.inventory;
        match object {
            MoRef::Folder(id) => inventory.folder(id).map(|folder| folder.name.clone()),
            MoRef::Datacenter(id) => inventory.datacenter(id).map(|datacenter| datacenter.name.clone()),
            MoRef::Cluster(id) => inventory.cluster(id).map(|cluster| cluster.name.clone()),
            MoRef::Host(id) => inventory.host(id).map(|host| host.name.clone()),
            MoRef::Pool(id) => inventory.pool(id).map(|pool| pool.name.clone()),
            MoRef::Vm(id) => inventory.vm(id).map(|vm| vm.name.clone()),
            MoRef::Datastore(id) => inventory.datastore(id).map(|datastore| datastore.name.clone()),
            MoRef::Network(id) => inventory.network(id).map(|network| network.name.clone()),
            MoRef::Task(id) => inventory.task(id).map(|task| task.method.clone()),
        }
        .unwrap_or_default()
    }
}

fn failed_halfway() -> VimFault {
    VimFault::SystemError("simulated fault: the task failed halfway".to_owned())
}
