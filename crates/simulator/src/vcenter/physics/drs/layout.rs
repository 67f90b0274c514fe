//! Where VMs are while moves are tried on a view of the cluster.
//!
//! Input: a [`ClusterView`] and moves. Output: for a set of VMs and a host, what stands in the way of placing them there.
//!
//! Invariant: a VM that is on its way counts on both hosts, for rules and for room, because until the switch-over it
//! runs on the one and afterwards on the other.

use super::view::{ClusterView, Constraint, Load, RuleView};

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

impl Obstacle {
    /// Of what stands in the way of each host, what a person would have to change: rules or room, whichever is in the
    /// way of more hosts.
    #[must_use]
    pub fn main(obstacles: &[Obstacle]) -> Obstacle {
        let is_rule = |obstacle: &&Obstacle| matches!(obstacle, Obstacle::Rule(_));
        let rules = obstacles.iter().filter(is_rule).count();
        let rooms = obstacles.iter().filter(|obstacle| **obstacle == Obstacle::Room).count();
        if rooms > rules {
            return Obstacle::Room;
        }
        let first_rule = obstacles.iter().find(is_rule).copied();
        let busy = obstacles.iter().find(|obstacle| **obstacle == Obstacle::Busy).copied();
        first_rule.or(busy).unwrap_or(Obstacle::Host)
    }
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
