//! The DRS decision: which VMs to move where, and why some cannot be moved.
//!
//! In: a [`ClusterView`]. Out: a [`Plan`]. Pure: the same view gives the same plan.
//!
//! Invariants:
//! - No move goes to a host that accepts no VMs, or violates a VM-VM rule or a mandatory VM-Host rule, not even while
//!   VMs migrate. Preferred VM-Host rules yield only to VM-VM rules and to maintenance.
//! - A VM moves at most once per plan; VMs that affinity rules connect move together.

use super::layout::{Layout, Obstacle, Policy};
use super::view::{ClusterView, Constraint};
use crate::vcenter::MoveReason;

/// The load difference between the fullest and the emptiest host at which DRS balances, as a fraction of capacity.
const IMBALANCE_MAX: f64 = 0.12;
/// A balancing move must reduce the load of the fuller host by at least this fraction of its capacity.
const GAIN_MIN: f64 = 0.02;
/// How many of the fullest and of the emptiest hosts are considered for one balancing move.
const ENDS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The indices of the VM and of the hosts in the view.
    pub vm: usize,
    pub from: usize,
    pub to: usize,
    pub reason: MoveReason,
}

/// An evacuation that cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    pub host: usize,
    pub vm: usize,
    pub obstacle: Obstacle,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub moves: Vec<Move>,
    pub stalls: Vec<Stall>,
}

const STRICT: Policy = Policy { anti_affinity: true, soft: true };
const LENIENT: Policy = Policy { anti_affinity: true, soft: false };

#[must_use]
pub fn plan(view: &ClusterView) -> Plan {
    let mut planner = Planner { layout: Layout::new(view), plan: Plan::default() };
    planner.fix_anti_affinity();
    planner.fix_affinity();
    planner.fix_vm_host(true);
    planner.fix_vm_host(false);
    planner.evacuate();
    // While rule violations are being fixed, the loads will change anyway.
    if planner.plan.moves.is_empty() {
        planner.balance();
    }
    planner.plan
}

struct Planner<'a> {
    layout: Layout<'a>,
    plan: Plan,
}

impl Planner<'_> {
    fn fix_anti_affinity(&mut self) {
        let view = self.layout.view;
        for rule in &view.rules {
            let Constraint::AntiAffinity { vms } = &rule.constraint else { continue };
            // The VM that is cheapest to move goes first; the last one on a host stays.
            let mut by_size = vms.clone();
            by_size.sort_by_key(|&vm| (view.vms[vm].load.memory_mib, vm));
            for vm in by_size {
                let host = self.layout.at[vm];
                // A VM that is already leaving does not count.
                let crowded = vms.iter().any(|&other| other != vm && self.layout.at[other] == host);
                if crowded && !self.layout.fixed[vm] {
                    self.relocate(vm, MoveReason::DrsMend);
                }
            }
        }
    }

    fn fix_affinity(&mut self) {
        let view = self.layout.view;
        for rule in &view.rules {
            let Constraint::Affinity { vms } = &rule.constraint else { continue };
            let Some(&first) = vms.first() else { continue };
            if vms.iter().any(|&vm| self.layout.at[vm] != self.layout.at[first]) {
                self.gather(self.layout.affinity_set_of[first]);
            }
        }
    }

    /// Moves a set to the host that already has most of it, or to any host that can take all of it.
    fn gather(&mut self, set: usize) {
        let members = self.layout.affinity_sets[set].clone();
        let mut homes: Vec<usize> = members.iter().map(|&vm| self.layout.at[vm]).collect();
        homes.sort_unstable();
        homes.dedup();
        let here = |layout: &Layout<'_>, host: usize| members.iter().filter(|&&vm| layout.at[vm] == host).count();
        homes.sort_by_key(|&host| std::cmp::Reverse(here(&self.layout, host)));
        let target = [STRICT, LENIENT].into_iter().find_map(|policy| {
            let home = homes.iter().copied().find(|&host| self.layout.obstacle(&members, host, policy).is_none());
            home.or_else(|| self.layout.best_target(&members, policy))
        });
        if let Some(target) = target {
            self.send(&members, target, MoveReason::DrsMend);
        }
    }

    fn fix_vm_host(&mut self, wanted: bool) {
        let view = self.layout.view;
        for rule in &view.rules {
            let Constraint::OnHosts { vms, allowed, mandatory } = &rule.constraint else { continue };
            if *mandatory != wanted {
                continue;
            }
            for &vm in vms {
                if allowed[self.layout.at[vm]] || self.layout.fixed[vm] {
                    continue;
                }
                // A violated preferred rule is fixed only if that violates no other preferred rule.
                let policies: &[Policy] = if wanted { &[STRICT, LENIENT] } else { &[STRICT] };
                let set = self.layout.affinity_sets[self.layout.affinity_set_of[vm]].clone();
                let target = policies.iter().find_map(|policy| self.layout.best_target(&set, *policy));
                if let Some(target) = target {
                    self.send(&set, target, MoveReason::DrsMend);
                }
            }
        }
    }

    fn evacuate(&mut self) {
        let view = self.layout.view;
        if !view.hosts.iter().any(|host| host.evacuating) {
            return;
        }
        for vm in 0..view.vms.len() {
            let host = self.layout.at[vm];
            if !view.hosts[host].evacuating || self.layout.fixed[vm] {
                continue;
            }
            if !self.relocate(vm, MoveReason::Maintenance) {
                let set = &self.layout.affinity_sets[self.layout.affinity_set_of[vm]];
                self.plan.stalls.push(Stall { host, vm, obstacle: self.main_obstacle(set, host) });
            }
        }
    }

    /// Moves a VM's set off its host, or frees a host for a later plan. Returns whether either was possible.
    fn relocate(&mut self, vm: usize, reason: MoveReason) -> bool {
        let set = self.layout.affinity_sets[self.layout.affinity_set_of[vm]].clone();
        let home = self.layout.at[vm];
        let target =
            [STRICT, LENIENT].into_iter().find_map(|policy| self.layout.best_target_but(&set, policy, Some(home)));
        if let Some(target) = target {
            self.send(&set, target, reason);
            return true;
        }
        self.make_room(&set, reason)
    }

    /// If exactly one other VM blocks a host and can move elsewhere, it is moved.
    fn make_room(&mut self, set: &[usize], reason: MoveReason) -> bool {
        for target in 0..self.layout.view.hosts.len() {
            let Some(Obstacle::Rule(rule)) = self.layout.obstacle(set, target, LENIENT) else { continue };
            let Constraint::AntiAffinity { vms } = &self.layout.view.rules[rule].constraint else { continue };
            let blockers: Vec<usize> =
                vms.iter().copied().filter(|vm| !set.contains(vm) && self.layout.occupies(*vm, target)).collect();
            let [blocker] = blockers[..] else { continue };
            if self.layout.fixed[blocker] || self.layout.affinity_sets[self.layout.affinity_set_of[blocker]].len() > 1 {
                continue;
            }
            // Without the blocker there must be no other obstacle.
            let (at, leaving) = (self.layout.at[blocker], self.layout.leaving[blocker]);
            self.layout.at[blocker] = usize::MAX;
            self.layout.leaving[blocker] = None;
            let free = self.layout.obstacle(set, target, LENIENT).is_none();
            self.layout.at[blocker] = at;
            self.layout.leaving[blocker] = leaving;
            if !free {
                continue;
            }
            if let Some(refuge) = self.layout.best_target_but(&[blocker], STRICT, Some(target)) {
                self.send(&[blocker], refuge, reason);
                return true;
            }
        }
        false
    }

    fn main_obstacle(&self, set: &[usize], home: usize) -> Obstacle {
        let others = (0..self.layout.view.hosts.len()).filter(|&host| host != home);
        let obstacles: Vec<Obstacle> = others.filter_map(|host| self.layout.obstacle(set, host, LENIENT)).collect();
        Obstacle::main(&obstacles)
    }

    fn balance(&mut self) {
        let view = self.layout.view;
        let mut by_host: Vec<Vec<usize>> = vec![Vec::new(); view.hosts.len()];
        for set in 0..self.layout.affinity_sets.len() {
            let members = &self.layout.affinity_sets[set];
            let host = self.layout.at[members[0]];
            if members.iter().all(|&vm| self.layout.at[vm] == host && !self.layout.fixed[vm]) {
                by_host[host].push(set);
            }
        }
        let mut usable: Vec<usize> = (0..view.hosts.len()).filter(|&host| view.hosts[host].takes_vms).collect();
        let moves_max = 2 + usable.len() / 10;
        for _ in 0..moves_max {
            usable.sort_by(|&a, &b| self.layout.share(b).total_cmp(&self.layout.share(a)).then(a.cmp(&b)));
            let Some((set, from, to)) = self.best_balancing_move(&usable, &by_host) else { return };
            by_host[from].retain(|other| *other != set);
            let members = self.layout.affinity_sets[set].clone();
            self.send(&members, to, MoveReason::DrsBalance);
        }
    }

    /// The move from one of the fullest hosts to one of the emptiest that minimizes the load of the fuller of the two.
    fn best_balancing_move(&self, fullest_first: &[usize], by_host: &[Vec<usize>]) -> Option<(usize, usize, usize)> {
        let view = self.layout.view;
        let ends = ENDS.min(fullest_first.len() / 2);
        for &from in &fullest_first[..ends] {
            let mut best: Option<(f64, usize, usize)> = None;
            for &to in fullest_first.iter().rev().take(ends) {
                let fuller = self.layout.share(from);
                if fuller - self.layout.share(to) < IMBALANCE_MAX {
                    continue;
                }
                for &set in &by_host[from] {
                    let members = &self.layout.affinity_sets[set];
                    let (mut left, mut gained) = (self.layout.final_load[from], self.layout.final_load[to]);
                    for &vm in members {
                        left.subtract(view.vms[vm].load);
                        gained.add(view.vms[vm].load);
                    }
                    let after = left.share_of(view.hosts[from].capacity).max(gained.share_of(view.hosts[to].capacity));
                    let gain = fuller - after;
                    if gain >= GAIN_MIN
                        && best.is_none_or(|(most, ..)| gain > most)
                        && self.layout.obstacle(members, to, STRICT).is_none()
                    {
                        best = Some((gain, set, to));
                    }
                }
            }
            if let Some((_, set, to)) = best {
                return Some((set, from, to));
            }
        }
        None
    }

    fn send(&mut self, vms: &[usize], to: usize, reason: MoveReason) {
        for &vm in vms {
            let from = self.layout.at[vm];
            if from != to {
                self.layout.move_vm(vm, to);
                self.plan.moves.push(Move { vm, from, to, reason });
            }
        }
    }
}
