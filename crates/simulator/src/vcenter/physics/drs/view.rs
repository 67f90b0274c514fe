//! A cluster from the view of DRS: hosts, running VMs and enabled rules, with dense indices.
//!
//! In: the inventory and the running operations. Out: a [`ClusterView`], the input of a plan.

use std::collections::{BTreeMap, BTreeSet};

use crate::vcenter::Vcenter;
use crate::vcenter::inventory::{
    Cluster, ClusterId, ConnectionState, GroupMembers, HostId, Maintenance, PowerState, RuleKind, VmId,
};

#[derive(Clone, Debug)]
pub struct HostView {
    pub id: HostId,
    pub takes_vms: bool,
    /// The host is entering maintenance: its VMs must leave.
    pub evacuating: bool,
    pub capacity: Load,
}

#[derive(Clone, Debug)]
pub struct VmView {
    pub id: VmId,
    /// The VM's host, or the target of its migration.
    pub host: usize,
    /// The source host of a running migration.
    pub leaving: Option<usize>,
    pub load: Load,
    pub movable: bool,
}

#[derive(Clone, Debug)]
pub struct RuleView {
    pub name: String,
    pub constraint: Constraint,
}

/// An enabled rule, limited to the running VMs of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constraint {
    Affinity {
        vms: Vec<usize>,
    },
    AntiAffinity {
        vms: Vec<usize>,
    },
    /// `allowed` is true for each host on which these VMs may run.
    OnHosts {
        vms: Vec<usize>,
        allowed: Vec<bool>,
        mandatory: bool,
    },
}

impl Constraint {
    #[must_use]
    pub fn vms(&self) -> &[usize] {
        match self {
            Constraint::Affinity { vms } | Constraint::AntiAffinity { vms } | Constraint::OnHosts { vms, .. } => vms,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub cpu_mhz: u64,
    pub memory_mib: u64,
}

impl Load {
    pub fn add(&mut self, other: Load) {
        self.cpu_mhz += other.cpu_mhz;
        self.memory_mib += other.memory_mib;
    }

    pub fn subtract(&mut self, other: Load) {
        self.cpu_mhz = self.cpu_mhz.saturating_sub(other.cpu_mhz);
        self.memory_mib = self.memory_mib.saturating_sub(other.memory_mib);
    }

    /// Memory must be available. CPU may be overcommitted by half: VMs then wait for each other.
    pub(super) fn fits(self, capacity: Load) -> bool {
        self.cpu_mhz * 2 <= capacity.cpu_mhz * 3 && self.memory_mib <= capacity.memory_mib
    }

    /// The relative load of a host, by the scarcer resource.
    #[allow(clippy::cast_precision_loss)]
    #[must_use]
    pub fn share_of(self, capacity: Load) -> f64 {
        let share = |used: u64, there: u64| used as f64 / there.max(1) as f64;
        share(self.cpu_mhz, capacity.cpu_mhz).max(share(self.memory_mib, capacity.memory_mib))
    }
}

#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    pub hosts: Vec<HostView>,
    pub vms: Vec<VmView>,
    pub rules: Vec<RuleView>,
}

impl ClusterView {
    /// The cluster's hosts and running VMs. `candidates`, which are not running, count as VMs to place.
    pub(in crate::vcenter::physics) fn of(
        vcenter: &Vcenter,
        cluster_id: ClusterId,
        candidates: &BTreeSet<VmId>,
    ) -> ClusterView {
        let Some(cluster) = vcenter.inventory.cluster(cluster_id) else { return ClusterView::default() };
        let mut view = ClusterView::default();
        let mut host_index = BTreeMap::new();
        for (id, host) in vcenter.inventory.hosts_in(cluster_id) {
            let up = !vcenter.physics.failures.contains_key(&id);
            host_index.insert(id, view.hosts.len());
            view.hosts.push(HostView {
                id,
                takes_vms: host.takes_vms() && up,
                evacuating: host.maintenance == Maintenance::Entering
                    && host.connection == ConnectionState::Connected
                    && up,
                capacity: Load { cpu_mhz: host.cpu_capacity_mhz(), memory_mib: host.memory_mib },
            });
        }
        let mut vm_index = BTreeMap::new();
        for (&host_id, &host) in &host_index {
            let connected =
                vcenter.inventory.host(host_id).is_some_and(|host| host.connection == ConnectionState::Connected);
            for (id, vm) in vcenter.inventory.vms_on(host_id) {
                if vm.power != PowerState::On && !candidates.contains(&id) {
                    continue;
                }
                let task = vcenter.physics.busy_vms.get(&id).and_then(|task| vcenter.physics.operations.get(task));
                // The target of a running migration.
                let target =
                    task.and_then(|operation| operation.work.migration_hosts()).and_then(|[_, to]| host_index.get(&to));
                vm_index.insert(id, view.vms.len());
                view.vms.push(VmView {
                    id,
                    host: target.copied().unwrap_or(host),
                    leaving: target.map(|_| host),
                    load: expected_load(vm),
                    movable: candidates.contains(&id) || (task.is_none() && connected),
                });
            }
        }
        view.rules = rule_views(cluster, &vm_index, &host_index);
        view
    }

    #[must_use]
    pub fn vm_index(&self, id: VmId) -> Option<usize> {
        self.vms.iter().position(|vm| vm.id == id)
    }

    #[must_use]
    pub fn host_index(&self, id: HostId) -> Option<usize> {
        self.hosts.iter().position(|host| host.id == id)
    }
}

/// The expected usage of a VM: its demand, or an estimate while it is not running.
fn expected_load(vm: &crate::vcenter::inventory::Vm) -> Load {
    if vm.power == PowerState::On {
        Load { cpu_mhz: u64::from(vm.cpu_demand_mhz), memory_mib: vm.memory_demand_mib }
    } else {
        Load { cpu_mhz: u64::from(vm.cpu_count) * 500, memory_mib: vm.memory_mib / 2 }
    }
}

fn rule_views(
    cluster: &Cluster,
    vm_index: &BTreeMap<VmId, usize>,
    host_index: &BTreeMap<HostId, usize>,
) -> Vec<RuleView> {
    let indexes = |vms: &[VmId]| vms.iter().filter_map(|vm| vm_index.get(vm).copied()).collect::<Vec<_>>();
    let group_vms = |name: &str| match cluster.group(name).map(|group| &group.members) {
        Some(GroupMembers::Vms(vms)) => indexes(vms),
        _ => Vec::new(),
    };
    let group_hosts = |name: &str| match cluster.group(name).map(|group| &group.members) {
        Some(GroupMembers::Hosts(hosts)) => hosts.iter().filter_map(|host| host_index.get(host).copied()).collect(),
        _ => Vec::new(),
    };
    let enabled = cluster.rules.iter().filter(|rule| rule.enabled);
    enabled
        .filter_map(|rule| {
            let constraint = match &rule.kind {
                RuleKind::Affinity { vms } => Constraint::Affinity { vms: indexes(vms) },
                RuleKind::AntiAffinity { vms } => Constraint::AntiAffinity { vms: indexes(vms) },
                RuleKind::VmHost { vm_group, affine_host_group, anti_affine_host_group } => {
                    let mut allowed = vec![affine_host_group.is_none(); host_index.len()];
                    for host in affine_host_group.as_deref().map(group_hosts).unwrap_or_default() {
                        allowed[host] = true;
                    }
                    for host in anti_affine_host_group.as_deref().map(group_hosts).unwrap_or_default() {
                        allowed[host] = false;
                    }
                    Constraint::OnHosts { vms: group_vms(vm_group), allowed, mandatory: rule.mandatory }
                }
                RuleKind::Dependency { .. } => return None,
            };
            Some(RuleView { name: rule.name.clone(), constraint })
        })
        .collect()
}
