//! Which VM of which cluster a pod runs on.
//!
//! In: the world, and for VMs whose host is not known at the moment the clusters whose owned rules name them: what is
//! unknown for a moment must not look like gone. Out: per cluster its node VMs, numbered in the order of their ids.
//!
//! A VM that moves within its cluster keeps its number. When VMs come or go the numbers are given anew: see
//! [`Places::follow`].

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::touched::Touched;
use model::event::{ClusterFacts, RuleKind, VcenterId};
use model::intern::Symbol;
use model::{ClusterId, HostId, NodeId, Placement, PodId, World};
use rustc_hash::FxHashMap;

use crate::finding::PodRef;
use crate::record::{ClusterName, Owned};
use crate::settings::DrsSettings;

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
        world.cluster(self.id).map(|(_, facts)| &**facts)
    }

    pub(crate) fn find(&self, vm_id: &str) -> Option<usize> {
        self.by_vm_id.get(vm_id).copied()
    }

    pub(crate) fn ids(&self, members: &[usize]) -> Vec<String> {
        members.iter().map(|vm| self.vms[*vm].id.clone()).collect()
    }
}

/// Where a pod runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Cluster and VM.
    At(usize, usize),
    /// In a cluster that is not planned for.
    Elsewhere,
    /// The VM of its node, or that VM's cluster, is not known.
    Unknown,
    /// It is bound to no node.
    Unbound,
}

/// Where a node runs, in names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Located {
    In { cluster: ClusterName, vm_id: String, vm_name: String, host: Option<HostId> },
    Elsewhere,
    Nowhere,
}

#[derive(Debug)]
pub(crate) struct Places {
    /// In the order of vCenters and ids.
    pub(crate) clusters: Vec<ClusterPlaces>,
    /// By the node's name: cluster and VM; `None` for nodes in clusters that are not planned for.
    by_node_name: FxHashMap<Symbol, Option<(usize, usize)>>,
    by_node: FxHashMap<NodeId, Option<(usize, usize)>>,
    /// Nodes whose VM is on no known host: where these are depends on what is recorded.
    adrift: BTreeSet<NodeId>,
}

impl Places {
    pub(crate) fn of(world: &World, owned: &Owned, settings: &DrsSettings) -> Self {
        let mut found: BTreeMap<ClusterName, (ClusterId, BTreeMap<String, VmPlace>)> = BTreeMap::new();
        for id in world.cluster_ids() {
            if let Some((vcenter, facts)) = world.cluster(id).filter(|(_, facts)| is_selected(facts, settings)) {
                found.insert((vcenter, facts.id.clone()), (id, BTreeMap::new()));
            }
        }
        let remembered = LazyCell::new(|| remembered(world, owned));
        let mut places = Self {
            clusters: Vec::new(),
            by_node_name: FxHashMap::default(),
            by_node: FxHashMap::default(),
            adrift: BTreeSet::new(),
        };
        for node in world.node_ids() {
            if matches!(world.placement(node), Placement::HostUnknown { .. }) {
                places.adrift.insert(node);
            }
            match locate(world, node, settings, &remembered) {
                Located::In { cluster, vm_id, vm_name: name, host } => {
                    if let Some((_, vms)) = found.get_mut(&cluster) {
                        vms.insert(vm_id.clone(), VmPlace { id: vm_id, name, node, host });
                    }
                }
                Located::Elsewhere => places.enter(world, node, None),
                Located::Nowhere => (),
            }
        }
        for (name, (id, found)) in found {
            let mut cluster = ClusterPlaces { id, name, vms: Vec::new(), by_vm_id: FxHashMap::default() };
            for (vm_id, place) in found {
                places.enter(world, place.node, Some((places.clusters.len(), cluster.vms.len())));
                cluster.by_vm_id.insert(vm_id, cluster.vms.len());
                cluster.vms.push(place);
            }
            places.clusters.push(cluster);
        }
        places
    }

    fn enter(&mut self, world: &World, node: NodeId, place: Option<(usize, usize)>) {
        self.by_node.insert(node, place);
        if let Some(kept) = world.node(node) {
            self.by_node_name.insert(kept.name, place);
        }
    }

    /// Takes in what was touched. `false` when the numbers or names of clusters or VMs are no longer
    /// the right ones.
    pub(crate) fn follow(&mut self, world: &World, owned: &Owned, settings: &DrsSettings, touched: &Touched) -> bool {
        if touched.removed().any(|node| self.by_node.contains_key(&node)) {
            return false;
        }
        for id in touched.clusters() {
            let known = self.clusters.iter().find(|cluster| cluster.id == id).map(|cluster| cluster.name.clone());
            let facts = world.cluster(id).filter(|(_, facts)| is_selected(facts, settings));
            if known != facts.map(|(vcenter, facts)| (vcenter, facts.id.clone())) {
                return false;
            }
        }
        let remembered = LazyCell::new(|| remembered(world, owned));
        let removed: BTreeSet<NodeId> = touched.removed().collect();
        self.adrift.retain(|node| !removed.contains(node));
        let nodes: BTreeSet<NodeId> = touched.nodes().chain(self.adrift.iter().copied()).collect();
        for node in nodes {
            if matches!(world.placement(node), Placement::HostUnknown { .. }) {
                self.adrift.insert(node);
            } else {
                self.adrift.remove(&node);
            }
            match (self.by_node.get(&node), locate(world, node, settings, &remembered)) {
                (None, Located::Nowhere) | (Some(None), Located::Elsewhere) => (),
                (Some(&Some((number, vm))), Located::In { cluster, vm_id, vm_name, host }) => {
                    let of = &mut self.clusters[number];
                    let place = &mut of.vms[vm];
                    if of.name != cluster || (&place.id, &place.name) != (&vm_id, &vm_name) {
                        return false;
                    }
                    place.host = host;
                }
                _ => return false,
            }
        }
        true
    }

    /// The cluster and VM a pod runs on.
    pub(crate) fn spot(&self, world: &World, pod: PodId) -> Spot {
        let Some(node) = world.pod(pod).and_then(|pod| pod.node()) else { return Spot::Unbound };
        match self.by_node_name.get(&node) {
            Some(Some((cluster, vm))) => Spot::At(*cluster, *vm),
            Some(None) => Spot::Elsewhere,
            None => Spot::Unknown,
        }
    }
}

fn is_selected(facts: &ClusterFacts, settings: &DrsSettings) -> bool {
    settings.clusters.as_ref().is_none_or(|names| names.contains(&facts.name))
}

type Remembered = BTreeMap<(VcenterId, String), String>;

fn locate<F: FnOnce() -> Remembered>(
    world: &World,
    node: NodeId,
    settings: &DrsSettings,
    remembered: &LazyCell<Remembered, F>,
) -> Located {
    let (vm, host) = match world.placement(node) {
        Placement::On { vm, host, .. } => (vm, Some(host)),
        Placement::HostUnknown { vm } => (vm, None),
        Placement::NotMatched => return Located::Nowhere,
    };
    let Some((vcenter, facts)) = world.vm(vm) else { return Located::Nowhere };
    let (vm_id, vm_name) = (facts.id.clone(), facts.name.clone());
    let found = match host {
        Some(host) => world.host(host).and_then(|host| host.cluster),
        None => {
            let cluster = remembered.get(&(vcenter, vm_id.clone()));
            cluster.and_then(|cluster| {
                let mut of_name = world.cluster_ids().filter_map(|id| Some((id, world.cluster(id)?)));
                of_name
                    .find(|(_, (of, facts))| *of == vcenter && facts.id == *cluster)
                    .map(|(id, (_, facts))| (id, &**facts))
            })
        }
    };
    match found {
        Some((_, facts)) if is_selected(facts, settings) => {
            Located::In { cluster: (vcenter, facts.id.clone()), vm_id, vm_name, host }
        }
        Some(_) => Located::Elsewhere,
        None => Located::Nowhere,
    }
}

/// The clusters whose owned rules name a VM.
fn remembered(world: &World, owned: &Owned) -> Remembered {
    let mut remembered = BTreeMap::new();
    for id in world.cluster_ids() {
        let Some((vcenter, facts)) = world.cluster(id) else { continue };
        let Some(rules) = owned.clusters.get(&(vcenter, facts.id.clone())) else { continue };
        for rule in facts.rules.iter().filter(|rule| rules.contains_key(&rule.name)) {
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

/// By name: ids follow the order of events, names do not.
pub(crate) fn pod_refs(world: &World, pods: impl IntoIterator<Item = PodId>) -> Vec<PodRef> {
    let mut refs: Vec<PodRef> = pods.into_iter().filter_map(|pod| pod_ref(world, pod)).collect();
    refs.sort_unstable();
    refs.dedup();
    refs
}
