//! Rules and groups as they can be compared: what was read and what the watch told, in one order.
//!
//! In: facts from either. Out: the same in a form in which equal means the same. The order of members says nothing, in
//! vCenter as here.

use model::World;
use model::event::{ClusterFacts, GroupKind, RuleKind};

use crate::ports::{ClusterRules, RuleChange};
use drs::record::ClusterName;

/// What is known of a cluster, when it is known.
pub(crate) fn cluster_facts<'a>(world: &'a World, cluster: &ClusterName) -> Option<&'a ClusterFacts> {
    let mut all = world.cluster_ids().filter_map(|id| world.cluster(id));
    all.find(|(vcenter, facts)| (*vcenter, &facts.id) == (cluster.0, &cluster.1)).map(|(_, facts)| facts)
}

/// What the watch told last of a cluster's rules.
pub(crate) fn known_rules(world: &World, cluster: &ClusterName) -> Option<ClusterRules> {
    let facts = cluster_facts(world, cluster)?;
    Some(in_order(ClusterRules { rules: facts.rules.clone(), groups: facts.groups.clone() }))
}

pub(crate) fn in_order(mut rules: ClusterRules) -> ClusterRules {
    rules.rules.sort_by_key(|rule| rule.key);
    rules.groups.sort_by(|a, b| a.name.cmp(&b.name));
    rules.rules.iter_mut().for_each(|rule| sort_members(&mut rule.kind));
    rules.groups.iter_mut().for_each(|group| sort_group(&mut group.kind));
    rules
}

/// Whether a change shows in rules that are in order.
pub(crate) fn shows(change: &RuleChange, found: &ClusterRules) -> bool {
    match change {
        RuleChange::AddRule(spec) => {
            let kind = ordered(&spec.kind);
            found.rules.iter().any(|rule| rule.name == spec.name && rule.kind == kind)
        }
        RuleChange::EditRule { key, rule: spec, .. } => {
            let kind = ordered(&spec.kind);
            found.rules.iter().any(|rule| rule.key == *key && rule.name == spec.name && rule.kind == kind)
        }
        RuleChange::RemoveRule { key } => found.rules.iter().all(|rule| rule.key != *key),
        RuleChange::AddGroup(group) | RuleChange::EditGroup(group) => {
            let mut kind = group.kind.clone();
            sort_group(&mut kind);
            found.groups.iter().any(|found| found.name == group.name && found.kind == kind)
        }
        RuleChange::RemoveGroup { name } => found.groups.iter().all(|group| group.name != *name),
    }
}

fn ordered(kind: &RuleKind) -> RuleKind {
    let mut kind = kind.clone();
    sort_members(&mut kind);
    kind
}

fn sort_members(kind: &mut RuleKind) {
    if let RuleKind::VmsApart(vms) | RuleKind::VmsTogether(vms) = kind {
        vms.sort_unstable();
    }
}

fn sort_group(kind: &mut GroupKind) {
    match kind {
        GroupKind::Vms(ids) | GroupKind::Hosts(ids) => ids.sort_unstable(),
    }
}
