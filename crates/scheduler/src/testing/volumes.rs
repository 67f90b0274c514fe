//! Claims, volumes and pods that use them.

use std::borrow::Cow;
use std::sync::Arc;

use model::event::{Event, Labels, NodeFacts, NodeTermFacts, Operator, PodFacts, RequirementFacts};
use model::storage::arena::DenseId;
use model::volumes::{
    AttachmentFacts, BindingMode, ClaimFacts, CsiDriverFacts, CsiNodeDriverFacts, CsiNodeFacts, CsiVolume, PodVolume,
    StorageCapacityFacts, StorageClassFacts, VolumeFacts, VolumeObject, VolumeSourceFacts,
};
use model::{NodeSet, World};

use super::{NAMESPACE, apply, id, node, pod};
use crate::framework::cycle::Cycle;
use crate::framework::points::{Filter, PreFilter};
use crate::framework::status::{Rejections, Status};
use crate::scheduler::observe::Changes;

pub(crate) const DRIVER: &str = "csi.example.com";
/// The class whose volumes are bound when the pod has a node.
pub(crate) const WAITS: &str = "waits";

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn labelled(name: &str, more: &[(&str, &str)]) -> NodeFacts {
    let mut facts = node(name);
    facts.labels.extend(labels(more));
    facts
}

/// An unbound claim of 1 GiB.
pub(crate) fn claim(name: &str, class: &str) -> ClaimFacts {
    ClaimFacts {
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        version: "1".to_owned(),
        class: class.to_owned(),
        requested_bytes: Some(1 << 30),
        ..ClaimFacts::default()
    }
}

pub(crate) fn bound(name: &str, class: &str, volume: &str) -> ClaimFacts {
    ClaimFacts { volume: Some(volume.to_owned()), bind_completed: true, ..claim(name, class) }
}

/// An available volume of 1 GiB that all nodes can use.
pub(crate) fn volume(name: &str, class: &str) -> VolumeFacts {
    VolumeFacts {
        name: name.to_owned(),
        version: "1".to_owned(),
        class: class.to_owned(),
        capacity_bytes: 1 << 30,
        available: true,
        source: VolumeSourceFacts::Csi(CsiVolume { driver: DRIVER.to_owned(), handle: format!("handle-of-{name}") }),
        ..VolumeFacts::default()
    }
}

/// A node term that allows these values of a label.
pub(crate) fn one_of(key: &str, values: &[&str]) -> NodeTermFacts {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    let expression = RequirementFacts { key: key.to_owned(), operator: Operator::In, values };
    NodeTermFacts { expressions: vec![expression], fields: Vec::new() }
}

/// A volume that only this node can use.
pub(crate) fn local(name: &str, class: &str, node: &str) -> VolumeFacts {
    let node_terms = Some(vec![one_of("kubernetes.io/hostname", &[node])]);
    VolumeFacts { node_terms, source: VolumeSourceFacts::Other, ..volume(name, class) }
}

pub(crate) fn class(name: &str, mode: Option<BindingMode>, provisioner: &str) -> StorageClassFacts {
    StorageClassFacts {
        name: name.to_owned(),
        provisioner: provisioner.to_owned(),
        binding_mode: mode,
        ..StorageClassFacts::default()
    }
}

/// The class [`WAITS`].
pub(crate) fn waits(provisioner: &str) -> StorageClassFacts {
    class(WAITS, Some(BindingMode::WaitForFirstConsumer), provisioner)
}

pub(crate) fn csi_node(name: &str, volumes_max: Option<i32>) -> CsiNodeFacts {
    let drivers = vec![CsiNodeDriverFacts { name: DRIVER.to_owned(), volumes_max }];
    CsiNodeFacts { name: name.to_owned(), drivers, ..CsiNodeFacts::default() }
}

pub(crate) fn attachment(name: &str, node: &str, volume: &str) -> AttachmentFacts {
    AttachmentFacts {
        name: name.to_owned(),
        attacher: DRIVER.to_owned(),
        node: node.to_owned(),
        volume: Some(volume.to_owned()),
    }
}

macro_rules! applied {
    ($($facts:ident: $kind:ident),+ $(,)?) => {$(
        impl From<$facts> for VolumeApplied {
            fn from(facts: $facts) -> Self {
                Self(VolumeObject::$kind(Arc::new(facts)))
            }
        }
    )+};
}

pub(crate) struct VolumeApplied(VolumeObject);

applied! {
    ClaimFacts: Claim,
    VolumeFacts: Volume,
    StorageClassFacts: StorageClass,
    CsiNodeFacts: CsiNode,
    AttachmentFacts: Attachment,
    CsiDriverFacts: CsiDriver,
    StorageCapacityFacts: StorageCapacity,
}

pub(crate) fn applied(facts: impl Into<VolumeApplied>) -> Event {
    Event::VolumeApplied(facts.into().0)
}

/// A pod with these volumes; on this node, if one is given.
pub(crate) fn pod_using(name: &str, volumes: Vec<PodVolume>, on: Option<&str>) -> PodFacts {
    PodFacts { volumes, node: on.map(str::to_owned), ..pod(name) }
}

/// Claims by name.
pub(crate) fn claims(names: &[&str]) -> Vec<PodVolume> {
    names.iter().map(|name| PodVolume::Claim((*name).to_owned())).collect()
}

/// A pod with these volumes on node `n1`.
pub(crate) fn there(name: &str, volumes: Vec<PodVolume>) -> Event {
    Event::PodApplied(pod_using(name, volumes, Some("n1")))
}

/// Nodes with these labels, and a pod `p` with these volumes that waits for a node.
pub(crate) fn world_for(nodes: &[(&str, &[(&str, &str)])], mut events: Vec<Event>, volumes: Vec<PodVolume>) -> World {
    events.push(Event::PodApplied(pod_using("p", volumes, None)));
    world_of(nodes.iter().map(|(name, labels)| labelled(name, labels)).collect(), events)
}

/// Two nodes without more labels.
pub(crate) const N1_AND_N2: &[(&str, &[(&str, &str)])] = &[("n1", &[]), ("n2", &[])];

pub(crate) fn world_of(nodes: Vec<NodeFacts>, events: Vec<Event>) -> World {
    let mut world = super::world(&[]);
    nodes.into_iter().for_each(|node| drop(world.apply(Event::NodeApplied(node))));
    events.into_iter().for_each(|event| drop(world.apply(event)));
    world
}

/// What a plugin says about a pod: its PreFilter's status for the pod as a whole, or the reasons for each node it rejects.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Skips,
    /// All nodes, unresolvable.
    Never(String),
    Fails(String),
    /// By node: the reasons, and whether removing pods may help.
    Rejects(Vec<(String, String, bool)>),
}

pub(crate) fn said<P: PreFilter + Filter>(plugin: &P, world: &World, pod: &str) -> Said {
    let cycle = Cycle::of(world, id(world, pod)).expect("it is known");
    let mut state = P::State::default();
    match plugin.pre_filter(&cycle, &mut state) {
        Ok(_) => {}
        Err(Status::Skip) => return Said::Skips,
        Err(Status::UnschedulableAndUnresolvable(reasons)) => return Said::Never(reasons.message()),
        Err(Status::Error(error)) => return Said::Fails(error),
        Err(status) => panic!("{status:?}"),
    }
    let nodes: NodeSet = world.node_ids().collect();
    let mut rejections = Rejections::default();
    rejections.reset(nodes.iter().map(|node| node.index() + 1).max().unwrap_or(0));
    plugin.filter_all(&cycle, &state, &nodes, &mut rejections);
    let rejected = nodes.iter().filter_map(|node| {
        let rejection = rejections.of(node)?;
        Some((world.node_name(node)?.to_owned(), rejection.reasons.message(), rejection.resolvable))
    });
    Said::Rejects(rejected.collect())
}

/// Rejects these nodes for this reason, unresolvably.
pub(crate) fn rejects(nodes: &[&str], reason: impl Into<Cow<'static, str>>) -> Said {
    let reason = reason.into();
    Said::Rejects(nodes.iter().map(|node| ((*node).to_owned(), reason.to_string(), false)).collect())
}

/// Rejects these nodes for this reason; removing pods may help.
pub(crate) fn rejects_for_now(nodes: &[&str], reason: &str) -> Said {
    Said::Rejects(nodes.iter().map(|node| ((*node).to_owned(), reason.to_owned(), true)).collect())
}

/// Whether a change helps a pod that the plugin rejected.
pub(crate) fn helps<P: crate::framework::plugin::Plugin>(
    plugin: &P,
    world: &mut World,
    pod: &str,
    event: Event,
) -> bool {
    let Changes { changes, .. } = apply(world, event);
    let cycle = Cycle::of(world, id(world, pod)).expect("it is known");
    changes.iter().any(|change| plugin.woken_by().intersects(change.kinds) && plugin.helped_by(&cycle, change))
}
