//! Which VM of which cluster a pod runs on.
//!
//! In: the world, and for VMs whose host is not known at the moment the clusters whose owned rules name them: what is
//! unknown for a moment must not look like gone. Out: per cluster its node VMs, numbered in the order of their ids.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use model::event::{ClusterFacts, RuleKind};
use model::intern::Symbol;
use model::{ClusterId, HostId, NodeId, Placement, PodId, VmId, World};
use rustc_hash::FxHashMap;

use crate::finding::PodRef;
use crate::record::{ClusterName, Owned};

/// The VMs of one cluster that are nodes.
#[derive(Debug)]
pub(crate) struct ClusterPlaces {
    pub(crate) id: ClusterId,
    pub(crate) name: ClusterName,
    pub(crate) vms: Vec<VmPlace>,
    by_vm_id: FxHashMap<String, usize>,
}

#[derive(Debug)]
pub(crate) struct VmPlace {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) node: NodeId,
    pub(crate) host: Option<HostId>,
}

impl ClusterPlaces {
    pub(crate) fn facts<'a>(&self, world: &'a World) -> Option<&'a ClusterFacts> {
        world.cluster(self.id).map(|(_, facts)| facts)
    }

    pub(crate) fn find(&self, vm_id: &str) -> Option<usize> {
        self.by_vm_id.get(vm_id).copied()
    }
}

/// By id within the vCenter.
type FoundVms = BTreeMap<String, (VmId, NodeId, Option<HostId>)>;

#[derive(Debug)]
pub(crate) struct Places {
    /// In the order of vCenters and ids.
    pub(crate) clusters: Vec<ClusterPlaces>,
    /// By the node's name: cluster and VM.
    by_node: FxHashMap<Symbol, (usize, usize)>,
}

impl Places {
    pub(crate) fn of(world: &World, owned: &Owned) -> Self {
        let mut found: BTreeMap<ClusterName, (ClusterId, FoundVms)> = BTreeMap::new();
        for id in world.cluster_ids() {
            if let Some((vcenter, facts)) = world.cluster(id) {
                found.insert((vcenter, facts.id.clone()), (id, BTreeMap::new()));
            }
        }
        let remembered = LazyCell::new(|| remembered(world, owned));
        for node in world.node_ids() {
            let (vm, host) = match world.placement(node) {
                Placement::On { vm, host, .. } => (vm, Some(host)),
                Placement::HostUnknown { vm } => (vm, None),
                Placement::NotMatched => continue,
            };
            let Some((vcenter, facts)) = world.vm(vm) else { continue };
            let cluster = match host {
                Some(host) => world.host(host).and_then(|host| host.facts.cluster.clone()),
                None => remembered.get(&(vcenter, facts.id.clone())).cloned(),
            };
            let Some(cluster) = cluster else { continue };
            if let Some((_, vms)) = found.get_mut(&(vcenter, cluster)) {
                vms.insert(facts.id.clone(), (vm, node, host));
            }
        }
        let mut places = Self { clusters: Vec::new(), by_node: FxHashMap::default() };
        for (name, (id, found)) in found {
            let mut cluster = ClusterPlaces { id, name, vms: Vec::new(), by_vm_id: FxHashMap::default() };
            for (vm_id, (vm, node, host)) in found {
                let name = world.vm(vm).map(|(_, facts)| facts.name.clone()).unwrap_or_default();
                if let Some(node) = world.node(node) {
                    places.by_node.insert(node.name, (places.clusters.len(), cluster.vms.len()));
                }
                cluster.by_vm_id.insert(vm_id.clone(), cluster.vms.len());
                cluster.vms.push(VmPlace { id: vm_id, name, node, host });
            }
            places.clusters.push(cluster);
        }
        places
    }

    /// The cluster and VM a pod runs on.
    pub(crate) fn of_pod(&self, world: &World, pod: PodId) -> Option<(usize, usize)> {
        self.by_node.get(&world.pod(pod)?.node()?).copied()
    }
}

/// The clusters whose owned rules name a VM.
fn remembered(world: &World, owned: &Owned) -> BTreeMap<(model::event::VcenterId, String), String> {
    let mut remembered = BTreeMap::new();
    for id in world.cluster_ids() {
        let Some((vcenter, facts)) = world.cluster(id) else { continue };
        let Some(rules) = owned.clusters.get(&(vcenter, facts.id.clone())) else { continue };
        let ours: BTreeSet<&String> = rules.keys().collect();
        for rule in facts.rules.iter().filter(|rule| ours.contains(&rule.name)) {
            if let RuleKind::VmsApart(vms) | RuleKind::VmsTogether(vms) = &rule.kind {
                remembered.extend(vms.iter().map(|vm| ((vcenter, vm.clone()), facts.id.clone())));
            }
        }
    }
    remembered
}

pub(crate) fn pod_ref(world: &World, pod: PodId) -> Option<PodRef> {
    let pod = world.pod(pod)?;
    Some(PodRef {
        namespace: world.interner().shared(pod.namespace),
        name: std::sync::Arc::clone(&pod.name),
        uid: pod.uid.clone(),
    })
}
