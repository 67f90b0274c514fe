//! The same world done plainly: facts in maps, a relist as the set of what it brought, matching by looking at every node
//! and every VM. Slow and obvious, to be compared with.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

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
    /// What the relist under way has brought.
    relists: BTreeMap<Source, BTreeSet<ObjectName>>,
    was_synced: BTreeSet<Source>,
    in_sync: BTreeSet<Source>,
}

impl Reference {
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::RelistBegan(source) => {
                self.in_sync.remove(source);
                self.relists.insert(*source, BTreeSet::new());
            }
            Event::RelistEnded(source) => {
                if let Some(brought) = self.relists.remove(source) {
                    self.objects.retain(|(of, name), _| of != source || brought.contains(name));
                    self.was_synced.insert(*source);
                    self.in_sync.insert(*source);
                }
            }
            Event::Lost(source) => {
                self.in_sync.remove(source);
                self.relists.remove(source);
            }
            _ => {
                let (source, name, is_there) = subject(event);
                if is_there {
                    if let Some(brought) = self.relists.get_mut(&source) {
                        brought.insert(name.clone());
                    }
                    self.objects.insert((source, name), event.clone());
                } else {
                    self.objects.remove(&(source, name));
                }
            }
        }
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

    /// The final state as events: one `Applied` per object.
    pub(crate) fn facts(&self) -> Vec<Event> {
        self.objects.values().cloned().collect()
    }

    pub(crate) fn facts_of(&self, source: Source) -> Vec<Event> {
        self.objects.iter().filter(|((of, _), _)| *of == source).map(|(_, event)| event.clone()).collect()
    }

    pub(crate) fn pods_bound_to(&self, node_name: &str) -> BTreeSet<(String, String)> {
        let bound = |event: &Event| match event {
            Event::PodApplied(pod) if pod.node.as_deref() == Some(node_name) => {
                Some((pod.namespace.clone(), pod.name.clone()))
            }
            _ => None,
        };
        self.objects.values().filter_map(bound).collect()
    }

    fn nodes(&self) -> Vec<&NodeFacts> {
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

    /// The first stage at which any VM fits, and all that fit there.
    fn candidates(&self, node: &NodeFacts) -> Option<(Evidence, BTreeSet<VmName>)> {
        Evidence::ALL.into_iter().find_map(|by| {
            let fitting: BTreeSet<VmName> = self
                .vms()
                .into_iter()
                .filter(|(_, vm)| !vm.template && fits(node, vm, by))
                .map(|(name, _)| name)
                .collect();
            (!fitting.is_empty()).then_some((by, fitting))
        })
    }

    fn match_of(&self, node: &NodeFacts) -> NamedMatch {
        let Some((by, candidates)) = self.candidates(node) else { return NamedMatch::Unmatched };
        if candidates.len() > 1 {
            return NamedMatch::Ambiguous(by, candidates);
        }
        let rivals: BTreeSet<String> = self
            .nodes()
            .into_iter()
            .filter(|other| other.name != node.name)
            .filter(|other| {
                self.candidates(other).is_some_and(|(strength, claimed)| claimed == candidates && strength <= by)
            })
            .map(|other| other.name.clone())
            .collect();
        let vm = candidates.into_iter().next().expect("one candidate");
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

    pub(crate) fn describe_nodes(&self) -> BTreeMap<String, NodeDescription> {
        self.nodes()
            .into_iter()
            .map(|node| {
                let found = self.match_of(node);
                let placement = self.placement_of(&found);
                let mut wanted = Labels::new();
                if let NamedPlacement::On(host) = &placement {
                    let names = [
                        ("host", Some(&host.name)),
                        ("cluster", host.cluster.as_ref()),
                        ("datacenter", host.datacenter.as_ref()),
                    ];
                    for (key, name) in names {
                        if let Some(value) = name.and_then(|name| label_value(name)) {
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

/// Source and name of the object an event is about, and whether it is there.
fn subject(event: &Event) -> (Source, ObjectName, bool) {
    let name = |kind, name: &str| (kind, name.to_owned(), String::new());
    match event {
        Event::NodeApplied(node) => (Source::Nodes, name("node", &node.name), true),
        Event::NodeDeleted { name: node } => (Source::Nodes, name("node", node), false),
        Event::PodApplied(pod) => (Source::Pods, ("pod", pod.namespace.clone(), pod.name.clone()), true),
        Event::PodDeleted { namespace, name } => (Source::Pods, ("pod", namespace.clone(), name.clone()), false),
        Event::NamespaceApplied(facts) => (Source::Namespaces, name("namespace", &facts.name), true),
        Event::NamespaceDeleted { name: facts } => (Source::Namespaces, name("namespace", facts), false),
        Event::SelectingApplied(facts) => {
            (Source::Selecting(facts.kind), ("selecting", facts.namespace.clone(), facts.name.clone()), true)
        }
        Event::SelectingDeleted { kind, namespace, name } => {
            (Source::Selecting(*kind), ("selecting", namespace.clone(), name.clone()), false)
        }
        Event::VmApplied { vcenter, vm } => (Source::Vcenter(*vcenter), name("vm", &vm.id), true),
        Event::VmRemoved { vcenter, id } => (Source::Vcenter(*vcenter), name("vm", id), false),
        Event::HostApplied { vcenter, host } => (Source::Vcenter(*vcenter), name("host", &host.id), true),
        Event::HostRemoved { vcenter, id } => (Source::Vcenter(*vcenter), name("host", id), false),
        Event::ClusterApplied { vcenter, cluster } => (Source::Vcenter(*vcenter), name("cluster", &cluster.id), true),
        Event::ClusterRemoved { vcenter, id } => (Source::Vcenter(*vcenter), name("cluster", id), false),
        Event::RelistBegan(_) | Event::RelistEnded(_) | Event::Lost(_) => unreachable!("marks are about no object"),
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
