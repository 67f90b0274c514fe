//! The effects of tasks on one VM: power, creation, destruction, reconfiguration, and renaming of any object.

use super::drs::layout::{Layout, Obstacle, Policy};
use super::drs::view::ClusterView;
use super::events::About;
use super::operations::{Actor, VmChange, VmSpec};
use super::tasks::{Admission, PowerChange, Work};
use crate::clock::SimTime;
use crate::vcenter::inventory::{
    ConnectionState, DrsBehavior, FolderId, FolderKind, GroupMembers, HostId, MoRef, PowerState, RuleKind, Vm, VmId,
};
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::{Happening, MoveReason, Vcenter};

/// vSphere's limits.
const NAME_CHARACTERS_MAX: usize = 80;
const CPU_COUNT_MAX: u32 = 768;
const MEMORY_MIB_MAX: u64 = 24 * 1024 * 1024;

impl PowerState {
    fn wire_name(self) -> &'static str {
        match self {
            PowerState::On => "poweredOn",
            PowerState::Off => "poweredOff",
            PowerState::Suspended => "suspended",
        }
    }
}

impl Vcenter {
    pub(super) fn admit_power(&mut self, vm: VmId, change: PowerChange) -> Result<Admission, VimFault> {
        self.check_power(vm, change)?;
        let (from, to) = match change {
            PowerChange::On => (1.0, 3.0),
            PowerChange::Off => (0.5, 1.5),
            PowerChange::Reset => (1.0, 2.0),
            PowerChange::Suspend => (2.0, 5.0),
        };
        Ok(Admission::Run(self.physics.draw_seconds(from, to)))
    }

    fn check_power(&self, id: VmId, change: PowerChange) -> Result<(), VimFault> {
        let vm = self.reachable_vm(id)?;
        let (allowed, requested) = match change {
            PowerChange::On => (vm.power != PowerState::On, PowerState::On),
            PowerChange::Off => (vm.power != PowerState::Off, PowerState::Off),
            PowerChange::Reset => (vm.power == PowerState::On, PowerState::On),
            PowerChange::Suspend => (vm.power == PowerState::On, PowerState::Suspended),
        };
        if allowed {
            return Ok(());
        }
        Err(VimFault::InvalidPowerState {
            requested: requested.wire_name().to_owned(),
            existing: vm.power.wire_name().to_owned(),
        })
    }

    /// The VM, if the vCenter is connected to its host.
    fn reachable_vm(&self, id: VmId) -> Result<&Vm, VimFault> {
        let vm = self.inventory.vm(id).ok_or(VimFault::ManagedObjectNotFound(id.into()))?;
        let connected = self.inventory.host(vm.host).is_some_and(|host| host.connection == ConnectionState::Connected);
        if connected && !self.physics.failures.contains_key(&vm.host) {
            Ok(vm)
        } else {
            Err(VimFault::HostNotConnected)
        }
    }

    pub(super) fn change_power(
        &mut self,
        vm: VmId,
        change: PowerChange,
        actor: &Actor,
        now: SimTime,
    ) -> Result<(), VimFault> {
        self.check_power(vm, change)?;
        match change {
            PowerChange::On => {
                self.find_place_to_start(vm, actor, now)?;
                self.set_power(vm, PowerState::On, "VmPoweredOnEvent", actor, now);
            }
            PowerChange::Off => self.set_power(vm, PowerState::Off, "VmPoweredOffEvent", actor, now),
            PowerChange::Suspend => self.set_power(vm, PowerState::Suspended, "VmSuspendedEvent", actor, now),
            PowerChange::Reset => {
                // For the guest, a reset is a loss of power.
                self.set_power(vm, PowerState::Off, "VmResettingEvent", actor, now);
                self.set_power(vm, PowerState::On, "VmPoweredOnEvent", actor, now);
            }
        }
        Ok(())
    }

    /// If DRS may place VMs automatically, moves a VM that must not start on its host. Otherwise the current host must
    /// be suitable.
    fn find_place_to_start(&mut self, vm: VmId, actor: &Actor, now: SimTime) -> Result<(), VimFault> {
        let Some(current) = self.inventory.vm(vm).map(|vm| vm.host) else { return Ok(()) };
        let takes_vms = self.inventory.host(current).is_some_and(|host| host.takes_vms());
        let cluster = self.inventory.cluster_of(vm);
        let drs = cluster.and_then(|id| self.inventory.cluster(id)).map(|cluster| cluster.drs.clone());
        if !drs.is_some_and(|drs| drs.enabled && drs.behavior != DrsBehavior::Manual) {
            return match self.rule_against(vm, current, false) {
                Some(rule) => Err(VimFault::RuleViolation(format!("rule {rule} forbids it"))),
                None if takes_vms => Ok(()),
                None => Err(VimFault::InvalidState),
            };
        }
        let Some(cluster) = cluster else { return Ok(()) };
        let view = ClusterView::of(self, cluster, &[vm].into());
        let layout = Layout::new(&view);
        let (Some(index), Some(here)) = (view.vm_index(vm), view.host_index(current)) else { return Ok(()) };
        let policy = Policy { anti_affinity: true, soft: false };
        let Some(obstacle) = layout.obstacle(&[index], here, policy) else { return Ok(()) };
        let target = layout
            .best_target(&[index], Policy { soft: true, ..policy })
            .or_else(|| layout.best_target(&[index], policy))
            .ok_or(VimFault::NoCompatibleHost)?;
        let to = view.hosts[target].id;
        let reason = match obstacle {
            Obstacle::Rule(_) => MoveReason::DrsMend,
            Obstacle::Host => MoveReason::Maintenance,
            Obstacle::Room | Obstacle::Busy => MoveReason::DrsBalance,
        };
        self.inventory.place_vm(vm, to);
        let (name, from, to_name) = (self.name_of(vm.into()), self.name_of(current.into()), self.name_of(to.into()));
        let message = format!("DRS powers on {name} on {to_name} instead of {from}");
        self.post(
            "DrsVmPoweredOnEvent",
            About { source_host: Some(current), ..About::vm(vm) },
            &actor.user,
            now,
            message,
        );
        self.happenings.push(Happening::VmMoved { vm, name, from, to: to_name, reason });
        Ok(())
    }

    /// Changes a VM's power state and records it in the chronicle and the event history.
    pub(super) fn set_power(&mut self, id: VmId, power: PowerState, event: &'static str, actor: &Actor, now: SimTime) {
        let on = power == PowerState::On;
        if on {
            self.wake_demand(id, now);
        }
        let Some(vm) = self.inventory.vm_mut(id) else { return };
        vm.power = power;
        vm.boot_time = on.then_some(now);
        if !on {
            vm.cpu_demand_mhz = 0;
            vm.memory_demand_mib = 0;
        }
        let (name, host) = (vm.name.clone(), vm.host);
        self.inventory.touch(host.into());
        let host = self.name_of(host.into());
        let message = format!("{name} on {host} is now {}", power.wire_name());
        self.post(event, About::vm(id), &actor.user, now, message);
        self.happenings.push(if on {
            Happening::VmPoweredOn { vm: id, name, host }
        } else {
            Happening::VmPoweredOff { vm: id, name, host }
        });
    }

    pub(super) fn make_vm(&mut self, spec: VmSpec, actor: &Actor, now: SimTime) -> Result<VmId, VimFault> {
        let invalid = |property: &str| Err(VimFault::InvalidArgument { property: property.to_owned() });
        check_name(&spec.name, "config.name")?;
        self.check_name_is_free(spec.folder, &spec.name)?;
        if self.inventory.folder(spec.folder).is_none_or(|folder| folder.kind != FolderKind::Vm) {
            return Err(VimFault::NotSupported);
        }
        if !(1..=CPU_COUNT_MAX).contains(&spec.cpu_count) {
            return invalid("config.numCPUs");
        }
        if !(4..=MEMORY_MIB_MAX).contains(&spec.memory_mib) {
            return invalid("config.memoryMB");
        }
        let pool = self.inventory.pool(spec.pool).ok_or(VimFault::ManagedObjectNotFound(spec.pool.into()))?;
        let cluster = pool.cluster;
        let host = match spec.host {
            Some(host) => host,
            None => self.least_loaded_host(cluster).ok_or(VimFault::NoCompatibleHost)?,
        };
        match self.inventory.host(host) {
            None => return Err(VimFault::ManagedObjectNotFound(host.into())),
            Some(host) if host.cluster != cluster => return invalid("host"),
            Some(host) if host.connection != ConnectionState::Connected => return Err(VimFault::HostNotConnected),
            Some(host) if !host.takes_vms() => return Err(VimFault::InvalidState),
            Some(_) => (),
        }
        let power_on = spec.power_on;
        let vm = self.add_vm(spec, host, actor, now);
        if power_on {
            self.begin(Work::Power { vm, change: PowerChange::On }, actor, now);
        }
        Ok(vm)
    }

    /// Adds a powered-off VM to the inventory and records it.
    pub(super) fn add_vm(&mut self, spec: VmSpec, host: HostId, actor: &Actor, now: SimTime) -> VmId {
        let vm = self.inventory.add_vm(Vm {
            guest_host_name: spec.name.clone(),
            name: spec.name.clone(),
            parent: spec.folder,
            pool: spec.pool,
            host,
            power: PowerState::Off,
            bios_uuid: self.physics.uuids.uuid(),
            instance_uuid: self.physics.uuids.uuid(),
            ip_address: self.physics.next_address(),
            cpu_count: spec.cpu_count,
            memory_mib: spec.memory_mib,
            cpu_demand_mhz: 0,
            memory_demand_mib: 0,
            annotation: spec.annotation,
            extra_config: spec.extra_config,
            boot_time: None,
            moving_to: None,
        });
        self.touch_around(spec.folder, host, spec.pool.into());
        let host_name = self.name_of(host.into());
        let message = format!("Created virtual machine {} on {host_name}", spec.name);
        self.post("VmCreatedEvent", About::vm(vm), &actor.user, now, message);
        self.happenings.push(Happening::VmCreated { vm, name: spec.name, host: host_name });
        vm
    }

    pub(super) fn unmake_vm(&mut self, id: VmId, actor: &Actor, now: SimTime) -> Result<(), VimFault> {
        let vm = self.reachable_vm(id)?;
        if vm.power != PowerState::Off {
            return Err(VimFault::InvalidPowerState {
                requested: PowerState::Off.wire_name().to_owned(),
                existing: vm.power.wire_name().to_owned(),
            });
        }
        let (name, host) = (vm.name.clone(), vm.host);
        let (guest_host_name, bios_uuid) = (vm.guest_host_name.clone(), vm.bios_uuid);
        let message = format!("Removed {name} on {}", self.name_of(host.into()));
        self.post("VmRemovedEvent", About::vm(id), &actor.user, now, message);
        self.forget_in_rules(id);
        self.physics.demand.forget(id);
        if let Some(vm) = self.inventory.remove_vm(id) {
            self.touch_around(vm.parent, vm.host, vm.pool.into());
        }
        self.happenings.push(Happening::VmDestroyed { vm: id, name, guest_host_name, bios_uuid });
        Ok(())
    }

    /// Removes a destroyed VM from rules and groups. As with a real vCenter, the rule itself stays, even with one
    /// member or none, and then has no effect. Only a client that edits it is subject to the minimum again.
    fn forget_in_rules(&mut self, id: VmId) {
        let clusters: Vec<_> = self.inventory.clusters().map(|(id, _)| id).collect();
        for cluster_id in clusters {
            let Some(cluster) = self.inventory.cluster(cluster_id) else { continue };
            let in_rules = cluster.rules.iter().any(|rule| match &rule.kind {
                RuleKind::Affinity { vms } | RuleKind::AntiAffinity { vms } => vms.contains(&id),
                RuleKind::VmHost { .. } | RuleKind::Dependency { .. } => false,
            });
            let in_groups = cluster
                .groups
                .iter()
                .any(|group| matches!(&group.members, GroupMembers::Vms(vms) if vms.contains(&id)));
            if !in_rules && !in_groups {
                continue;
            }
            let Some(cluster) = self.inventory.cluster_mut(cluster_id) else { continue };
            for rule in &mut cluster.rules {
                if let RuleKind::Affinity { vms } | RuleKind::AntiAffinity { vms } = &mut rule.kind {
                    vms.retain(|vm| *vm != id);
                }
            }
            for group in &mut cluster.groups {
                if let GroupMembers::Vms(vms) = &mut group.members {
                    vms.retain(|vm| *vm != id);
                }
            }
        }
    }

    pub(super) fn change_vm(
        &mut self,
        id: VmId,
        change: VmChange,
        actor: &Actor,
        now: SimTime,
    ) -> Result<(), VimFault> {
        let vm = self.reachable_vm(id)?;
        let invalid = |property: &str| Err(VimFault::InvalidArgument { property: property.to_owned() });
        if change.cpu_count.is_some_and(|count| !(1..=CPU_COUNT_MAX).contains(&count)) {
            return invalid("spec.numCPUs");
        }
        if change.memory_mib.is_some_and(|memory| !(4..=MEMORY_MIB_MAX).contains(&memory)) {
            return invalid("spec.memoryMB");
        }
        let resized = change.cpu_count.is_some_and(|count| count != vm.cpu_count)
            || change.memory_mib.is_some_and(|memory| memory != vm.memory_mib);
        if resized && vm.power != PowerState::Off {
            // CPU and memory hot plug are disabled by default.
            return Err(VimFault::InvalidPowerState {
                requested: PowerState::Off.wire_name().to_owned(),
                existing: vm.power.wire_name().to_owned(),
            });
        }
        if let Some(name) = &change.name {
            self.change_name(id.into(), name, actor, now)?;
        }
        let Some(vm) = self.inventory.vm_mut(id) else { return Ok(()) };
        vm.cpu_count = change.cpu_count.unwrap_or(vm.cpu_count);
        vm.memory_mib = change.memory_mib.unwrap_or(vm.memory_mib);
        if let Some(annotation) = change.annotation {
            vm.annotation = annotation;
        }
        for (key, value) in change.extra_config {
            match value.filter(|value| !value.is_empty()) {
                Some(value) => vm.extra_config.insert(key, value),
                None => vm.extra_config.remove(&key),
            };
        }
        let message = format!("Reconfigured {}", vm.name);
        self.post("VmReconfiguredEvent", About::vm(id), &actor.user, now, message);
        Ok(())
    }

    pub(super) fn change_name(
        &mut self,
        object: MoRef,
        name: &str,
        actor: &Actor,
        now: SimTime,
    ) -> Result<(), VimFault> {
        check_name(name, "newName")?;
        let before = self.name_of(object);
        if before == name {
            return Ok(());
        }
        let gone = || VimFault::ManagedObjectNotFound(object);
        match object {
            MoRef::Vm(id) => {
                let folder = self.inventory.vm(id).ok_or_else(gone)?.parent;
                self.check_name_is_free(folder, name)?;
                self.inventory.vm_mut(id).ok_or_else(gone)?.name = name.to_owned();
                let message = format!("Renamed {before} to {name}");
                self.post("VmRenamedEvent", About::vm(id), &actor.user, now, message);
            }
            MoRef::Cluster(id) => {
                if let Some((other, _)) = self.inventory.clusters().find(|(_, cluster)| cluster.name == name) {
                    return Err(VimFault::DuplicateName { name: name.to_owned(), object: other.into() });
                }
                self.inventory.cluster_mut(id).ok_or_else(gone)?.name = name.to_owned();
            }
            MoRef::Folder(id) => self.inventory.folder_mut(id).ok_or_else(gone)?.name = name.to_owned(),
            MoRef::Datacenter(id) => self.inventory.datacenter_mut(id).ok_or_else(gone)?.name = name.to_owned(),
            MoRef::Pool(id) => self.inventory.pool_mut(id).ok_or_else(gone)?.name = name.to_owned(),
            MoRef::Datastore(id) => self.inventory.datastore_mut(id).ok_or_else(gone)?.name = name.to_owned(),
            MoRef::Network(id) => self.inventory.network_mut(id).ok_or_else(gone)?.name = name.to_owned(),
            // A host's name is its address.
            MoRef::Host(_) | MoRef::Task(_) => return Err(VimFault::NotSupported),
        }
        Ok(())
    }

    fn check_name_is_free(&self, folder: FolderId, name: &str) -> Result<(), VimFault> {
        match self.inventory.vms().find(|(_, vm)| vm.parent == folder && vm.name == name) {
            Some((other, _)) => Err(VimFault::DuplicateName { name: name.to_owned(), object: other.into() }),
            None => Ok(()),
        }
    }

    /// Marks the objects that list a VM as touched when one is added or removed.
    fn touch_around(&mut self, folder: FolderId, host: HostId, pool: MoRef) {
        let mut around: Vec<MoRef> = vec![folder.into(), host.into(), pool];
        around.extend(self.inventory.datastores().map(|(id, _)| MoRef::from(id)));
        around.extend(self.inventory.networks().map(|(id, _)| MoRef::from(id)));
        for object in around {
            self.inventory.touch(object);
        }
    }
}

fn check_name(name: &str, property: &str) -> Result<(), VimFault> {
    if name.is_empty() || name.chars().count() > NAME_CHARACTERS_MAX {
        return Err(VimFault::InvalidArgument { property: property.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
