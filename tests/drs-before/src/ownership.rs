//! Taking rules into the record, and taking everything away.
//!
//! In: the world, the record. Out: what [`adopt`] finds and the record with it; what [`cleanup`] deletes. Invariants: only
//! rules with this Kubernetes cluster's own prefix are adopted; only what the record names is deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::World;
use model::event::{ClusterFacts, RuleFacts, RuleKind};

use crate::classify::{is_recorded, see};
use crate::digest::{digest, digest_text};
use crate::finding::Finding;
use crate::places::Places;
use crate::plan::{Action, ActionKind, ClusterPlan, GroupChange, Plan, VmRef, rule_prefix};
use crate::record::{ClusterName, Owned, OwnedGroups, OwnedRule, RuleSort, Rules};
use crate::settings::DrsSettings;

/// A rule with this cluster's prefix that the record does not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    pub cluster: ClusterName,
    /// For people.
    pub cluster_name: String,
    pub rule: String,
    pub sort: RuleSort,
    /// Ids of its VMs.
    pub vms: Vec<String>,
    /// Names of the groups that are adopted with it.
    pub groups: Option<OwnedGroups>,
}

/// What could be adopted, and the record with it added; the record as it is when the cluster has no identity yet.
pub fn adopt(world: &World, owned: &Owned) -> (Vec<Adopted>, Owned) {
    let mut record = owned.clone();
    let mut adopted = Vec::new();
    let Some(uid) = world.kubernetes_uid() else { return (adopted, record) };
    let prefix = rule_prefix(&uid);
    for (name, facts) in clusters(world) {
        let mut rules: Rules = owned.clusters.get(&name).map(|rules| Rules::clone(rules)).unwrap_or_default();
        for rule in facts.rules.iter().filter(|rule| rule.name.starts_with(&prefix)) {
            if rules.contains_key(&rule.name) {
                continue;
            }
            let Some((sort, vms, groups)) = what_it_is(facts, rule, &prefix) else { continue };
            // What it was made for is not known; the term about most of its VMs will take it in.
            let source = digest_text(digest(&[&rule.name]));
            let owned_rule =
                OwnedRule { uuid: rule.uuid.clone(), groups: groups.clone(), ..OwnedRule::intent(sort, source) };
            rules.insert(rule.name.clone(), Arc::new(owned_rule));
            let (cluster, cluster_name) = (name.clone(), facts.name.clone());
            adopted.push(Adopted { cluster, cluster_name, rule: rule.name.clone(), sort, vms, groups });
        }
        if !rules.is_empty() {
            record.clusters.insert(name, Arc::new(rules));
        }
    }
    (adopted, record)
}

/// All known clusters, in the order of vCenters and ids.
fn clusters(world: &World) -> BTreeMap<ClusterName, &ClusterFacts> {
    let clusters = world.cluster_ids().filter_map(|id| world.cluster(id));
    clusters.map(|(vcenter, facts)| ((vcenter, facts.id.clone()), &**facts)).collect()
}

/// `None` for what Bridger never makes: also a rule whose groups are somebody else's.
fn what_it_is(
    facts: &ClusterFacts,
    rule: &RuleFacts,
    prefix: &str,
) -> Option<(RuleSort, Vec<String>, Option<OwnedGroups>)> {
    match &rule.kind {
        RuleKind::VmsApart(vms) => Some((RuleSort::Apart, vms.clone(), None)),
        RuleKind::VmsTogether(vms) => Some((RuleSort::Together, vms.clone(), None)),
        RuleKind::VmsOnHosts { vm_group, affine_hosts: Some(hosts), anti_affine_hosts: None }
            if vm_group.starts_with(prefix) && hosts.starts_with(prefix) =>
        {
            let of_group = facts.groups.iter().find(|group| group.name == *vm_group);
            let vms = match of_group.map(|group| &group.kind) {
                Some(model::event::GroupKind::Vms(vms)) => vms.clone(),
                _ => Vec::new(),
            };
            Some((RuleSort::OnHosts, vms, Some(OwnedGroups { vms: vm_group.clone(), hosts: hosts.clone() })))
        }
        _ => None,
    }
}

/// Deletes exactly everything that is owned, at once and however much that is.
pub fn cleanup(world: &World, owned: &Owned) -> Plan {
    let mut plan = Plan { record: owned.clone(), ..Plan::default() };
    let places = Places::of(world, owned, &DrsSettings::default());
    for cluster in &places.clusters {
        let (Some(facts), Some(rules)) = (cluster.facts(world), owned.clusters.get(&cluster.name)) else { continue };
        let seen = see(facts, cluster);
        let vm_name = |id: &str| cluster.find(id).map(|vm| cluster.vms[vm].name.clone()).unwrap_or_default();
        let mut actions = Vec::new();
        for (name, recorded) in rules.iter() {
            let is_there = |group: &&String| facts.groups.iter().any(|other| other.name == **group);
            let groups = recorded.groups.iter().flat_map(|names| [&names.vms, &names.hosts]).filter(is_there);
            let groups: Vec<_> = groups.map(|name| GroupChange::Remove { name: name.clone() }).collect();
            let kind = match seen.get(name) {
                Some(rule) if is_recorded(rule, recorded) => {
                    ActionKind::Delete { key: rule.key, uuid: rule.uuid.clone() }
                }
                Some(_) => {
                    let (cluster, rule) = (cluster.name.clone(), name.clone());
                    plan.findings.push(Finding::RecordDisagrees { cluster, rule });
                    continue;
                }
                None if !groups.is_empty() => ActionKind::DeleteGroups,
                None => {
                    plan.record.deleted(&cluster.name, name);
                    continue;
                }
            };
            let of_facts = facts.rules.iter().find(|rule| rule.name == *name);
            let vms = of_facts.and_then(|rule| what_it_is(facts, rule, "")).map(|(_, vms, _)| vms).unwrap_or_default();
            actions.push(Action {
                rule: name.clone(),
                sort: recorded.sort,
                kind,
                vms: vms.iter().map(|id| VmRef { id: id.clone(), name: vm_name(id) }).collect(),
                hosts: Vec::new(),
                mandatory: false,
                groups,
                pods: Vec::new(),
                moves: Vec::new(),
                group_names: recorded.groups.clone(),
            });
        }
        plan.clusters.push(ClusterPlan {
            cluster: cluster.name.clone(),
            cluster_name: facts.name.clone(),
            actions,
            uncovered: Vec::new(),
        });
    }
    plan
}
