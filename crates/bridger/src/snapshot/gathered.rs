//! Builds a snapshot from the events of a one-time read of all sources.
//!
//! In: events. Out: the latest facts of every object, sorted by name.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use model::event::{ClusterFacts, Event, HostFacts, NamespaceFacts, NodeFacts, PodFacts, Source, VcenterId, VmFacts};
use model::scheduling::{DisruptionBudgetFacts, WorkloadFacts, WorkloadKind};
use model::volumes::{VolumeKind, VolumeObject};

use super::{Snapshot, VcenterPart};

/// Collects the latest facts of every object, sorted by name.
#[derive(Debug, Default)]
pub struct Gathered {
    namespaces: BTreeMap<String, NamespaceFacts>,
    nodes: BTreeMap<String, NodeFacts>,
    pods: BTreeMap<(String, String), PodFacts>,
    workloads: BTreeMap<(WorkloadKind, String, String), WorkloadFacts>,
    budgets: BTreeMap<(String, String), DisruptionBudgetFacts>,
    volumes: BTreeMap<(VolumeKind, String, String), VolumeObject>,
    vms: BTreeMap<(VcenterId, String), VmFacts>,
    hosts: BTreeMap<(VcenterId, String), HostFacts>,
    clusters: BTreeMap<(VcenterId, String), ClusterFacts>,
    whole: BTreeSet<Source>,
}

impl Gathered {
    pub fn apply(&mut self, event: Event) {
        match event {
            // A second list begins after a broken watch: objects of the first may have been deleted.
            Event::RelistBegan(source) => self.forget(source),
            Event::RelistEnded(source) => {
                self.whole.insert(source);
            }
            Event::NodeApplied(node) => {
                self.nodes.insert(node.name.clone(), node);
            }
            Event::NodeDeleted { name } => {
                self.nodes.remove(&name);
            }
            Event::PodApplied(pod) => {
                self.pods.insert((pod.namespace.clone(), pod.name.clone()), pod);
            }
            Event::PodDeleted { namespace, name } => {
                self.pods.remove(&(namespace, name));
            }
            Event::NamespaceApplied(namespace) => {
                self.namespaces.insert(namespace.name.clone(), namespace);
            }
            Event::NamespaceDeleted { name } => {
                self.namespaces.remove(&name);
            }
            Event::WorkloadApplied(facts) => {
                self.workloads.insert((facts.kind, facts.namespace.clone(), facts.name.clone()), facts);
            }
            Event::WorkloadDeleted { kind, namespace, name } => {
                self.workloads.remove(&(kind, namespace, name));
            }
            Event::DisruptionBudgetApplied(facts) => {
                self.budgets.insert((facts.namespace.clone(), facts.name.clone()), facts);
            }
            Event::DisruptionBudgetDeleted { namespace, name } => {
                self.budgets.remove(&(namespace, name));
            }
            Event::VolumeApplied(object) => {
                let key = (object.kind(), object.namespace().to_owned(), object.name().to_owned());
                self.volumes.insert(key, object);
            }
            Event::VolumeDeleted { kind, namespace, name } => {
                self.volumes.remove(&(kind, namespace, name));
            }
            Event::VmApplied { vcenter, vm } => {
                self.vms.insert((vcenter, vm.id.clone()), vm);
            }
            Event::VmRemoved { vcenter, id } => {
                self.vms.remove(&(vcenter, id));
            }
            Event::HostApplied { vcenter, host } => {
                self.hosts.insert((vcenter, host.id.clone()), host);
            }
            Event::HostRemoved { vcenter, id } => {
                self.hosts.remove(&(vcenter, id));
            }
            Event::ClusterApplied { vcenter, cluster } => {
                self.clusters.insert((vcenter, cluster.id.clone()), cluster);
            }
            Event::ClusterRemoved { vcenter, id } => {
                self.clusters.remove(&(vcenter, id));
            }
            // Known facts stay until the next list. Assumed pods are not part of the observed state.
            // The startup check has read who each vCenter is.
            Event::Lost(_)
            | Event::VcenterIdentified { .. }
            | Event::PodAssumed { .. }
            | Event::PodForgotten { .. }
            | Event::VolumesAssumed { .. } => (),
        }
    }

    fn forget(&mut self, source: Source) {
        self.whole.remove(&source);
        match source {
            Source::Nodes => self.nodes.clear(),
            Source::Pods => self.pods.clear(),
            Source::Namespaces => self.namespaces.clear(),
            Source::Workload(gone) => self.workloads.retain(|(kind, ..), _| *kind != gone),
            Source::DisruptionBudgets => self.budgets.clear(),
            Source::Volume(gone) => self.volumes.retain(|(kind, ..), _| *kind != gone),
            Source::Vcenter(gone) => {
                self.vms.retain(|(vcenter, _), _| *vcenter != gone);
                self.hosts.retain(|(vcenter, _), _| *vcenter != gone);
                self.clusters.retain(|(vcenter, _), _| *vcenter != gone);
            }
        }
    }

    /// Whether this source has been listed completely.
    pub fn is_whole(&self, source: Source) -> bool {
        self.whole.contains(&source)
    }

    /// `instance_uuids`: those of the vCenters, ordered by vCenter ID.
    pub fn into_snapshot(
        self,
        taken: Timestamp,
        instance_uuids: &[String],
        record: BTreeMap<String, String>,
    ) -> Snapshot {
        let mut vcenters: Vec<VcenterPart> = instance_uuids
            .iter()
            .map(|uuid| VcenterPart { instance_uuid: uuid.clone(), ..VcenterPart::default() })
            .collect();
        for ((vcenter, _), vm) in self.vms {
            if let Some(part) = vcenters.get_mut(usize::from(vcenter.0)) {
                part.vms.push(vm);
            }
        }
        for ((vcenter, _), host) in self.hosts {
            if let Some(part) = vcenters.get_mut(usize::from(vcenter.0)) {
                part.hosts.push(host);
            }
        }
        for ((vcenter, _), cluster) in self.clusters {
            if let Some(part) = vcenters.get_mut(usize::from(vcenter.0)) {
                part.clusters.push(cluster);
            }
        }
        Snapshot {
            taken,
            vcenters,
            namespaces: self.namespaces.into_values().collect(),
            nodes: self.nodes.into_values().collect(),
            pods: self.pods.into_values().collect(),
            workloads: self.workloads.into_values().collect(),
            budgets: self.budgets.into_values().collect(),
            volumes: self.volumes.into_values().collect(),
            record,
        }
    }
}
