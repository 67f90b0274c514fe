//! DRS: runs on each cluster periodically, and soon after a change of its rules. It moves VMs or recommends moves.
//!
//! Fully automated, it acts; partially automated, it acts only for maintenance; in manual mode, it only recommends.
//!
//! Invariant: DRS never violates an enabled rule. A move is checked against all running moves when it is planned, and
//! again at its switch-over.

pub mod layout;
pub mod plan;
pub mod view;

use std::collections::BTreeSet;

use self::layout::Obstacle;
use self::plan::{Move, Stall};
use self::view::ClusterView;
use super::operations::Actor;
use super::tasks::Work;
use crate::clock::SimTime;
use crate::vcenter::inventory::{
    Cluster, ClusterId, DrsBehavior, GroupMembers, HostId, Maintenance, PowerState, Recommendation, RuleKind, VmId,
};
use crate::vcenter::{MoveReason, Vcenter};

/// How many recommendations a cluster stores.
const RECOMMENDATIONS_MAX: usize = 100;

impl Vcenter {
    pub(super) fn drs_pass(&mut self, cluster_id: ClusterId, now: SimTime) {
        let Some(cluster) = self.inventory.cluster(cluster_id) else { return };
        let drs = cluster.drs.clone();
        if !drs.enabled {
            self.set_recommendations(cluster_id, Vec::new(), now);
            self.all_evacuations_stall(cluster_id, "DRS is off, and nothing else moves its VMs");
            return;
        }
        let view = ClusterView::of(self, cluster_id, &BTreeSet::new());
        let plan = plan::plan(&view);
        let (act, recommend): (Vec<Move>, Vec<Move>) = plan.moves.iter().partition(|step| match drs.behavior {
            DrsBehavior::FullyAutomated => true,
            DrsBehavior::PartiallyAutomated => step.reason == MoveReason::Maintenance,
            DrsBehavior::Manual => false,
        });
        for step in act {
            let work = Work::Migrate {
                vm: view.vms[step.vm].id,
                from: view.hosts[step.from].id,
                to: view.hosts[step.to].id,
                reason: step.reason,
            };
            self.begin(work, &Actor::system(), now);
        }
        self.set_recommendations(
            cluster_id,
            recommend
                .iter()
                .map(|step| (view.vms[step.vm].id, view.hosts[step.from].id, view.hosts[step.to].id, step.reason))
                .collect(),
            now,
        );
        if drs.behavior == DrsBehavior::Manual {
            self.all_evacuations_stall(cluster_id, "DRS is in manual mode and only recommends moves");
        }
        for stall in plan.stalls {
            let reason = self.reason_of(&view, &stall);
            self.evacuation_stalls(view.hosts[stall.host].id, &reason);
        }
    }

    fn reason_of(&self, view: &ClusterView, stall: &Stall) -> String {
        let vm = self.name_of(view.vms[stall.vm].id.into());
        match stall.obstacle {
            Obstacle::Rule(rule) => format!("rule {} leaves no other host for vm {vm}", view.rules[rule].name),
            Obstacle::Room => format!("no other host has room for vm {vm}"),
            Obstacle::Busy => format!("vm {vm} cannot be moved now"),
            Obstacle::Host => format!("no other host accepts VMs, so vm {vm} must stay"),
        }
    }

    fn set_recommendations(
        &mut self,
        cluster_id: ClusterId,
        moves: Vec<(VmId, HostId, HostId, MoveReason)>,
        now: SimTime,
    ) {
        let Some(cluster) = self.inventory.cluster(cluster_id) else { return };
        let same = cluster.recommendations.len() == moves.len().min(RECOMMENDATIONS_MAX)
            && cluster.recommendations.iter().zip(&moves).all(|(r, m)| (r.vm, r.from, r.to, r.reason) == *m);
        if same {
            return;
        }
        let mut recommendations = Vec::new();
        for (vm, from, to, reason) in moves.into_iter().take(RECOMMENDATIONS_MAX) {
            self.physics.recommendations_made += 1;
            let key = self.physics.recommendations_made;
            recommendations.push(Recommendation { key, made_at: now, vm, from, to, reason });
        }
        if let Some(cluster) = self.inventory.cluster_mut(cluster_id) {
            cluster.recommendations = recommendations;
        }
    }

    fn all_evacuations_stall(&mut self, cluster: ClusterId, reason: &str) {
        let entering: Vec<HostId> = self
            .inventory
            .hosts_in(cluster)
            .filter(|(id, host)| {
                host.maintenance == Maintenance::Entering
                    && self.inventory.vms_on(*id).any(|(_, vm)| vm.power == PowerState::On)
            })
            .map(|(id, _)| id)
            .collect();
        for host in entering {
            self.evacuation_stalls(host, reason);
        }
    }

    /// The name of the enabled rule that a VM would violate on a host: VM-VM anti-affinity (if `anti_affinity`) and
    /// mandatory VM-Host rules.
    pub(super) fn rule_against(&self, vm: VmId, host: HostId, anti_affinity: bool) -> Option<String> {
        let cluster = self.inventory.cluster(self.inventory.host(host)?.cluster)?;
        let rule = cluster.rules.iter().filter(|rule| rule.enabled).find(|rule| match &rule.kind {
            RuleKind::AntiAffinity { vms } => {
                anti_affinity
                    && vms.contains(&vm)
                    && vms.iter().any(|other| {
                        *other != vm
                            && self.inventory.vm(*other).is_some_and(|o| o.host == host && o.power == PowerState::On)
                    })
            }
            RuleKind::VmHost { vm_group, affine_host_group, anti_affine_host_group } => {
                rule.mandatory
                    && group_has_vm(cluster, vm_group, vm)
                    && (affine_host_group.as_ref().is_some_and(|group| !group_has_host(cluster, group, host))
                        || anti_affine_host_group.as_ref().is_some_and(|group| group_has_host(cluster, group, host)))
            }
            RuleKind::Affinity { .. } | RuleKind::Dependency { .. } => false,
        })?;
        Some(rule.name.clone())
    }

    /// The host for a new VM if the client does not choose one.
    pub(super) fn least_loaded_host(&self, cluster: ClusterId) -> Option<HostId> {
        let committed = |host| self.inventory.vms_on(host).map(|(_, vm)| vm.memory_mib).sum::<u64>();
        let hosts = self.inventory.hosts_in(cluster);
        hosts
            .filter(|(id, host)| host.takes_vms() && !self.physics.failures.contains_key(id))
            .map(|(id, _)| id)
            .min_by_key(|id| committed(*id))
    }
}

fn group_has_vm(cluster: &Cluster, group: &str, vm: VmId) -> bool {
    matches!(cluster.group(group).map(|group| &group.members), Some(GroupMembers::Vms(vms)) if vms.contains(&vm))
}

fn group_has_host(cluster: &Cluster, group: &str, host: HostId) -> bool {
    matches!(cluster.group(group).map(|group| &group.members), Some(GroupMembers::Hosts(hosts)) if hosts.contains(&host))
}

#[cfg(test)]
mod tests;
