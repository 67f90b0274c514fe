//! A cluster as DRS sees it: hosts, running VMs and enabled rules as dense indexes; and a layout to try moves on.
//!
//! Input: the inventory and what is under way. Output: for a set of VMs and a host, what stands in the way of placing
//! them there.
//!
//! Invariant: a VM that is on its way counts on both hosts, for rules and for room, because until the switch-over it
//! runs on the one and afterwards on the other.

use std::collections::BTreeMap;

use crate::vcenter::Vcenter;
use crate::vcenter::inventory::{
    Cluster, ClusterId, ConnectionState, GroupMembers, HostId, Maintenance, PowerState, RuleKind, VmId,
};

#[derive(Clone, Debug)]
pub struct HostView {
    pub id: HostId,
    pub takes_vms: bool,
    /// Entering maintenance: its VMs must leave.
    pub evacuating: bool,
    pub capacity: Load,
}

#[derive(Clone, Debug)]
pub struct VmView {
    pub id: VmId,
    /// Where it runs, or where it will run once its migration is through.
    pub host: usize,
    /// Where it still runs while its migration is under way.
    pub leaving: Option<usize>,
    pub load: Load,
    pub movable: bool,
}

#[derive(Clone, Debug)]
pub struct RuleView {
    pub name: String,
    pub constraint: Constraint,
}

/// An enabled rule, over the running VMs of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constraint {
    Together {
        vms: Vec<usize>,
    },
    Apart {
        vms: Vec<usize>,
    },
    /// `allowed` says for each host whether these VMs may run there.
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
            Constraint::Together { vms } | Constraint::Apart { vms } | Constraint::OnHosts { vms, .. } => vms,
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

    fn fits(self, capacity: Load) -> bool {
        self.cpu_mhz <= capacity.cpu_mhz && self.memory_mib <= capacity.memory_mib
    }

    /// How full it makes a host, by whichever is scarcer.
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
    /// The cluster's hosts and running VMs; `candidate`, which is not running, counts as a VM to be placed.
    pub(in crate::vcenter::physics) fn of(
        vcenter: &Vcenter,
        cluster_id: ClusterId,
        candidate: Option<VmId>,
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
                if vm.power != PowerState::On && candidate != Some(id) {
                    continue;
                }
                let task = vcenter.physics.busy_vms.get(&id).and_then(|task| vcenter.physics.operations.get(task));
                // Where a migration will take it.
                let target =
                    task.and_then(|operation| operation.work.migration_hosts()).and_then(|[_, to]| host_index.get(&to));
                vm_index.insert(id, view.vms.len());
                view.vms.push(VmView {
                    id,
                    host: target.copied().unwrap_or(host),
                    leaving: target.map(|_| host),
                    load: expected_load(vm),
                    movable: candidate == Some(id) || (task.is_none() && connected),
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

/// What a VM will use: its demand, or half of what it has while it is not running and nobody knows.
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
                RuleKind::Affinity { vms } => Constraint::Together { vms: indexes(vms) },
                RuleKind::AntiAffinity { vms } => Constraint::Apart { vms: indexes(vms) },
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

/// What stands in the way of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The host takes no VMs.
    Host,
    /// A VM cannot be moved now.
    Busy,
    /// This rule of the view forbids it.
    Rule(usize),
    /// The host is too full.
    Room,
}

/// Which rules bind: mandatory VM-Host rules always do.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub apart: bool,
    /// VM-Host rules that are preferences.
    pub soft: bool,
}

/// Where VMs are while moves are tried on the view.
#[derive(Debug)]
pub struct Layout<'a> {
    pub view: &'a ClusterView,
    pub at: Vec<usize>,
    pub leaving: Vec<Option<usize>>,
    /// Has been moved, or cannot be.
    pub fixed: Vec<bool>,
    /// Load when all moves are through.
    pub settled: Vec<Load>,
    /// Load with VMs on their way counted on both hosts.
    reserved: Vec<Load>,
    pub rules_of: Vec<Vec<usize>>,
    /// VMs that affinity rules tie together, directly or over others, move together.
    pub units: Vec<Vec<usize>>,
    pub unit_of: Vec<usize>,
}

impl<'a> Layout<'a> {
    #[must_use]
    pub fn new(view: &'a ClusterView) -> Layout<'a> {
        let mut layout = Layout {
            view,
            at: view.vms.iter().map(|vm| vm.host).collect(),
            leaving: view.vms.iter().map(|vm| vm.leaving).collect(),
            fixed: view.vms.iter().map(|vm| !vm.movable).collect(),
            settled: vec![Load::default(); view.hosts.len()],
            reserved: vec![Load::default(); view.hosts.len()],
            rules_of: vec![Vec::new(); view.vms.len()],
            units: Vec::new(),
            unit_of: vec![usize::MAX; view.vms.len()],
        };
        for vm in &view.vms {
            layout.settled[vm.host].add(vm.load);
            layout.reserved[vm.host].add(vm.load);
            if let Some(leaving) = vm.leaving {
                layout.reserved[leaving].add(vm.load);
            }
        }
        for (rule, RuleView { constraint, .. }) in view.rules.iter().enumerate() {
            for &vm in constraint.vms() {
                layout.rules_of[vm].push(rule);
            }
        }
        layout.find_units();
        layout
    }

    fn find_units(&mut self) {
        for first in 0..self.view.vms.len() {
            if self.unit_of[first] != usize::MAX {
                continue;
            }
            let unit = self.units.len();
            self.unit_of[first] = unit;
            let mut members = vec![first];
            let mut next = 0;
            while next < members.len() {
                for &rule in &self.rules_of[members[next]] {
                    if let Constraint::Together { vms } = &self.view.rules[rule].constraint {
                        for &vm in vms {
                            if self.unit_of[vm] == usize::MAX {
                                self.unit_of[vm] = unit;
                                members.push(vm);
                            }
                        }
                    }
                }
                next += 1;
            }
            self.units.push(members);
        }
    }

    /// The VM is on the host, or still there, or on its way there.
    #[must_use]
    pub fn occupies(&self, vm: usize, host: usize) -> bool {
        self.at[vm] == host || self.leaving[vm] == Some(host)
    }

    /// What keeps these VMs from all being on the host. Those already there are not asked about.
    #[must_use]
    pub fn obstacle(&self, vms: &[usize], target: usize, policy: Policy) -> Option<Obstacle> {
        let host = &self.view.hosts[target];
        if !host.takes_vms {
            return Some(Obstacle::Host);
        }
        let mut load = self.reserved[target];
        for &vm in vms {
            if self.at[vm] == target {
                // One that is not running yet takes up the room that it is counted with.
                continue;
            }
            if self.fixed[vm] {
                return Some(Obstacle::Busy);
            }
            load.add(self.view.vms[vm].load);
        }
        for &vm in vms {
            if let Some(rule) = self.rules_of[vm].iter().find(|rule| self.forbids(**rule, vm, vms, target, policy)) {
                return Some(Obstacle::Rule(*rule));
            }
        }
        (!load.fits(host.capacity)).then_some(Obstacle::Room)
    }

    fn forbids(&self, rule: usize, vm: usize, moving: &[usize], target: usize, policy: Policy) -> bool {
        match &self.view.rules[rule].constraint {
            Constraint::Together { .. } => false,
            Constraint::Apart { vms } => {
                policy.apart
                    && vms.iter().any(|&other| other != vm && (moving.contains(&other) || self.occupies(other, target)))
            }
            Constraint::OnHosts { allowed, mandatory, .. } => (*mandatory || policy.soft) && !allowed[target],
        }
    }

    /// The host that will be the least full with these VMs on it, of those that nothing stands in the way of.
    #[must_use]
    pub fn best_target(&self, vms: &[usize], policy: Policy) -> Option<usize> {
        self.best_target_but(vms, policy, None)
    }

    /// As [`Layout::best_target`], with one host that is not to be it.
    #[must_use]
    pub fn best_target_but(&self, vms: &[usize], policy: Policy, avoided: Option<usize>) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for target in (0..self.view.hosts.len()).filter(|target| Some(*target) != avoided) {
            let mut load = self.settled[target];
            for &vm in vms {
                if self.at[vm] != target {
                    load.add(self.view.vms[vm].load);
                }
            }
            let share = load.share_of(self.view.hosts[target].capacity);
            // The cheap comparison first: looking for obstacles walks rules.
            if best.is_none_or(|(least, _)| share < least) && self.obstacle(vms, target, policy).is_none() {
                best = Some((share, target));
            }
        }
        best.map(|(_, target)| target)
    }

    /// Sends a VM on its way.
    pub fn move_vm(&mut self, vm: usize, target: usize) {
        let load = self.view.vms[vm].load;
        self.settled[self.at[vm]].subtract(load);
        self.settled[target].add(load);
        self.reserved[target].add(load);
        self.leaving[vm] = Some(self.at[vm]);
        self.at[vm] = target;
        self.fixed[vm] = true;
    }

    /// How full a host will be once all moves are through.
    #[must_use]
    pub fn share(&self, host: usize) -> f64 {
        self.settled[host].share_of(self.view.hosts[host].capacity)
    }
}
