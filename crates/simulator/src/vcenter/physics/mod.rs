//! Stand-in: operations that complete at once.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::Vcenter;
use super::inventory::*;
use super::vim_fault::VimFault;
use crate::clock::SimTime;
use crate::seed::Seed;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub user: String,
}

#[derive(Clone, Debug)]
pub struct VmSpec {
    pub name: String,
    pub folder: FolderId,
    pub pool: PoolId,
    pub host: Option<HostId>,
    pub role: VmRole,
    pub cpu_count: u32,
    pub memory_mib: u64,
    pub annotation: String,
    pub extra_config: BTreeMap<String, String>,
    pub power_on: bool,
}

#[derive(Clone, Debug, Default)]
pub struct VmChange {
    pub name: Option<String>,
    pub cpu_count: Option<u32>,
    pub memory_mib: Option<u64>,
    pub annotation: Option<String>,
    pub extra_config: BTreeMap<String, Option<String>>,
}

#[derive(Clone, Debug, Default)]
pub struct ClusterChange {
    pub rules: Vec<Edit<RuleSpec, i32>>,
    pub groups: Vec<Edit<Group, String>>,
    pub drs_enabled: Option<bool>,
    pub drs_behavior: Option<DrsBehavior>,
    pub ha_enabled: Option<bool>,
    pub ha_options: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub enum Edit<T, K> {
    Add(T),
    Change(T),
    Remove(K),
}

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
    fn done(&mut self, method: &str, entity: MoRef, actor: &Actor, now: SimTime, state: TaskState) -> TaskId {
        let entity_name = match entity {
            MoRef::Vm(id) => self.inventory.vm(id).map(|vm| vm.name.clone()),
            MoRef::Host(id) => self.inventory.host(id).map(|host| host.name.clone()),
            _ => None,
        };
        self.inventory.add_task(Task {
            method: method.to_owned(),
            description_id: format!("{}.{method}", entity.type_name()),
            entity,
            entity_name: entity_name.unwrap_or_else(|| entity.to_string()),
            state,
            progress_percent: None,
            user: actor.user.clone(),
            queued_at: now,
            started_at: Some(now),
            completed_at: Some(now),
            result: None,
            cancel_requested: false,
        })
    }
    fn event(&mut self, type_name: &'static str, vm: VmId, actor: &Actor, now: SimTime) {
        let host = self.inventory.vm(vm).map(|vm| vm.host);
        self.inventory.post_event(Event {
            key: 0,
            type_name,
            created_at: now,
            user: actor.user.clone(),
            message: format!("{type_name} of {vm}"),
            datacenter: None,
            cluster: None,
            host,
            source_host: None,
            vm: Some(vm),
        });
    }
    pub fn relocate_vm(&mut self, vm: VmId, to: HostId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.inventory.vm_mut(vm).unwrap().host = to;
        self.event("VmMigratedEvent", vm, actor, now);
        Ok(self.done("RelocateVM_Task", vm.into(), actor, now, TaskState::Success))
    }
    fn power(&mut self, vm: VmId, to: PowerState, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        let it = self.inventory.vm_mut(vm).unwrap();
        if it.power == to {
            let fault =
                VimFault::InvalidPowerState { requested: "poweredOn".to_owned(), existing: "poweredOn".to_owned() };
            return Ok(self.done("Power", vm.into(), actor, now, TaskState::Error(fault)));
        }
        it.power = to;
        self.event("VmPoweredOnEvent", vm, actor, now);
        Ok(self.done("PowerOnVM_Task", vm.into(), actor, now, TaskState::Success))
    }
    pub fn power_on_vm(&mut self, vm: VmId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.power(vm, PowerState::On, actor, now)
    }
    pub fn power_off_vm(&mut self, vm: VmId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.power(vm, PowerState::Off, actor, now)
    }
    pub fn reset_vm(&mut self, vm: VmId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        Ok(self.done("ResetVM_Task", vm.into(), actor, now, TaskState::Success))
    }
    pub fn suspend_vm(&mut self, vm: VmId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.power(vm, PowerState::Suspended, actor, now)
    }
    pub fn create_vm(&mut self, spec: VmSpec, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        let host = spec.host.or_else(|| self.inventory.hosts().next().map(|(id, _)| id)).unwrap();
        let vm = self.inventory.add_vm(Vm {
            guest_host_name: spec.name.clone(),
            name: spec.name,
            parent: spec.folder,
            pool: spec.pool,
            host,
            role: spec.role,
            power: PowerState::Off,
            bios_uuid: Uuid::from_u128(99),
            instance_uuid: Uuid::from_u128(98),
            ip_address: "10.1.2.3".to_owned(),
            cpu_count: spec.cpu_count,
            memory_mib: spec.memory_mib,
            cpu_demand_mhz: 0,
            memory_demand_mib: 0,
            annotation: spec.annotation,
            extra_config: spec.extra_config,
            boot_time: None,
            moving_to: None,
        });
        let task = self.done("CreateVM_Task", spec.folder.into(), actor, now, TaskState::Success);
        self.inventory.task_mut(task).unwrap().result = Some(vm.into());
        Ok(task)
    }
    pub fn destroy_vm(&mut self, vm: VmId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        let task = self.done("Destroy_Task", vm.into(), actor, now, TaskState::Success);
        self.inventory.remove_vm(vm);
        Ok(task)
    }
    pub fn reconfigure_vm(
        &mut self,
        vm: VmId,
        change: VmChange,
        actor: &Actor,
        now: SimTime,
    ) -> Result<TaskId, VimFault> {
        let it = self.inventory.vm_mut(vm).unwrap();
        it.cpu_count = change.cpu_count.unwrap_or(it.cpu_count);
        it.memory_mib = change.memory_mib.unwrap_or(it.memory_mib);
        Ok(self.done("ReconfigVM_Task", vm.into(), actor, now, TaskState::Success))
    }
    pub fn enter_maintenance(
        &mut self,
        host: HostId,
        _timeout_s: i32,
        actor: &Actor,
        now: SimTime,
    ) -> Result<TaskId, VimFault> {
        self.inventory.host_mut(host).unwrap().maintenance = Maintenance::In;
        Ok(self.done("EnterMaintenanceMode_Task", host.into(), actor, now, TaskState::Success))
    }
    pub fn exit_maintenance(&mut self, host: HostId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.inventory.host_mut(host).unwrap().maintenance = Maintenance::No;
        Ok(self.done("ExitMaintenanceMode_Task", host.into(), actor, now, TaskState::Success))
    }
    pub fn disconnect_host(&mut self, host: HostId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.inventory.host_mut(host).unwrap().connection = ConnectionState::Disconnected;
        Ok(self.done("DisconnectHost_Task", host.into(), actor, now, TaskState::Success))
    }
    pub fn reconnect_host(&mut self, host: HostId, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        self.inventory.host_mut(host).unwrap().connection = ConnectionState::Connected;
        Ok(self.done("ReconnectHost_Task", host.into(), actor, now, TaskState::Success))
    }
    pub fn reconfigure_cluster(
        &mut self,
        cluster: ClusterId,
        change: ClusterChange,
        actor: &Actor,
        now: SimTime,
    ) -> Result<TaskId, VimFault> {
        let it = self.inventory.cluster_mut(cluster).unwrap();
        it.drs.enabled = change.drs_enabled.unwrap_or(it.drs.enabled);
        it.drs.behavior = change.drs_behavior.unwrap_or(it.drs.behavior);
        for edit in change.groups {
            match edit {
                Edit::Add(group) => it.groups.push(group),
                Edit::Change(group) => {
                    it.groups.retain(|old| old.name != group.name);
                    it.groups.push(group);
                }
                Edit::Remove(name) => it.groups.retain(|old| old.name != name),
            }
        }
        for edit in change.rules {
            match edit {
                Edit::Add(rule) => {
                    it.next_rule_key += 1;
                    it.rules.push(Rule {
                        key: it.next_rule_key,
                        uuid: Uuid::from_u128(it.next_rule_key as u128),
                        name: rule.name.unwrap_or_default(),
                        enabled: rule.enabled.unwrap_or(false),
                        mandatory: rule.mandatory.unwrap_or(false),
                        user_created: true,
                        kind: rule.kind.unwrap(),
                    });
                }
                Edit::Change(rule) => {
                    let old = it.rules.iter_mut().find(|old| Some(old.key) == rule.key).unwrap();
                    old.enabled = rule.enabled.unwrap_or(old.enabled);
                    old.kind = rule.kind.unwrap_or(old.kind.clone());
                }
                Edit::Remove(key) => it.rules.retain(|old| old.key != key),
            }
        }
        Ok(self.done("ReconfigureComputeResource_Task", cluster.into(), actor, now, TaskState::Success))
    }
    pub fn rename(&mut self, object: MoRef, name: &str, actor: &Actor, now: SimTime) -> Result<TaskId, VimFault> {
        if let MoRef::Vm(id) = object {
            self.inventory.vm_mut(id).unwrap().name = name.to_owned();
        }
        Ok(self.done("Rename_Task", object, actor, now, TaskState::Success))
    }
    pub fn cancel_task(&mut self, _task: TaskId, _now: SimTime) -> Result<(), VimFault> {
        Ok(())
    }
    pub fn fail_task_halfway(&mut self, task: TaskId) {
        if let Some(task) = self.inventory.task_mut(task) {
            task.state = TaskState::Error(VimFault::SystemError("halfway".to_owned()));
        }
    }
    pub(super) fn populate(&mut self, seed: Seed, now: SimTime) {
        let mut random = seed.stream("stand-in");
        let inventory = &mut self.inventory;
        let folder = |name: &str, kind, parent| Folder { name: name.to_owned(), kind, parent };
        let root = inventory.add_folder(folder("Datacenters", FolderKind::Root, None));
        let vm_folder = inventory.add_folder(folder("vm", FolderKind::Vm, None));
        let host_folder = inventory.add_folder(folder("host", FolderKind::Host, None));
        let datastore_folder = inventory.add_folder(folder("datastore", FolderKind::Datastore, None));
        let network_folder = inventory.add_folder(folder("network", FolderKind::Network, None));
        let datacenter = inventory.add_datacenter(Datacenter {
            name: "dc-1".to_owned(),
            parent: root,
            vm_folder,
            host_folder,
            datastore_folder,
            network_folder,
        });
        for id in [vm_folder, host_folder, datastore_folder, network_folder] {
            inventory.folder_mut(id).unwrap().parent = Some(datacenter.into());
        }
        inventory.add_datastore(Datastore { name: "datastore-1".to_owned(), parent: datastore_folder });
        inventory.add_network(Network { name: "VM Network".to_owned(), parent: network_folder });
        let mut hosts = Vec::new();
        let mut pools = Vec::new();
        let clusters = self.config.clusters as usize;
        for number in 1..=clusters {
            let cluster = inventory.add_cluster(Cluster {
                name: format!("cluster-{number}"),
                parent: host_folder,
                root_pool: PoolId(0),
                drs: DrsSettings { enabled: true, behavior: DrsBehavior::FullyAutomated },
                ha: HaSettings { enabled: true, options: BTreeMap::new() },
                rules: Vec::new(),
                groups: Vec::new(),
                next_rule_key: 0,
            });
            let pool =
                inventory.add_pool(Pool { name: "Resources".to_owned(), parent: cluster.into(), cluster });
            inventory.cluster_mut(cluster).unwrap().root_pool = pool;
            pools.push((cluster, pool));
        }
        for number in 0..self.config.hosts as usize {
            hosts.push(inventory.add_host(Host {
                name: format!("esx-{}.lab", number + 1),
                cluster: pools[number % clusters].0,
                uuid: random.uuid(),
                connection: ConnectionState::Connected,
                maintenance: Maintenance::No,
                cpu_count: self.config.host_cpu_count,
                cpu_mhz: self.config.host_cpu_mhz,
                memory_mib: self.config.host_memory_mib,
                boot_time: now,
            }));
        }
        for number in 0..self.config.nodes as usize {
            inventory.add_vm(Vm {
                name: format!("node-{}", number + 1),
                parent: vm_folder,
                pool: pools[number % clusters].1,
                host: hosts[number % hosts.len()],
                role: VmRole::KubernetesNode,
                power: PowerState::On,
                bios_uuid: random.uuid(),
                instance_uuid: random.uuid(),
                guest_host_name: format!("node-{}", number + 1),
                ip_address: format!("10.1.{}.{}", number / 250, number % 250 + 1),
                cpu_count: 8,
                memory_mib: 32768,
                cpu_demand_mhz: 1000,
                memory_demand_mib: 4096,
                annotation: String::new(),
                extra_config: BTreeMap::from([("guestinfo.bridger.role".to_owned(), "node".to_owned())]),
                boot_time: Some(now),
                moving_to: None,
            });
        }
    }
}
