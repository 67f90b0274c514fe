//! The nodes of a cluster.
//!
//! In: the world; for VMs whose host is currently unknown, the cluster's owned rules that name them, because a
//! temporarily unknown VM must not look deleted. Out: the ids of the nodes.

use model::event::{ClusterFacts, GroupKind, RuleKind, VcenterId};
use model::storage::intern::Symbol;
use model::{NodeId, Placement, World};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{ClusterKey, PlanScope};
use crate::record::{Record, RecordedRules};

/// A node whose VM is currently on no known host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hostless {
    node: NodeId,
    vcenter: VcenterId,
    vm_id: String,
}

/// The nodes of a cluster, in no particular order.
pub(super) fn ids(world: &World, scope: PlanScope<'_>) -> Vec<NodeId> {
    let Some((vcenter, facts)) = world.cluster(scope.cluster) else { return Vec::new() };
    let on_hosts = world.hosts_in(scope.cluster).flat_map(|host| world.vms_on(host)).filter_map(|vm| world.node_of(vm));
    on_hosts.chain(remembered(vcenter, facts, scope.rules, &scope.surroundings.hostless)).collect()
}

/// The hostless nodes whose VM is a member of a rule recorded for this cluster.
fn remembered(vcenter: VcenterId, facts: &ClusterFacts, rules: &RecordedRules, hostless: &[Hostless]) -> Vec<NodeId> {
    // Usually there are none, and rules have many members.
    if hostless.is_empty() {
        return Vec::new();
    }
    let members: FxHashSet<&str> = owned_members(facts, rules).collect();
    let is_member = |of: &&Hostless| of.vcenter == vcenter && members.contains(of.vm_id.as_str());
    hostless.iter().filter(is_member).map(|of| of.node).collect()
}

/// The ids of the VMs in the recorded rules.
pub(super) fn owned_members<'a>(facts: &'a ClusterFacts, rules: &RecordedRules) -> impl Iterator<Item = &'a str> {
    let groups = facts.groups.iter().filter_map(|group| match &group.kind {
        GroupKind::Vms(ids) => Some((group.name.as_str(), ids.as_slice())),
        GroupKind::Hosts(_) => None,
    });
    let groups: FxHashMap<&str, &[String]> = groups.collect();
    let own = facts.rules.iter().filter(|rule| rules.contains_key(&rule.name));
    let members = own.flat_map(move |rule| match &rule.kind {
        RuleKind::VmAntiAffinity(vms) | RuleKind::VmAffinity(vms) => vms.as_slice(),
        RuleKind::VmHost { vm_group, .. } => groups.get(vm_group.as_str()).copied().unwrap_or_default(),
        RuleKind::Dependency { .. } | RuleKind::Other(_) => &[],
    });
    members.map(String::as_str)
}

/// The names of the nodes whose cluster is known, the nodes that are on no known host, and those of which it is uncertain
/// which VM they are.
pub(super) fn located(world: &World, record: &Record) -> (FxHashSet<Symbol>, Vec<Hostless>, Vec<NodeId>) {
    let (mut located, mut hostless, mut uncertain) = (Vec::new(), Vec::new(), Vec::new());
    for node in world.node_ids() {
        match world.placement(node) {
            Placement::On { host, .. } if world.host(host).is_some_and(|host| host.cluster.is_some()) => {
                located.push(node);
            }
            Placement::HostUnknown { vm } => hostless.extend(world.vm(vm).map(|(vcenter, facts)| {
                let vm_id = facts.id.clone();
                Hostless { node, vcenter, vm_id }
            })),
            Placement::On { .. } | Placement::NotMatched => (),
        }
        uncertain.extend(world.is_uncertain(node).then_some(node));
    }
    for (vcenter, facts) in world.cluster_ids().filter_map(|id| world.cluster(id)) {
        let rules = record.clusters.get(&ClusterKey::new(vcenter, facts.id.clone()));
        located.extend(rules.into_iter().flat_map(|rules| remembered(vcenter, facts, rules, &hostless)));
    }
    let names = located.into_iter().filter_map(|node| Some(world.node(node)?.name)).collect();
    (names, hostless, uncertain)
}
