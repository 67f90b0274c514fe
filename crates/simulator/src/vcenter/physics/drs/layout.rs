//! The positions of VMs while moves are tried on a view of the cluster.
//!
//! In: a [`ClusterView`] and moves. Out: for a set of VMs and a host, the obstacle to placing them there.
//!
//! Invariant: a migrating VM counts on both hosts, for rules and for capacity, because it runs on the source until the
//! switch-over and on the target afterwards.

use super::view::{ClusterView, Constraint, Load, RuleView};

/// Why a placement is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The host accepts no VMs.
    Host,
    /// A VM cannot be moved now.
    Busy,
    /// A rule of the view forbids it.
    Rule(usize),
    /// The host has too little capacity.
    Room,
}

impl Obstacle {
    /// The obstacle that an administrator would have to remove, given the obstacle of each host: rules or capacity,
    /// whichever blocks more hosts.
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

/// Which rules apply. Mandatory VM-Host rules always do.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub anti_affinity: bool,
    /// Preferred VM-Host rules.
    pub soft: bool,
}

/// The positions of VMs while moves are tried on the view.
#[derive(Debug)]
pub struct Layout<'a> {
    pub view: &'a ClusterView,
    pub at: Vec<usize>,
    pub leaving: Vec<Option<usize>>,
    /// The VM has been moved, or cannot be moved.
    pub fixed: Vec<bool>,
    /// The load after all moves.
    pub final_load: Vec<Load>,
    /// The load with migrating VMs counted on both hosts.
    reserved: Vec<Load>,
    pub rules_of: Vec<Vec<usize>>,
    /// VMs that affinity rules connect, directly or transitively. They move together.
    pub affinity_sets: Vec<Vec<usize>>,
    pub affinity_set_of: Vec<usize>,
}

impl<'a> Layout<'a> {
    #[must_use]
    pub fn new(view: &'a ClusterView) -> Layout<'a> {
        let mut layout = Layout {
            view,
            at: view.vms.iter().map(|vm| vm.host).collect(),
            leaving: view.vms.iter().map(|vm| vm.leaving).collect(),
            fixed: view.vms.iter().map(|vm| !vm.movable).collect(),
            final_load: vec![Load::default(); view.hosts.len()],
            reserved: vec![Load::default(); view.hosts.len()],
            rules_of: vec![Vec::new(); view.vms.len()],
            affinity_sets: Vec::new(),
            affinity_set_of: vec![usize::MAX; view.vms.len()],
        };
        for vm in &view.vms {
            layout.final_load[vm.host].add(vm.load);
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
        layout.find_affinity_sets();
        layout
    }

    fn find_affinity_sets(&mut self) {
        for first in 0..self.view.vms.len() {
            if self.affinity_set_of[first] != usize::MAX {
                continue;
            }
            let set = self.affinity_sets.len();
            self.affinity_set_of[first] = set;
            let mut members = vec![first];
            let mut next = 0;
            while next < members.len() {
                for &rule in &self.rules_of[members[next]] {
                    if let Constraint::Affinity { vms } = &self.view.rules[rule].constraint {
                        for &vm in vms {
                            if self.affinity_set_of[vm] == usize::MAX {
                                self.affinity_set_of[vm] = set;
                                members.push(vm);
                            }
                        }
                    }
                }
                next += 1;
            }
            self.affinity_sets.push(members);
        }
    }

    /// The VM is on the host, is leaving it, or is moving to it.
    #[must_use]
    pub fn occupies(&self, vm: usize, host: usize) -> bool {
        self.at[vm] == host || self.leaving[vm] == Some(host)
    }

    /// Why these VMs cannot all be on the host. VMs that are already there are not checked.
    #[must_use]
    pub fn obstacle(&self, vms: &[usize], target: usize, policy: Policy) -> Option<Obstacle> {
        let host = &self.view.hosts[target];
        if !host.takes_vms {
            return Some(Obstacle::Host);
        }
        let mut load = self.reserved[target];
        for &vm in vms {
            if self.at[vm] == target {
                // A VM that is not running yet is already counted in the load of its host.
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
            Constraint::Affinity { .. } => false,
            Constraint::AntiAffinity { vms } => {
                policy.anti_affinity
                    && vms.iter().any(|&other| other != vm && (moving.contains(&other) || self.occupies(other, target)))
            }
            Constraint::OnHosts { allowed, mandatory, .. } => (*mandatory || policy.soft) && !allowed[target],
        }
    }

    /// Of the hosts without an obstacle, the one with the lowest load after adding these VMs.
    #[must_use]
    pub fn best_target(&self, vms: &[usize], policy: Policy) -> Option<usize> {
        self.best_target_but(vms, policy, None)
    }

    /// Like [`Layout::best_target`], but excludes one host.
    #[must_use]
    pub fn best_target_but(&self, vms: &[usize], policy: Policy, avoided: Option<usize>) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for target in (0..self.view.hosts.len()).filter(|target| Some(*target) != avoided) {
            let mut load = self.final_load[target];
            for &vm in vms {
                if self.at[vm] != target {
                    load.add(self.view.vms[vm].load);
                }
            }
            let share = load.share_of(self.view.hosts[target].capacity);
            // The cheap comparison goes first: finding obstacles iterates over rules.
            if best.is_none_or(|(least, _)| share < least) && self.obstacle(vms, target, policy).is_none() {
                best = Some((share, target));
            }
        }
        best.map(|(_, target)| target)
    }

    /// Starts a move of a VM.
    pub fn move_vm(&mut self, vm: usize, target: usize) {
        let load = self.view.vms[vm].load;
        self.final_load[self.at[vm]].subtract(load);
        self.final_load[target].add(load);
        self.reserved[target].add(load);
        self.leaving[vm] = Some(self.at[vm]);
        self.at[vm] = target;
        self.fixed[vm] = true;
    }

    /// The relative load of a host after all moves.
    #[must_use]
    pub fn share(&self, host: usize) -> f64 {
        self.final_load[host].share_of(self.view.hosts[host].capacity)
    }
}
