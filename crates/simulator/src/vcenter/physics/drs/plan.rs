//! DRS's decision: which VMs to move where, and why some cannot be moved.
//!
//! Input: a [`ClusterView`]. Output: a [`Plan`]. Pure: the same view gives the same plan.
//!
//! Invariants:
//! - No move goes to a host that takes no VMs, nor into a violation of a VM-VM rule or a mandatory VM-Host rule, not even
//!   while VMs are on their way. Preferences give way only to VM-VM rules and to maintenance.
//! - A VM moves at most once per plan; VMs tied by affinity move together.

use super::layout::{Layout, Obstacle, Policy};
use super::view::{ClusterView, Constraint};
use crate::vcenter::MoveReason;

/// How much fuller the fullest host may be than the emptiest before DRS balances, as a share of their capacity.
const IMBALANCE_MAX: f64 = 0.12;
/// A move for balance must make the fuller of the two hosts emptier by this share of its capacity.
const GAIN_MIN: f64 = 0.02;
/// How many hosts, from each end, are looked at for one balancing move.
const ENDS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Index of the VM and of the hosts in the view.
    pub vm: usize,
    pub from: usize,
    pub to: usize,
    pub reason: MoveReason,
}

/// An evacuation that gets no further.
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

const STRICT: Policy = Policy { apart: true, soft: true };
const LENIENT: Policy = Policy { apart: true, soft: false };

#[must_use]
pub fn plan(view: &ClusterView) -> Plan {
    let mut planner = Planner { layout: Layout::new(view), plan: Plan::default() };
    planner.mend_apart();
    planner.mend_together();
    planner.mend_on_hosts(true);
    planner.mend_on_hosts(false);
    planner.evacuate();
    // While rules are being mended the loads are about to change anyway.
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
    fn mend_apart(&mut self) {
        let view = self.layout.view;
        for rule in &view.rules {
            let Constraint::Apart { vms } = &rule.constraint else { continue };
            // The cheapest to move goes first; the last one left on a host stays.
            let mut by_size = vms.clone();
            by_size.sort_by_key(|&vm| (view.vms[vm].load.memory_mib, vm));
            for vm in by_size {
                let host = self.layout.at[vm];
                // One that is already leaving is as good as gone.
                let crowded = vms.iter().any(|&other| other != vm && self.layout.at[other] == host);
                if crowded && !self.layout.fixed[vm] {
                    self.relocate(vm, MoveReason::DrsMend);
                }
            }
        }
    }

    fn mend_together(&mut self) {
        let view = self.layout.view;
        for rule in &view.rules {
            let Constraint::Together { vms } = &rule.constraint else { continue };
            let Some(&first) = vms.first() else { continue };
            if vms.iter().any(|&vm| self.layout.at[vm] != self.layout.at[first]) {
                self.gather(self.layout.unit_of[first]);
            }
        }
    }

    /// Brings a unit together where most of it already is, or wherever all of it can be.
    fn gather(&mut self, unit: usize) {
        let members = self.layout.units[unit].clone();
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

    fn mend_on_hosts(&mut self, wanted: bool) {
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
                // A preference is mended only where that costs no other preference.
                let policies: &[Policy] = if wanted { &[STRICT, LENIENT] } else { &[STRICT] };
                let unit = self.layout.units[self.layout.unit_of[vm]].clone();
                let target = policies.iter().find_map(|policy| self.layout.best_target(&unit, *policy));
                if let Some(target) = target {
                    self.send(&unit, target, MoveReason::DrsMend);
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
                let unit = &self.layout.units[self.layout.unit_of[vm]];
                self.plan.stalls.push(Stall { host, vm, obstacle: self.main_obstacle(unit, host) });
            }
        }
    }

    /// Moves a VM's unit off its host, or makes room so that a later plan can. Answers whether anything could be done.
    fn relocate(&mut self, vm: usize, reason: MoveReason) -> bool {
        let unit = self.layout.units[self.layout.unit_of[vm]].clone();
        let home = self.layout.at[vm];
        let target =
            [STRICT, LENIENT].into_iter().find_map(|policy| self.layout.best_target_but(&unit, policy, Some(home)));
        if let Some(target) = target {
            self.send(&unit, target, reason);
            return true;
        }
        self.make_room(&unit, reason)
    }

    /// Where one other VM is all that stands in the way of a place, and it has somewhere to go, it goes.
    fn make_room(&mut self, unit: &[usize], reason: MoveReason) -> bool {
        for target in 0..self.layout.view.hosts.len() {
            let Some(Obstacle::Rule(rule)) = self.layout.obstacle(unit, target, LENIENT) else { continue };
            let Constraint::Apart { vms } = &self.layout.view.rules[rule].constraint else { continue };
            let blockers: Vec<usize> =
                vms.iter().copied().filter(|vm| !unit.contains(vm) && self.layout.occupies(*vm, target)).collect();
            let [blocker] = blockers[..] else { continue };
            if self.layout.fixed[blocker] || self.layout.units[self.layout.unit_of[blocker]].len() > 1 {
                continue;
            }
            // Without the blocker nothing else may be in the way.
            let (at, leaving) = (self.layout.at[blocker], self.layout.leaving[blocker]);
            self.layout.at[blocker] = usize::MAX;
            self.layout.leaving[blocker] = None;
            let free = self.layout.obstacle(unit, target, LENIENT).is_none();
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

    fn main_obstacle(&self, unit: &[usize], home: usize) -> Obstacle {
        let others = (0..self.layout.view.hosts.len()).filter(|&host| host != home);
        let obstacles: Vec<Obstacle> = others.filter_map(|host| self.layout.obstacle(unit, host, LENIENT)).collect();
        Obstacle::main(&obstacles)
    }

    fn balance(&mut self) {
        let view = self.layout.view;
        let mut by_host: Vec<Vec<usize>> = vec![Vec::new(); view.hosts.len()];
        for unit in 0..self.layout.units.len() {
            let members = &self.layout.units[unit];
            let host = self.layout.at[members[0]];
            if members.iter().all(|&vm| self.layout.at[vm] == host && !self.layout.fixed[vm]) {
                by_host[host].push(unit);
            }
        }
        let mut usable: Vec<usize> = (0..view.hosts.len()).filter(|&host| view.hosts[host].takes_vms).collect();
        let moves_max = 2 + usable.len() / 10;
        for _ in 0..moves_max {
            usable.sort_by(|&a, &b| self.layout.share(b).total_cmp(&self.layout.share(a)).then(a.cmp(&b)));
            let Some((unit, from, to)) = self.best_balancing_move(&usable, &by_host) else { return };
            by_host[from].retain(|other| *other != unit);
            let members = self.layout.units[unit].clone();
            self.send(&members, to, MoveReason::DrsBalance);
        }
    }

    /// The move, from one of the fullest hosts to one of the emptiest, that makes the fuller of the two least full.
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
                for &unit in &by_host[from] {
                    let members = &self.layout.units[unit];
                    let (mut left, mut gained) = (self.layout.settled[from], self.layout.settled[to]);
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
                        best = Some((gain, unit, to));
                    }
                }
            }
            if let Some((_, unit, to)) = best {
                return Some((unit, from, to));
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
