//! The world: the current state of Kubernetes and vSphere, kept up to date event by event.
//!
//! In: [`Event`]s, in any order, including repeated ones and ones about unknown objects. Out: answers (here, in
//! `placement` and in `report`), and for each event a [`WorldChange`].
//!
//! Invariants: `World::apply` is the only way state changes; the same events give the same world; answers depend on the
//! current objects, not on the order of events. A world that records its changes ([`World::record_changes`]) keeps
//! every change until it is taken, no matter which caller applied the event: none can be missed.

pub(crate) mod change;
mod host_names;
pub(crate) mod inventory;
pub(crate) mod nodes;
mod placing;
pub(crate) mod pods;
pub(crate) mod revisions;
pub(crate) mod sync;
pub(crate) mod touched;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::change::{Before, WorldChange};
use self::host_names::HostNames;
use self::inventory::Inventory;
use self::nodes::{Namespace, Namespaces, Node, Nodes};
use self::pods::{Pod, Pods};
use self::revisions::{Revision, Revisions};
use self::sync::{Generation, SourceState, Sources};
use self::touched::{Requirements, Touched};
use crate::affinity::{Affinity, LiftSettings};
use crate::event::{ClusterFacts, Event, HostFacts, Labels, NamespaceFacts, NodeFacts, Source, VcenterId, VmFacts};
use crate::identity::{Identity, NodeKeys, VmKeys};
use crate::placement::host_idle::HostIdle;
use crate::scheduling::Scheduling;
use crate::storage::arena::{ClusterId, HostId, NodeId, PodId, VmId};
use crate::storage::intern::{Interner, Symbol};
use crate::storage::node_set::NodeSet;
use crate::storage::uid::Uid;
use crate::volumes::{CsiNodes, PodVolumes, VolumeKind, Volumes};

#[derive(Debug, Default)]
pub struct World {
    pub(crate) interner: Interner,
    pub(crate) sources: Sources,
    pub(crate) nodes: Nodes,
    pub(crate) pods: Pods,
    pub(crate) namespaces: Namespaces,
    pub(crate) affinity: Affinity,
    pub(crate) inventory: Inventory,
    pub(crate) host_names: HostNames,
    pub(crate) identity: Identity,
    pub(crate) refused: NodeSet,
    pub(crate) host_idle: HostIdle,
    pub(crate) scheduling: Scheduling,
    pub(crate) volumes: Volumes,
    pub(crate) csi_nodes: CsiNodes,
    revisions: Revisions,
    /// The expected vCenters that were neither read nor found to be down.
    pub(crate) awaited: BTreeSet<VcenterId>,
    /// Changes not taken yet; `None` if recording is off.
    recorded: Option<Vec<Arc<WorldChange>>>,
}

impl World {
    /// A world with non-default lift settings for topology keys.
    pub fn with_lifting(settings: LiftSettings) -> Self {
        Self { affinity: Affinity::new(settings), ..Self::default() }
    }

    /// These vCenters will report. Until each was read once or is known to be down, no node is matched by an address or a
    /// name, because the right VM may be in a vCenter that was not read yet.
    pub fn expect_vcenters(&mut self, vcenters: impl IntoIterator<Item = VcenterId>) {
        self.awaited.extend(vcenters);
        if !self.awaited.is_empty() {
            self.identity.wait_with_weak_keys();
        }
    }

    /// From now on, keeps every change until [`World::take_changes`].
    pub fn record_changes(&mut self) {
        self.recorded.get_or_insert_default();
    }

    /// The changes since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<Arc<WorldChange>> {
        self.recorded.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Applies what an adapter observed or a controller assumes.
    pub fn apply(&mut self, event: Event) -> Arc<WorldChange> {
        let before = Before::of(self, &event);
        let touched = self.update(event);
        let change = Arc::new(WorldChange { subject: before.after(self), touched });
        if let Some(recorded) = &mut self.recorded {
            recorded.push(Arc::clone(&change));
        }
        change
    }

    fn update(&mut self, event: Event) -> Touched {
        let mut touched = Touched::default();
        match event {
            Event::RelistBegan(source) => self.sources.relist_began(source),
            Event::RelistEnded(source) => {
                if let Some(generation) = self.sources.relist_ended(source) {
                    self.sweep(source, generation, &mut touched);
                }
                self.answered(source, &mut touched);
            }
            Event::Lost(source) => {
                self.sources.lost(source);
                self.answered(source, &mut touched);
            }
            Event::VcenterIdentified { vcenter, instance_uuid } => {
                let before = self.inventory.instance_uuids.insert(vcenter, Arc::clone(&instance_uuid));
                if before.as_ref() != Some(&instance_uuid) {
                    // Labels of shared host names contain it.
                    let hosts: Vec<HostId> = self.host_ids().collect();
                    let of = |id: &HostId| self.host(*id).is_some_and(|host| host.vcenter == vcenter);
                    touched.nodes.extend(hosts.iter().filter(|id| of(id)).flat_map(|id| self.nodes_at(*id)));
                }
            }

            Event::NodeApplied(facts) => self.apply_node(&facts, &mut touched),
            Event::NodeDeleted { name } => {
                if let Some(id) = self.node_id(&name) {
                    self.remove_node(id, &mut touched);
                }
            }
            Event::PodApplied(facts) => self.apply_pod(&facts, &mut touched),
            Event::PodDeleted { namespace, name } => {
                if let Some(id) = self.pod_id(&namespace, &name) {
                    self.remove_pod(id, &mut touched);
                }
            }
            Event::PodAssumed { pod, node } => self.assume_pod(&pod, &node, &mut touched),
            Event::PodForgotten { namespace, name, uid } => {
                if let Some(id) = self.pod_id(&namespace, &name) {
                    self.forget_pod(id, &uid, &mut touched);
                }
            }
            Event::NamespaceApplied(facts) => self.apply_namespace(&facts, &mut touched),
            Event::NamespaceDeleted { name } => {
                if let Some(name) = self.interner.get(&name) {
                    self.remove_namespace(name, &mut touched);
                }
            }
            Event::WorkloadApplied(facts) => {
                let generation = self.sources.generation(Source::Workload(facts.kind));
                self.scheduling.workloads.apply(&facts, generation, &mut self.interner);
                if let Some(namespace) = self.interner.get(&facts.namespace) {
                    self.workload_changed(namespace);
                }
            }
            Event::WorkloadDeleted { kind, namespace, name } => {
                if let Some(namespace) = self.interner.get(&namespace) {
                    self.remove_workload(kind, namespace, &name);
                }
            }
            Event::DisruptionBudgetApplied(facts) => {
                let generation = self.sources.generation(Source::DisruptionBudgets);
                self.scheduling.budgets.apply(&facts, generation, &mut self.interner);
            }
            Event::DisruptionBudgetDeleted { namespace, name } => {
                if let Some(namespace) = self.interner.get(&namespace) {
                    self.scheduling.budgets.remove(namespace, &name, &mut self.interner);
                }
            }
            Event::VolumeApplied(object) => {
                let generation = self.sources.generation(Source::Volume(object.kind()));
                self.volumes.apply(object.clone(), generation);
                self.volume_object_changed(object.kind(), object.name());
            }
            Event::VolumeDeleted { kind, namespace, name } => self.remove_volume_object(kind, &namespace, &name),
            Event::VolumesAssumed { namespace, name, uid, objects } => {
                let of_pod = |pod: &Pod| pod.is_assumed() && pod.uid == Uid::from(uid.as_str());
                let pod = self.pod_id(&namespace, &name).filter(|id| self.pod(*id).is_some_and(of_pod));
                if let Some(pod) = pod {
                    self.volumes.assume(pod, objects);
                }
            }

            Event::VmApplied { vcenter, vm } => self.apply_vm(vcenter, vm, &mut touched),
            Event::VmRemoved { vcenter, id } => {
                if let Some(id) = self.inventory.vms.find(vcenter, &id) {
                    self.remove_vm(id, &mut touched);
                }
            }
            Event::HostApplied { vcenter, host } => self.apply_host(vcenter, host, &mut touched),
            Event::HostRemoved { vcenter, id } => {
                if let Some(id) = self.inventory.hosts.find(vcenter, &id) {
                    self.remove_host(id, &mut touched);
                }
            }
            Event::ClusterApplied { vcenter, cluster } => self.apply_cluster(vcenter, cluster, &mut touched),
            Event::ClusterRemoved { vcenter, id } => {
                if let Some(id) = self.inventory.clusters.find(vcenter, &id) {
                    self.remove_cluster(id, &mut touched);
                }
            }
        }
        for &node in &touched.nodes {
            self.locate(node);
        }
        self.revisions.note(&touched);
        touched
    }

    /// The source was read, or is known to be down.
    fn answered(&mut self, source: Source, touched: &mut Touched) {
        if let Source::Vcenter(vcenter) = source
            && self.awaited.remove(&vcenter)
            && self.awaited.is_empty()
        {
            self.identity.use_weak_keys(&mut touched.nodes);
        }
    }

    /// Removes the objects that a complete relist did not contain.
    fn sweep(&mut self, source: Source, generation: Generation, touched: &mut Touched) {
        match source {
            Source::Nodes => {
                for id in self.nodes.not_of(generation) {
                    self.remove_node(id, touched);
                }
            }
            Source::Pods => {
                for id in self.pods.not_of(generation) {
                    self.remove_pod(id, touched);
                }
            }
            Source::Namespaces => {
                for name in self.namespaces.not_of(generation) {
                    self.remove_namespace(name, touched);
                }
            }
            Source::Workload(kind) => {
                for (namespace, name) in self.scheduling.workloads.not_of(kind, generation) {
                    self.remove_workload(kind, namespace, &name);
                }
            }
            Source::DisruptionBudgets => self.scheduling.budgets.sweep(generation, &mut self.interner),
            Source::Volume(kind) => {
                for (namespace, name) in self.volumes.not_of(kind, generation) {
                    self.remove_volume_object(kind, &namespace, &name);
                }
            }
            Source::Vcenter(vcenter) => {
                for id in self.inventory.vms.not_of(vcenter, generation) {
                    self.remove_vm(id, touched);
                }
                for id in self.inventory.hosts.not_of(vcenter, generation) {
                    self.remove_host(id, touched);
                }
                for id in self.inventory.clusters.not_of(vcenter, generation) {
                    self.remove_cluster(id, touched);
                }
            }
        }
    }

    fn remove_volume_object(&mut self, kind: VolumeKind, namespace: &str, name: &str) {
        self.volumes.remove(kind, namespace, name);
        self.volume_object_changed(kind, name);
    }

    fn volume_object_changed(&mut self, kind: VolumeKind, name: &str) {
        if kind == VolumeKind::CsiNode {
            self.find_csi_node(name);
        }
    }

    fn apply_node(&mut self, facts: &NodeFacts, touched: &mut Touched) {
        let generation = self.sources.generation(Source::Nodes);
        let before = self.node_before(self.node_id(&facts.name));
        let (id, changed) = self.nodes.apply(facts, generation, &mut self.interner);
        self.node_changed(id, facts, &before);
        self.find_csi_node(&facts.name);
        if changed {
            touched.nodes.insert(id);
        }
        self.identity.set_node(id, NodeKeys::of(facts), &mut touched.nodes);
        self.reconsider_host(id);
    }

    fn remove_node(&mut self, id: NodeId, touched: &mut Touched) {
        self.identity.remove_node(id, &mut touched.nodes);
        self.node_left(id, &self.node_before(Some(id)));
        let pods = self.node(id).map_or(&[][..], |node| self.pods.on_node(node.name));
        self.affinity.remove_node(id, pods, &mut self.interner);
        self.refused.remove(id);
        self.host_idle.set(id, None);
        self.csi_nodes.set(id, None);
        self.nodes.remove(id, &mut self.interner);
        touched.removed.insert(id);
    }

    fn apply_namespace(&mut self, facts: &NamespaceFacts, touched: &mut Touched) {
        let generation = self.sources.generation(Source::Namespaces);
        let (name, before) = self.namespaces.apply(facts, generation, &mut self.interner);
        self.namespace_replaced(name, before, touched);
    }

    fn remove_namespace(&mut self, name: Symbol, touched: &mut Touched) {
        let before = self.namespaces.remove(name);
        if before.is_some() {
            self.namespace_replaced(name, before, touched);
        }
    }

    /// Updates what depends on the namespace's labels, and releases the old ones.
    fn namespace_replaced(&mut self, name: Symbol, before: Option<Namespace>, touched: &mut Touched) {
        let labels_before = before.as_ref().map_or(&[][..], |before| before.labels.pairs());
        let labels_after = self.namespaces.labels(name);
        let mut changed = false;
        if labels_before != labels_after {
            changed |= self.affinity.namespace_changed(name, labels_before, labels_after);
        }
        let lift_off = self.namespaces.get(name).is_some_and(|namespace| namespace.lift_off);
        if before.as_ref().is_some_and(|before| before.lift_off) != lift_off {
            changed = true;
            self.affinity.set_namespace_lift(name, lift_off);
        }
        let has_cluster_rules = |of: Option<&Namespace>| of.is_some_and(|namespace| namespace.has_cluster_rules);
        changed |= has_cluster_rules(before.as_ref()) != has_cluster_rules(self.namespaces.get(name));
        if changed {
            touched.require(Requirements::Anywhere);
            self.revisions.note_namespaces();
        }
        if let Some(before) = before {
            before.labels.release(&mut self.interner);
            self.interner.release(name);
        }
    }

    fn apply_vm(&mut self, vcenter: VcenterId, mut vm: VmFacts, touched: &mut Touched) {
        let generation = self.sources.generation(Source::Vcenter(vcenter));
        // A VM whose host is unreachable has no configuration. Its UUID does not change by that.
        let known = self.inventory.vms.find(vcenter, &vm.id).and_then(|id| self.inventory.vms.arena().get(id));
        vm.bios_uuid = vm.bios_uuid.or(known.and_then(|known| known.facts.bios_uuid));
        let keys = VmKeys::of(&vm);
        let (host, name) = (vm.host.clone(), vm.name.clone());
        let (id, before) = self.inventory.vms.apply(vcenter, vm, generation);
        self.identity.set_vm(id, keys, &mut touched.nodes);
        if before.is_some_and(|before| before.host != host || before.name != name) {
            touched.nodes.extend(self.identity.node_of(id));
        }
    }

    fn remove_vm(&mut self, id: VmId, touched: &mut Touched) {
        self.identity.remove_vm(id, &mut touched.nodes);
        self.inventory.vms.remove(id);
    }

    fn apply_host(&mut self, vcenter: VcenterId, host: HostFacts, touched: &mut Touched) {
        let generation = self.sources.generation(Source::Vcenter(vcenter));
        let (id, before) = self.inventory.hosts.apply(vcenter, host, generation);
        let Some(kept) = self.inventory.hosts.arena().get(id) else { return };
        let name_before = before.as_ref().map(|before| before.name.as_str());
        let relabelled = self.host_names.renamed((vcenter, id), name_before, Some(&kept.facts.name));
        touched.nodes.extend(relabelled.into_iter().flat_map(|(_, host)| self.nodes_at(host)));
        if before.as_ref().is_none_or(|before| !describes_the_same_host(before, &kept.facts)) {
            touched.nodes.extend(self.nodes_on_host(vcenter, &kept.facts.id));
            let clusters = [before.and_then(|before| before.cluster), kept.facts.cluster.clone()];
            let known = |cluster: String| self.inventory.clusters.find(vcenter, &cluster);
            touched.clusters.extend(clusters.into_iter().flatten().filter_map(known));
        } else if before.as_ref().is_some_and(|before| before.datastores_missing != kept.facts.datastores_missing) {
            touched.nodes.extend(self.nodes_on_host(vcenter, &kept.facts.id));
        } else if before.is_some_and(|before| before.load != kept.facts.load) {
            let nodes: Vec<NodeId> = self.nodes_on_host(vcenter, &kept.facts.id).collect();
            nodes.into_iter().for_each(|node| self.reconsider_host(node));
        }
    }

    fn remove_host(&mut self, id: HostId, touched: &mut Touched) {
        if let Some(kept) = self.inventory.hosts.remove(id) {
            let cluster = kept.facts.cluster.as_deref();
            touched.clusters.extend(cluster.and_then(|cluster| self.inventory.clusters.find(kept.vcenter, cluster)));
            touched.nodes.extend(self.nodes_on_host(kept.vcenter, &kept.facts.id));
            let relabelled = self.host_names.renamed((kept.vcenter, id), Some(&kept.facts.name), None);
            touched.nodes.extend(relabelled.into_iter().flat_map(|(_, host)| self.nodes_at(host)));
        }
    }

    fn apply_cluster(&mut self, vcenter: VcenterId, cluster: ClusterFacts, touched: &mut Touched) {
        let generation = self.sources.generation(Source::Vcenter(vcenter));
        let (id, before) = self.inventory.clusters.apply(vcenter, Arc::new(cluster), generation);
        let Some(kept) = self.inventory.clusters.arena().get(id) else { return };
        if before.as_ref() != Some(&kept.facts) {
            touched.clusters.insert(id);
        }
        if before.is_none_or(|before| !describes_the_same_cluster(&before, &kept.facts)) {
            touched.nodes.extend(self.nodes_in_cluster(vcenter, &kept.facts.id));
        }
    }

    fn remove_cluster(&mut self, id: ClusterId, touched: &mut Touched) {
        if let Some(kept) = self.inventory.clusters.remove(id) {
            touched.clusters.insert(id);
            touched.nodes.extend(self.nodes_in_cluster(kept.vcenter, &kept.facts.id));
        }
    }
}

/// Ignores rules and groups: they change often and do not affect where a node is.
fn describes_the_same_cluster(a: &ClusterFacts, b: &ClusterFacts) -> bool {
    (&a.name, &a.datacenter, a.drs_enabled) == (&b.name, &b.datacenter, b.drs_enabled)
}

/// Ignores the load: it changes all the time and does not affect where a node is.
fn describes_the_same_host(a: &HostFacts, b: &HostFacts) -> bool {
    (&a.name, &a.cluster, &a.datacenter, a.connection, a.maintenance)
        == (&b.name, &b.cluster, &b.datacenter, b.connection, b.maintenance)
}

/// The state of Kubernetes objects and sources.
impl World {
    pub fn source(&self, source: Source) -> SourceState {
        self.sources.state(source)
    }

    /// How many complete lists of the source were applied.
    pub fn lists(&self, source: Source) -> u64 {
        self.sources.lists(source)
    }

    /// The source was listed once, or is known to be down.
    pub fn has_answered(&self, source: Source) -> bool {
        self.sources.has_answered(source)
    }

    pub fn in_sync(&self, source: Source) -> bool {
        self.source(source) == SourceState::InSync
    }

    /// Every known source and its state.
    pub fn sources(&self) -> impl Iterator<Item = (Source, SourceState)> {
        self.sources.iter()
    }

    /// The strings behind the symbols of nodes, pods and labels.
    pub fn interner(&self) -> &Interner {
        &self.interner
    }

    pub fn node_id(&self, name: &str) -> Option<NodeId> {
        self.nodes.named(name)
    }

    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.arena().ids()
    }

    pub fn node_count(&self) -> usize {
        self.nodes.arena().len()
    }

    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.arena().get(id)
    }

    pub fn node_name(&self, id: NodeId) -> Option<&str> {
        Some(self.interner.text(self.node(id)?.name))
    }

    pub fn node_uid(&self, id: NodeId) -> Option<String> {
        Some(self.node(id)?.uid.to_string())
    }

    /// Changes whenever the node's VM or host, or the requirements of its pods, may have changed.
    pub fn node_revision(&self, id: NodeId) -> Revision {
        self.revisions.node(id)
    }

    /// Changes with every pod on the node, whether or not terms refer to the pod.
    pub fn pods_revision(&self, id: NodeId) -> Revision {
        self.revisions.pods(id)
    }

    /// Changes whenever the cluster's rules or hosts may have changed.
    pub fn cluster_revision(&self, id: ClusterId) -> Revision {
        self.revisions.cluster(id)
    }

    /// The revision of the last change of anything that DRS rules depend on.
    pub fn revision(&self) -> Revision {
        self.revisions.latest()
    }

    /// Changes whenever the namespaces that terms select, or that opted out of lifting, may have changed.
    pub fn namespaces_revision(&self) -> Revision {
        self.revisions.namespaces()
    }

    pub fn node_labels(&self, id: NodeId) -> Option<Labels> {
        Some(self.node(id)?.labels.to_labels(&self.interner))
    }

    /// The value of one of the node's labels, including a physical host label written by another client.
    pub fn label_of(&self, id: NodeId, key: &str) -> Option<&str> {
        let value = self.node(id)?.labels.get(self.interner.get(key)?)?;
        Some(self.interner.text(value))
    }

    /// The Ready condition is True.
    pub fn is_ready(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.ready)
    }

    pub fn pod_id(&self, namespace: &str, name: &str) -> Option<PodId> {
        self.pods.find(self.interner.get(namespace)?, name)
    }

    pub fn pod(&self, id: PodId) -> Option<&Pod> {
        self.pods.get(id)
    }

    /// The number of pods that are assumed on a node and not yet reported as bound.
    pub fn assumed_pod_count(&self) -> usize {
        self.pods.assumed_count()
    }

    /// The node on which preemption makes room for the pod: `status.nominatedNodeName`.
    pub fn nominated_node(&self, id: PodId) -> Option<&str> {
        self.pods.nominated_node(id)
    }

    /// Whether a scheduler preempts the pod: its condition DisruptionTarget says so.
    pub fn is_preempted(&self, id: PodId) -> bool {
        self.pods.is_preempted(id)
    }

    /// The volumes of a pod that matter for its placement, shared by pods with equal lists; `None` if it has none.
    pub fn pod_volumes(&self, id: PodId) -> Option<&Arc<PodVolumes>> {
        self.pods.volumes_of(id)
    }

    pub fn pods(&self) -> impl Iterator<Item = (PodId, &Pod)> {
        self.pods.iter()
    }

    /// The pods that are not finished and are unbound, terminating or have preferred terms; in no particular order.
    pub fn unsettled_pods(&self) -> impl Iterator<Item = (PodId, &Pod)> {
        self.pods.unsettled().filter_map(|id| Some((id, self.pods.get(id)?)))
    }

    /// The names of the nodes that pods are bound to or assumed on, whether or not the nodes are known.
    pub fn names_of_nodes_with_pods(&self) -> impl Iterator<Item = Symbol> {
        self.pods.nodes()
    }

    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    /// The pods bound to the node or assumed there, including finished ones, in no particular order.
    pub fn pods_on(&self, id: NodeId) -> &[PodId] {
        self.node(id).map_or(&[], |node| self.pods.on_node(node.name))
    }

    /// The pods bound to a node with this name or assumed there, whether or not the node is known.
    pub fn pods_bound_to(&self, node_name: &str) -> &[PodId] {
        self.interner.get(node_name).map_or(&[], |name| self.pods.on_node(name))
    }

    /// Claims, volumes and what belongs to them.
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    pub fn namespace(&self, name: &str) -> Option<&Namespace> {
        self.namespaces.get(self.interner.get(name)?)
    }

    /// By the symbol of its name.
    pub fn namespace_of(&self, name: Symbol) -> Option<&Namespace> {
        self.namespaces.get(name)
    }

    pub fn namespace_count(&self) -> usize {
        self.namespaces.len()
    }

    /// Identifies this Kubernetes cluster: the UID of its namespace `kube-system`.
    pub fn kubernetes_uid(&self) -> Option<String> {
        Some(self.namespace("kube-system")?.uid.to_string())
    }
}
