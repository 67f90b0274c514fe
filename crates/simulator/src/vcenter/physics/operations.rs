//! The operations that clients can request. Each returns the task that performs it.
//!
//! In: ids and specs in the simulator's own types. Out: a task id. As with a real vCenter, a missing object is a fault
//! of the method; all other errors are faults of the task.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use super::tasks::{PowerChange, Work};
use crate::clock::SimTime;
use crate::vcenter::inventory::{
    ClusterId, DrsBehavior, FolderId, Group, HostId, MoRef, PoolId, RuleKind, TaskId, VmId,
};
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::{MoveReason, Vcenter};

/// The user who requests an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub user: String,
}

impl Actor {
    /// DRS and HA.
    #[must_use]
    pub fn system() -> Actor {
        Actor { user: "System".to_owned() }
    }
}

/// The specification of a new VM.
#[derive(Clone, Debug)]
pub struct VmSpec {
    pub name: String,
    pub folder: FolderId,
    pub pool: PoolId,
    /// If missing, the least loaded host of the pool's cluster.
    pub host: Option<HostId>,
    pub cpu_count: u32,
    pub memory_mib: u64,
    pub annotation: String,
    pub extra_config: BTreeMap<String, String>,
    pub power_on: bool,
}

/// Changes to a VM; `None` leaves a property unchanged.
#[derive(Clone, Debug, Default)]
pub struct VmChange {
    pub name: Option<String>,
    pub cpu_count: Option<u32>,
    pub memory_mib: Option<u64>,
    pub annotation: Option<String>,
    /// A value of `None` removes the key.
    pub extra_config: BTreeMap<String, Option<String>>,
}

/// Changes to a cluster, applied completely or not at all.
#[derive(Clone, Debug, Default)]
pub struct ClusterChange {
    pub rules: Vec<Edit<RuleSpec, i32>>,
    pub groups: Vec<Edit<Group, String>>,
    pub drs_enabled: Option<bool>,
    pub drs_behavior: Option<DrsBehavior>,
    pub ha_enabled: Option<bool>,
    /// Merged into the existing options; an empty value removes an option.
    pub ha_options: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub enum Edit<T, K> {
    Add(T),
    Change(T),
    Remove(K),
}

/// A rule as the client sends it; in an edit, `None` keeps the rule's value.
#[derive(Clone, Debug, Default)]
pub struct RuleSpec {
    pub key: Option<i32>,
    pub uuid: Option<Uuid>,
    pub name: Option<String>,
    pub enabled: Option<bool>,
    pub mandatory: Option<bool>,
    pub kind: Option<RuleKind>,
}

impl Vcenter {
    /// Moves a VM to another host of its cluster. A user may violate a VM-VM rule.
    pub fn relocate_vm(&mut self, vm: VmId, to: HostId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        let from = self.inventory.vm(vm).ok_or(VimFault::ManagedObjectNotFound(vm.into()))?.host;
        self.require(to.into())?;
        Ok(self.begin(Work::Migrate { vm, from, to, reason: MoveReason::Requested }, actor, now))
    }

    pub fn power_on_vm(&mut self, vm: VmId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.begin_power(vm, PowerChange::On, actor, now)
    }

    pub fn power_off_vm(&mut self, vm: VmId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.begin_power(vm, PowerChange::Off, actor, now)
    }

    pub fn reset_vm(&mut self, vm: VmId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.begin_power(vm, PowerChange::Reset, actor, now)
    }

    pub fn suspend_vm(&mut self, vm: VmId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.begin_power(vm, PowerChange::Suspend, actor, now)
    }

    fn begin_power(&mut self, vm: VmId, change: PowerChange, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.require(vm.into())?;
        Ok(self.begin(Work::Power { vm, change }, actor, now))
    }

    pub fn create_vm(&mut self, spec: VmSpec, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.require(spec.folder.into())?;
        self.require(spec.pool.into())?;
        if let Some(host) = spec.host {
            self.require(host.into())?;
        }
        Ok(self.begin(Work::CreateVm(Box::new(spec)), actor, now))
    }

    pub fn destroy_vm(&mut self, vm: VmId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.require(vm.into())?;
        Ok(self.begin(Work::DestroyVm(vm), actor, now))
    }

    pub fn reconfigure_vm(
        &mut self,
        vm: VmId,
        change: VmChange,
        actor: &Actor,
        now: SimTime,
    ) -> Result<TaskId, VimFault> {
        self.require(vm.into())?;
        Ok(self.begin(Work::ReconfigureVm { vm, change: Box::new(change) }, actor, now))
    }

    /// Takes a host out of service when its running VMs have left. A timeout of 0 or less waits indefinitely.
    pub fn enter_maintenance(
        &mut self,
        host: HostId,
        timeout_s: i32,
        actor: &Actor,
        now: SimTime,
    ) -> Result<TaskId, VimFault> {
        self.require(host.into())?;
        let timeout = u64::try_from(timeout_s).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
        Ok(self.begin(Work::EnterMaintenance { host, timeout, vms_at_first: 0, stalled: false }, actor, now))
    }

    pub fn exit_maintenance(&mut self, host: HostId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.require(host.into())?;
        Ok(self.begin(Work::ExitMaintenance(host), actor, now))
    }

    /// Disconnects a host; its VMs keep running.
    pub fn disconnect_host(&mut self, host: HostId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.require(host.into())?;
        Ok(self.begin(Work::DisconnectHost(host), actor, now))
    }

    pub fn reconnect_host(&mut self, host: HostId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.require(host.into())?;
        Ok(self.begin(Work::ReconnectHost(host), actor, now))
    }

    pub fn reconfigure_cluster(
        &mut self,
        cluster: ClusterId,
        change: ClusterChange,
        actor: &Actor,
        now: SimTime,
    ) -> Result<TaskId, VimFault> {
        self.require(cluster.into())?;
        Ok(self.begin(Work::ReconfigureCluster { cluster, change: Box::new(change) }, actor, now))
    }

    pub fn rename(&mut self, object: MoRef, name: &str, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.require(object)?;
        Ok(self.begin(Work::Rename { object, name: name.to_owned() }, actor, now))
    }

    fn require(&self, object: MoRef) -> Result<(), VimFault> {
        if self.inventory.exists(object) { Ok(()) } else { Err(VimFault::ManagedObjectNotFound(object)) }
    }
}
