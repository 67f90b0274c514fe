//! A description of the world's nodes with names instead of ids, so that two worlds can be compared.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{HostConnection, Labels, VcenterId};
use crate::labels::{LabelDifference, LabelSettings, differences, wanted};
use crate::{Evidence, Match, NodeId, Placement, VmId, World};

pub(crate) type VmName = (VcenterId, String);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NamedMatch {
    Matched(VmName, Evidence),
    Unmatched,
    Ambiguous(Evidence, BTreeSet<VmName>),
    Contested(VmName, Evidence, BTreeSet<String>),
    Unconfirmed(VmName, Evidence),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedHost {
    pub(crate) id: (VcenterId, String),
    pub(crate) name: String,
    pub(crate) cluster: Option<String>,
    pub(crate) datacenter: Option<String>,
    pub(crate) connection: HostConnection,
    pub(crate) maintenance: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NamedPlacement {
    On(NamedHost),
    HostUnknown,
    NotMatched,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeDescription {
    pub(crate) found: NamedMatch,
    pub(crate) placement: NamedPlacement,
    pub(crate) labels: Labels,
    pub(crate) wanted: Labels,
    pub(crate) differences: BTreeMap<String, LabelDifference>,
}

pub(crate) fn settings() -> LabelSettings {
    LabelSettings {
        host_key: "host".to_owned(),
        cluster_key: Some("cluster".to_owned()),
        datacenter_key: Some("datacenter".to_owned()),
    }
}

pub(crate) fn describe_node(world: &World, node: NodeId) -> NodeDescription {
    let vm_name = |vm: VmId| {
        let (vcenter, facts) = world.vm(vm).expect("a match names a known VM");
        (vcenter, facts.id.clone())
    };
    let found = match world.match_of(node) {
        Match::Matched { vm, by } => {
            assert_eq!(world.node_of(vm), Some(node), "matched both ways");
            NamedMatch::Matched(vm_name(vm), by)
        }
        Match::Unmatched => NamedMatch::Unmatched,
        Match::Unconfirmed { vm, by } => NamedMatch::Unconfirmed(vm_name(vm), by),
        Match::Ambiguous { by, candidates } => NamedMatch::Ambiguous(by, candidates.into_iter().map(vm_name).collect()),
        Match::Contested { vm, by, rivals } => {
            let rivals = rivals.into_iter().map(|rival| world.node_name(rival).expect("a rival is known").to_owned());
            NamedMatch::Contested(vm_name(vm), by, rivals.collect())
        }
    };
    let placement = match world.placement(node) {
        Placement::NotMatched => NamedPlacement::NotMatched,
        Placement::HostUnknown { .. } => NamedPlacement::HostUnknown,
        Placement::On { host, vcenter, vm } => {
            let view = world.host(host).expect("a placement names a known host");
            assert_eq!(world.host_of(node), Some(view));
            assert_eq!(vcenter, view.vcenter);
            assert!(world.vms_on(host).any(|other| other == vm));
            NamedPlacement::On(NamedHost {
                id: (vcenter, view.facts.id.clone()),
                name: view.name().to_owned(),
                cluster: view.cluster_name().map(str::to_owned),
                datacenter: view.datacenter_name().map(str::to_owned),
                connection: view.connection(),
                maintenance: view.maintenance(),
            })
        }
    };
    NodeDescription {
        found,
        placement,
        labels: world.node_labels(node).expect("the node is known"),
        wanted: wanted(world, node, &settings()),
        differences: differences(world, node, &settings()),
    }
}

pub(crate) fn describe_nodes(world: &World) -> BTreeMap<String, NodeDescription> {
    world
        .node_ids()
        .map(|node| (world.node_name(node).expect("the node is known").to_owned(), describe_node(world, node)))
        .collect()
}

/// The pods bound to each node name, whether or not the node is known.
pub(crate) fn describe_pods<'a>(
    world: &World,
    node_names: impl Iterator<Item = &'a str>,
) -> BTreeMap<String, BTreeSet<(String, String)>> {
    let name = |&pod: &crate::PodId| {
        let pod = world.pod(pod).expect("a listed pod is known");
        (world.interner().text(pod.namespace).to_owned(), pod.name.to_string())
    };
    node_names.map(|node| (node.to_owned(), world.pods_bound_to(node).iter().map(name).collect())).collect()
}
