//! A brute-force reference of the world: facts in maps, a relist as the set of objects it contained, matching by
//! comparing every node with every VM. Slow and obvious.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use uuid::Uuid;

use super::description::{NamedHost, NamedMatch, NamedPlacement, NodeDescription, VmName};
use crate::event::*;
use crate::labels::LabelDifference;
use crate::{Evidence, SourceState, label_value};

/// Names an object within its source.
type ObjectName = (&'static str, String, String);

#[derive(Clone, Debug, Default)]
pub(crate) struct Reference {
    objects: BTreeMap<(Source, ObjectName), Event>,
    /// The objects that the relist in progress has contained so far.
    relists: BTreeMap<Source, BTreeSet<ObjectName>>,
    /// Pods that are being bound, by namespace and name, with their node. Pods without an object are known only because
    /// they were assumed.
    assumed: BTreeMap<(String, String), (PodFacts, String)>,
    was_synced: BTreeSet<Source>,
    in_sync: BTreeSet<Source>,
    instance_uuids: BTreeMap<VcenterId, Arc<str>>,
}

impl Reference {
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::RelistBegan(source) => {
                self.in_sync.remove(source);
                self.relists.insert(*source, BTreeSet::new());
            }
            Event::RelistEnded(source) => {
                if let Some(listed) = self.relists.remove(source) {
                    for (_, (_, namespace, pod)) in
                        self.objects.keys().filter(|(of, name)| of == source && !listed.contains(name))
                    {
                        self.assumed.remove(&(namespace.clone(), pod.clone()));
                    }
                    self.objects.retain(|(of, name), _| of != source || listed.contains(name));
                    self.was_synced.insert(*source);
                    self.in_sync.insert(*source);
                }
            }
            Event::Lost(source) => {
                self.in_sync.remove(source);
                self.relists.remove(source);
            }
            Event::VcenterIdentified { vcenter, instance_uuid } => {
                self.instance_uuids.insert(*vcenter, Arc::clone(instance_uuid));
            }
            Event::PodAssumed { pod, node } => self.assume(pod, node),
            Event::PodForgotten { namespace, name, uid } => {
                let key = (namespace.clone(), name.clone());
                if self.assumed.get(&key).is_some_and(|(pod, _)| pod.uid == *uid) {
                    self.assumed.remove(&key);
                }
            }
            _ => {
                match event {
                    Event::PodApplied(pod) => {
                        let key = (pod.namespace.clone(), pod.name.clone());
                        let ends = |(assumed, _): &(PodFacts, String)| {
                            assumed.uid != pod.uid || pod.node.is_some() || pod.finished
                        };
                        if self.assumed.get(&key).is_some_and(ends) {
                            self.assumed.remove(&key);
                        }
                    }
                    Event::PodDeleted { namespace, name } => {
                        self.assumed.remove(&(namespace.clone(), name.clone()));
                    }
                    _ => {}
                }
                let (source, name, exists) = subject(event);
                let mut event = event.clone();
                if let Event::VmApplied { vm, .. } = &mut event
                    && let Some(Event::VmApplied { vm: known, .. }) = self.objects.get(&(source, name.clone()))
                {
                    vm.bios_uuid = vm.bios_uuid.or(known.bios_uuid);
                }
                if exists {
                    if let Some(listed) = self.relists.get_mut(&source) {
                        listed.insert(name.clone());
                    }
                    self.objects.insert((source, name), event);
                } else {
                    self.objects.remove(&(source, name));
                }
            }
        }
    }

    fn assume(&mut self, pod: &PodFacts, node: &str) {
        let key = (pod.namespace.clone(), pod.name.clone());
        let applied = self.objects.get(&(Source::Pods, ("pod", key.0.clone(), key.1.clone())));
        let known = match applied {
            Some(Event::PodApplied(applied)) => Some(applied),
            _ => self.assumed.get(&key).map(|(pod, _)| pod),
        };
        let known = known.unwrap_or(pod).clone();
        if known.uid == pod.uid && known.node.as_ref().filter(|_| applied.is_some()).is_none() && !known.finished {
            self.assumed.insert(key, (known, node.to_owned()));
        }
    }

    /// All pods; assumed pods are on their nodes.
    pub(crate) fn pods(&self) -> Vec<PodFacts> {
        let applied = self.objects.values().filter_map(|event| match event {
            Event::PodApplied(pod) => Some(pod.clone()),
            _ => None,
        });
        let mut pods: BTreeMap<(String, String), PodFacts> =
            applied.map(|pod| ((pod.namespace.clone(), pod.name.clone()), pod)).collect();
        for (key, (pod, node)) in &self.assumed {
            pods.entry(key.clone()).or_insert_with(|| pod.clone()).node = Some(node.clone());
        }
        pods.into_values().collect()
    }

    pub(crate) fn namespaces(&self) -> Vec<NamespaceFacts> {
        let namespaces = self.objects.values().filter_map(|event| match event {
            Event::NamespaceApplied(namespace) => Some(namespace.clone()),
            _ => None,
        });
        namespaces.collect()
    }

    pub(crate) fn state(&self, source: Source) -> SourceState {
        let was_synced = self.was_synced.contains(&source);
        if self.relists.contains_key(&source) {
            SourceState::Relisting { was_synced }
        } else if self.in_sync.contains(&source) {
            SourceState::InSync
        } else if was_synced {
            SourceState::Lost
        } else {
            SourceState::NeverSynced
        }
    }

    /// The final state as events: one `Applied` per object, one `Assumed` per pod that is being bound.
    pub(crate) fn facts(&self) -> Vec<Event> {
        let assumed = self
            .assumed
            .values()
            .map(|(pod, node)| Event::PodAssumed { pod: Box::new(pod.clone()), node: node.clone() });
        let identified = self.instance_uuids.iter().map(|(vcenter, instance_uuid)| Event::VcenterIdentified {
            vcenter: *vcenter,
            instance_uuid: Arc::clone(instance_uuid),
        });
        identified.chain(self.objects.values().cloned()).chain(assumed).collect()
    }

    pub(crate) fn facts_of(&self, source: Source) -> Vec<Event> {
        self.objects.iter().filter(|((of, _), _)| *of == source).map(|(_, event)| event.clone()).collect()
    }

    pub(crate) fn pods_bound_to(&self, node_name: &str) -> BTreeSet<(String, String)> {
        let bound = self.pods().into_iter().filter(|pod| pod.node.as_deref() == Some(node_name));
        bound.map(|pod| (pod.namespace, pod.name)).collect()
    }

    pub(crate) fn nodes(&self) -> Vec<&NodeFacts> {
        self.objects
            .values()
            .filter_map(|event| if let Event::NodeApplied(node) = event { Some(node) } else { None })
            .collect()
    }

    fn vms(&self) -> BTreeMap<VmName, &VmFacts> {
        self.objects
            .values()
            .filter_map(|event| {
                if let Event::VmApplied { vcenter, vm } = event { Some(((*vcenter, vm.id.clone()), vm)) } else { None }
            })
            .collect()
    }

    fn host(&self, vcenter: VcenterId, id: &str) -> Option<&HostFacts> {
        self.objects.values().find_map(|event| match event {
            Event::HostApplied { vcenter: of, host } if *of == vcenter && host.id == id => Some(host),
            _ => None,
        })
    }

    fn cluster(&self, vcenter: VcenterId, id: &str) -> Option<&ClusterFacts> {
        self.objects.values().find_map(|event| match event {
            Event::ClusterApplied { vcenter: of, cluster } if *of == vcenter && cluster.id == id => Some(cluster),
            _ => None,
        })
    }

    /// The first stage at which any VM matches, and all VMs that match at that stage.
    fn candidates(&self, node: &NodeFacts) -> Option<(Evidence, BTreeSet<VmName>)> {
        Evidence::ALL.into_iter().find_map(|by| {
            let fitting: BTreeSet<VmName> = self
                .vms()
                .into_iter()
                .filter(|(_, vm)| !vm.template && fits(node, vm, by) && !is_another(node, vm))
                .map(|(name, _)| name)
                .collect();
            let on: BTreeSet<VmName> = fitting.iter().filter(|name| self.vms()[name].powered_on).cloned().collect();
            (!fitting.is_empty()).then_some((by, if on.is_empty() { fitting } else { on }))
        })
    }

    /// The only VM that matches, and whether no other witness denies it.
    fn claim(&self, node: &NodeFacts) -> Option<(Evidence, VmName, bool)> {
        let (by, candidates) = self.candidates(node)?;
        let [vm] = Vec::from_iter(candidates).try_into().ok()?;
        let is_confirmed = by != Evidence::SystemUuid || !denies(node, self.vms()[&vm]);
        Some((by, vm, is_confirmed))
    }

    fn match_of(&self, node: &NodeFacts) -> NamedMatch {
        let Some((by, candidates)) = self.candidates(node) else { return NamedMatch::Unmatched };
        if candidates.len() > 1 {
            return NamedMatch::Ambiguous(by, candidates);
        }
        let (_, vm, is_confirmed) = self.claim(node).expect("one candidate");
        if !is_confirmed {
            return NamedMatch::Unconfirmed(vm, by);
        }
        let claims_it = |other: &NodeFacts| {
            self.claim(other).is_some_and(|(strength, claimed, confirmed)| confirmed && claimed == vm && strength <= by)
        };
        let rivals = self.nodes().into_iter().filter(|other| other.name != node.name && claims_it(other));
        let rivals: BTreeSet<String> = rivals.map(|other| other.name.clone()).collect();
        if rivals.is_empty() { NamedMatch::Matched(vm, by) } else { NamedMatch::Contested(vm, by, rivals) }
    }

    fn placement_of(&self, found: &NamedMatch) -> NamedPlacement {
        let NamedMatch::Matched(vm, _) = found else { return NamedPlacement::NotMatched };
        let host = self.vms()[vm].host.as_deref().and_then(|host| self.host(vm.0, host));
        let Some(host) = host else { return NamedPlacement::HostUnknown };
        let cluster = host.cluster.as_deref().and_then(|cluster| self.cluster(vm.0, cluster));
        NamedPlacement::On(NamedHost {
            id: (vm.0, host.id.clone()),
            name: host.name.clone(),
            cluster: cluster.map(|cluster| cluster.name.clone()),
            datacenter: host.datacenter.clone().or_else(|| cluster?.datacenter.clone()),
            connection: host.connection,
            maintenance: host.maintenance,
        })
    }

    /// The host the node is on, if it is known.
    pub(crate) fn host_of(&self, node: &NodeFacts) -> Option<NamedHost> {
        match self.placement_of(&self.match_of(node)) {
            NamedPlacement::On(host) => Some(host),
            NamedPlacement::HostUnknown | NamedPlacement::NotMatched => None,
        }
    }

    pub(crate) fn host_label(&self, host: &NamedHost) -> Option<String> {
        let is_twin = |event: &Event| matches!(event, Event::HostApplied { vcenter, host: other } if *vcenter != host.id.0 && other.name == host.name);
        if host.name.is_empty() || !self.objects.values().any(is_twin) {
            return label_value(&host.name);
        }
        let vcenter = self.instance_uuids.get(&host.id.0).map_or(host.id.0.0.to_string(), |uuid| uuid.to_string());
        label_value(&format!("{}-{:08x}", host.name, crate::storage::digest::digest(&[&vcenter]) >> 32))
    }

    /// Whether the node accepts no pods because of its host.
    pub(crate) fn is_refused(&self, node_name: &str) -> bool {
        self.nodes().into_iter().filter(|node| node.name == node_name).any(|node| {
            self.host_of(node)
                .is_some_and(|host| host.maintenance || (host.connection != HostConnection::Connected && !node.ready))
        })
    }

    pub(crate) fn describe_nodes(&self) -> BTreeMap<String, NodeDescription> {
        self.nodes()
            .into_iter()
            .map(|node| {
                let found = self.match_of(node);
                let placement = self.placement_of(&found);
                let mut wanted = Labels::new();
                if let NamedPlacement::On(host) = &placement {
                    let of_name = |name: &Option<String>| name.as_deref().and_then(label_value);
                    let values = [
                        ("host", self.host_label(host)),
                        ("cluster", of_name(&host.cluster)),
                        ("datacenter", of_name(&host.datacenter)),
                    ];
                    for (key, value) in values {
                        if let Some(value) = value {
                            wanted.insert(key.to_owned(), value);
                        }
                    }
                }
                let differences = wanted
                    .iter()
                    .filter(|(key, value)| node.labels.get(*key) != Some(value))
                    .map(|(key, value)| {
                        (key.clone(), LabelDifference { from: node.labels.get(key).cloned(), to: value.clone() })
                    })
                    .collect();
                let labels = node.labels.clone();
                (node.name.clone(), NodeDescription { found, placement, labels, wanted, differences })
            })
            .collect()
    }
}

/// Source and name of the object an event is about, and whether the object exists after it.
fn subject(event: &Event) -> (Source, ObjectName, bool) {
    let name = |kind, name: &str| (kind, name.to_owned(), String::new());
    match event {
        Event::NodeApplied(node) => (Source::Nodes, name("node", &node.name), true),
        Event::NodeDeleted { name: node } => (Source::Nodes, name("node", node), false),
        Event::PodApplied(pod) => (Source::Pods, ("pod", pod.namespace.clone(), pod.name.clone()), true),
        Event::PodDeleted { namespace, name } => (Source::Pods, ("pod", namespace.clone(), name.clone()), false),
        Event::NamespaceApplied(facts) => (Source::Namespaces, name("namespace", &facts.name), true),
        Event::NamespaceDeleted { name: facts } => (Source::Namespaces, name("namespace", facts), false),
        Event::WorkloadApplied(facts) => {
            (Source::Workload(facts.kind), ("workload", facts.namespace.clone(), facts.name.clone()), true)
        }
        Event::WorkloadDeleted { kind, namespace, name } => {
            (Source::Workload(*kind), ("workload", namespace.clone(), name.clone()), false)
        }
        Event::DisruptionBudgetApplied(facts) => {
            (Source::DisruptionBudgets, ("budget", facts.namespace.clone(), facts.name.clone()), true)
        }
        Event::DisruptionBudgetDeleted { namespace, name } => {
            (Source::DisruptionBudgets, ("budget", namespace.clone(), name.clone()), false)
        }
        Event::VolumeApplied(object) => {
            let name = ("volume", object.namespace().to_owned(), object.name().to_owned());
            (Source::Volume(object.kind()), name, true)
        }
        Event::VolumeDeleted { kind, namespace, name } => {
            (Source::Volume(*kind), ("volume", namespace.clone(), name.clone()), false)
        }
        Event::VmApplied { vcenter, vm } => (Source::Vcenter(*vcenter), name("vm", &vm.id), true),
        Event::VmRemoved { vcenter, id } => (Source::Vcenter(*vcenter), name("vm", id), false),
        Event::HostApplied { vcenter, host } => (Source::Vcenter(*vcenter), name("host", &host.id), true),
        Event::HostRemoved { vcenter, id } => (Source::Vcenter(*vcenter), name("host", id), false),
        Event::ClusterApplied { vcenter, cluster } => (Source::Vcenter(*vcenter), name("cluster", &cluster.id), true),
        Event::ClusterRemoved { vcenter, id } => (Source::Vcenter(*vcenter), name("cluster", id), false),
        Event::RelistBegan(_)
        | Event::RelistEnded(_)
        | Event::Lost(_)
        | Event::VcenterIdentified { .. }
        | Event::PodAssumed { .. }
        | Event::PodForgotten { .. }
        | Event::VolumesAssumed { .. } => unreachable!("not an event about one object of a source"),
    }
}

fn fits(node: &NodeFacts, vm: &VmFacts, by: Evidence) -> bool {
    match by {
        Evidence::SystemUuid => same_uuid(node.system_uuid, vm.bios_uuid),
        Evidence::ProviderId => same_uuid(node.provider_uuid, vm.bios_uuid),
        Evidence::IpAddress => {
            node.ip_addresses.iter().any(|ip| vm.ip_addresses.iter().any(|other| same_ip(*ip, *other)))
        }
        Evidence::DnsName => {
            let of_vm = vm.dns_name.as_deref().unwrap_or_default().to_lowercase();
            !of_vm.is_empty() && of_vm != "localhost" && node.dns_names.iter().any(|name| name.to_lowercase() == of_vm)
        }
    }
}

/// Both have a UUID, and they differ.
fn is_another(node: &NodeFacts, vm: &VmFacts) -> bool {
    let own = [node.system_uuid, node.provider_uuid].into_iter().flatten().find(identifies);
    own.is_some_and(|own| vm.bios_uuid.filter(identifies).is_some_and(|other| !same_uuid(Some(own), Some(other))))
}

fn identifies(uuid: &Uuid) -> bool {
    !uuid.is_nil() && !uuid.is_max()
}

/// Provider ID, addresses and names of the node are another machine's.
fn denies(node: &NodeFacts, vm: &VmFacts) -> bool {
    if let Some(provider) = node.provider_uuid.filter(identifies) {
        return vm.bios_uuid.is_some() && !same_uuid(Some(provider), vm.bios_uuid);
    }
    let mut comparisons = Vec::new();
    for ip in &node.ip_addresses {
        let counting = vm.ip_addresses.iter().filter(|other| same_ip(**other, **other) && same_ip(*ip, *ip));
        comparisons.extend(counting.map(|other| same_ip(*ip, *other)));
    }
    let short = |name: &str| name.to_lowercase().split('.').next().map(str::to_owned);
    let counts = |name: &&String| !name.is_empty() && name.to_lowercase() != "localhost";
    for name in node.dns_names.iter().filter(counts) {
        comparisons.extend(vm.dns_name.iter().filter(counts).map(|other| short(name) == short(other)));
    }
    !comparisons.is_empty() && !comparisons.contains(&true)
}

fn same_uuid(node: Option<Uuid>, vm: Option<Uuid>) -> bool {
    let (Some(node), Some(vm)) = (node, vm) else { return false };
    let (a, b, c, rest) = node.as_fields();
    let swapped = Uuid::from_fields(a.swap_bytes(), b.swap_bytes(), c.swap_bytes(), rest);
    !vm.is_nil() && !vm.is_max() && (vm == node || vm == swapped)
}

fn same_ip(node: IpAddr, vm: IpAddr) -> bool {
    let text = node.to_canonical().to_string();
    let counts = !text.starts_with("127.") && !text.starts_with("fe80:") && text != "::1" && text != "::";
    counts && text == vm.to_canonical().to_string()
}
