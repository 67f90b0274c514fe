//! Adopting rules into the record, restoring rules, and deleting all owned rules.
//!
//! In: the world, the record. Out: what [`adopt`] finds and the record with it; what [`cleanup`] deletes. Invariants:
//! only rules with this Kubernetes cluster's own prefix are adopted; only recorded rules are deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::World;
use model::event::{ClusterFacts, RuleFacts, RuleKind};
use rustc_hash::FxHashMap;

use super::{ChangeKind, ClusterPlan, GroupChange, Plan, RuleChange, VmRef, rule_prefix};
use crate::finding::Finding;
use crate::input::ClusterKey;
use crate::input::digest::digest_text;
use crate::reconcile::observed::{observe, other_user};
use crate::record::{Record, RecordedGroups, RecordedRule, RecordedRules, RuleType};

/// A rule with this cluster's prefix that is not in the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    pub cluster: ClusterKey,
    /// The name shown to users.
    pub cluster_name: String,
    pub rule: String,
    pub rule_type: RuleType,
    /// Ids of its VMs.
    pub vms: Vec<String>,
    /// The names of the groups adopted with it.
    pub groups: Option<RecordedGroups>,
}

/// The rules that can be adopted, and the record including them; the record unchanged if the cluster has no identity
/// yet.
pub fn adopt(world: &World, owned: &Record) -> (Vec<Adopted>, Record) {
    let mut record = owned.clone();
    let mut adopted = Vec::new();
    let Some(uid) = world.kubernetes_uid() else { return (adopted, record) };
    let prefix = rule_prefix(&uid);
    for (name, facts) in clusters(world) {
        let mut rules = owned.clusters.get(&name).map(|rules| RecordedRules::clone(rules)).unwrap_or_default();
        for rule in facts.rules.iter().filter(|rule| rule.name.starts_with(&prefix)) {
            if rules.contains_key(&rule.name) {
                continue;
            }
            let Some((rule_type, vms, groups)) = classify(facts, rule, &prefix) else { continue };
            // The term it was made for is unknown; the term about most of its VMs will take it over.
            let source = digest_text(model::digest(&[&rule.name]));
            let owned_rule = RecordedRule {
                uuid: rule.uuid.clone(),
                groups: groups.clone(),
                ..RecordedRule::intent(rule_type, source)
            };
            rules.insert(rule.name.clone(), Arc::new(owned_rule));
            let (cluster, cluster_name) = (name.clone(), facts.name.clone());
            adopted.push(Adopted { cluster, cluster_name, rule: rule.name.clone(), rule_type, vms, groups });
        }
        if !rules.is_empty() {
            record.clusters.insert(name, Arc::new(rules));
        }
    }
    (adopted, record)
}

/// All known clusters, in the order of vCenters and ids.
fn clusters(world: &World) -> BTreeMap<ClusterKey, &ClusterFacts> {
    let clusters = world.cluster_ids().filter_map(|id| world.cluster(id));
    clusters.map(|(vcenter, facts)| (ClusterKey::new(vcenter, facts.id.clone()), &**facts)).collect()
}

/// `None` for rules that Bridger never makes, including a rule whose groups do not have the prefix.
fn classify(
    facts: &ClusterFacts,
    rule: &RuleFacts,
    prefix: &str,
) -> Option<(RuleType, Vec<String>, Option<RecordedGroups>)> {
    match &rule.kind {
        RuleKind::VmAntiAffinity(vms) => Some((RuleType::VmAntiAffinity, vms.clone(), None)),
        RuleKind::VmAffinity(vms) => Some((RuleType::VmAffinity, vms.clone(), None)),
        RuleKind::VmHost { vm_group, affine_hosts: Some(hosts), anti_affine_hosts: None }
            if vm_group.starts_with(prefix) && hosts.starts_with(prefix) =>
        {
            let of_group = facts.groups.iter().find(|group| group.name == *vm_group);
            let vms = match of_group.map(|group| &group.kind) {
                Some(model::event::GroupKind::Vms(vms)) => vms.clone(),
                _ => Vec::new(),
            };
            Some((RuleType::VmHost, vms, Some(RecordedGroups { vms: vm_group.clone(), hosts: hosts.clone() })))
        }
        _ => None,
    }
}

/// Rules that were left alone because they were deleted twice, and the record in which that is forgotten: Bridger
/// creates those again that pods still require. `named` selects one of them; `None` selects all.
pub fn restore(world: &World, owned: &Record, named: Option<&str>) -> (Vec<(ClusterKey, String)>, Record) {
    let (mut record, mut restored) = (owned.clone(), Vec::new());
    for (key, facts) in clusters(world) {
        let Some(rules) = record.clusters.get_mut(&key) else { continue };
        for (name, rule) in Arc::make_mut(rules).iter_mut() {
            let exists = facts.rules.iter().any(|rule| rule.name == *name);
            if rule.restored_at.is_some() && !exists && named.is_none_or(|named| named == name) {
                Arc::make_mut(rule).restored_at = None;
                restored.push((key.clone(), name.clone()));
            }
        }
    }
    (restored, record)
}

/// Deletes exactly the owned rules, all at once, without a limit.
#[must_use]
pub fn cleanup(world: &World, record: &Record) -> Plan {
    let mut plan = Plan { record: record.clone(), ..Plan::default() };
    for (key, facts) in clusters(world) {
        let Some(rules) = record.clusters.get(&key) else { continue };
        let none = FxHashMap::default();
        let observed = observe(facts, &none, &none);
        let vm_name = |id: &str| world.vm_id(key.vcenter, id).and_then(|vm| Some(world.vm(vm)?.1.name.clone()));
        let mut changes = Vec::new();
        for (name, recorded) in rules.iter() {
            let is_removable = |group: &&String| {
                facts.groups.iter().any(|other| other.name == **group) && other_user(facts, group, name).is_none()
            };
            let groups = recorded.groups.iter().flat_map(|names| [&names.vms, &names.hosts]).filter(is_removable);
            let groups: Vec<_> = groups.map(|name| GroupChange::Remove { name: name.clone() }).collect();
            let kind = match observed.get(name.as_str()) {
                Some(rule) if rule.is_recorded(recorded) => {
                    ChangeKind::Delete { key: rule.facts.key, uuid: rule.facts.uuid.clone() }
                }
                Some(_) => {
                    plan.findings.push(Finding::RecordDisagrees { cluster: key.clone(), rule: name.clone() });
                    continue;
                }
                None if !groups.is_empty() => ChangeKind::DeleteGroups,
                None => {
                    plan.record.deleted(&key, name);
                    continue;
                }
            };
            let vms = observed.get(name.as_str()).map(|rule| rule.others.as_slice()).unwrap_or_default();
            let vm = |id: &&str| VmRef { id: id.to_string(), name: vm_name(id).unwrap_or_default() };
            let change = RuleChange::new(name.clone(), recorded.rule_type, kind, vms.iter().map(vm).collect());
            changes.push(RuleChange { groups, group_names: recorded.groups.clone(), ..change });
        }
        let (rules, cluster_name) = (plan.record.rules(&key), facts.name.clone());
        plan.clusters.push(ClusterPlan {
            cluster: key,
            cluster_name,
            actions: changes,
            uncovered: Vec::new(),
            postponed: Vec::new(),
            findings: Vec::new(),
            rules,
            next_due: None,
        });
    }
    plan
}
