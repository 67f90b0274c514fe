//! Maintenance mode, and the vCenter's connection to a host.
//!
//! A host that enters maintenance accepts no more VMs. DRS moves its running VMs away, and when none is left the host
//! is in maintenance. Powered-off VMs stay on it. If DRS cannot move a VM, the task keeps running until it can, until
//! its timeout, or until a client cancels it.

use std::time::Duration;

use super::Step;
use super::events::About;
use super::operations::Actor;
use super::tasks::{Admission, Work};
use crate::clock::SimTime;
use crate::vcenter::inventory::{ConnectionState, HostId, Maintenance, PowerState, TaskId};
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::{Happening, Vcenter};

impl Vcenter {
    pub(super) fn admit_maintenance(
        &mut self,
        task: TaskId,
        host_id: HostId,
        timeout: Option<Duration>,
        actor: &Actor,
        now: SimTime,
    ) -> Result<Admission, VimFault> {
        self.connected_host(host_id)?;
        if self.inventory.host(host_id).is_none_or(|host| host.maintenance != Maintenance::No) {
            return Err(VimFault::InvalidState);
        }
        let running = self.running_on(host_id);
        if let Some(operation) = self.physics.operations.get_mut(&task)
            && let Work::EnterMaintenance { vms_at_first, .. } = &mut operation.work
        {
            *vms_at_first = running;
        }
        self.set_maintenance(host_id, Maintenance::Entering);
        let name = self.name_of(host_id.into());
        let cluster = self.inventory.host(host_id).map(|host| host.cluster).ok_or(VimFault::InvalidState)?;
        let message = format!("Host {name} has started to enter maintenance mode");
        self.post("EnteringMaintenanceModeEvent", About::host(host_id), &actor.user, now, message);
        self.happenings.push(Happening::HostEnteringMaintenance { host: name });
        self.schedule_in(now, Duration::from_millis(500), Step::DrsSoon(cluster));
        self.schedule_in(now, Duration::from_millis(1500), Step::MaintenanceCheck(task));
        if let Some(timeout) = timeout {
            self.schedule_in(now, timeout, Step::MaintenanceDeadline(task));
        }
        Ok(Admission::UntilDone)
    }

    /// Called when a VM has left the host or lost power: completes the task if the host is empty.
    pub(super) fn check_maintenance(&mut self, host: HostId, now: SimTime) {
        if self.inventory.host(host).is_some_and(|host| host.maintenance == Maintenance::Entering)
            && let Some(task) = self.maintenance_task(host)
        {
            self.schedule_in(now, Duration::from_millis(500), Step::MaintenanceCheck(task));
        }
    }

    pub(super) fn check_maintenance_task(&mut self, task: TaskId, now: SimTime) {
        let Some(operation) = self.physics.operations.get(&task) else { return };
        let Work::EnterMaintenance { host, vms_at_first, .. } = operation.work else { return };
        let left = self.running_on(host);
        if left == 0 {
            self.finish_task(task, now);
        } else if let Some(task) = self.inventory.task_mut(task) {
            let gone = vms_at_first.saturating_sub(left);
            task.progress_percent = i32::try_from(gone * 100 / vms_at_first.max(1)).ok();
        }
    }

    fn running_on(&self, host: HostId) -> usize {
        self.inventory.vms_on(host).filter(|(_, vm)| vm.power == PowerState::On).count()
    }

    pub(super) fn maintenance_deadline(&mut self, task: TaskId, now: SimTime) {
        // This does nothing if the task has already ended.
        self.end_task(task, Err(VimFault::Timedout), now);
    }

    fn maintenance_task(&self, wanted: HostId) -> Option<TaskId> {
        self.physics.operations.iter().find_map(|(task, operation)| match operation.work {
            Work::EnterMaintenance { host, .. } if host == wanted && operation.running => Some(*task),
            _ => None,
        })
    }

    /// Reports, once per task, why an evacuation cannot continue.
    pub(super) fn evacuation_stalls(&mut self, host: HostId, reason: &str) {
        let Some(task) = self.maintenance_task(host) else { return };
        let Some(operation) = self.physics.operations.get_mut(&task) else { return };
        let Work::EnterMaintenance { stalled, .. } = &mut operation.work else { return };
        if !std::mem::replace(stalled, true) {
            let host = self.name_of(host.into());
            self.happenings.push(Happening::HostMaintenanceStalled { host, reason: reason.to_owned() });
        }
    }

    pub(super) fn host_is_in_maintenance(&mut self, id: HostId, actor: &Actor, now: SimTime) {
        self.set_maintenance(id, Maintenance::In);
        let name = self.name_of(id.into());
        let message = format!("Host {name} has entered maintenance mode");
        self.post("EnteredMaintenanceModeEvent", About::host(id), &actor.user, now, message);
        self.happenings.push(Happening::HostEnteredMaintenance { host: name });
    }

    /// If the task does not bring the host into maintenance, the host stays in service.
    pub(super) fn revert_maintenance(&mut self, id: HostId) {
        if self.inventory.host(id).is_some_and(|host| host.maintenance == Maintenance::Entering) {
            self.set_maintenance(id, Maintenance::No);
        }
    }

    pub(super) fn leave_maintenance(&mut self, id: HostId, actor: &Actor, now: SimTime) -> Result<(), VimFault> {
        let id = self.connected_host(id)?;
        let host = self.inventory.host(id).filter(|host| host.maintenance == Maintenance::In);
        let name = host.ok_or(VimFault::InvalidState)?.name.clone();
        self.set_maintenance(id, Maintenance::No);
        let message = format!("Host {name} has exited maintenance mode");
        self.post("ExitMaintenanceModeEvent", About::host(id), &actor.user, now, message);
        self.happenings.push(Happening::HostExitedMaintenance { host: name });
        Ok(())
    }

    pub(super) fn let_go_of_host(&mut self, id: HostId, actor: &Actor, now: SimTime) -> Result<(), VimFault> {
        let id = self.connected_host(id)?;
        let name = self.set_connection(id, ConnectionState::Disconnected);
        let message = format!("Disconnected from {name}");
        self.post("HostDisconnectedEvent", About::host(id), &actor.user, now, message);
        self.happenings.push(Happening::HostDisconnected { host: name });
        Ok(())
    }

    pub(super) fn take_back_host(&mut self, id: HostId, actor: &Actor, now: SimTime) -> Result<(), VimFault> {
        let host = self.inventory.host(id).ok_or(VimFault::ManagedObjectNotFound(id.into()))?;
        if self.physics.failures.contains_key(&id) {
            return Err(VimFault::HostNotConnected);
        }
        if host.connection == ConnectionState::Connected {
            return Err(VimFault::InvalidState);
        }
        let name = self.set_connection(id, ConnectionState::Connected);
        let message = format!("Connected to {name}");
        self.post("HostConnectedEvent", About::host(id), &actor.user, now, message);
        self.happenings.push(Happening::HostReconnected { host: name });
        Ok(())
    }

    fn set_maintenance(&mut self, id: HostId, maintenance: Maintenance) {
        let Some(host) = self.inventory.host_mut(id) else { return };
        host.maintenance = maintenance;
        // A cluster's summary counts the hosts that accept VMs.
        let cluster = host.cluster;
        self.inventory.touch(cluster.into());
    }

    /// Sets a host's connection state, which its VMs and its cluster also show. Returns its name.
    pub(super) fn set_connection(&mut self, id: HostId, connection: ConnectionState) -> String {
        let Some(host) = self.inventory.host_mut(id) else { return String::new() };
        host.connection = connection;
        let (name, cluster) = (host.name.clone(), host.cluster);
        self.inventory.touch(cluster.into());
        let vms: Vec<_> = self.inventory.vms_on(id).map(|(vm, _)| vm).collect();
        for vm in vms {
            self.inventory.touch(vm.into());
        }
        name
    }

    fn connected_host(&self, id: HostId) -> Result<HostId, VimFault> {
        let host = self.inventory.host(id).ok_or(VimFault::ManagedObjectNotFound(id.into()))?;
        if host.connection != ConnectionState::Connected || self.physics.failures.contains_key(&id) {
            return Err(VimFault::HostNotConnected);
        }
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::operations::{ClusterChange, Edit};
    use super::super::testing::{Bench, quiet};
    use super::*;
    use crate::vcenter::DrsLevel;
    use crate::vcenter::inventory::{RuleKind, TaskState};

    fn enter(bench: &mut Bench, host: &str, timeout_s: i32) -> (HostId, TaskId) {
        let host = bench.host(host);
        let task = bench.vcenter.enter_maintenance(host, timeout_s, &Bench::actor(), bench.now).unwrap();
        (host, task)
    }

    fn stalls(bench: &Bench) -> Vec<String> {
        let reasons = bench.log.iter().filter_map(|(_, happening)| match happening {
            Happening::HostMaintenanceStalled { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        reasons.collect()
    }

    #[test]
    fn entering_evacuates_and_exiting_restores_the_host() {
        for level in [DrsLevel::FullyAutomated, DrsLevel::PartiallyAutomated] {
            let mut bench = quiet(4, 12, level);
            let (host, task) = enter(&mut bench, "esx-1.lab", 0);
            bench.run(1);
            assert_eq!(bench.vcenter.inventory().host(host).unwrap().maintenance, Maintenance::Entering);
            let mut progress = Vec::new();
            while bench.vcenter.inventory().task(task).unwrap().state == TaskState::Running {
                progress.extend(bench.vcenter.inventory().task(task).unwrap().progress_percent);
                bench.run(1);
            }
            assert!(progress.is_sorted() && progress.iter().any(|percent| (1..100).contains(percent)), "{progress:?}");
            bench.await_task(task).unwrap();
            assert_eq!(bench.vcenter.inventory().host(host).unwrap().maintenance, Maintenance::In);
            assert_eq!(bench.vcenter.inventory().vms_on(host).count(), 0);
            let again = bench.vcenter.enter_maintenance(host, 0, &Bench::actor(), bench.now).unwrap();
            assert_eq!(bench.await_task(again), Err(VimFault::InvalidState));
            let leave = bench.vcenter.exit_maintenance(host, &Bench::actor(), bench.now).unwrap();
            bench.await_task(leave).unwrap();
            assert!(bench.vcenter.inventory().host(host).unwrap().takes_vms());
            let leave = bench.vcenter.exit_maintenance(host, &Bench::actor(), bench.now).unwrap();
            assert_eq!(bench.await_task(leave), Err(VimFault::InvalidState));
        }
    }

    #[test]
    fn a_rule_as_wide_as_the_cluster_stalls_it_until_the_rule_is_removed() {
        let mut bench = quiet(3, 3, DrsLevel::FullyAutomated);
        bench.place(&[("node-1", "esx-1.lab"), ("node-2", "esx-2.lab"), ("node-3", "esx-3.lab")]);
        let vms = vec![bench.vm("node-1"), bench.vm("node-2"), bench.vm("node-3")];
        bench.add_rule("wide", RuleKind::AntiAffinity { vms }, false).unwrap();
        let (host, task) = enter(&mut bench, "esx-1.lab", 0);
        bench.run(1800);
        assert_eq!(bench.vcenter.inventory().task(task).unwrap().state, TaskState::Running);
        assert_eq!(stalls(&bench), ["rule wide leaves no other host for vm node-1"]);
        assert_eq!(bench.happened(|h| matches!(h, Happening::VmMoved { .. })), 0, "{:?}", bench.lines());
        let key = bench.vcenter.inventory().cluster(bench.cluster()).unwrap().rules[0].key;
        bench.reconfigure(ClusterChange { rules: vec![Edit::Remove(key)], ..ClusterChange::default() }).unwrap();
        bench.await_task(task).unwrap();
        assert_eq!(bench.vcenter.inventory().vms_on(host).count(), 0);
    }

    #[test]
    fn timeout_and_cancellation_restore_the_host() {
        for timeout_s in [30, 0] {
            let mut bench = quiet(2, 4, DrsLevel::Manual);
            bench.place(&[("node-1", "esx-1.lab")]);
            let (host, task) = enter(&mut bench, "esx-1.lab", timeout_s);
            bench.run(29);
            assert_eq!(bench.vcenter.inventory().task(task).unwrap().state, TaskState::Running);
            assert_eq!(stalls(&bench).len(), 1);
            let recommended = &bench.vcenter.inventory().cluster(bench.cluster()).unwrap().recommendations;
            assert!(!recommended.is_empty() && recommended.iter().all(|r| r.from == host));
            let fault = if timeout_s == 0 {
                bench.vcenter.cancel_task(task, bench.now).unwrap();
                VimFault::RequestCanceled
            } else {
                VimFault::Timedout
            };
            assert_eq!(bench.await_task(task), Err(fault));
            assert!(bench.vcenter.inventory().host(host).unwrap().takes_vms());
        }
    }

    #[test]
    fn a_disconnected_host_keeps_its_vms_running_and_accepts_no_operations() {
        let mut bench = quiet(2, 2, DrsLevel::FullyAutomated);
        bench.place(&[("node-1", "esx-1.lab"), ("node-2", "esx-2.lab")]);
        let (host, vm) = (bench.host("esx-1.lab"), bench.vm("node-1"));
        let task = bench.vcenter.disconnect_host(host, &Bench::actor(), bench.now).unwrap();
        bench.await_task(task).unwrap();
        bench.run(600);
        assert_eq!(bench.vcenter.inventory().vm(vm).unwrap().power, PowerState::On);
        assert_eq!(bench.host_of(vm), host);
        let off = bench.vcenter.power_off_vm(vm, &Bench::actor(), bench.now).unwrap();
        assert_eq!(bench.await_task(off), Err(VimFault::HostNotConnected));
        let task = bench.vcenter.reconnect_host(host, &Bench::actor(), bench.now).unwrap();
        bench.await_task(task).unwrap();
        assert!(bench.vcenter.inventory().host(host).unwrap().takes_vms());
    }
}
