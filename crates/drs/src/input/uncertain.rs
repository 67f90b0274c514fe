//! Members of owned rules that may be a node, while it is uncertain which VM the node is.
//!
//! In: the world, the record. Out: these VMs by id, each with one of the nodes. What a node was before is not needed: the
//! rules list it, also after a restart.
//!
//! Invariants: only nodes with pods that rules are for count; a VM that is another node for certain, or is not a member of
//! an owned rule, is never among them; the search is bounded, and beyond the bound every such member counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::event::VcenterId;
use model::{NodeId, VmId, World};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{ClusterKey, nodes};
use crate::record::Record;

/// How many pairs of a node and a VM are looked at: more than any site has whose VMs have names of their own.
const PAIRS_MAX: usize = 200_000;

/// A VM that may be this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UncertainVm {
    pub(crate) name: String,
    pub(crate) node: Arc<str>,
}

/// By id.
pub(crate) type UncertainVms = BTreeMap<String, UncertainVm>;

/// The VMs of each vCenter. `nodes`: uncertain ones, sorted by name.
pub(super) fn of(world: &World, record: &Record, nodes: &[NodeId]) -> BTreeMap<VcenterId, Arc<UncertainVms>> {
    let members = if nodes.is_empty() { FxHashSet::default() } else { members(world, record) };
    let mut found: FxHashMap<VmId, NodeId> = FxHashMap::default();
    let mut pairs = 0;
    for &node in nodes {
        if found.len() == members.len() {
            break;
        }
        for vm in world.candidates(node, members.iter().copied()).take(PAIRS_MAX - pairs) {
            pairs += 1;
            if members.contains(&vm) {
                found.entry(vm).or_insert(node);
            }
        }
        if pairs == PAIRS_MAX {
            members.iter().for_each(|vm| _ = found.entry(*vm).or_insert(node));
        }
    }
    let mut by_vcenter: BTreeMap<VcenterId, UncertainVms> = BTreeMap::new();
    for (vm, node) in found {
        let (Some((vcenter, facts)), Some(node)) = (world.vm(vm), world.node(node)) else { continue };
        let uncertain = UncertainVm { name: facts.name.clone(), node: world.interner().shared(node.name) };
        by_vcenter.entry(vcenter).or_default().insert(facts.id.clone(), uncertain);
    }
    by_vcenter.into_iter().map(|(vcenter, vms)| (vcenter, Arc::new(vms))).collect()
}

/// The members of owned rules that are no node for certain.
fn members(world: &World, record: &Record) -> FxHashSet<VmId> {
    let clusters = world.cluster_ids().filter_map(|id| world.cluster(id));
    let members = clusters.flat_map(|(vcenter, facts)| {
        let rules = record.rules(&ClusterKey::new(vcenter, facts.id.clone()));
        let ids: Vec<&str> = nodes::owned_members(facts, &rules).collect();
        ids.into_iter().filter_map(move |id| world.vm_id(vcenter, id))
    });
    members.filter(|vm| world.node_of(*vm).is_none()).collect()
}
