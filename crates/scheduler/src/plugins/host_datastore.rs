//! HostDatastore: a volume's datastore must be mounted by the physical host that the node runs on.
//!
//! kube-scheduler has no such plugin: a pod whose disk its host cannot reach is bound, and stays in ContainerCreating. A
//! volume is only judged if it names its datastore, and a host only if vSphere says that it does not mount that datastore:
//! what is unknown is never held against a node. By default the node stays feasible, and the doubt is reported; with
//! `unmounted: Reject` the node is rejected. The datastore that a volume names may be out of date after its disk was moved.

use std::borrow::Cow;

use model::volumes::PodVolume;
use model::{NodeId, NodeSet, PodId};
use serde::Deserialize;

use super::volumes::{claim_of, volumes_of};
use crate::framework::change::ChangeKinds;
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{Doubt, Filter, PreFilter};
use crate::framework::registry::{Points, Register};
use crate::framework::status::{Rejection, Status};

const NOT_MOUNTED: Rejection = Rejection::unresolvable(&[Cow::Borrowed(
    "node(s) run on a physical host that does not mount the datastore of a volume",
)]);

const REASON: &str = "DatastoreNotMounted";

pub struct HostDatastore {
    rejects: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Args {
    unmounted: Unmounted,
}

/// What happens to a node whose host does not mount a datastore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum Unmounted {
    #[default]
    Report,
    Reject,
}

#[derive(Clone, Debug, Default)]
pub struct State {
    /// The pod it is about has volumes.
    applies: bool,
    needed: Vec<Needed>,
}

/// A volume and the datastore that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Needed {
    /// `None` for a disk that the pod names itself.
    volume: Option<String>,
    datastore: String,
}

fn needed(cycle: &Cycle<'_>) -> Vec<Needed> {
    let world = cycle.world;
    let of_claim = |name: &str| {
        let volume = claim_of(world, cycle.pod, name)?.volume.as_deref()?;
        let volume = world.volumes().volume(volume)?;
        Some(Needed { volume: Some(volume.name.clone()), datastore: volume.datastore.clone()? })
    };
    let of = |volume: &PodVolume| match volume {
        PodVolume::Datastore(name) => Some(Needed { volume: None, datastore: name.clone() }),
        volume => of_claim(&volume.claim_name(&cycle.pod.name)?),
    };
    volumes_of(cycle).filter_map(of).collect()
}

impl State {
    fn missing(&self, cycle: &Cycle<'_>, node: NodeId) -> Option<(&Needed, String)> {
        let host = cycle.world.host_of(node)?;
        let needed = self.needed.iter().find(|needed| host.lacks_datastore(&needed.datastore))?;
        Some((needed, host.name().to_owned()))
    }
}

impl Plugin for HostDatastore {
    const NAME: &'static str = "HostDatastore";
    type State = State;

    fn reads(&self) -> Reads {
        Reads::World
    }

    fn still_holds(&self, cycle: &Cycle<'_>, state: &State) -> bool {
        !state.applies && volumes_of(cycle).next().is_none()
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NODE_ADDED
            | ChangeKinds::NODE_PLACEMENT
            | ChangeKinds::CLAIM
            | ChangeKinds::VOLUME
            | ChangeKinds::SELF_UPDATED
    }
}

impl PreFilter for HostDatastore {
    fn pre_filter(&self, cycle: &Cycle<'_>, state: &mut State) -> Result<Option<NodeSet>, Status> {
        state.applies = volumes_of(cycle).next().is_some();
        state.needed = needed(cycle);
        if state.needed.is_empty() { Err(Status::Skip) } else { Ok(None) }
    }

    /// Other pods do not matter.
    fn add_pod(&self, _: &Cycle<'_>, _: &mut State, _: PodId, _: NodeId) -> Status {
        Status::Success
    }

    fn remove_pod(&self, _: &Cycle<'_>, _: &mut State, _: PodId, _: NodeId) -> Status {
        Status::Success
    }
}

impl Filter for HostDatastore {
    fn ignores_pods(&self) -> bool {
        true
    }

    fn filter(&self, cycle: &Cycle<'_>, state: &State, node: NodeId) -> Result<(), Rejection> {
        if self.rejects && state.missing(cycle, node).is_some() { Err(NOT_MOUNTED) } else { Ok(()) }
    }

    fn doubt(&self, cycle: &Cycle<'_>, state: &State, node: NodeId) -> Option<Doubt> {
        let (Needed { volume, datastore }, host) = state.missing(cycle, node)?;
        let volume = volume.as_ref().map_or_else(|| "a disk".to_owned(), |name| format!("volume {name}"));
        let node = cycle.world.node_name(node)?;
        let message = format!("host {host} of node {node} does not mount datastore {datastore} of {volume}");
        Some(Doubt { reason: REASON, message })
    }
}

impl Register for HostDatastore {
    type Args = Args;

    fn build(args: Args) -> Result<Self, String> {
        Ok(Self { rejects: args.unmounted == Unmounted::Reject })
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_filter().filter()
    }
}

#[cfg(test)]
#[path = "host_datastore_tests.rs"]
mod tests;
