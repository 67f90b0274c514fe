//! VolumeZone: a node must be in the zone and region of each volume that is bound to the pod's claims, where the
//! volume's labels name them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use model::scheduling::{LabelColumn, ValueId};
use model::storage::intern::Symbol;
use model::volumes::{BindingMode, VolumeFacts, VolumeObject};
use model::{NodeId, NodeSet, PodId, World};

use super::volumes::{CLAIM, Claims, changes_own_claim, claim_of, is_added, named_claims, not_found};
use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{Filter, PreFilter};
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::{Rejection, Rejections, Status};

const OTHER_ZONE: Rejection = Rejection::unresolvable(&[Cow::Borrowed("node(s) had no available volume zone")]);

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
const KEYS: [&str; 4] = [BETA_ZONE, BETA_REGION, ZONE, REGION];

/// Between the zones of a volume that is in several.
const DELIMITER: &str = "__";

pub struct VolumeZone;

#[derive(Clone, Debug, Default)]
pub struct State {
    /// The pod it is about names claims.
    applies: bool,
    topologies: Vec<Topology>,
}

/// A label of a volume: its node must have one of these values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Topology {
    key: &'static str,
    values: BTreeSet<String>,
}

/// A label that is not a list of non-empty values is ignored.
fn topologies(volume: &VolumeFacts) -> impl Iterator<Item = Topology> {
    KEYS.into_iter().filter_map(|key| {
        let values: BTreeSet<String> =
            volume.labels.get(key)?.split(DELIMITER).map(|value| value.trim().to_owned()).collect();
        (!values.contains("")).then_some(Topology { key, values })
    })
}

/// A node without the older key may have the newer one.
fn newer(key: &str) -> &str {
    match key {
        BETA_ZONE => ZONE,
        BETA_REGION => REGION,
        key => key,
    }
}

/// A requirement on the labels of nodes, resolved against their columns.
struct Test<'a> {
    columns: Vec<(&'a LabelColumn, Vec<ValueId>)>,
}

impl<'a> Test<'a> {
    fn of(topology: &Topology, world: &'a World) -> Self {
        let symbols: Vec<Symbol> = topology.values.iter().filter_map(|value| world.interner().get(value)).collect();
        let keys = [topology.key, newer(topology.key)];
        let columns = keys.into_iter().filter_map(|key| world.node_label(key));
        let allowed =
            |column: &'a LabelColumn| (column, symbols.iter().filter_map(|symbol| column.value(*symbol)).collect());
        Self { columns: columns.map(allowed).collect() }
    }

    fn holds(&self, node: NodeId) -> bool {
        let found = self.columns.iter().find_map(|(column, allowed)| Some((column.value_of(node)?, allowed)));
        found.is_some_and(|(value, allowed)| allowed.contains(&value))
    }
}

impl Plugin for VolumeZone {
    const NAME: &'static str = "VolumeZone";
    type State = State;

    fn reads(&self) -> Reads {
        Reads::World
    }

    fn still_holds(&self, cycle: &Cycle<'_>, state: &State) -> bool {
        !state.applies && named_claims(cycle.world, cycle.pod_id).next().is_none()
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::STORAGE_CLASS
            | ChangeKinds::NODE_ADDED
            | ChangeKinds::NODE_LABELS
            | ChangeKinds::CLAIM
            | ChangeKinds::VOLUME
    }

    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        let Some(changed) = &change.volume else { return true };
        match (&changed.before, &changed.after) {
            (_, Some(VolumeObject::Claim(_))) => changes_own_claim(waiting, change, Claims::Named),
            (Some(VolumeObject::Volume(before)), Some(VolumeObject::Volume(after))) => {
                !topologies(before).eq(topologies(after))
            }
            (_, Some(VolumeObject::StorageClass(class))) => {
                is_added(change) && class.binding_mode == Some(BindingMode::WaitForFirstConsumer)
            }
            _ => true,
        }
    }
}

impl PreFilter for VolumeZone {
    fn pre_filter(&self, cycle: &Cycle<'_>, state: &mut State) -> Result<Option<NodeSet>, Status> {
        let Cycle { world, pod, .. } = *cycle;
        state.applies = named_claims(world, cycle.pod_id).next().is_some();
        for name in named_claims(world, cycle.pod_id) {
            if name.is_empty() {
                return Err(Status::unresolvable("PersistentVolumeClaim had no name"));
            }
            let claim = claim_of(world, pod, name).ok_or_else(|| Status::unresolvable(not_found(CLAIM, name)))?;
            let Some(volume) = &claim.volume else {
                unbound(world, &claim.class)?;
                continue;
            };
            let volume = world.volumes().volume(volume);
            let missing = || not_found("persistentvolume", claim.volume.as_deref().unwrap_or_default());
            state.topologies.extend(topologies(volume.ok_or_else(|| Status::unresolvable(missing()))?));
        }
        if state.topologies.is_empty() { Err(Status::Skip) } else { Ok(None) }
    }

    /// Other pods do not matter.
    fn add_pod(&self, _: &Cycle<'_>, _: &mut State, _: PodId, _: NodeId) -> Status {
        Status::Success
    }

    fn remove_pod(&self, _: &Cycle<'_>, _: &mut State, _: PodId, _: NodeId) -> Status {
        Status::Success
    }
}

/// A claim without a volume is only accepted if the scheduler chooses its volume.
fn unbound(world: &World, class: &str) -> Result<(), Status> {
    if class.is_empty() {
        return Err(Status::unresolvable("PersistentVolumeClaim had no pv name and storageClass name"));
    }
    let missing = || Status::unresolvable(not_found("storageclass.storage.k8s.io", class));
    match world.volumes().class(class).ok_or_else(missing)?.binding_mode {
        Some(BindingMode::WaitForFirstConsumer) => Ok(()),
        Some(BindingMode::Immediate) => Err(Status::unresolvable("PersistentVolume had no name")),
        None => Err(Status::unresolvable(format!("VolumeBindingMode not set for StorageClass {class:?}"))),
    }
}

impl Filter for VolumeZone {
    fn ignores_pods(&self) -> bool {
        true
    }

    fn filter_all(&self, cycle: &Cycle<'_>, state: &State, nodes: &NodeSet, rejections: &mut Rejections) {
        // A node without any of the labels is in a cluster with a single zone.
        let mut labelled = NodeSet::default();
        KEYS.into_iter()
            .filter_map(|key| cycle.world.node_label(key))
            .for_each(|column| labelled.union_with(column.nodes()));
        let tests: Vec<Test<'_>> = state.topologies.iter().map(|topology| Test::of(topology, cycle.world)).collect();
        let id = rejections.id(OTHER_ZONE);
        for node in nodes.common(&labelled) {
            if !tests.iter().all(|test| test.holds(node)) {
                rejections.reject(node, id);
            }
        }
    }
}

impl Register for VolumeZone {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_filter().filter()
    }
}

#[cfg(test)]
#[path = "volume_zone_tests.rs"]
mod tests;
