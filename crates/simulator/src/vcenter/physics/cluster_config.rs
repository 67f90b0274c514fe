//! Reconfiguration of a cluster: its rules and groups, DRS and HA settings.
//!
//! In: a [`ClusterChange`]. Out: the changed cluster, or a fault and no change at all: the change is applied to a copy
//! first. The checks are those of a real vCenter: names are unique, VMs and hosts belong to the cluster, a VM-VM rule
//! has at least two VMs, VM-Host rules name existing groups, and a rule that contradicts an older one is disabled.

use std::collections::BTreeSet;

use super::Step;
use super::events::About;
use super::operations::{Actor, ClusterChange, Edit, RuleSpec};
use super::rule_conflict::contradicting;
use crate::clock::SimTime;
use crate::seed::Stream;
use crate::vcenter::inventory::{
    Cluster, ClusterId, Group, GroupMembers, HostId, Inventory, PoolId, Rule, RuleKind, VmId,
};
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::{Happening, Vcenter};

/// Higher than any realistic number. They bound the cost of a rule change and of every evaluation of the rules.
const RULES_MAX: usize = 5_000;
const GROUPS_MAX: usize = 5_000;

fn invalid(property: &str) -> VimFault {
    VimFault::InvalidArgument { property: property.to_owned() }
}

impl Vcenter {
    pub(super) fn change_cluster(
        &mut self,
        id: ClusterId,
        change: ClusterChange,
        actor: &Actor,
        now: SimTime,
    ) -> Result<(), VimFault> {
        let cluster = self.inventory.cluster(id).ok_or(VimFault::ManagedObjectNotFound(id.into()))?;
        let mut draft = Draft {
            inventory: &self.inventory,
            id,
            cluster: cluster.clone(),
            uuids: self.physics.uuids.clone(),
            rules_before: cluster.rules.iter().map(|rule| rule.key).collect(),
            rules_touched: BTreeSet::new(),
            happenings: Vec::new(),
        };
        draft.apply(change)?;
        let Draft { cluster, uuids, happenings, rules_touched, .. } = draft;
        let lost: Vec<String> = cluster
            .rules
            .iter()
            .filter(|r| rules_touched.contains(&r.key) && !r.enabled)
            .map(|r| r.name.clone())
            .collect();
        let name = cluster.name.clone();
        self.physics.uuids = uuids;
        if let Some(stored) = self.inventory.cluster_mut(id) {
            *stored = cluster;
        }
        self.happenings.extend(happenings);
        self.post(
            "ClusterReconfiguredEvent",
            About::cluster(id),
            &actor.user,
            now,
            format!("Reconfigured cluster {name}"),
        );
        for rule in lost {
            let message = format!("Rule {rule} of cluster {name} is disabled because it conflicts with an older rule");
            self.post("GeneralEvent", About::cluster(id), &Actor::system().user, now, message);
        }
        let wait = self.physics.draw_seconds(2.0, 5.0);
        self.schedule_in(now, wait, Step::DrsSoon(id));
        Ok(())
    }
}

/// A copy of a cluster with pending changes.
struct Draft<'a> {
    inventory: &'a Inventory,
    id: ClusterId,
    cluster: Cluster,
    uuids: Stream,
    rules_before: BTreeSet<i32>,
    /// Rules that the server itself has disabled.
    rules_touched: BTreeSet<i32>,
    happenings: Vec<Happening>,
}

impl Draft<'_> {
    fn apply(&mut self, change: ClusterChange) -> Result<(), VimFault> {
        // In this order, one change can add a group and a rule that names it, or remove both.
        let (removed, kept): (Vec<_>, Vec<_>) =
            change.rules.into_iter().partition(|edit| matches!(edit, Edit::Remove(_)));
        let (groups_removed, groups_kept): (Vec<_>, Vec<_>) =
            change.groups.into_iter().partition(|edit| matches!(edit, Edit::Remove(_)));
        let rules_change = !kept.is_empty();
        let mut edited = Vec::new();
        for edit in removed {
            if let Edit::Remove(key) = edit {
                self.remove_rule(key)?;
            }
        }
        for edit in groups_kept {
            match edit {
                Edit::Add(group) => self.add_group(group)?,
                Edit::Change(group) => self.change_group(group)?,
                Edit::Remove(_) => (),
            }
        }
        for edit in kept {
            match edit {
                Edit::Add(spec) => edited.push(self.add_rule(spec)?),
                Edit::Change(spec) => edited.push(self.change_rule(spec)?),
                Edit::Remove(_) => (),
            }
        }
        for edit in groups_removed {
            if let Edit::Remove(name) = edit {
                self.remove_group(&name)?;
            }
        }
        if rules_change {
            for loser in contradicting(&self.cluster.rules) {
                let rule = &mut self.cluster.rules[loser];
                rule.enabled = false;
                self.rules_touched.insert(rule.key);
                edited.push(rule.key);
            }
        }
        self.record_rules(edited);
        if let Some(enabled) = change.drs_enabled {
            self.cluster.drs.enabled = enabled;
        }
        if let Some(behavior) = change.drs_behavior {
            self.cluster.drs.behavior = behavior;
        }
        if let Some(enabled) = change.ha_enabled {
            self.cluster.ha.enabled = enabled;
        }
        for (key, value) in change.ha_options {
            if value.is_empty() {
                self.cluster.ha.options.remove(&key);
            } else {
                self.cluster.ha.options.insert(key, value);
            }
        }
        Ok(())
    }

    /// Records one happening per rule, with its final state.
    fn record_rules(&mut self, mut keys: Vec<i32>) {
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let Some(rule) = self.cluster.rules.iter().find(|rule| rule.key == key) else { continue };
            let (cluster, name, enabled) = (self.cluster.name.clone(), rule.name.clone(), rule.enabled);
            self.happenings.push(if self.rules_before.contains(&key) {
                Happening::RuleEdited { cluster, rule: name, enabled }
            } else {
                Happening::RuleAdded { cluster, rule: name, enabled }
            });
        }
    }

    fn add_rule(&mut self, spec: RuleSpec) -> Result<i32, VimFault> {
        let name = spec.name.filter(|name| !name.is_empty()).ok_or_else(|| invalid("name"))?;
        if self.cluster.rules.len() >= RULES_MAX {
            return Err(VimFault::SystemError(format!("a cluster can hold at most {RULES_MAX} rules")));
        }
        self.check_rule_name(&name, None)?;
        let kind = self.check_kind(spec.kind.ok_or_else(|| invalid("info"))?)?;
        self.cluster.next_rule_key += 1;
        let key = self.cluster.next_rule_key;
        let uuid = match spec.uuid {
            Some(uuid) if self.cluster.rules.iter().all(|rule| rule.uuid != uuid) => uuid,
            _ => self.uuids.uuid(),
        };
        self.cluster.rules.push(Rule {
            key,
            uuid,
            name,
            enabled: spec.enabled.unwrap_or(false),
            mandatory: spec.mandatory.unwrap_or(false),
            user_created: true,
            kind,
        });
        Ok(key)
    }

    fn change_rule(&mut self, spec: RuleSpec) -> Result<i32, VimFault> {
        let by_key = |rule: &Rule| spec.key.map(|key| rule.key == key);
        let by_name = |rule: &Rule| spec.name.as_ref().is_some_and(|name| rule.name == *name);
        let found = self.cluster.rules.iter().position(|rule| by_key(rule).unwrap_or_else(|| by_name(rule)));
        let index = found.ok_or_else(|| invalid("key"))?;
        let key = self.cluster.rules[index].key;
        if let Some(name) = &spec.name {
            if name.is_empty() {
                return Err(invalid("name"));
            }
            self.check_rule_name(name, Some(key))?;
        }
        let kind = spec.kind.map(|kind| self.check_kind(kind)).transpose()?;
        let rule = &mut self.cluster.rules[index];
        if let Some(kind) = kind {
            if std::mem::discriminant(&kind) != std::mem::discriminant(&rule.kind) {
                return Err(invalid("info"));
            }
            rule.kind = kind;
        }
        rule.name = spec.name.unwrap_or_else(|| rule.name.clone());
        rule.uuid = spec.uuid.unwrap_or(rule.uuid);
        rule.enabled = spec.enabled.unwrap_or(rule.enabled);
        rule.mandatory = spec.mandatory.unwrap_or(rule.mandatory);
        Ok(key)
    }

    fn remove_rule(&mut self, key: i32) -> Result<(), VimFault> {
        let index = self.cluster.rules.iter().position(|rule| rule.key == key).ok_or_else(|| invalid("removeKey"))?;
        let rule = self.cluster.rules.remove(index);
        self.happenings.push(Happening::RuleRemoved { cluster: self.cluster.name.clone(), rule: rule.name });
        Ok(())
    }

    fn check_rule_name(&self, name: &str, own_key: Option<i32>) -> Result<(), VimFault> {
        if self.cluster.rules.iter().any(|rule| rule.name == name && Some(rule.key) != own_key) {
            return Err(VimFault::DuplicateName { name: name.to_owned(), object: self.id.into() });
        }
        Ok(())
    }

    fn check_kind(&self, kind: RuleKind) -> Result<RuleKind, VimFault> {
        Ok(match kind {
            RuleKind::Affinity { vms } => RuleKind::Affinity { vms: self.check_rule_vms(vms)? },
            RuleKind::AntiAffinity { vms } => RuleKind::AntiAffinity { vms: self.check_rule_vms(vms)? },
            RuleKind::VmHost { vm_group, affine_host_group, anti_affine_host_group } => {
                self.check_group_kind(&vm_group, true, "vmGroupName")?;
                for (group, property) in
                    [(&affine_host_group, "affineHostGroupName"), (&anti_affine_host_group, "antiAffineHostGroupName")]
                {
                    if let Some(group) = group {
                        self.check_group_kind(group, false, property)?;
                    }
                }
                if affine_host_group.is_none() && anti_affine_host_group.is_none() {
                    return Err(invalid("affineHostGroupName"));
                }
                RuleKind::VmHost { vm_group, affine_host_group, anti_affine_host_group }
            }
            RuleKind::Dependency { vm_group, depends_on_vm_group } => {
                self.check_group_kind(&vm_group, true, "vmGroup")?;
                self.check_group_kind(&depends_on_vm_group, true, "dependsOnVmGroup")?;
                RuleKind::Dependency { vm_group, depends_on_vm_group }
            }
        })
    }

    fn check_rule_vms(&self, vms: Vec<VmId>) -> Result<Vec<VmId>, VimFault> {
        let vms = self.check_vms(vms)?;
        if vms.len() < 2 { Err(invalid("vm")) } else { Ok(vms) }
    }

    /// Removes duplicates and checks that all VMs are in this cluster.
    fn check_vms(&self, vms: Vec<VmId>) -> Result<Vec<VmId>, VimFault> {
        let vms = unique(vms);
        let pool_cluster = |pool: PoolId| self.inventory.pool(pool).map(|pool| pool.cluster);
        let ours = |vm: &VmId| self.inventory.vm(*vm).is_some_and(|vm| pool_cluster(vm.pool) == Some(self.id));
        if vms.iter().all(ours) { Ok(vms) } else { Err(invalid("vm")) }
    }

    fn check_hosts(&self, hosts: Vec<HostId>) -> Result<Vec<HostId>, VimFault> {
        let hosts = unique(hosts);
        let ours = |host: &HostId| self.inventory.host(*host).is_some_and(|host| host.cluster == self.id);
        if hosts.iter().all(ours) { Ok(hosts) } else { Err(invalid("host")) }
    }

    fn check_group_kind(&self, name: &str, of_vms: bool, property: &str) -> Result<(), VimFault> {
        match self.cluster.group(name) {
            Some(group) if matches!(group.members, GroupMembers::Vms(_)) == of_vms => Ok(()),
            _ => Err(invalid(property)),
        }
    }

    fn checked(&self, group: Group) -> Result<Group, VimFault> {
        if group.name.is_empty() {
            return Err(invalid("name"));
        }
        let members = match group.members {
            GroupMembers::Vms(vms) => GroupMembers::Vms(self.check_vms(vms)?),
            GroupMembers::Hosts(hosts) => GroupMembers::Hosts(self.check_hosts(hosts)?),
        };
        Ok(Group { name: group.name, members })
    }

    fn add_group(&mut self, group: Group) -> Result<(), VimFault> {
        if self.cluster.group(&group.name).is_some() {
            return Err(VimFault::DuplicateName { name: group.name, object: self.id.into() });
        }
        if self.cluster.groups.len() >= GROUPS_MAX {
            return Err(VimFault::SystemError(format!("a cluster can hold at most {GROUPS_MAX} groups")));
        }
        let group = self.checked(group)?;
        self.record_group(&group.name);
        self.cluster.groups.push(group);
        Ok(())
    }

    fn change_group(&mut self, group: Group) -> Result<(), VimFault> {
        let group = self.checked(group)?;
        let place = self.cluster.groups.iter_mut().find(|old| old.name == group.name);
        let place = place.ok_or_else(|| invalid("name"))?;
        if std::mem::discriminant(&place.members) != std::mem::discriminant(&group.members) {
            return Err(invalid("info"));
        }
        let name = group.name.clone();
        *place = group;
        self.record_group(&name);
        Ok(())
    }

    fn remove_group(&mut self, name: &str) -> Result<(), VimFault> {
        let index = self.cluster.groups.iter().position(|group| group.name == name);
        let index = index.ok_or_else(|| invalid("removeKey"))?;
        let in_use = self.cluster.rules.iter().any(|rule| match &rule.kind {
            RuleKind::VmHost { vm_group, affine_host_group, anti_affine_host_group } => {
                [Some(vm_group), affine_host_group.as_ref(), anti_affine_host_group.as_ref()]
                    .into_iter()
                    .flatten()
                    .any(|group| group == name)
            }
            RuleKind::Dependency { vm_group, depends_on_vm_group } => vm_group == name || depends_on_vm_group == name,
            RuleKind::Affinity { .. } | RuleKind::AntiAffinity { .. } => false,
        });
        if in_use {
            return Err(invalid("removeKey"));
        }
        self.cluster.groups.remove(index);
        self.record_group(name);
        Ok(())
    }

    fn record_group(&mut self, name: &str) {
        let (cluster, group) = (self.cluster.name.clone(), name.to_owned());
        self.happenings.push(Happening::GroupChanged { cluster, group });
    }
}

/// The elements without duplicates, in the order of their first occurrence.
fn unique<T: Copy + Ord>(items: Vec<T>) -> Vec<T> {
    let mut seen = BTreeSet::new();
    items.into_iter().filter(|item| seen.insert(*item)).collect()
}

#[cfg(test)]
mod tests;
