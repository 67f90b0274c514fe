//! Random histories of a small cluster: nodes, pods and namespaces that are added, changed and removed.
//!
//! Each pod has a class; for each plugin there is a class that it affects. A pod's labels are drawn independently of
//! its class, so that labels of existing pods change.

use std::sync::Arc;

use model::event::{
    Event, HostFacts, Labels, NamespaceFacts, NodeFacts, PodFacts, SelectorFacts, TermFacts, WeightedTermFacts,
};
use model::scheduling::{
    HostPort, NodeSchedulingFacts, PodSchedulingFacts, ResourceSums, SpreadFacts, Taint, TaintEffect, Toleration,
};
use model::volumes::{
    AccessMode, ClaimFacts, ClaimRefFacts, Disk, PodVolume, StorageClassFacts, VolumeFacts, VolumeKind,
};
use proptest::prelude::*;

use super::volumes::{self, DRIVER, WAITS, applied, attachment, claims, csi_node, one_of, waits};
use super::{NAMESPACE, host_applied, runs_on};

pub(crate) const CLASSES: usize = 15;

/// How many claims and volumes there are.
const CLAIMS: usize = 3;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Node {
        node: usize,
        zone: u8,
        cpu: i64,
        tainted: bool,
        cordoned: bool,
    },
    RemoveNode {
        node: usize,
    },
    Pod {
        pod: usize,
        class: usize,
        labelled: usize,
        node: Option<usize>,
        nominated: Option<usize>,
    },
    RemovePod {
        pod: usize,
    },
    /// The labels of the pods' namespace change.
    Namespace {
        is_open: bool,
    },
    /// A node's VM moves.
    Move {
        node: usize,
        host: u8,
    },
    Host {
        host: u8,
        maintenance: bool,
    },
    /// A claim of the class that waits; bound to a volume, or for a node.
    Claim {
        claim: usize,
        volume: Option<usize>,
        selected: Option<usize>,
        exclusive: bool,
    },
    /// A volume in a zone, or on a node.
    Volume {
        volume: usize,
        zone: Option<u8>,
        node: Option<usize>,
        claimed: bool,
    },
    /// The class of the claims.
    StorageClass {
        provisions: bool,
        zone: Option<u8>,
    },
    CsiNode {
        node: usize,
        volumes_max: Option<i32>,
    },
    Attachment {
        volume: usize,
        node: usize,
    },
    /// An object about volumes is deleted.
    RemoveVolumeObject {
        kind: VolumeKind,
        number: usize,
    },
    /// No event: the test checks the state.
    Check,
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let node = (0..6usize, 0..3u8, 1..5i64, any::<bool>(), any::<bool>());
    let labelled = prop_oneof![3 => Just(None), 1 => (0..CLASSES).prop_map(Some)];
    let pod =
        (0..12usize, 0..CLASSES, labelled, proptest::option::of(0..6usize), proptest::option::weighted(0.1, 0..6usize));
    prop_oneof![
        2 => node.prop_map(|(node, zone, cpu, tainted, cordoned)| Step::Node { node, zone, cpu, tainted: tainted && cordoned, cordoned: cordoned && !tainted }),
        1 => (0..6usize).prop_map(|node| Step::RemoveNode { node }),
        6 => pod.prop_map(|(pod, class, labelled, node, nominated)| Step::Pod { pod, class, labelled: labelled.unwrap_or(class), node, nominated }),
        2 => (0..12usize).prop_map(|pod| Step::RemovePod { pod }),
        1 => any::<bool>().prop_map(|is_open| Step::Namespace { is_open }),
        2 => (0..6usize, 0..3u8).prop_map(|(node, host)| Step::Move { node, host }),
        1 => (0..3u8, any::<bool>()).prop_map(|(host, maintenance)| Step::Host { host, maintenance }),
        5 => Just(Step::Check),
    ]
}

/// Any step, also changes about volumes. Claims and volumes change here in ways in which they never do in a cluster, so
/// that queueing hints, which are upstream's, may miss some of them.
pub(crate) fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![2 => step(), 1 => volume_step()]
}

fn volume_step() -> impl Strategy<Value = Step> {
    let (some_node, some_zone) = (|| proptest::option::weighted(0.3, 0..6usize), || proptest::option::of(1..3u8));
    let claim = (0..CLAIMS, proptest::option::of(0..CLAIMS), some_node(), any::<bool>());
    let volume = (0..CLAIMS, some_zone(), some_node(), any::<bool>());
    let removed = (proptest::sample::select(VolumeKind::ALL.to_vec()), 0..6usize);
    prop_oneof![
        3 => claim.prop_map(|(claim, volume, selected, exclusive)| Step::Claim { claim, volume, selected, exclusive }),
        3 => volume.prop_map(|(volume, zone, node, claimed)| Step::Volume { volume, zone, node, claimed }),
        1 => (any::<bool>(), some_zone()).prop_map(|(provisions, zone)| Step::StorageClass { provisions, zone }),
        1 => (0..6usize, proptest::option::of(0..3i32)).prop_map(|(node, volumes_max)| Step::CsiNode { node, volumes_max }),
        1 => (0..CLAIMS, 0..6usize).prop_map(|(volume, node)| Step::Attachment { volume, node }),
        1 => removed.prop_map(|(kind, number)| Step::RemoveVolumeObject { kind, number }),
    ]
}

impl Step {
    /// The event that the watches deliver.
    pub(crate) fn event(&self) -> Option<Event> {
        Some(match *self {
            Step::Node { node, zone, cpu, tainted, cordoned } => {
                Event::NodeApplied(self::node(node, zone, cpu, tainted, cordoned))
            }
            Step::RemoveNode { node } => Event::NodeDeleted { name: node_name(node) },
            Step::Pod { pod, class, labelled, node, nominated } => {
                let name = pod_name(pod);
                let mut facts = self::pod(&name, class);
                // The class determines immutable fields, so another class is another pod.
                facts.uid = format!("{name} of class {class}");
                facts.labels = label(labelled);
                facts.node = node.map(node_name);
                facts.nominated_node = nominated.filter(|_| node.is_none()).map(node_name);
                let priority = if pod.is_multiple_of(3) { 10 } else { 0 };
                let scheduling = facts.scheduling.as_deref().cloned().unwrap_or_default();
                facts.scheduling = Some(Arc::new(PodSchedulingFacts { priority, ..scheduling }));
                Event::PodApplied(facts)
            }
            Step::RemovePod { pod } => Event::PodDeleted { namespace: NAMESPACE.to_owned(), name: pod_name(pod) },
            Step::Namespace { is_open } => {
                let labels = if is_open { [("open".to_owned(), "yes".to_owned())].into() } else { Labels::new() };
                Event::NamespaceApplied(NamespaceFacts {
                    name: NAMESPACE.to_owned(),
                    labels,
                    ..NamespaceFacts::default()
                })
            }
            Step::Move { node, host } => runs_on(&node_name(node), &host_name(host)),
            Step::Host { host, maintenance } => {
                host_applied(HostFacts { maintenance, ..super::host(&host_name(host)) })
            }
            Step::Claim { claim, volume, selected, exclusive } => applied(ClaimFacts {
                volume: volume.map(volume_name),
                bind_completed: volume.is_some(),
                selected_node: selected.map(node_name),
                access_modes: exclusive.then_some(AccessMode::ReadWriteOncePod).into_iter().collect(),
                ..volumes::claim(&claim_name(claim), WAITS)
            }),
            Step::Volume { volume, zone, node, claimed } => {
                let on = node.map(|node| vec![one_of("kubernetes.io/hostname", &[&node_name(node)])]);
                let labels = zone.map(|zone| (ZONE.to_owned(), format!("zone-{zone}")));
                let claim = claimed.then(|| ClaimRefFacts {
                    namespace: NAMESPACE.to_owned(),
                    name: claim_name(volume),
                    uid: String::new(),
                });
                let facts = volumes::volume(&volume_name(volume), WAITS);
                applied(VolumeFacts { node_terms: on, labels: labels.into_iter().collect(), claim, ..facts })
            }
            Step::StorageClass { provisions, zone } => {
                let provisioner = if provisions { DRIVER } else { "kubernetes.io/no-provisioner" };
                let zone = zone.map(|zone| one_of("zone", &[&format!("zone-{zone}")]));
                applied(StorageClassFacts { allowed_topologies: zone.into_iter().collect(), ..waits(provisioner) })
            }
            Step::CsiNode { node, volumes_max } => applied(csi_node(&node_name(node), volumes_max)),
            Step::Attachment { volume, node } => {
                let name = format!("attachment-{volume}");
                applied(attachment(&name, &node_name(node), &volume_name(volume)))
            }
            Step::RemoveVolumeObject { kind, number } => {
                let (namespace, name) = match kind {
                    VolumeKind::Claim => (NAMESPACE, claim_name(number)),
                    VolumeKind::Volume => ("", volume_name(number)),
                    VolumeKind::StorageClass => ("", WAITS.to_owned()),
                    VolumeKind::CsiNode => ("", node_name(number)),
                    VolumeKind::CsiDriver => ("", DRIVER.to_owned()),
                    VolumeKind::StorageCapacity => ("", format!("capacity-{number}")),
                    VolumeKind::Attachment => ("", format!("attachment-{number}")),
                };
                Event::VolumeDeleted { kind, namespace: namespace.to_owned(), name }
            }
            Step::Check => return None,
        })
    }
}

fn node_name(number: usize) -> String {
    format!("node-{number}")
}

/// A host that vSphere reports. Node labels name other hosts.
fn host_name(number: u8) -> String {
    format!("esx-{number}")
}

const ZONE: &str = "topology.kubernetes.io/zone";

fn claim_name(number: usize) -> String {
    format!("claim-{number}")
}

fn volume_name(number: usize) -> String {
    format!("volume-{number}")
}

fn pod_name(number: usize) -> String {
    format!("pod-{number}")
}

fn node(number: usize, zone: u8, cpu: i64, tainted: bool, cordoned: bool) -> NodeFacts {
    let name = node_name(number);
    let mut facts = NodeFacts { dns_names: vec![format!("{name}.example")], ..super::node(&name) };
    if zone > 0 {
        facts.labels.insert("zone".to_owned(), format!("zone-{zone}"));
        facts.labels.insert(ZONE.to_owned(), format!("zone-{zone}"));
        facts.labels.insert("alpha.cna.vmware.com/host".to_owned(), format!("host-{zone}-{}", number % 2));
    }
    let taint = Taint { key: "dedicated".to_owned(), value: String::new(), effect: TaintEffect::NoSchedule };
    let rather_not = Taint { effect: TaintEffect::PreferNoSchedule, ..taint.clone() };
    facts.scheduling = Some(Arc::new(NodeSchedulingFacts {
        allocatable: ResourceSums { cpu_milli: cpu * 1000, memory_bytes: 8 << 30, ..ResourceSums::default() },
        allowed_pods: 4,
        taints: if tainted {
            vec![taint]
        } else if zone == 1 {
            vec![rather_not]
        } else {
            vec![]
        },
        unschedulable: cordoned,
        ..NodeSchedulingFacts::default()
    }));
    facts
}

fn label(class: usize) -> Labels {
    [("class".to_owned(), class.to_string())].into()
}

fn selector(class: usize) -> SelectorFacts {
    SelectorFacts { labels: label(class), ..SelectorFacts::default() }
}

fn term(key: &str, class: usize) -> TermFacts {
    TermFacts { topology_key: key.to_owned(), selector: Some(selector(class)), ..TermFacts::default() }
}

pub(crate) fn pod(name: &str, class: usize) -> PodFacts {
    let mut scheduling = PodSchedulingFacts { scheduler_name: "bridger".to_owned(), ..PodSchedulingFacts::default() };
    let sums = ResourceSums { cpu_milli: 700, memory_bytes: 1 << 30, ..ResourceSums::default() };
    scheduling.requests.asked = sums.clone();
    scheduling.requests.taken = sums.clone();
    scheduling.requests.scored = sums;
    scheduling.requests.taken_non_zero.cpu_milli = 700;
    scheduling.requests.taken_non_zero.memory_bytes = 1 << 30;
    let mut facts = PodFacts { labels: label(class), ..super::pod(name) };
    match class {
        1 => facts.anti_affinity = vec![term("kubernetes.io/hostname", 1)],
        2 => facts.affinity = vec![term("zone", 1)],
        3 => facts.preferred_anti_affinity = vec![WeightedTermFacts { weight: 5, term: term("zone", 3) }],
        4 | 5 => scheduling.spread.push(SpreadFacts {
            topology_key: "zone".to_owned(),
            max_skew: 1,
            hard: class == 4,
            selector: Some(selector(class)),
            min_domains: 1,
            honor_node_affinity: true,
            honor_taints: false,
        }),
        6 => scheduling.host_ports.push(HostPort {
            ip: HostPort::EVERY_ADDRESS.to_owned(),
            protocol: "TCP".to_owned(),
            port: 80,
        }),
        7 => facts.node_affinity.node_selector = [("zone".to_owned(), "zone-2".to_owned())].into(),
        8 => scheduling.tolerations.push(Toleration { key: "dedicated".to_owned(), value: None, effect: None }),
        9 => {
            let open =
                SelectorFacts { labels: [("open".to_owned(), "yes".to_owned())].into(), ..SelectorFacts::default() };
            facts.anti_affinity = vec![TermFacts { namespace_selector: Some(open), ..term("zone", 0) }];
        }
        // The first pod of this class may run on any node.
        10 => facts.affinity = vec![term("zone", 10)],
        11 => facts.volumes = claims(&["claim-0"]),
        12 => facts.volumes = claims(&["claim-1", "claim-2"]),
        13 => facts.volumes = vec![PodVolume::Disk(Disk::AwsEbs { volume: "disk".to_owned() })],
        // No claim is ever created for it.
        14 => facts.volumes = vec![PodVolume::Ephemeral("e".to_owned())],
        _ => {}
    }
    facts.scheduling = Some(Arc::new(scheduling));
    facts
}
