//! Normalizes rules and groups, so that a direct read and the watched state can be compared.
//!
//! In: facts from either source. Out: the same facts in sorted order, so that `==` means equivalent. The order of
//! members has no meaning, in vCenter as here.

use std::sync::Arc;

use drs::{ChangeKind, ClusterKey, GroupChange, RuleChange};
use model::World;
use model::event::{ClusterFacts, GroupKind, RuleFacts, RuleKind};

use crate::ports::ClusterRules;

/// The facts of a cluster, if it is known.
pub(crate) fn cluster_facts<'a>(world: &'a World, cluster: &ClusterKey) -> Option<&'a Arc<ClusterFacts>> {
    let mut all = world.cluster_ids().filter_map(|id| world.cluster(id));
    all.find(|(vcenter, facts)| (*vcenter, &facts.id) == (cluster.vcenter, &cluster.id)).map(|(_, facts)| facts)
}

/// Each of these names that no cluster has, in a sentence.
pub(crate) fn unknown_clusters<'a>(world: &World, names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let is_known =
        |name: &String| world.cluster_ids().filter_map(|id| world.cluster(id)).any(|(_, facts)| facts.name == *name);
    let unknown = names.filter(|name| !is_known(name));
    unknown.map(|name| format!("no cluster has the configured name {name:?}; was it renamed?")).collect()
}

/// A cluster's rules as last observed by the watch, in order.
pub(crate) fn known_rules(world: &World, cluster: &ClusterKey) -> Option<ClusterRules> {
    cluster_facts(world, cluster).map(|facts| rules_of(facts))
}

/// The rules and groups of these facts, in order.
pub(crate) fn rules_of(facts: &ClusterFacts) -> ClusterRules {
    in_order(ClusterRules { rules: facts.rules.clone(), groups: facts.groups.clone() })
}

pub(crate) fn in_order(mut rules: ClusterRules) -> ClusterRules {
    rules.rules.sort_by_key(|rule| rule.key);
    rules.groups.sort_by(|a, b| a.name.cmp(&b.name));
    rules.rules.iter_mut().for_each(|rule| sort_members(&mut rule.kind));
    rules.groups.iter_mut().for_each(|group| sort_group(&mut group.kind));
    rules
}

/// Whether a change is visible in rules that are in order.
pub(crate) fn shows(change: &RuleChange, found: &ClusterRules) -> bool {
    let is_there = |key: Option<i32>| {
        let kind = ordered(&change.rule_kind());
        let is_it = |rule: &&RuleFacts| key.is_none_or(|key| rule.key == key) && rule.name == change.rule;
        found.rules.iter().filter(is_it).any(|rule| rule.kind == kind)
    };
    let rule_shows = match &change.kind {
        ChangeKind::Create => is_there(None),
        ChangeKind::Edit { key, .. } => is_there(Some(*key)),
        ChangeKind::Delete { key, .. } => found.rules.iter().all(|rule| rule.key != *key),
        ChangeKind::DeleteGroups => true,
    };
    rule_shows && change.groups.iter().all(|group| group_shows(group, found))
}

fn group_shows(change: &GroupChange, found: &ClusterRules) -> bool {
    match change {
        GroupChange::Add(group) | GroupChange::Edit(group) => {
            let mut kind = group.kind.clone();
            sort_group(&mut kind);
            found.groups.iter().any(|found| found.name == group.name && found.kind == kind)
        }
        GroupChange::Remove { name } => found.groups.iter().all(|group| group.name != *name),
    }
}

fn ordered(kind: &RuleKind) -> RuleKind {
    let mut kind = kind.clone();
    sort_members(&mut kind);
    kind
}

fn sort_members(kind: &mut RuleKind) {
    if let RuleKind::VmAntiAffinity(vms) | RuleKind::VmAffinity(vms) = kind {
        vms.sort_unstable();
    }
}

fn sort_group(kind: &mut GroupKind) {
    match kind {
        GroupKind::Vms(ids) | GroupKind::Hosts(ids) => ids.sort_unstable(),
    }
}
