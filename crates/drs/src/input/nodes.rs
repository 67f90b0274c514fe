//! The VMs of a cluster that are nodes.
//!
//! In: the world; for VMs whose host is currently unknown, the cluster's owned rules that name them, because a
//! temporarily unknown VM must not look deleted. Out: the nodes with their VMs, sorted by VM id.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::event::{ClusterFacts, RuleKind, VcenterId};
use model::storage::intern::Symbol;
use model::{ClusterId, NodeId, Placement, World};
use rustc_hash::FxHashSet;

use super::{ClusterKey, Host, Vm};
use crate::record::{Record, Rules};

pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) vm: Vm,
}

/// A node whose VM is currently on no known host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hostless {
    node: NodeId,
    vcenter: VcenterId,
    vm_id: String,
}

/// The nodes of a cluster, in no particular order.
pub(super) fn ids(world: &World, cluster: ClusterId, rules: &Rules, hostless: &[Hostless]) -> Vec<NodeId> {
    let Some((vcenter, facts)) = world.cluster(cluster) else { return Vec::new() };
    let on_hosts = world.hosts_in(cluster).flat_map(|host| world.vms_on(host)).filter_map(|vm| world.node_of(vm));
    on_hosts.chain(remembered(vcenter, facts, rules, hostless)).collect()
}

pub(super) fn in_cluster(world: &World, ids: Vec<NodeId>, hosts: &[Host]) -> Vec<Node> {
    let nodes = ids.into_iter().filter_map(|id| node(world, id, hosts));
    let found: BTreeMap<String, Node> = nodes.map(|node| (node.vm.id.clone(), node)).collect();
    found.into_values().collect()
}

fn node(world: &World, id: NodeId, hosts: &[Host]) -> Option<Node> {
    let (vm, host) = match world.placement(id) {
        Placement::On { vm, host, .. } => (vm, world.host(host).map(|host| &host.facts.id)),
        Placement::HostUnknown { vm } => (vm, None),
        Placement::NotMatched => return None,
    };
    let (_, facts) = world.vm(vm)?;
    let host = host.and_then(|id| hosts.binary_search_by(|host| host.id.0.cmp(id)).ok());
    let node: Arc<str> = world.interner().shared(world.node(id)?.name);
    Some(Node { id, vm: Vm { id: facts.id.clone(), name: facts.name.clone(), node, host } })
}

/// The hostless nodes whose VM is a member of a rule recorded for this cluster.
fn remembered(vcenter: VcenterId, facts: &ClusterFacts, rules: &Rules, hostless: &[Hostless]) -> Vec<NodeId> {
    // Usually there are none, and rules have many members.
    if hostless.is_empty() {
        return Vec::new();
    }
    let members: FxHashSet<&str> = owned_members(facts, rules).collect();
    let is_member = |of: &&Hostless| of.vcenter == vcenter && members.contains(of.vm_id.as_str());
    hostless.iter().filter(is_member).map(|of| of.node).collect()
}

/// The ids of the VMs in the recorded VM-VM rules.
fn owned_members<'a>(facts: &'a ClusterFacts, rules: &'a Rules) -> impl Iterator<Item = &'a str> {
    let own = facts.rules.iter().filter(|rule| rules.contains_key(&rule.name));
    let members = own.flat_map(|rule| match &rule.kind {
        RuleKind::VmAntiAffinity(vms) | RuleKind::VmAffinity(vms) => vms.as_slice(),
        RuleKind::VmHost { .. } | RuleKind::Dependency { .. } | RuleKind::Other(_) => &[],
    });
    members.map(String::as_str)
}

/// The names of the nodes whose cluster is known, and the nodes that are on no known host.
pub(super) fn located(world: &World, record: &Record) -> (FxHashSet<Symbol>, Vec<Hostless>) {
    let (mut located, mut hostless) = (Vec::new(), Vec::new());
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
    }
    for (vcenter, facts) in world.cluster_ids().filter_map(|id| world.cluster(id)) {
        let rules = record.clusters.get(&ClusterKey::new(vcenter, facts.id.clone()));
        located.extend(rules.into_iter().flat_map(|rules| remembered(vcenter, facts, rules, &hostless)));
    }
    let names = located.into_iter().filter_map(|node| Some(world.node(node)?.name)).collect();
    (names, hostless)
}
