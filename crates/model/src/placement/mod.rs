//! Where nodes run: from the node to its VM, host, cluster and datacenter, and back.
//!
//! In: the world. Out: a [`Placement`] per node and views on hosts. Invariant: an unknown link ends the chain; it is
//! never guessed.

pub(crate) mod host_idle;

use std::sync::Arc;

use self::host_idle::HostIdle;
use crate::event::{ClusterFacts, HostConnection, HostFacts, HostLoadFacts, Source, VcenterId, VmFacts};
use crate::identity::Match;
use crate::labels::value::label_value;
use crate::storage::arena::{ClusterId, HostId, NodeId, VmId};
use crate::storage::digest::digest;
use crate::storage::node_set::NodeSet;
use crate::world::World;
use crate::world::sync::SourceState;

/// Where a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    On {
        vcenter: VcenterId,
        vm: VmId,
        host: HostId,
    },
    /// Its VM is on no host, or on a host that is not known (yet).
    HostUnknown {
        vm: VmId,
    },
    /// No VM matches it, or none for certain.
    NotMatched,
}

/// A host, and the cluster it is in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostView<'a> {
    pub id: HostId,
    pub vcenter: VcenterId,
    pub facts: &'a HostFacts,
    /// `None` for a standalone host, and while the cluster is unknown.
    pub cluster: Option<(ClusterId, &'a ClusterFacts)>,
}

impl<'a> HostView<'a> {
    pub fn name(&self) -> &'a str {
        &self.facts.name
    }

    pub fn cluster_name(&self) -> Option<&'a str> {
        self.cluster.map(|(_, cluster)| cluster.name.as_str())
    }

    pub(crate) fn datacenter_name(&self) -> Option<&'a str> {
        let of_cluster = || self.cluster.and_then(|(_, cluster)| cluster.datacenter.as_deref());
        self.facts.datacenter.as_deref().or_else(of_cluster)
    }

    pub fn connection(&self) -> HostConnection {
        self.facts.connection
    }

    /// In maintenance mode, or entering it.
    pub fn maintenance(&self) -> bool {
        self.facts.maintenance
    }

    /// `None` while the load is unknown.
    pub fn load(&self) -> Option<HostLoadFacts> {
        self.facts.load
    }

    /// Whether it certainly cannot use the datastore that a volume names.
    pub fn lacks_datastore(&self, name: &str) -> bool {
        self.facts.datastores_missing.iter().any(|datastore| datastore.is_named(name))
    }

    /// The scarcer of CPU and memory: its unused amount and its capacity; `None` while neither is known. Integers, so
    /// that all callers round the same way.
    fn idle(&self) -> Option<(u64, u64)> {
        let load = self.facts.load?;
        let idle = |used: u64, capacity: u64| (capacity > 0).then(|| (capacity.saturating_sub(used), capacity));
        let cpu = idle(load.cpu_used_mhz, load.cpu_capacity_mhz);
        let memory = idle(load.memory_used_mib, load.memory_capacity_mib);
        let share = |(unused, capacity): &(u64, u64)| (u128::from(*unused) << 32) / u128::from(*capacity);
        cpu.into_iter().chain(memory).min_by_key(share)
    }

    /// The idle share from 0 to 100; the share in use is rounded down.
    pub fn idle_percent(&self) -> Option<u8> {
        let (unused, capacity) = self.idle()?;
        let percent = (u128::from(unused) * 100).div_ceil(u128::from(capacity));
        Some(u8::try_from(percent).unwrap_or(100))
    }

    /// The idle share from 0 to 1.
    pub fn idle_fraction(&self) -> Option<f64> {
        self.idle().map(|(unused, capacity)| unused as f64 / capacity as f64)
    }
}

impl World {
    /// The result of matching the node to a VM.
    pub fn match_of(&self, node: NodeId) -> Match {
        self.identity.match_of(node)
    }

    /// The node that is this VM, if the match is certain.
    pub fn node_of(&self, vm: VmId) -> Option<NodeId> {
        self.identity.node_of(vm)
    }

    /// Whether it is uncertain which VM the node is: several may be it, others claim it, its claim is unconfirmed, or it
    /// finds none while not every vCenter is in sync.
    pub fn is_uncertain(&self, node: NodeId) -> bool {
        self.identity.candidates_of(node).next().is_some() || self.is_unread(node)
    }

    /// The VMs that an uncertain node may be, some of them repeatedly. Of a node whose own VM may not have been read yet,
    /// those of these VMs that no UUID shows to be another one.
    pub fn candidates<'a>(
        &'a self,
        node: NodeId,
        vms: impl Iterator<Item = VmId> + 'a,
    ) -> impl Iterator<Item = VmId> + 'a {
        let may_be = move |vm: &VmId| {
            let is_template = self.vm(*vm).is_none_or(|(_, facts)| facts.template);
            !is_template && !self.identity.have_uuids(node, *vm)
        };
        let unread = self.is_unread(node).then(|| vms.filter(may_be));
        self.identity.candidates_of(node).chain(unread.into_iter().flatten())
    }

    /// Whether the node finds no VM, and its VM may be in a vCenter that is not in sync.
    fn is_unread(&self, node: NodeId) -> bool {
        let is_in_sync = |(source, state)| !matches!(source, Source::Vcenter(_)) || state == SourceState::InSync;
        self.identity.finds_nothing(node) && !(self.awaited.is_empty() && self.sources().all(is_in_sync))
    }

    pub fn placement(&self, node: NodeId) -> Placement {
        let Some(vm) = self.identity.vm_of(node) else { return Placement::NotMatched };
        self.host_of_vm(vm).map_or(Placement::HostUnknown { vm }, |(vcenter, host)| Placement::On { vcenter, vm, host })
    }

    /// The host the node runs on, if it is known.
    pub fn host_of(&self, node: NodeId) -> Option<HostView<'_>> {
        let (_, host) = self.host_of_vm(self.identity.vm_of(node)?)?;
        self.host(host)
    }

    /// The nodes that accept no new pods: their host is in maintenance or entering it, or the host is not connected and
    /// the node is not ready either. A host that only lost its connection still runs its VMs.
    pub fn nodes_refused(&self) -> &NodeSet {
        &self.refused
    }

    /// How idle the nodes' hosts are.
    pub fn host_idle(&self) -> &HostIdle {
        &self.host_idle
    }

    pub(crate) fn takes_no_pods(&self, node: NodeId, host: &HostView<'_>) -> bool {
        host.maintenance() || (host.connection() != HostConnection::Connected && !self.is_ready(node))
    }

    /// The host a node runs on, as a label value: from vSphere, else from the node's own label.
    pub(crate) fn host_label_value(&self, node: NodeId) -> Option<String> {
        let live = self.host_of(node).and_then(|host| self.host_label(&host));
        live.or_else(|| self.label_of(node, &self.lifting().host_key).map(str::to_owned))
    }

    /// The label value of a host: its name, unless a host of another vCenter has the same name.
    pub fn host_label(&self, host: &HostView<'_>) -> Option<String> {
        if host.name().is_empty() || !self.host_names.is_shared(host.name()) {
            return label_value(host.name());
        }
        let index = || host.vcenter.0.to_string();
        let vcenter = self.instance_uuid(host.vcenter).map_or_else(index, ToString::to_string);
        label_value(&format!("{}-{:08x}", host.name(), digest(&[&vcenter]) >> 32))
    }

    pub fn host(&self, id: HostId) -> Option<HostView<'_>> {
        let kept = self.inventory.hosts.arena().get(id)?;
        let cluster = kept.facts.cluster.as_deref().and_then(|cluster| {
            let id = self.inventory.clusters.find(kept.vcenter, cluster)?;
            Some((id, &*self.inventory.clusters.arena().get(id)?.facts))
        });
        Some(HostView { id, vcenter: kept.vcenter, facts: &kept.facts, cluster })
    }

    /// `None` until the vCenter was reached.
    pub fn instance_uuid(&self, vcenter: VcenterId) -> Option<&Arc<str>> {
        self.inventory.instance_uuids.get(&vcenter)
    }

    /// The VM with this id within its vCenter.
    pub fn vm_id(&self, vcenter: VcenterId, id: &str) -> Option<VmId> {
        self.inventory.vms.find(vcenter, id)
    }

    pub fn vm(&self, id: VmId) -> Option<(VcenterId, &VmFacts)> {
        self.inventory.vms.arena().get(id).map(|kept| (kept.vcenter, &kept.facts))
    }

    pub fn cluster(&self, id: ClusterId) -> Option<(VcenterId, &Arc<ClusterFacts>)> {
        self.inventory.clusters.arena().get(id).map(|kept| (kept.vcenter, &kept.facts))
    }

    pub fn host_ids(&self) -> impl Iterator<Item = HostId> {
        self.inventory.hosts.arena().ids()
    }

    pub fn cluster_ids(&self) -> impl Iterator<Item = ClusterId> {
        self.inventory.clusters.arena().ids()
    }

    pub fn hosts_in(&self, cluster: ClusterId) -> impl Iterator<Item = HostId> {
        let of = self.cluster(cluster);
        of.into_iter().flat_map(|(vcenter, facts)| self.inventory.hosts.members(vcenter, &facts.id))
    }

    pub fn vms_on(&self, host: HostId) -> impl Iterator<Item = VmId> {
        let of = self.inventory.hosts.arena().get(host);
        of.into_iter().flat_map(|kept| self.inventory.vms.members(kept.vcenter, &kept.facts.id))
    }

    fn host_of_vm(&self, vm: VmId) -> Option<(VcenterId, HostId)> {
        let kept = self.inventory.vms.arena().get(vm)?;
        let host = self.inventory.hosts.find(kept.vcenter, kept.facts.host.as_deref()?)?;
        Some((kept.vcenter, host))
    }

    /// The nodes whose VMs name this host, whether or not the host is known.
    pub(crate) fn nodes_on_host(&self, vcenter: VcenterId, host: &str) -> impl Iterator<Item = NodeId> {
        self.inventory.vms.members(vcenter, host).filter_map(|vm| self.identity.node_of(vm))
    }

    /// The nodes on a known host.
    pub(crate) fn nodes_at(&self, host: HostId) -> impl Iterator<Item = NodeId> {
        self.vms_on(host).filter_map(|vm| self.identity.node_of(vm))
    }

    /// The nodes on the hosts that name this cluster.
    pub(crate) fn nodes_in_cluster(&self, vcenter: VcenterId, cluster: &str) -> impl Iterator<Item = NodeId> {
        let hosts = self.inventory.hosts.members(vcenter, cluster);
        hosts
            .filter_map(|host| self.inventory.hosts.arena().get(host))
            .flat_map(move |kept| self.nodes_on_host(vcenter, &kept.facts.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::arena::DenseId;

    #[test]
    fn a_host_is_as_idle_as_its_scarcer_resource() {
        // Used and capacity of CPU, then of memory.
        let cases = [
            ([25, 100, 50, 100], Some(0.5)),
            ([75, 100, 50, 100], Some(0.25)),
            ([0, 100, 0, 100], Some(1.0)),
            ([120, 100, 0, 100], Some(0.0)),
            // A resource with unknown capacity is ignored.
            ([25, 100, 7, 0], Some(0.75)),
            ([7, 0, 25, 100], Some(0.75)),
            ([0, 0, 0, 0], None),
        ];
        for ([cpu_used_mhz, cpu_capacity_mhz, memory_used_mib, memory_capacity_mib], expected) in cases {
            let load = HostLoadFacts { cpu_used_mhz, cpu_capacity_mhz, memory_used_mib, memory_capacity_mib };
            let idle = |load| {
                let facts = HostFacts { load, ..HostFacts::default() };
                let id = DenseId::from_index(0);
                HostView { id, vcenter: VcenterId(0), facts: &facts, cluster: None }.idle_fraction()
            };
            assert_eq!((idle(Some(load)), idle(None)), (expected, None), "{load:?}");
        }
    }
}
